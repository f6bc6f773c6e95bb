"""Room `idle`: what a pool with two consumers costs while nothing happens."""

from __future__ import annotations

import contextlib
import sys
import time

from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.processes import Child, tree_cpu_s
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["DASKS_OWN", "cost_above_dask", "idle"]

FLOOR = 1.0
DASKS_OWN = "Dask's own, the same cluster without dqlab"
SETTLE_S = 2.0
"""Seconds after the start in which a cluster still imports, connects and reports."""


def idle(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure two clusters over the same windows: one with an idle pool, one without dqlab.

    The aim is a cost that cannot be told from the differences between windows of the cluster without dqlab.
    """
    above, without = cost_above_dask(sizes)
    target = Target(floor=FLOOR, aim=min(FLOOR, without.high - without.low))
    name = f"idle pool, 2 consumers, above Dask's own CPU, {sizes.idle_s:g} s"
    return [Figure(name, "% of a core", Better.LOWER, above, target, (Peer(DASKS_OWN, without),))]


def cost_above_dask(sizes: Sizes, *options: str) -> tuple[Series, Series]:
    """Return the CPU of an idle cluster above that of one without dqlab, and that one's, percent of a core.

    Parameters
    ----------
    *options : str
        What `idle_child` takes: consumers, and "durable".
    """
    with contextlib.ExitStack() as open_children:
        children = []
        for kind in ("dqlab", "dask"):
            child = Child([sys.executable, "-m", "benchmarks.idle_child", kind, *options])
            open_children.callback(child.close)
            children.append(child)
        for child in children:
            child.wait_until_ready()
        time.sleep(SETTLE_S)
        windows = [_window([child.pid for child in children], sizes.idle_s) for _ in range(sizes.rounds)]
        for child in children:
            child.end_input()
    with_pool, without = (Series.of(shares) for shares in zip(*windows, strict=True))
    return Series.of([a - b for a, b in zip(with_pool.values, without.values, strict=True)]), without


def _window(pids: list[int], seconds: float) -> list[float]:
    """Return the share of a core, percent, that each process tree uses over the same seconds."""
    start, before = time.perf_counter(), [tree_cpu_s(pid) for pid in pids]
    time.sleep(seconds)
    after, elapsed = [tree_cpu_s(pid) for pid in pids], time.perf_counter() - start
    return [100 * (b - a) / elapsed for a, b in zip(before, after, strict=True)]
