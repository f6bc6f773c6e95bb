"""A kernel of room `results`: a new process for each measurement, since memory that was freed is used again.

Reads questions, JSON line by line: ``{"do": name, ...}``; answers each with what was measured.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dqlab as dq
from benchmarks.processes import resident_bytes
from benchmarks.stage import SLOTS

Answer = dict[str, float]

LOOK_EVERY = 0.005
"""Seconds between two looks at the memory."""


def small_row(n: int) -> dict[str, int]:
    """Return a small row, as most functions do."""
    return {"n": n, "words": n % 50}


def row_of_1_kb(n: int) -> dict[str, Any]:
    """Return a row with a text of a kilobyte."""
    return {"n": n, "text": f"{n:010}" * 100}


class Kernel:
    """A lab, as a notebook has one."""

    def __init__(self, opened: ExitStack) -> None:
        import os

        import pandas  # noqa: F401 - part of what a kernel has before
        import pyarrow.parquet  # noqa: F401

        self._pid = os.getpid()
        self.lab = opened.enter_context(dq.connect(n=SLOTS, name=f"results-{self._pid}"))
        self.lab.map(abs, [-1], name="warm").results().to_arrow()
        with tempfile.TemporaryDirectory() as folder:  # workers load pyarrow at the first part; one is not measured
            self.lab.map(row_of_1_kb, range(2 * SLOTS), name="warm-sink", sink=Path(folder) / "rows").wait()

    def _measured(self, work: Callable[[], int]) -> Answer:
        """Return the seconds that work took, how far memory rose above that of before, and the answer."""
        before, over = resident_bytes(self._pid), threading.Event()
        peak = [before]

        def look() -> None:
            while not over.wait(LOOK_EVERY):
                peak.append(resident_bytes(self._pid))

        watching = threading.Thread(target=look, daemon=True)
        watching.start()
        start = time.perf_counter()
        answer = work()
        seconds = time.perf_counter() - start
        over.set()
        watching.join()
        return {"s": seconds, "bytes": max(peak) - before, "answer": answer}

    def frame(self, n: int, by: str) -> Answer:
        """Make a DataFrame of small rows: by dqlab, or as one does by hand."""
        import pandas as pd

        run = self.lab.map(small_row, range(n), name="small").wait()
        results = run.results()

        def work() -> int:
            frame = results.to_frame() if by == "dqlab" else pd.DataFrame(list(results))
            return int(frame["n"].sum())

        return self._measured(work)

    def parquet(self, n: int, folder: str, by: str) -> Answer:
        """Write rows of a kilobyte, page by page; or only read them."""
        import pyarrow.parquet as pq

        run = self.lab.map(row_of_1_kb, range(n), name="kilobytes").wait()

        path = Path(folder) / f"{self._pid}.parquet"

        def write() -> int:
            run.to_parquet(path)
            return int(pq.read_metadata(path).num_rows)

        return self._measured(write if by == "dqlab" else lambda: sum(1 for _ in run.results()))

    def sink(self, n: int, folder: str, by: str) -> Answer:
        """Run with a sink in Parquet, or without one, to the end."""
        where = Path(folder) / f"sink-{self._pid}" if by == "dqlab" else None

        def work() -> int:
            run = self.lab.map(row_of_1_kb, range(n), name="sunk", sink=where)
            return int(run.wait().counts["acked"])

        return self._measured(work)

    def first_rows(self, n: int) -> Answer:
        """Look at the first row while the run goes on."""
        run = self.lab.map(small_row, range(n), name="going")
        while not run.counts["acked"]:
            time.sleep(0.001)
        found = self._measured(lambda: int(run.table().head(1)["n"][0].as_py()))
        run.cancel()
        return found

    def completed(self, n: int) -> Answer:
        """Read results as they come; return the time of the first tenth over its share."""
        run = self.lab.map(small_row, range(n), name="completed")
        start, tenth = time.perf_counter(), 0.0
        count = 0
        for count, _ in enumerate(run.as_completed(), start=1):
            if count == n // 10:
                tenth = time.perf_counter() - start
        return {"s": tenth / ((time.perf_counter() - start) / 10), "answer": count}


def main() -> None:
    """Answer questions until the input ends."""
    with ExitStack() as opened:
        kernel = Kernel(opened)
        print('"ready"', flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            print(json.dumps(getattr(kernel, asked.pop("do"))(**asked)), flush=True)


if __name__ == "__main__":
    main()
