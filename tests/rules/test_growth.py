"""A queue lives for months: what it remembers of what is over has a bound, or goes with the run."""

from __future__ import annotations

from random import Random

import pytest

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules import lane as lanes
from dqlab.rules.deliveries import Settled
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.rules.states import State
from dqlab.testing import FakeClock
from tests.rules.invariants import check_shard
from tests.rules.memory_journal import MemoryJournal

RUN = b"r" * 16
MANY = 50


@pytest.fixture
def shard() -> Shard:
    return Shard("q", 0, epoch=1, options=QueueOptions(), clock=FakeClock(), random=Random(0), journal=MemoryJournal())


def put(shard: Shard, run: bytes, sequence: int) -> None:
    frame = Frame.encode([b"x"], kind=Kind.VALUE, run=run, producer=run or b"p" * 16, sequence=sequence)
    shard.put(Frame.decode(frame))


def settle(shard: Shard, run: bytes, id: int, lease: int) -> Settled:
    blob = Settlement.encode([Piece(id, id, 1)], bytes([Outcome.ACK]), [b""], run=run, epoch=1, lease=lease)
    return shard.settle(Settlement.decode(blob))


def call(shard: Shard, number: int) -> tuple[int, int]:
    """Make a single call, beside a document of a run, and let it succeed; return its id and its lease."""
    put(shard, NO_ID, number)
    put(shard, RUN, number)
    leases = [shard.lease("c", 1), shard.lease("c", 1)]
    made = {}
    for lease in leases:
        assert lease is not None
        settle(shard, lease.run, lease.pieces[0].frame, lease.id)
        made[lease.run] = lease.pieces[0].frame, lease.id
    return made[NO_ID]


def test_single_calls_beside_runs_leave_a_bounded_number_of_stretches(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each left one for good, for ids of runs lie between them: 150 bytes in memory, 16 in each checkpoint."""
    monkeypatch.setattr(lanes, "MAX_SETTLED", 10)
    monkeypatch.setattr("tests.rules.invariants.MAX_SETTLED", 10)
    shard.open_lane(RUN)
    calls = [call(shard, number) for number in range(MANY)]

    lane = shard.lanes[NO_ID]
    assert lane.settled.intervals == 10
    assert lane.counts[State.ACKED] == MANY
    assert len(lane.batches) == 0
    assert settle(shard, NO_ID, *calls[-1]).duplicates == 1
    assert settle(shard, NO_ID, *calls[0]).stale == 1
    assert lane.counts[State.ACKED] == MANY
    check_shard(shard)


def test_a_dropped_run_leaves_nothing_behind_in_the_rules(shard: Shard) -> None:
    """A notebook that maps and drops a thousand runs a day must not fill the shard's memory."""
    for number in range(MANY):
        run = b"run" + number.to_bytes(13, "big")
        shard.open_lane(run)
        put(shard, run, 0)
        lease = shard.lease("c", 1)
        assert lease is not None
        settle(shard, run, lease.pieces[0].frame, lease.id)
        shard.drop_lane(run)

    assert list(shard.lanes) == [NO_ID]
    assert list(shard.producers.lines()) == shard.producers.frozen() == []
    assert not shard.activity.alive()
    assert not shard.activity.changed
    assert not list(shard.leases.values())
    assert shard.fairness.cost(run) is None
