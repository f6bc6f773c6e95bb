"""Peers that people pick and that need packages: Ray and Daft, each in a process whose Python has no dqlab.

Reads questions, JSON line by line, as `documents_child` does. What they run, people write by hand.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from importlib import import_module
from itertools import chain
from typing import Any

from benchmarks.processes import tree_cpu_s
from benchmarks.work import add_all, pairs


class Ray:
    """Remote tasks of chunks that are cut by hand."""

    def __init__(self, slots: int) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        ray: Any = import_module("ray")
        ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
        self._ray, self._sums = ray, ray.remote(add_all)
        self.adds(n=slots, chunk=1)

    def adds(self, n: int, chunk: int) -> dict[str, float]:
        """Add pairs, and return how many results arrived, what they come to, and the seconds."""
        start, todo = time.perf_counter(), pairs(n)
        asked = [self._sums.remote(todo[at : at + chunk]) for at in range(0, n, chunk)]
        results = list(chain.from_iterable(self._ray.get(asked)))
        return {"results": len(results), "sum": sum(results), "seconds": time.perf_counter() - start}


def words_of_text(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


class Daft:
    """A lazy frame with a function of Python."""

    def __init__(self, slots: int) -> None:
        os.environ["DO_NOT_TRACK"] = "1"
        self._daft: Any = import_module("daft")  # it runs on all cores of the machine

    def rows(self, path: str, out: str) -> dict[str, float]:
        """Count the words of rows, from Parquet to Parquet."""
        daft = self._daft
        shutil.rmtree(out, ignore_errors=True)
        before, start = tree_cpu_s(os.getpid()), time.perf_counter()
        counted = daft.func(words_of_text)(daft.col("text")).alias("words")
        daft.read_parquet(path).select("id", counted).write_parquet(out)
        took = {"cpu": tree_cpu_s(os.getpid()) - before, "s": time.perf_counter() - start}
        return took | {"answer": daft.read_parquet(f"{out}/*.parquet").sum("words").to_pydict()["words"][0]}


def main(kind: str, slots: str) -> None:
    """Answer questions until the input ends."""
    contestant: Any = {"ray": Ray, "daft": Daft}[kind](int(slots))
    print('"ready"', flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(getattr(contestant, asked.pop("do"))(**asked)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
