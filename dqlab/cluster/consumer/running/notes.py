"""What is noted of messages beside their outcomes, and how it stands in a settlement: each of it could be left out.

That is when and how a result was made, what the message has printed and spent, and the answers that it keeps. A message
that prints or spends nothing has no entry, and costs nothing.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from operator import sub
from typing import TYPE_CHECKING

import msgpack

from dqlab.cluster.consumer.running.here import Queued
from dqlab.failures.failure import Failure
from dqlab.frame import Making, Outcome
from dqlab.printed import Ring
from dqlab.rules.budget import SPENT
from dqlab.rules.trouble import ONCE

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.chunk import Chunk, Columns, Lease

_NAN = float("nan")
FAR_APART = 0.2
"""Seconds between the first and the last result of a settlement above which each result gets its own time."""


class Noted(Queued):
    """What threads and processes note of messages that they run, until it stands in a settlement."""

    lease: Lease
    code = ""
    """Short code version, as the results name it."""
    took: dict[int, float]
    """Seconds that a message took, by position, where messages run together or in a process."""
    versions: dict[int, str]
    """Versions of documents, by position."""
    attempts: Mapping[int, int]
    """Numbers of deliveries that are not the first, by position."""
    logs = "failed"
    """Whose output is kept: "failed" or slow ones, "all", or "none"."""

    def __init__(self, n: int) -> None:
        # The thread that runs a message writes these before the outcome is in `done`.
        self.ended = [0.0] * n
        self.took, self.versions, self.spent, self.once = {}, {}, {}, {}
        self.output: dict[int, Ring] = {}
        """What messages have printed that are not settled, by position."""
        self._steps: dict[int, tuple[int, int]] = {}

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what a message prints, or None where nothing is kept."""
        if self.logs == "none":
            return None
        ring = self.output.get(index)
        return self.output.setdefault(index, Ring()) if ring is None else ring

    def note_step(self, index: int, number: int, total: int) -> None:
        """Note how far a message's function is in its document, 0 for nowhere; a `total` of 0 is not known."""
        if number:
            self._steps[index] = number, total
        else:
            self._steps.pop(index, None)

    def step_of(self, index: int) -> str:
        """Return how far a message's function is in its document, as "12 of 300", or "" where it does not say."""
        number, total = self._steps.get(index, (0, 0))
        return f"{number:,} of {total:,}" if number and total else f"{number:,}" if number else ""

    def seconds_at(self, indexes: Sequence[int]) -> list[float]:
        """Return how many seconds the messages at some ascending positions took, NaN where that is unknown."""
        if self.took or not self.began:
            return [self.took.get(index, _NAN) for index in indexes]
        # Messages that run one after another have one time each: a message begins when the one before it ends.
        ended, first, last = self.ended, indexes[0], indexes[-1]
        before = ended[first - 1] if first else self.began
        if last - first + 1 == len(indexes) and before:
            ends = ended[first : last + 1]
            return list(map(sub, ends, [before, *ends[:-1]]))
        return [ended[index] - self._before(index) for index in indexes]

    def _before(self, index: int) -> float:
        """Return when the last message before a position ended, or when the first one began."""
        return next((end for end in reversed(self.ended[:index]) if end), self.began)

    def attempts_at(self, indexes: Sequence[int]) -> list[int]:
        """Return the delivery numbers of the messages at some positions."""
        return [self.attempts.get(index, 1) for index in indexes] if self.attempts else [1] * len(indexes)

    def versions_at(self, indexes: Sequence[int]) -> list[str] | None:
        """Return the versions of the documents at some positions, or None where no document has one."""
        # Look up each position instead of walking the dict: the slot's thread adds to it meanwhile.
        return list(map(self.versions.get, indexes, repeat(""))) if self.versions else None

    def making(self, done: Columns) -> Making:
        """Return how the results among some outcomes were made, by ascending position."""
        indexes = sorted(done.positions)
        seconds = self.seconds_at(indexes)
        attempts = self.attempts_at(indexes) if self.attempts else None
        versions = self.versions_at(indexes)
        now, ages = time.perf_counter(), None
        acked = done.outcomes.index(Outcome.ACK), len(indexes) - 1 - done.outcomes[::-1].index(Outcome.ACK)
        first, last = (self.ended[done.positions[place]] or now for place in acked)
        if last - first > FAR_APART:
            ages = [last - (self.ended[index] or last) for index in indexes]
            first = last
        at = time.time() - now + (first + last) / 2
        return Making(self.lease.consumer, self.code, at, seconds, ages, attempts, versions)


