"""Part of room `loop`: what it costs to find what is new, and what runs again, also when everything is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.sizes import Sizes

__all__ = ["updates"]


def updates(sizes: Sizes) -> list[Figure]:
    """Measure plans, updates of documents and of rows, and one that is killed at half."""
    n, rows, rounds = (1_000_000, 200_000, 3) if sizes.full else (20_000, 5_000, 1)
    plans = _plans(n, rounds)
    with tempfile.TemporaryDirectory() as folder:
        again = _child(folder, "rows", rows)
    with tempfile.TemporaryDirectory() as folder:
        cut = _killed(folder, rows)

    def figure(name: str, unit: str, values: Sequence[float], target: Target, peers: Sequence[Peer] = ()) -> Figure:
        return Figure(name, unit, Better.LOWER, Series.of(values), target, tuple(peers))

    def each(name: str) -> list[float]:
        return [plan[name] for plan in plans]

    by_hand = [Peer("a dictionary by hand", Series.of(each(f"hand_{name}"))) for name in ("s", "mb")]
    changed = f"update of {rows:,} rows of one file, of which {rows // 250:,} differ"
    killed = f"everything killed at half of an update of {rows:,}"
    return [
        figure(f"plan of {n:,} documents, of which 0.2 % are new", "s", each("plan_s"), Target(5, 2), by_hand[:1]),
        figure("the same, memory of the client", "MB", each("plan_mb"), Target(30), by_hand[1:]),
        figure("the same, plan and update until nothing is left", "s", each("update_s"), Target(10, 3)),
        figure(f"{changed}: rows that run", "rows", [again["ran"]], Target(rows // 250)),
        figure("the same, stale results", "rows", [again["stale"]], Target(0)),
        figure(f"{killed}: run again", "%", [100 * (cut["ran"] - rows) / rows], Target(2, 0.5)),
        figure("the same, missing or doubled", "rows", [cut["missing"] + cut["doubled"]], Target(0)),
    ]


def _plans(n: int, rounds: int) -> list[dict[str, float]]:
    """Update one run on several days, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        _child(folder, "map", n)
        return [_child(folder, "update", n, day) for day in range(1, rounds + 1)]


def _command(folder: str, what: str, n: int, day: int = 0) -> list[str]:
    return [sys.executable, "-m", "benchmarks.updates_child", folder, what, str(n), str(day)]


def _child(*asked: Any) -> dict[str, float]:
    ended = subprocess.run(_command(*asked), stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def _killed(folder: str, n: int) -> dict[str, float]:
    _child(folder, "map", n)
    with subprocess.Popen(
        _command(folder, "killed", n, 1),
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "half\n"
        os.killpg(first.pid, signal.SIGKILL)
    return _child(folder, "killed", n, 1)
