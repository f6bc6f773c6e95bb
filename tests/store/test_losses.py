"""Damaged records: what they held is counted as lost, once, and no client waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dqlab.frame import Frame, Kind
from dqlab.log.errors import RecordCorrupt
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import State, Verdict
from dqlab.store.durable_shard import DurableShard
from tests.rules.invariants import check_shard
from tests.store.recorded import RecordedShard

RUN, PRODUCER = b"run-of-this-test", b"producer-of-them"


def opened(directory: Path) -> DurableShard:
    return DurableShard.open(directory, "q", 0, QueueOptions())


def put(shard: RecordedShard, sequence: int, **options: bool) -> Verdict:
    frame = Frame.encode(
        [b"payload %d %d" % (sequence, at) for at in range(10)],
        kind=Kind.ELEMENT,
        run=RUN,
        producer=PRODUCER,
        sequence=sequence,
        ordinal=10 * sequence,
    )
    verdict: Verdict = shard.put(Frame.decode(frame), **options).verdict
    return verdict


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The directory of a shard that had five frames; the third of them has a flipped bit."""
    durable = opened(tmp_path / "0")
    shard = RecordedShard(durable)
    shard.open_lane(RUN)
    for sequence in range(5):
        put(shard, sequence)
    durable.journal.log.close()
    flip(tmp_path / "0", b"payload 2 7")
    return tmp_path / "0"


def flip(directory: Path, text: bytes) -> None:
    (segment,) = [path for path in directory.glob("*.seg") if text in path.read_bytes()]
    content = bytearray(segment.read_bytes())
    content[content.index(text)] ^= 1
    segment.write_bytes(content)


def test_frames_behind_a_damaged_one_are_there_and_it_is_named(damaged: Path) -> None:
    durable = opened(damaged)

    lane = durable.ledger.shard.lanes[RUN]

    assert lane.counts[State.READY] == 40
    assert [(found.base, found.count) for found in durable.journal.log.corrupt] == [(20, 10)]
    durable.journal.log.close()


def test_run_whose_messages_are_lost_ends_and_says_how_many(damaged: Path) -> None:
    durable = opened(damaged)
    shard = RecordedShard(durable)
    shard._order("seal", RUN, {"seal": {"run": RUN, "here": 50, "total": 50}})

    lane = durable.ledger.shard.lanes[RUN]
    durable.ledger.shard.cancel(RUN)

    assert lane.counts[State.LOST] == 10
    assert lane.done
    check_shard(durable.ledger.shard)
    durable.journal.log.close()


def test_producer_goes_on_behind_its_lost_frame(damaged: Path) -> None:
    """Its next frame is neither early nor one that was there before."""
    durable = opened(damaged)
    shard = RecordedShard(durable)

    assert put(shard, 4) is Verdict.DUPLICATE
    assert put(shard, 5) is Verdict.ACCEPTED
    durable.journal.log.close()


def test_frame_that_is_damaged_behind_a_checkpoint_is_found_when_it_is_read(tmp_path: Path) -> None:
    durable = opened(tmp_path / "0")
    shard = RecordedShard(durable)
    shard.open_lane(RUN)
    put(shard, 0)
    durable.checkpoint()()
    durable.journal.log.close()
    flip(tmp_path / "0", b"payload 0 7")

    again = opened(tmp_path / "0")
    (batch,) = again.ledger.shard.lanes[RUN].batches

    with pytest.raises(RecordCorrupt):
        again.journal.body(batch.place)
    assert again.ledger.shard.lose(RUN, [(batch.first, batch.first + 10)]) == 10
    assert again.ledger.shard.lanes[RUN].counts[State.LOST] == 10
    check_shard(again.ledger.shard)
    again.journal.log.close()


def test_documents_that_an_earlier_version_put_again_into_a_sealed_run_are_there_after_reopening(damaged: Path) -> None:
    """It sent lost documents again, in the place of those that were lost."""
    durable = opened(damaged)
    shard = RecordedShard(durable)
    shard._order("seal", RUN, {"seal": {"run": RUN, "here": 50, "total": 50}})
    lost = Frame.encode([b"once more"] * 10, kind=Kind.ELEMENT, run=RUN, ordinal=20)
    durable.journal.put(Frame.decode(lost), durable.ledger.shard.next_id)
    durable.journal.log.close()

    again = opened(damaged)

    lane = again.ledger.shard.lanes[RUN]
    assert (lane.counts[State.READY], lane.counts[State.LOST]) == (50, 0)
    assert list(lane.came) == [(0, 50)]
    assert not lane.done
    check_shard(again.ledger.shard)
    again.journal.log.close()
