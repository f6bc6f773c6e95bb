"""How things are measured: in alternation, at sizes that fit a time, with an eye on the load of others."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from benchmarks.processes import machine_busy_s, tree_cpu_s

__all__ = ["Contestant", "Load", "LoadWatch", "WrongAnswer", "alternate", "fitting_size", "rate"]

T = TypeVar("T")

LARGEST = 2_000_000


class WrongAnswer(AssertionError):
    """A contestant returned other results than it should; its time is worth nothing."""


@dataclass(frozen=True)
class Contestant(Generic[T]):
    """Somebody who is measured.

    Attributes
    ----------
    measure : callable
        Does the work once and returns what was measured.
    rounds : int or None
        Takes part in the first so many rounds only; None: in all.
    """

    name: str
    measure: Callable[[], T]
    rounds: int | None = None


def alternate(contestants: Sequence[Contestant[T]], *, rounds: int) -> dict[str, list[T]]:
    """Let everybody have one turn in each round, so that a noisy minute hits all of them.

    Returns
    -------
    dict of str to list
        What each contestant measured, by its name, in the order of the rounds.
    """
    found: dict[str, list[T]] = {contestant.name: [] for contestant in contestants}
    for number in range(rounds):
        for contestant in contestants:
            if contestant.rounds is None or number < contestant.rounds:
                gc.collect()
                found[contestant.name].append(contestant.measure())
    return found


def rate(work: Callable[[int], Sequence[Any]], n: int, expected_sum: int) -> float:
    """Return messages per second of work that returns `n` numbers, after checking them.

    Raises
    ------
    WrongAnswer
        Their number or their sum is wrong.
    """
    start = time.perf_counter()
    results = work(n)
    elapsed = time.perf_counter() - start
    if len(results) != n or sum(results) != expected_sum:
        raise WrongAnswer(f"{len(results):,} results with the sum {sum(results):,} from {n:,} messages")
    return n / elapsed


def fitting_size(rate_of: Callable[[int], float], *, seconds: float, start: int) -> int:
    """Return how many messages take about `seconds`; the first run warms up.

    Sizes grow until a run takes half of that: a rate grows with the size where starting costs something.
    """
    n = start
    rate_of(n)
    while True:
        fits = int(rate_of(n) * seconds)
        if fits <= 2 * n or n == LARGEST:
            return max(start, min(LARGEST, fits))
        n = min(LARGEST, max(2 * n, fits // 2))


@dataclass(frozen=True)
class Load:
    """What else the machine did during a row.

    Attributes
    ----------
    before, after : float
        Load average over a minute; the one after includes our own work.
    others : float
        Cores that other processes kept busy meanwhile.
    seconds : float
        How long the row took.
    """

    before: float
    after: float
    others: float
    seconds: float

    def to_dict(self) -> dict[str, float]:
        """Return it as plain data."""
        return asdict(self)


class LoadWatch:
    """Begin to watch at once; `stop` says what was seen."""

    def __init__(self) -> None:
        self._before = os.getloadavg()[0]
        self._start = time.perf_counter()
        self._busy, self._own = machine_busy_s(), tree_cpu_s(os.getpid())

    def stop(self) -> Load:
        """Return the load since this watch was made."""
        seconds = time.perf_counter() - self._start
        busy, own = machine_busy_s() - self._busy, tree_cpu_s(os.getpid()) - self._own
        return Load(self._before, os.getloadavg()[0], max(0.0, busy - own) / seconds, seconds)
