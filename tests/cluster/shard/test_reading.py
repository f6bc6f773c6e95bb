"""Reading of a durable shard while its records are being taken elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dqlab.clock import SystemClock
from dqlab.cluster.shard.durable import LogStore, open_log_of
from dqlab.cluster.shard.pages import page_behind
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.failures.failure import Failure
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.errors import RecordCorrupt
from dqlab.rules.batches import Batch
from dqlab.rules.deliveries import end_all
from dqlab.rules.result_index import ResultIndex, Stretch
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import State
from dqlab.store.directories import shard_directory
from dqlab.store.durable_shard import DurableShard, compaction
from tests.cluster import desk
from tests.kit.disks import FlakyFiles

pytestmark = pytest.mark.lowest

COUNT = 10
PAYLOADS = [b"%04d" % n * 300 for n in range(COUNT)]


async def opened(directory: Path) -> tuple[DurableShard, LogStore]:
    settings = {"sync": "os", "segment_bytes": 20_000, "reserve_bytes": 0}
    log = shard_directory(directory, 0)
    return await open_log_of("q", 0, QueueOptions(), log, settings, SystemClock(), takeover=False)


def put(shard: DurableShard) -> None:
    shard.ledger.shard.put(Frame.decode(Frame.encode(PAYLOADS, kind=Kind.VALUE)))


def ack_all_but_two(shard: DurableShard) -> None:
    """Of each frame, so that every segment is worth copying from."""
    rules = shard.ledger.shard
    while (lease := rules.lease("c", COUNT)) is not None:
        (first, _), *_ = list(lease.remaining)
        outcomes = bytes([Outcome.ACK] * (COUNT - 2))
        pieces = [Piece(first, first, COUNT - 2)]
        blob = Settlement.encode(pieces, outcomes, [b"result"] * 8, run=NO_ID, epoch=rules.epoch, lease=lease.id)
        settlement = Settlement.decode(blob)
        shard.ledger.settle(settlement)
    shard.journal.log.commit()


async def compact(shard: DurableShard) -> None:
    steps, result = compaction(shard, below=0.95), None
    while True:
        try:
            step = steps.send(result)
        except StopIteration:
            return
        result = await asyncio.to_thread(step)


async def read_beside_compaction(
    directory: Path, read: Callable[[LogStore, DurableShard], Awaitable[object]]
) -> object:
    """Begin to read, let a compaction delete the file that is about to be read, and return what comes of it."""
    shard, store = await opened(directory)
    for _ in range(20):
        put(shard)
    ack_all_but_two(shard)
    await compact(shard)  # so that nothing is in memory any more
    put(shard)
    body, begun, go_on = store.body, threading.Event(), threading.Event()

    def held_up(place: int) -> bytes:
        begun.set()
        go_on.wait(30)
        return body(place)

    store.body = held_up  # type: ignore[method-assign]
    store.cached = lambda place: None  # type: ignore[method-assign]
    answer = asyncio.ensure_future(read(store, shard))
    await asyncio.to_thread(begun.wait, 30)
    ack_all_but_two(shard)
    await compact(shard)
    await compact(shard)
    go_on.set()
    try:
        return await answer
    finally:
        await store.close()


def test_a_frame_is_read_where_compaction_took_it_meanwhile(tmp_path: Path) -> None:
    async def read(store: LogStore, shard: DurableShard) -> list[bytes]:
        frame = await store.frame(shard.ledger.shard.lanes[NO_ID].batches[0])
        return [bytes(frame.message(index)) for index in (COUNT - 2, COUNT - 1)]

    assert asyncio.run(read_beside_compaction(tmp_path / "0", read)) == PAYLOADS[-2:]


def test_a_result_is_read_where_compaction_took_it_meanwhile(tmp_path: Path) -> None:
    async def read(store: LogStore, shard: DurableShard) -> bytes:
        stretch = next(iter(shard.ledger.book(NO_ID).results))
        return bytes(Settlement.decode(await store.read(stretch)).entry(0))

    assert asyncio.run(read_beside_compaction(tmp_path / "0", read)) == b"result"


def test_what_is_damaged_where_it_lies_is_an_error(tmp_path: Path) -> None:
    """Nothing took it elsewhere, so nothing is read a second time."""

    async def read() -> None:
        shard, store = await opened(tmp_path / "0")
        put(shard)
        shard.journal.log.close()
        shard, store = await opened(tmp_path / "0")
        segment = min((tmp_path / "0").rglob("*.seg"))
        content = bytearray(segment.read_bytes())
        content[content.index(PAYLOADS[3])] ^= 1
        segment.write_bytes(content)
        try:
            with pytest.raises(RecordCorrupt):
                await store.frame(shard.ledger.shard.lanes[NO_ID].batches[0])
        finally:
            await store.close()

    asyncio.run(read())


@pytest.mark.parametrize("number", ["EIO", "ESTALE", "EMFILE"])
def test_a_frame_that_cannot_be_read_for_a_moment_is_read_then(tmp_path: Path, number: str) -> None:
    """What is given up is given up for good, so a disk or a server has a while to be well again."""

    async def read() -> None:
        shard, store = await opened(tmp_path / "0")
        put(shard)
        await store.close()
        shard, store = await opened(tmp_path / "0")
        files = store.log._reader._directory.files = FlakyFiles(".seg", number, times=2)
        try:
            frame = await store.frame(shard.ledger.shard.lanes[NO_ID].batches[0])
            assert bytes(frame.message(3)) == PAYLOADS[3]
            assert files.looked == 2
        finally:
            await store.close()

    asyncio.run(read())


def test_a_frame_that_can_never_be_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad sector must not hold up its run for ever."""
    monkeypatch.setattr("dqlab.cluster.shard.durable.DISK_PATIENCE", 0.2)

    async def read() -> None:
        shard, store = await opened(tmp_path / "0")
        put(shard)
        await store.close()
        shard, store = await opened(tmp_path / "0")
        store.log._reader._directory.files = FlakyFiles(".seg", "EIO")
        try:
            with pytest.raises(RecordCorrupt, match="Input/output error"):
                await store.frame(shard.ledger.shard.lanes[NO_ID].batches[0])
        finally:
            await store.close()

    asyncio.run(read())


