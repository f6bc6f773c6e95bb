"""A script of room `results` that is killed when half of its rows are there, and started again.

Usage: ``python -m benchmarks.results_crash_child FOLDER COUNT``. Writes "half" at half; at its end how many rows are
missing and how many are doubled, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dqlab as dq
from benchmarks.stage import SLOTS


def noting(folder: str) -> Callable[[int], dict[str, int]]:
    """Return a function that adds a byte to a file each time it runs."""

    def noted(n: int) -> dict[str, int]:
        descriptor = os.open(f"{folder}/ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, b"x")
        os.close(descriptor)
        return {"n": n, "square": n * n}

    return noted


def main() -> None:
    """Map, or continue; wait at half the first time."""
    folder, count = sys.argv[1], int(sys.argv[2])
    continued = Path(folder, "ran").exists()
    with dq.connect(n=SLOTS, store=f"{folder}/store") as lab:
        run = lab.map(noting(folder), range(count), name="killed", sink=f"{folder}/out")
        while not continued and run.counts["acked"] < count // 2:
            time.sleep(0.01)
        if not continued:
            print("half", flush=True)
            sys.stdin.read()
        run.wait(timeout=300)
        found = run.table().to_arrow()["n"].to_pylist()
        print(json.dumps({"missing": count - len(set(found)), "doubled": len(found) - len(set(found))}), flush=True)


if __name__ == "__main__":
    main()
