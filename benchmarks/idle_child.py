"""A cluster that does nothing, in a process of its own, until its input ends: `dqlab` or `dask`."""

from __future__ import annotations

import sys

from distributed import Client

import dqlab as dq
from benchmarks.stage import SLOTS
from dqlab.connecting import start_cluster


def main(kind: str) -> None:
    """Start, run one call so that everything is there, say so, and wait."""
    if kind == "dqlab":
        with dq.connect(n=SLOTS) as lab:
            lab.queue("idle").submit(abs, -1).results()
            _wait()
    else:  # the very cluster that a lab starts, so that only dqlab makes the difference
        with start_cluster(SLOTS) as cluster, Client(cluster) as client:
            client.submit(abs, -1).result()
            _wait()


def _wait() -> None:
    print('"ready"', flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