def test_messages_outlast_a_process_that_can_open_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it lasts, it says nothing about the disk: nothing is lost, and no delivery is counted."""
    monkeypatch.setattr("dqlab.cluster.shard.durable.DISK_PATIENCE", 0.1)

    async def run() -> None:
        actor = await desk.opened(tmp_path / "0")
        await desk.put(actor, COUNT)
        await actor._store.close()
        actor = await desk.opened(tmp_path / "0")
        files = actor._store.log._reader._directory.files = FlakyFiles(".seg", "EMFILE")
        for _ in range(7):
            answer, _ = unpack(await actor.lease(pack({"consumer": "c", "session": "s", "credit": [1, 100, 1]})))
            assert "lease" not in answer
        assert files.looked
        files.bad = ""
        held = await desk.lease(actor, "c")
        assert sum(piece.n for piece in held["pieces"]) == COUNT
        assert not actor.shard.lanes[NO_ID].trouble
        await actor._store.close()

    asyncio.run(run())


def test_results_that_come_while_a_page_is_read_neither_break_nor_hide_it() -> None:
    """A page is read from disk, and meanwhile the list of what there is grows, and is split in two."""
    index = ResultIndex()

    def come(n: int) -> None:
        for _ in range(n):
            ordinal = index.end
            blob = Settlement.encode([Piece(ordinal, ordinal, 1)], b"\0", [b"r"], run=b"r" * 16, epoch=1, lease=1)
            blobs.append(blob)
            index.add(Stretch(Piece(ordinal, ordinal, 1), ordinal, 0))

    blobs: list[bytes] = []
    come(2000)

    async def read(stretch: Stretch) -> bytes:
        if index.end == 2000:
            await asyncio.sleep(0)
            come(1)  # one more than the lists of `sortedcontainers` hold
        return blobs[stretch.place]

    async def part() -> None:
        parts, cursor = await page_behind(index, read, 1500, 2001)
        assert [Settlement.decode(part).pieces[0].ordinal for part in parts] == list(range(1500, 2001))
        assert cursor == index.end == 2001

    asyncio.run(part())


def test_failures_that_are_purged_while_a_page_is_read_are_left_out_of_it(tmp_path: Path) -> None:
    """Their frames lie on disk, so it takes a while; a view of failures ended with `MessageNotFound` then."""
    record = Failure.from_exception(ValueError(), key=None, code="", consumer="c", worker="w", when=0.0, seconds=0.0)

    async def part() -> None:
        actor = await desk.opened(tmp_path / "log", retry={"retries": 0})
        for sequence in range(6):
            await desk.put(actor, 2, sequence=sequence)
        held = await desk.lease(actor, "c#0")
        await desk.finish(actor, held, [record.to_bytes()] * 12, Outcome.REJECT)
        read = actor._store.frame

        async def slowly(batch: Batch) -> Frame:
            end_all(
                actor.shard.lanes[NO_ID],
                [(2, 6)],
                (State.DEAD,),
                State.CANCELLED,
                actor.shard.leases,
                actor.shard.effects,
            )
            return await read(batch)

        actor._store.frame = slowly  # type: ignore[method-assign]
        answer, parts = unpack(await actor.dead(pack({"run": NO_ID, "after": -1, "limit": 12, "classes": []})))
        assert [row[0] for row in answer["rows"]] == [0, 1, *range(6, 12)]
        assert len(parts) == 2 * 8
        await actor.hand_over(b"")

    asyncio.run(part())


@pytest.mark.parametrize(
    ("size", "most", "comes"), [(10, 1, 16), (10, 100, 112), (10, 3000, 1600), (100_000, 3000, 48)]
)
def test_as_many_results_come_with_one_call_as_the_caller_takes(size: int, most: int, comes: int) -> None:
    """A notebook that is still submitting gets an answer every 20 ms: a thousand values each was 50,000 a second."""

    async def play() -> None:
        actor = await desk.opened()
        for sequence in range(100):
            await desk.put(actor, 16, sequence=sequence)
            await desk.finish(actor, await desk.lease(actor, "c", 16), [b"x" * size] * 16)
        _, parts = unpack(await actor.stream(pack({"run": NO_ID, "cursor": 0, "wait": 0.0, "most": most})))
        assert sum(Settlement.decode(part).count for part in parts) == comes
        await actor.hand_over(b"")

    asyncio.run(play())
