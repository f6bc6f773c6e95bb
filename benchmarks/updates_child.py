"""A script of room `loop` that maps documents or rows, and updates the run.

Usage: ``python -m benchmarks.updates_child FOLDER WHAT COUNT DAY``, where WHAT is "map", "update", "rows" or "killed".
Writes what it measured as JSON in its last line.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dqlab as dq
from benchmarks.stage import SLOTS

NEW = 500
"""One in so many documents is new on a day, and of rows as many have changed."""


class Listed:
    """The documents of a day, as a listing has them."""

    def __init__(self, n: int, day: int, *, touched: bool = False) -> None:
        self._n, self._day, self._touched = n, day, touched

    def __len__(self) -> int:
        return self._n + self._day * self._n // NEW

    def __iter__(self) -> Iterator[dq.Document]:
        version = f"1234-17{self._day if self._touched else 0}"
        for number in range(len(self)):
            yield dq.Document(f"papers/{number:08}.txt", f"{version}{number}", f"/data/papers/{number:08}.txt", 1234)


def noting(folder: str) -> Callable[[Any], Any]:
    """Return a function that adds a byte to a file each time it runs, and returns what a row has, or the version."""
    opened: list[int] = []

    def noted(document: Any) -> Any:
        if not opened:
            opened.append(os.open(f"{folder}/ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        os.write(opened[0], b"x")
        return document["text"] if document.where.endswith(".parquet") else document.version

    return noted


def _ran(folder: str) -> int:
    path = Path(folder, "ran")
    return path.stat().st_size if path.exists() else 0


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


def mapped(lab: dq.Lab, folder: str, n: int) -> dict[str, float]:
    """Map the documents of the first day."""
    lab.map(noting(folder), Listed(n, 0), name="loop").wait()
    return {}


def updated(lab: dq.Lab, folder: str, n: int, day: int) -> dict[str, float]:
    """Plan and carry out the update of a day; then compare by hand, with all that is known in memory before."""
    run, before, start = lab.attach("loop"), _peak_mb(), time.perf_counter()
    plan = run.plan(Listed(n, day))
    planned, peak = time.perf_counter(), _peak_mb()
    run.update(plan, fn=noting(folder)).wait()
    ended = time.perf_counter()
    assert (len(plan.new), len(plan.changed), plan.gone) == (n // NEW, 0, 0), str(plan)
    assert run.counts["acked"] == len(Listed(n, day))
    known = {document.key: document.version for document in Listed(n, day - 1)}
    hand, start_by_hand = _peak_mb(), time.perf_counter()
    new = [document for document in Listed(n, day) if known.get(document.key) != document.version]
    assert len(new) == n // NEW
    return {
        "plan_s": planned - start,
        "plan_mb": peak - before,
        "update_s": ended - start,
        "hand_s": time.perf_counter() - start_by_hand,
        "hand_mb": hand - before,
    }


def of_rows(lab: dq.Lab, folder: str, n: int) -> dict[str, float]:
    """Write one file again with as many rows changed as new, and update the run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def listed(texts: list[str]) -> dq.Documents:
        pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), path, row_group_size=50_000)
        return dq.Documents.from_parquet(path, key="id", version="*")

    path, texts = f"{folder}/rows.parquet", [f"text {number}" for number in range(n)]
    run = lab.map(noting(folder), listed(texts), name="rows").wait()
    before = _ran(folder)
    texts[::NEW] = [f"changed {number}" for number in range(0, n, NEW)]
    texts += [f"new {number}" for number in range(n // NEW)]
    run.update(listed(texts), fn=noting(folder)).wait()
    stale = sum(found != text for found, text in zip(run.results(), texts, strict=True))
    return {"ran": _ran(folder) - before, "stale": stale}


def killed(lab: dq.Lab, folder: str, n: int) -> dict[str, float]:
    """Update a run of which all documents have changed; wait at half the first time, to be killed."""
    first = _ran(folder) == n
    documents = Listed(n, 1, touched=True)
    run = lab.map(noting(folder), documents, name="loop", on_existing="update")
    while first and _ran(folder) < n + n // 2:
        time.sleep(0.01)
    if first:
        print("half", flush=True)
        sys.stdin.read()
    run.wait()
    found = list(run.results().items())
    good = {key for key, version in found if version.startswith("1234-171")}
    missing = len(documents) - len(good)
    return {"ran": _ran(folder) - n - n // NEW, "missing": missing, "doubled": len(found) - len(dict(found))}


def main() -> None:
    """Do what is asked for."""
    folder, what, count, day = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    with dq.connect(n=SLOTS, store=f"{folder}/store", name="loop") as lab:
        tasks: dict[str, Callable[[], dict[str, float]]] = {
            "map": lambda: mapped(lab, folder, count),
            "update": lambda: updated(lab, folder, count, day),
            "rows": lambda: of_rows(lab, folder, count),
            "killed": lambda: killed(lab, folder, count),
        }
        print(json.dumps(tasks[what]()), flush=True)


if __name__ == "__main__":
    main()
