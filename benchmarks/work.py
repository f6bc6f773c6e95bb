"""The functions that contestants run, and their inputs; importable by every process."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

__all__ = ["add", "add_all", "calibrate", "crunch", "crunch_all", "heavy_tailed_pages", "pairs", "sum_of_sums"]

PAGE_S = 0.0002
"""CPU time of one page, seconds."""


def add(pair: Sequence[int]) -> int:
    """Return the sum of two numbers: a call that costs nothing, so that what remains is overhead."""
    a, b = pair
    return a + b


def add_all(chunk: Sequence[Sequence[int]]) -> list[int]:
    """Return the sums of many pairs."""
    return [add(pair) for pair in chunk]


def pairs(n: int) -> list[tuple[int, int]]:
    """Return the input of `add`: (i, i) for i in 0 to n - 1."""
    return [(i, i) for i in range(n)]


def sum_of_sums(n: int) -> int:
    """Return what all results of `add` over `pairs(n)` come to."""
    return n * (n - 1)


def crunch(iterations: int) -> float:
    """Keep the CPU busy for a fixed amount of work; return the seconds it took."""
    start = time.perf_counter()
    value = 0
    for step in range(iterations):
        value = (value * 31 + step) & 0xFFFFFFFF
    return time.perf_counter() - start


def crunch_all(chunk: Sequence[int]) -> list[float]:
    """Crunch one after another."""
    return [crunch(iterations) for iterations in chunk]


def calibrate() -> int:
    """Return how many iterations of `crunch` one page takes here; the fastest of 9 tries counts."""
    iterations = 50_000
    fastest = min(crunch(iterations) for _ in range(9))
    return max(1, round(iterations * PAGE_S / fastest))


def heavy_tailed_pages(n: int) -> list[int]:
    """Return the pages of `n` documents: log-normal (mu 1.0, sigma 1.5), at least 1, always the same ones."""
    draw = random.Random(20_161_121)
    return [max(1, round(draw.lognormvariate(1.0, 1.5))) for _ in range(n)]
