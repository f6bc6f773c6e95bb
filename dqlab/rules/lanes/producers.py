"""The frames received from each producer: a frame that is sent twice counts once, and frames stay in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from dqlab.frame import NO_ID
from dqlab.rules.states import Verdict

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
