"""Compaction of a shard: what is needed is there afterwards, byte for byte, and what is not gives its space back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.errors import DiskFull
from dqlab.log.writer import LogOptions
from dqlab.rules.leases import Lease
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import State
from dqlab.store.directories import shard_directory
from dqlab.store.durable_shard import DurableShard, compaction, run_through
from dqlab.store.journal import needed_by, open_settle, position_of
from dqlab.store.values import Compacted
from dqlab.store.verbs import Level, check
from tests.rules.invariants import check_shard
from tests.store.workload import make_queue

COUNT, SIZE = 50, 1000


def opened(directory: Path) -> DurableShard:
    return DurableShard.open(
        directory, "q", 0, QueueOptions(), log_options=LogOptions(sync="os", segment_bytes=64_000, reserve_bytes=0)
    )


def payload(id: int) -> bytes:
    return b"%08d" % id * (SIZE // 8)


def fill(shard: DurableShard, frames: int) -> None:
    for at in range(frames):
        payloads = [payload(COUNT * at + n) for n in range(COUNT)]
        shard.ledger.shard.put(Frame.decode(Frame.encode(payloads, kind=Kind.VALUE)))


def ack(shard: DurableShard, but: Callable[[int], bool] = lambda id: False, result: bytes = b"") -> None:
    """Ack everything, with this result; give back what is excepted."""
    held: list[Lease] = []
    while (lease := shard.ledger.shard.lease("c", COUNT)) is not None:
        held.append(lease)
    for lease in held:
        ids = [id for lo, hi in lease.remaining for id in range(lo, hi)]
        outcomes = bytes(Outcome.RETURN if but(id) else Outcome.ACK for id in ids)
        payloads = [b"" if but(id) else result for id in ids]
        pieces = [Piece(id, id, 1) for id in ids]
        blob = Settlement.encode(pieces, outcomes, payloads, run=NO_ID, epoch=shard.ledger.shard.epoch, lease=lease.id)
        settlement = Settlement.decode(blob)
        shard.ledger.settle(settlement)
    shard.journal.log.commit()


def compact(shard: DurableShard, meanwhile: Callable[[], None] = lambda: None) -> Compacted:
    steps, result = compaction(shard, below=0.95), None
    while True:
        try:
            step = steps.send(result)
        except StopIteration as done:
            gave: Compacted = done.value
            return gave
        result = step()
        meanwhile()


def stored(shard: DurableShard) -> dict[int, bytes]:
    """Return the payload of each message that is ready."""
    lane = shard.ledger.shard.lanes[NO_ID]
    found: dict[int, bytes] = {}
    for batch in lane.batches:
        frame = Frame.decode(shard.journal.body(batch.place))
        for index, state in enumerate(batch.states):
            if state == State.READY:
                found[batch.first + index] = bytes(frame.message(index))
    return found


def results(shard: DurableShard) -> dict[int, bytes]:
    """Return each result by its ordinal."""
    found: dict[int, bytes] = {}
    for stretch in shard.ledger.book(NO_ID).results:
        settlement = Settlement.decode(open_settle(shard.journal.body(stretch.place))[1])
        for step in range(stretch.piece.n):
            found[stretch.piece.ordinal + step] = bytes(settlement.entry(stretch.at + step))
    return found


def forget_results(shard: DurableShard) -> None:
    """Drop all results of lane 0, and what is left of it: the space they take can come back."""
    shard.ledger.obey("drop", NO_ID, {})


def test_one_stuck_message_in_each_frame_keeps_its_payload_and_nothing_else(tmp_path: Path) -> None:
    """Space is given back by the message, not only by the frame."""
    shard = opened(tmp_path / "0")
    fill(shard, 40)
    ack(shard, but=lambda id: id % COUNT == 7)
    before = shard.journal.log.usage()

    gave = compact(shard)

    assert gave.bytes_before >= before.segments
    assert stored(shard) == {id: payload(id) for id in range(7, 40 * COUNT, COUNT)}
    alive, small_acks = 40 * SIZE, 40 * COUNT * 60
    assert gave.bytes_after < 2 * alive + small_acks
    shard.journal.log.close()


def test_results_that_are_dropped_while_they_are_copied_give_their_space_back(tmp_path: Path) -> None:
    shard = opened(tmp_path / "0")
    fill(shard, 20)
    ack(shard, result=bytes(500))
    dropped = iter([lambda: None, lambda: None, lambda: forget_results(shard)])

    compact(shard, lambda: next(dropped, lambda: None)())
    gave = compact(shard)

    assert shard.journal.log.usage().needed == 0
    assert gave.bytes_after < 20_000
    shard.journal.log.close()


def test_messages_that_are_settled_while_they_are_copied_are_not_delivered_again(tmp_path: Path) -> None:
    shard = opened(tmp_path / "0")
    fill(shard, 20)
    ack(shard, but=lambda id: id % 5 == 0)
    later = iter([lambda: None, lambda: None, lambda: ack(shard, but=lambda id: id % 10 == 0)])

    compact(shard, lambda: next(later, lambda: None)())
    shard.journal.log.close(clean=False)
    again = opened(tmp_path / "0")

    assert stored(again) == {id: payload(id) for id in range(0, 20 * COUNT, 10)}
    assert again.journal.log.usage().needed == sum(needed_by(again.ledger).values())
    again.journal.log.close()


def test_settled_messages_of_copied_frames_do_not_run_again_when_both_checkpoints_are_lost(tmp_path: Path) -> None:
    """Their payloads are gone; the copy itself says that they are done."""
    shard = opened(tmp_path / "0")
    fill(shard, 20)
    ack(shard, but=lambda id: id % COUNT == 7)
    compact(shard)
    shard.journal.log.close()
    for checkpoint in (tmp_path / "0").glob("ckpt-*"):
        checkpoint.write_bytes(b"")

    again = opened(tmp_path / "0")

    assert stored(again) == {id: payload(id) for id in range(7, 20 * COUNT, COUNT)}
    again.journal.log.close()


def test_compaction_that_is_told_to_stop_ends_behind_the_records_at_hand(tmp_path: Path) -> None:
    """Closing a queue does not wait for all of it; what was copied counts as finished."""
    shard = opened(tmp_path / "0")
    fill(shard, 60)
    ack(shard, but=lambda id: id % 3 == 0)
    kept, asked = stored(shard), []
    segments = len(list((tmp_path / "0").glob("*.seg")))

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 1

    before = shard.journal.log.end
    run_through(compaction(shard, below=0.95, stop=stop))

    assert shard.journal.log.end > before
    assert stored(shard) == kept
    assert len(list((tmp_path / "0").glob("*.seg"))) < segments + 3
    assert shard.journal.log.victims(0.95)
    shard.journal.log.close()
    again = opened(tmp_path / "0")
    assert stored(again) == kept
    again.journal.log.close()


def test_a_kill_at_any_turn_finds_everything_and_frees_the_space_next_time(tmp_path: Path) -> None:
    """Originals and copies may both be there, or the copies alone."""
    turn, done = 0, False
    while not done:
        place = tmp_path / str(turn)
        shard = opened(place)
        fill(shard, 12)
        ack(shard, but=lambda id: id % 10 == 3, result=b"result")
        expected = stored(shard), results(shard)
        steps, result = compaction(shard, below=0.95), None
        for _ in range(turn):
            try:
                result = steps.send(result)()
            except StopIteration:
                done = True
                break
        shard.journal.log.close(clean=False)

        again = opened(place)
        assert (stored(again), results(again)) == expected
        check_shard(again.ledger.shard)
        gave = compact(again)
        assert (stored(again), results(again)) == expected
        assert gave.bytes_after < 12 * COUNT * 300
        again.journal.log.close()
        turn += 1
    assert turn > 10


def test_what_cannot_be_read_stays_where_it_is_and_the_rest_is_copied(tmp_path: Path) -> None:
    shard = opened(tmp_path / "0")
    fill(shard, 20)
    ack(shard, but=lambda id: id % COUNT == 7)
    compact(shard)
    fill(shard, 1)
    shard.journal.log.close()
    shard = opened(tmp_path / "0")
    lane = shard.ledger.shard.lanes[NO_ID]
    damaged = next(iter(lane.batches))
    segment, offset, size = position_of(damaged.place)
    [file] = (tmp_path / "0").glob(f"{segment:010d}-*.seg")
    with file.open("r+b") as opened_file:
        opened_file.seek(offset + size - 1)
        opened_file.write(b"!")

    run_through(compaction(shard, below=2.0))

    places = {batch.first: position_of(batch.place).segment for batch in lane.batches}
    assert places.pop(damaged.first) == segment
    assert min(places.values()) > segment
    shard.journal.log.close()


def test_compaction_stops_before_it_takes_the_room_of_settlements(tmp_path: Path) -> None:
    shard = opened(tmp_path / "0")
    fill(shard, 20)
    ack(shard, but=lambda id: id % COUNT == 7)
    kept, end = stored(shard), shard.journal.log.end
    shard.journal.log.room = lambda nbytes: False  # type: ignore[method-assign]

    with pytest.raises(DiskFull):
        compact(shard)

    assert (stored(shard), shard.journal.log.end) == (kept, end)
    shard.journal.log.close()


def test_a_damaged_copy_costs_nothing_while_its_original_is_there(store: Path) -> None:
    place = shard_directory(make_queue(store, "q", 1), 0)
    shard = opened(place)
    fill(shard, 12)
    ack(shard, but=lambda id: id % 10 == 3)
    kept = stored(shard)
    batch = next(iter(shard.ledger.shard.lanes[NO_ID].batches))
    old, steps, answer = batch.place, compaction(shard, below=0.95), None
    while batch.place == old:
        answer = steps.send(answer)()
    shard.journal.log.commit()
    segment, offset, size = position_of(batch.place)
    shard.journal.log.close(clean=False)
    [file] = place.glob(f"{segment:010d}-*.seg")
    with file.open("r+b") as opened_file:
        opened_file.seek(offset + size - 1)
        opened_file.write(b"!")

    [found] = check(store).shards()
    again = opened(place)

    assert (found.level, found.lost) == (Level.DAMAGED, ())
    assert stored(again) == kept
    again.journal.log.close()
