"""What was put before, so that it is not put again: elements of a run's input, frames of producers, and single keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from dqlab.frame import NO_ID
from dqlab.rules.lane import Lane
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.rules.states import STATES, State, Verdict


@dataclass(frozen=True)
class Submitted:
    """The part of an input that a queue holds."""

    through: int = 0
    """How many elements it holds from the first on, without a gap."""
    digest: str = ""
    """Digest of these elements."""
    beyond: Ranges = field(default_factory=Ranges)
    """Ordinals after a gap: one shard refused a frame, others accepted later ones."""
    end_digest: str = ""
    """Digest of all elements before the end of `beyond`, "" when it was not recorded."""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Read it from a run record, or from the order that sets it."""
        if "+" in record["digest"]:
            return cls._of_text(record)
        beyond = Ranges((lo, hi) for lo, hi in record.get("beyond", ()))
        return cls(record["submitted"], record["digest"], beyond, record.get("end_digest", ""))

    @classmethod
    def _of_text(cls, record: dict[str, Any]) -> Self:
        """Read a record of an older log, which has gaps in the text of the digest."""
        digest, end_digest, *spans = record["digest"].split("+")
        beyond = Ranges((int(lo), int(hi)) for lo, hi in (span.split("-") for span in spans))
        return cls(record["submitted"], digest, beyond, end_digest)

    def record(self) -> dict[str, Any]:
        """Return the fields of the run record."""
        return {
            "submitted": self.through,
            "digest": self.digest,
            "beyond": list(self.beyond),
            "end_digest": self.end_digest,
        }

    def extended(self, came: Iterable[tuple[int, int]]) -> Self:
        """Add ordinals that shards hold too."""
        # A client that died while submitting did not record the last ones. The digest of the end covers them only if
        # they do not move it.
        held = Ranges([*self.held, *came])
        later = Ranges(held.within(self.through, ENDLESS))
        end = max((hi for _, hi in later), default=0)
        return type(self)(self.through, self.digest, later, self.end_digest if end == self.end else "")

    @property
    def held(self) -> list[tuple[int, int]]:
        """All ordinals the queue holds, as half-open ranges."""
        return [(0, self.through), *self.beyond]

    @property
    def end(self) -> int:
        """One more than the last ordinal the queue holds."""
        return max(hi for _, hi in self.held)


_WINDOW = 16  # frames of a producer for which a duplicate is answered with its first id


class _Line:
    """One producer, with its next sequence and the first ids of its last frames."""

    __slots__ = ("expected", "firsts", "run")

    def __init__(self, run: bytes) -> None:
        self.run = run
        self.expected = 0
        self.firsts: deque[int | None] = deque(maxlen=_WINDOW)


class Producers:
    """Sequence numbers of all producers of a shard."""

    __slots__ = ("_changed", "_frozen", "_lines")

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line] = {}
        self._frozen: dict[bytes, list[Any]] = {}
        self._changed: set[bytes] = set()
        """Producers whose frozen line is out of date."""

    def expected(self, producer: bytes) -> int:
        """Return the sequence of the producer's next frame."""
        line = self._lines.get(producer)
        return 0 if line is None else line.expected

    def judge(self, producer: bytes, sequence: int) -> Verdict:
        """Return ACCEPTED for the next frame, DUPLICATE for an earlier one, EARLY for a later one."""
        # Frames of `NO_ID` have no numbers, so all are new.
        if producer == NO_ID:
            return Verdict.ACCEPTED
        expected = self.expected(producer)
        if sequence == expected:
            return Verdict.ACCEPTED
        return Verdict.DUPLICATE if sequence < expected else Verdict.EARLY

    def first_of(self, producer: bytes, sequence: int) -> int | None:
        """Return the first id of a duplicate, None when it is older than the last 16 frames."""
        line = self._lines[producer]
        position = sequence - line.expected
        return line.firsts[position] if -position <= len(line.firsts) else None

    def record(self, producer: bytes, run: bytes, first: int) -> None:
        """Record that the producer's next frame is stored, from id `first` on."""
        if producer == NO_ID:
            return
        line = self._lines.get(producer)
        if line is None:
            line = self._lines[producer] = _Line(run)
        line.firsts.append(first)
        line.expected += 1
        self._changed.add(producer)

    def missed(self, producer: bytes, run: bytes, count: int) -> None:
        """Record that the producer's next frames were stored and are lost."""
        line = self._lines.setdefault(producer, _Line(run))
        line.firsts.extend([None] * count)
        line.expected += count
        self._changed.add(producer)

    def lines(self) -> Iterator[tuple[bytes, bytes, int, list[int | None]]]:
        """Yield (producer, run, expected sequence, first ids of the last frames, None where lost) of each."""
        for producer, line in self._lines.items():
            yield producer, line.run, line.expected, list(line.firsts)

    def frozen(self) -> list[list[Any]]:
        """Return the same as lists that never change, for another thread."""
        # Only what is out of date is made again, as new lists: earlier checkpoints may still pack the old ones.
        for producer in self._changed:
            line = self._lines[producer]
            self._frozen[producer] = [producer, line.run, line.expected, list(line.firsts)]
        self._changed.clear()
        return list(self._frozen.values())

    def restore(self, producer: bytes, run: bytes, expected: int, firsts: Iterable[int | None]) -> None:
        """Restore what `lines` yielded."""
        line = self._lines[producer] = _Line(run)
        line.expected = expected
        line.firsts.extend(firsts)
        self._changed.add(producer)

    def forget(self, run: bytes) -> None:
        """Forget the producers that began with this run."""
        for producer in [producer for producer, line in self._lines.items() if line.run == run]:
            del self._lines[producer]
            self._frozen.pop(producer, None)
            self._changed.discard(producer)


FEW = 1000
"""Keys that are kept without a look at whether they still hold."""


class Uniques:
    """Keys of plain puts."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[int, float]] = {}
        self._look_at = FEW

    def note(self, key: bytes, id: int, until: float) -> None:
        """Let a key stand for a message while that waits or runs, and until a time, seconds since 1970."""
        self._known[key] = id, until

    def find(self, key: bytes, lane: Lane, now: float) -> int | None:
        """Return the message that a key stands for at `now`, seconds since 1970, or None if it is free."""
        if len(self._known) > self._look_at:
            self._known = {key: (id, until) for key, id, until in self.holding(lane, now)}
            self._look_at = max(FEW, 2 * len(self._known))
        known = self._known.get(key)
        return None if known is None or not _holds(*known, lane, now) else known[0]

    def holding(self, lane: Lane, now: float) -> Iterator[tuple[bytes, int, float]]:
        """Yield key, id and end of those that still hold."""
        return ((key, id, until) for key, (id, until) in self._known.items() if _holds(id, until, lane, now))


def _holds(id: int, until: float, lane: Lane, now: float) -> bool:
    found = lane.batches.at(id)
    if found is None:  # settled
        return now < until
    state = STATES[found[0].states[found[1]]]
    return state.alive or (now < until and state is not State.DEAD)
