"""A shard on a desk: short words for what clients and consumers do to it, with time moved by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.deliveries import Settled
from dqlab.rules.leases import Lease
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.shard import Put, Shard
from dqlab.rules.states import State
from dqlab.testing import FakeClock
from tests.rules.invariants import check_shard
from tests.rules.memory_journal import MemoryJournal

RUN = b"run-of-the-tests"
PRODUCER = b"one-producer-id."
FUNCTION = b"function-v1-----"


@dataclass
class Desk:
    """A shard, its clock, and a numbered producer."""

    shard: Shard
    clock: FakeClock
    sequence: int = 0

    def frame(
        self,
        n: int = 1,
        *,
        run: bytes = RUN,
        producer: bytes = NO_ID,
        sequence: int = 0,
        ordinal: int = 0,
        size: int = 10,
        weights: Sequence[int] | None = None,
        opens: bool = False,
    ) -> Frame:
        blob = Frame.encode(
            [b"x" * size] * n,
            kind=Kind.ELEMENT,
            run=run,
            function=FUNCTION,
            producer=producer,
            sequence=sequence,
            ordinal=ordinal,
            weights=weights,
            opens=opens,
        )
        return Frame.decode(blob)

    def put(self, n: int = 1, **options: Any) -> Put:
        return self.shard.put(self.frame(n, **options))

    def lease(self, n: int = 1000, consumer: str = "c", **options: Any) -> Lease:
        lease = self.shard.lease(consumer, n, **options)
        assert lease is not None
        return lease

    def settlement(
        self,
        lease: Lease | None,
        outcomes: Sequence[Outcome],
        *,
        ids: Sequence[int] | None = None,
        payloads: Sequence[bytes] | None = None,
        run: bytes | None = None,
        epoch: int | None = None,
        busy_s: float = 0.0,
        riders: dict[str, dict[int, bytes]] | None = None,
    ) -> Settlement:
        """Outcomes of a lease's messages in order, or of `ids`."""
        if ids is None:
            assert lease is not None
            ids = self.ids(lease)[: len(outcomes)]
        blob = Settlement.encode(
            [Piece(id, 0, 1) for id in ids],
            bytes(outcomes),
            payloads or [b""] * len(outcomes),
            run=run if run is not None else lease.run if lease is not None else RUN,
            epoch=self.shard.epoch if epoch is None else epoch,
            lease=0 if lease is None else lease.id,
            busy_s=busy_s,
            riders=riders,
        )
        return Settlement.decode(blob)

    def settle(self, lease: Lease | None, *outcomes: Outcome, **options: Any) -> Settled:
        settled = self.shard.settle(self.settlement(lease, outcomes, **options))
        check_shard(self.shard)
        return settled

    def ack(self, lease: Lease) -> Settled:
        return self.settle(lease, *[Outcome.ACK] * len(self.ids(lease)))

    def lease_isolated(self, consumer: str = "c") -> Lease:
        """Lease a suspect, and note that it runs in its consumer's process; the first message becomes a suspect."""
        lease = self.lease(1, consumer)
        if not lease.suspect:
            self.shard.end(lease)
            lease = self.lease(1, consumer)
        assert self.shard.isolate(lease.id)
        return lease

    def fail_alone(self, outcome: Outcome = Outcome.FAIL, payload: bytes = b"") -> Settled:
        """Lease one message and settle it; whatever it was delayed for is over first."""
        self.clock.advance(10_000)
        return self.settle(self.lease(1), outcome, payloads=[payload])

    def counts(self, run: bytes = RUN) -> dict[State, int]:
        """What is not zero."""
        counts = self.shard.lanes[run].counts
        return {state: counts[state] for state in State if counts[state]}

    def kept_frames(self) -> list[int]:
        """First ids of the frames whose bytes are still kept."""
        assert isinstance(self.shard.journal, MemoryJournal)
        return list(self.shard.journal.frames)

    @staticmethod
    def ids(lease: Lease) -> list[int]:
        return [piece.frame + piece.lo + i for piece in lease.pieces for i in range(piece.n)]


@pytest.fixture
def make_desk() -> Callable[..., Desk]:
    """Return a maker of desks; options are those of `QueueOptions`."""

    def make(*, epoch: int = 1, index: int = 0, first_sequence: int = 0, **options: Any) -> Desk:
        options.setdefault("retry", Retry(3, backoff=1.0, jitter=False))
        clock = FakeClock()
        shard = Shard(
            "q",
            index,
            epoch=epoch,
            options=QueueOptions(**options),
            clock=clock,
            random=Random(0),
            first_sequence=first_sequence,
            journal=MemoryJournal(),
        )
        shard.open_lane(RUN)
        return Desk(shard, clock)

    return make


@pytest.fixture
def desk(make_desk: Callable[..., Desk]) -> Desk:
    return make_desk()
