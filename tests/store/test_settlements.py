"""What stands in a settlement's record: the consumer's bytes, and the rules' ruling where it differs."""

from __future__ import annotations

from pathlib import Path

from dqlab.frame import Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.retry import QueueOptions
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import open_settle
from tests.store.recorded import RecordedShard

RUN = b"run-of-this-test"


def settled_records(directory: Path, pieces: list[Piece]) -> tuple[DurableShard, int]:
    """Settle three messages with these pieces; return the shard opened again, and where their record is."""
    durable = DurableShard.open(directory, "q", 0, QueueOptions())
    shard = RecordedShard(durable)
    shard.open_lane(RUN)
    shard.put(Frame.decode(Frame.encode([b"x"] * 3, kind=Kind.ELEMENT, run=RUN, producer=RUN, ordinal=70)))
    lease = shard.lease("c", 3)
    blob = Settlement.encode(
        pieces, bytes([Outcome.ACK] * 3), [b"r"] * 3, run=RUN, epoch=durable.ledger.shard.epoch, lease=lease.id
    )
    shard.settle(Settlement.decode(blob))
    durable.journal.log.close()
    again = DurableShard.open(directory, "q", 0, QueueOptions())
    (place,) = {stretch.place for stretch in again.ledger.book(RUN).results}
    return again, place


def test_settlement_that_was_simply_accepted_carries_no_ruling(tmp_path: Path) -> None:
    """That is nearly always; the consumer's bytes say it all."""
    again, place = settled_records(tmp_path / "0", [Piece(0, 70, 3)])

    assert open_settle(again.journal.body(place))[0] is None
    assert list(again.ledger.book(RUN).results.covered) == [(70, 73)]
    again.journal.log.close()


def test_positions_of_results_are_those_of_the_queue_whatever_a_consumer_says(tmp_path: Path) -> None:
    again, place = settled_records(tmp_path / "0", [Piece(0, 5, 3)])

    assert open_settle(again.journal.body(place))[0] is not None
    assert list(again.ledger.book(RUN).results.covered) == [(70, 73)]
    again.journal.log.close()
