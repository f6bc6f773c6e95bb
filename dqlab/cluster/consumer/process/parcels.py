"""Runs batches in a slot's process: a batch goes there and back as one message, and its outcomes are in the answer."""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from dqlab.cluster.consumer.devices import Equipment
from dqlab.cluster.consumer.process.slot_process import SlotProcess
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.consumer.running.halving import InARow
from dqlab.cluster.consumer.running.one_batch import OneBatch
from dqlab.cluster.consumer.running.outcomes import UNDECIDED, Outcomes
from dqlab.errors import MemoryLimit, MessageTimeout, ProcessDied
from dqlab.failures.failure import Failure, class_name
from dqlab.frame import Kind, Outcome
from dqlab.printed import Ring

_ENDS = frozenset(map(class_name, (MemoryLimit, MessageTimeout, ProcessDied)))
"""Failures of a message whose process has ended."""


class BatchProcess:
    """The process in which a slot runs batches."""

    def __init__(self, origin: Origin, equipment: Equipment) -> None:
        self.process = SlotProcess(origin, equipment)
        self.renewed: Callable[[], float] = lambda: 0.0

    def run(self, one: OneBatch, chunk: Chunk, blob: bytes) -> None:
        """Run a batch, with what its chunk tells of the run."""
        parcel = _Parcel(one, chunk)
        self.process.renewed = self.renewed()
        self.process.run(parcel, blob)  # type: ignore[arg-type]
        places = list(range(len(one.messages())))
        if not len(parcel.done):
            one.again = places
            return
        one.began = time.perf_counter() - parcel.took.get(0, 0.0)  # without the start of its process, and its set-up
        _, outcome, payload, key = parcel.done[0]
        if outcome is Outcome.ACK:
            one.done, one.again, one.took, one.versions, one.calls, one.too_many, *beside = pickle.loads(payload)
            one.spent, one.once, one.row = beside[0], beside[1], InARow(*beside[2])
        elif outcome is Outcome.RETURN:  # one of them was cancelled, or the slot stops
            gone = set(one.cancelled)
            one.done = [(place, outcome, b"", None) for place in gone]
            one.again = [place for place in places if place not in gone]
        elif outcome is UNDECIDED or len(places) == 1 or Failure.from_bytes(payload).error not in _ENDS:
            one.done = [(place, outcome, payload, key) for place in places]
        else:
            one.alone = places

    def stop(self) -> None:
        """End what runs, from any thread."""
        self.process.stopping = True

    def close(self) -> None:
        """End the process."""
        self.process.close()


class _Parcel:
    """A batch as a chunk of one message, for `SlotProcess`."""

    kind, apart, stopped, document = Kind.VALUE, None, False, None

    def __init__(self, one: OneBatch, chunk: Chunk) -> None:
        self.run, self.frames, self.lease, self.leased_at = chunk.run, chunk.frames, chunk.lease, chunk.leased_at
        self.todo, self.done = deque([0]), Outcomes()
        self.running: int | None = None
        self.took: dict[int, float] = {}
        self.ended, self.versions = [0.0], dict[int, str]()
        self.output, self.once = dict[int, Any](), dict[int, Any]()
        self._one = one

    def messages(self) -> list[bytes]:
        """Return the bytes of the parcel."""
        return [pickle.dumps((list(self._one.messages()), tuple(self._one.row), self._one.once), 5)]

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what the batch prints, or None where nothing is kept."""
        return self._one.ring_at(index)

    def note_step(self, index: int, number: int, total: int) -> None:
        """Note nothing: a call has many documents."""

    @property
    def cancelled(self) -> tuple[int, ...]:
        """The parcel, when one of its messages was cancelled: the others run again, in another process."""
        return (0,) if self._one.cancelled else ()

    def begin(self) -> None:
        """Do nothing: `Batches` keeps the time."""

    def end(self) -> None:
        """Do nothing."""
