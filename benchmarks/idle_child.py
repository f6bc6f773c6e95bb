"""A cluster that does nothing, in a process of its own, until its input ends: `dqlab` or `dask`."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from distributed import Client

import dqlab as dq
from benchmarks.stage import SLOTS
from dqlab.connecting import start_cluster


def main(kind: str, slots: str = str(SLOTS), durable: str = "") -> None:
    """Start, run one call so that everything is there, say so, and wait."""
    if kind == "dqlab":
        with (
            TemporaryDirectory(dir=Path.cwd()) as store,
            dq.connect(n=int(slots), store=store if durable else None) as lab,
        ):
            lab.queue("idle").submit(abs, -1).results()
            _wait()
    else:  # the very cluster that a lab starts, so that only dqlab makes the difference
        with start_cluster(int(slots)) as cluster, Client(cluster) as client:
            client.submit(abs, -1).result()
            _wait()


def _wait() -> None:
    print('"ready"', flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
