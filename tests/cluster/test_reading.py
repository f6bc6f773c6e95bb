"""Reading of a durable shard while its records are being taken elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dqlab.clock import SystemClock
from dqlab.cluster.durable import LogStore, open_durable
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log import RecordCorrupt
from dqlab.queue.options import QueueOptions
from dqlab.store.compaction import compaction
from dqlab.store.shard import DurableShard

COUNT = 10
PAYLOADS = [b"%04d" % n * 300 for n in range(COUNT)]


async def opened(directory: Path) -> tuple[DurableShard, LogStore]:
    store = {"directory": str(directory), "sync": "os", "segment_bytes": 20_000, "reserve_bytes": 0}
    return await open_durable("q", 0, QueueOptions(), store, SystemClock())


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