LOGS = "logs"
"""The name of the rider."""
SLOW_S, SLOW_TIMES = 1.0, 10
"""A document is slow if it takes more seconds than this, and as many times more than the others of its run here."""
_RUNS = 64
_paces: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
"""Results of the latest runs on this worker, and the seconds that they took."""


def kept_in_failures(chunk: Chunk, start: int, stop: int) -> None:
    """Move the output of failed messages, among the outcomes of a chunk, into the records of their failures."""
    done = chunk.done
    for place, position in enumerate(done.positions[start:stop], start):
        if done.outcome(place) in (Outcome.FAIL, Outcome.REJECT) and (ring := chunk.output.pop(position, None)):
            said = ring.logs()
            done.payloads[place] = replace(
                Failure.from_bytes(done.payloads[place]), printed=str(said), cut=said.cut
            ).to_bytes()


def kept_beside(chunk: Chunk, done: Columns) -> Mapping[int, bytes]:
    """Return the output to keep of messages that are settled, by their places among them, and let go of the rest."""
    if Outcome.ACK not in done.outcomes:  # what was given back, or has failed and keeps it in its record
        return {}
    results, seconds = _pace(chunk, done.positions)
    if not chunk.output:
        return {}
    kept = dict[int, bytes]()
    for place, position in enumerate(done.positions):
        ring = chunk.output.pop(position, None)
        if ring is not None and done.outcomes[place] is Outcome.ACK and _is_kept(chunk, position, results, seconds):
            kept[place] = ring.logs().to_bytes()
    return kept


def _is_kept(chunk: Chunk, position: int, results: int, seconds: float) -> bool:
    """Return whether the output of a result is kept, where so many results of its run took so many seconds."""
    if chunk.logs == "all":
        return True
    took = chunk.seconds_at([position])[0]
    others = (seconds - took) / (results - 1) if results > 1 else took
    return took > max(SLOW_S, SLOW_TIMES * others)


def _pace(chunk: Chunk, positions: Sequence[int]) -> tuple[int, float]:
    """Count results, and return how many there were of their run and how many seconds they took."""
    if chunk.took:
        seconds = sum(chunk.took.get(position, 0.0) for position in positions)
    else:  # one after another
        before = chunk.ended[positions[0] - 1] if positions[0] else 0.0
        seconds = max(0.0, chunk.ended[positions[-1]] - (before or chunk.began))
    results, so_far = _paces.pop(chunk.run, (0, 0.0))
    _paces[chunk.run] = pace = results + len(positions), so_far + seconds
    while len(_paces) > _RUNS:
        _paces.popitem(last=False)
    return pace


def spent_beside(chunk: Chunk, done: Columns) -> Mapping[int, bytes]:
    """Return what messages that are settled have spent, by their places among them, and let go of it."""
    if not chunk.spent:
        return {}
    spent = {place: chunk.spent.pop(position, None) for place, position in enumerate(done.positions)}
    return {place: msgpack.packb(amounts) for place, amounts in spent.items() if amounts}


def kept_for_the_next(chunk: Chunk, done: Columns) -> Mapping[int, bytes]:
    """Return the answers of messages that have no result yet, by their places among those that are settled."""
    if not chunk.once:
        return {}
    kept = {place: chunk.once.pop(position, None) for place, position in enumerate(done.positions)}
    return {
        place: msgpack.packb(answers)
        for place, answers in kept.items()
        if answers and done.outcomes[place] is not Outcome.ACK
    }


RIDERS: dict[str, Callable[[Chunk, Columns], Mapping[int, bytes]]] = {
    LOGS: kept_beside,
    SPENT: spent_beside,
    ONCE: kept_for_the_next,
}
"""What makes the side columns of settlements, by name. It gets outcomes by ascending position, and returns entries by
their places."""
