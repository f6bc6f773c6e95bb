"""Rows of a sink, whatever becomes of deliveries: each document has exactly its own row, of the delivery that counts.

The shard, the chunks and the parts are the real ones. What is played is the order: of leases, of functions' ends, of
parts, of settlements that come late, twice or never, of consumers that die and of messages that are given back.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.consumer.sink_writing import opened_rows, settled_rows
from dqlab.cluster.transport.sealed import seal_value
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.datasets.sink_parts import Reader, Writer, open_parts, writer_of
from dqlab.datasets.sinks import claim
from dqlab.failures.failure import Failure
from dqlab.frame import Frame, Kind, Outcome, Settlement
from dqlab.rules.states import State
from tests.cluster.desk import DeskActor, opened
from tests.kit.sampled import examples

RUN = b"r" * 16
ORIGIN = Origin("consumer/q/0", "w", 1 << 30)
FAILED = Failure.from_exception(
    ValueError("no"), key=None, code="c", consumer="c", worker="w", when=0.0, seconds=0.0
).to_bytes()


class Scene:
    """A run with a sink on one shard, and consumers that do one thing after another."""

    def __init__(self, actor: DeskActor, sink: Any, dice: random.Random, count: int) -> None:
        self.actor, self.sink, self.dice, self.count = actor, sink, dice, count
        self.writer: Writer | None = None if sink is None else writer_of(sink, "numbers", RUN.hex(), "here")
        self.chunks: list[tuple[str, Chunk]] = []
        self.late: list[tuple[str, bytes]] = []
        """Settlements on their way, or forgotten there."""
        self.parts = self.turns = 0
        self.failed: set[int] = set()

    async def lease(self) -> None:
        self.turns += 1
        consumer = f"consumer/q/{self.dice.randrange(3)}#{self.turns}"
        want = self.dice.randint(1, 9)
        call = asyncio.ensure_future(
            self.actor.lease(pack({"consumer": consumer, "session": "s", "credit": [1, want, 1]}))
        )
        await asyncio.sleep(0)
        if not call.done():
            self.actor._dispatch()
            await asyncio.sleep(0)
        if not call.done() and self.actor.shard.leases.of_consumer(consumer):  # its frames are being read from the log
            await asyncio.wait((call,))
        if not call.done():
            call.cancel()
            await asyncio.wait((call,))
            return
        answer, parts = unpack(call.result())
        if "lease" not in answer:
            return
        lease = answer["lease"]
        assert lease.get("sink", False) is (self.sink is not None)
        frames = [Frame.decode(bytes(part)) for part in parts]
        about = {"consumer": consumer.partition("#")[0], "attempts": dict(lease.get("attempts", ()))}
        receipt = 0, lease["id"], answer["epoch"], 60.0
        chunk = Chunk(Lease(*receipt, sink=self.sink is not None, **about), lease["firsts"], frames)
        self.chunks.append((consumer, chunk))

    def _chunk(self) -> tuple[str, Chunk] | None:
        return self.dice.choice(self.chunks) if self.chunks else None

    async def run(self) -> None:
        """Have some messages end, in any order; now and then in an exception."""
        if (chosen := self._chunk()) is None:
            return
        _, chunk = chosen
        for _ in range(self.dice.randint(1, 5)):
            if not chunk.todo:
                return
            if self.dice.random() < 0.5:
                chunk.todo.rotate(self.dice.randrange(len(chunk.todo)))
            index = chunk.todo.popleft()
            ordinal = chunk.ordinal_at(index)
            self.turns += 1
            if ordinal % 7 == 3 and self.dice.random() < 0.4:
                chunk.done.append((index, Outcome.REJECT, FAILED, f"k{ordinal}"))
            elif ordinal % 5 == 0 and ordinal not in self.failed:
                self.failed.add(ordinal)
                chunk.done.append((index, Outcome.FAIL, FAILED, f"k{ordinal}"))
            else:
                value = {"n": ordinal, "delivery": self.turns, **self._noted(chunk, index)}
                chunk.done.append((index, Outcome.ACK, seal_value(value), f"k{ordinal}"))

    def _noted(self, chunk: Chunk, index: int) -> dict[str, Any]:
        """Note how a result was made; return what its value has of that."""
        return {}

    def _written(self, chunk: Chunk) -> bytes | None:
        """Write what has ended as a part; return its settlement."""
        taken = chunk.pending()
        if not taken.payloads:
            return None
        assert self.writer is not None
        opened = opened_rows(chunk, taken, ORIGIN)
        self.parts += 1
        rows = opened.rows
        references = self.writer.write(f"{RUN.hex()[:8]}-c-{self.parts}", rows) if rows else []
        chunk.refer(settled_rows(chunk, opened, references, ORIGIN))
        return chunk.collect(len(taken.payloads))

    async def settle(self) -> None:
        """Write a part, and send its settlement: now, twice, later, or never."""
        if (chosen := self._chunk()) is None:
            return
        consumer, chunk = chosen
        settlement = self._written(chunk)
        if settlement is None:
            return
        fate = self.dice.choice(["now", "now", "twice", "late", "never"])
        if fate in ("now", "twice"):
            await self._send(consumer, settlement)
        if fate != "now" and fate != "never":
            self.late.append((consumer, settlement))

    async def _send(self, consumer: str, settlement: bytes) -> None:
        await self.actor.settle(pack({"consumer": consumer, "credit": [1, 0, 1]}, settlement))

    async def arrive(self) -> None:
        """Have a settlement come that was on its way."""
        if self.late:
            consumer, settlement = self.late.pop(self.dice.randrange(len(self.late)))
            await self._send(consumer, settlement)
            if self.dice.random() < 0.3:
                self.late.append((consumer, settlement))

    async def give_back(self) -> None:
        if (chosen := self._chunk()) is not None and (back := chosen[1].give_back(self.dice.randint(1, 4))):
            await self._send(chosen[0], back)

    async def die(self) -> None:
        """Have a consumer die, or hang: what it had written, or had yet to send, may still come."""
        if (chosen := self._chunk()) is not None:
            if self.dice.random() < 0.5:
                self.chunks.remove(chosen)
            await self.actor.release(pack({"consumers": [chosen[0].partition("#")[0]]}))

    async def retry(self) -> None:
        """Have what is dead run again."""
        await self.actor.retry(pack({"run": RUN, "classes": [], "after": -1, "limit": None}))

    async def end(self) -> None:
        """Have everything come to its end."""
        for _ in range(40):
            await self.work()
            if not list(self.actor.shard.lanes[RUN].dead):
                break
            await self.retry()
        while self.late:
            await self._send(*self.late.pop())

    async def work(self) -> None:
        """Have all that is alive end; what is late stays late."""
        self.chunks.clear()
        for number in range(3):
            await self.actor.release(pack({"consumers": [f"consumer/q/{number}"]}))
        for _ in range(40 * self.count):
            if not self.actor.shard.lanes[RUN].alive:
                break
            await self.lease()
            for consumer, chunk in self.chunks:
                while chunk.todo:
                    await self.run()
                if (settlement := self._written(chunk)) is not None:
                    await self._send(consumer, settlement)
            self.chunks.clear()
            await asyncio.sleep(0.001)


async def play(sink: Any, seed: int, steps: int, count: int) -> None:
    dice = random.Random(seed)
    record = {"name": "numbers", "codes": [{"name": "f", "hash": "h", "short": "s"}], "sink": sink.record()}
    claim(sink, "numbers", RUN.hex())
    actor = await opened()
    retry = {"retries": 9, "backoff": 0.001, "max_backoff": 0.001}
    await actor.control(pack({"op": "open", "open": {"run": RUN, "record": record, "retry": retry}}))
    scene = Scene(actor, sink, dice, count)
    for at in range(0, count, 10):
        frame = Frame.encode(
            [b"x"] * min(10, count - at), kind=Kind.ELEMENT, run=RUN, producer=b"p" * 16, sequence=at // 10, ordinal=at
        )
        await actor.put(pack({"frames": 1, "wait": 0.0}, frame))
    acts = [scene.lease, scene.lease, scene.run, scene.run, scene.settle, scene.settle, scene.arrive, scene.give_back]
    for _ in range(steps):
        await dice.choice([*acts, scene.die] if dice.random() < 0.95 else [scene.work, scene.retry])()
    await scene.end()

    counts = actor.shard.lanes[RUN].counts
    assert counts[State.ACKED] == count
    found: dict[int, Any] = {}
    open_parts.clear()
    reader = Reader(sink, "numbers", RUN.hex())
    _, parts = unpack(await actor.page(pack({"run": RUN, "lo": 0, "hi": count})))
    for part in parts:
        settlement = Settlement.decode(part)
        ordinals = list(settlement.ordinals())
        for ordinal, row in zip(ordinals, reader.find(settlement.entries(), ordinals), strict=True):
            assert ordinal not in found, "it is there twice"
            found[ordinal] = row["n"]
        assert settlement.keys() == [f"k{n}" for n in settlement.ordinals()]
    assert found == {n: n for n in range(count)}
    await actor.hand_over(pack({}))


@pytest.mark.long
@settings(max_examples=examples(60))
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 120), count=st.integers(1, 40))
def test_each_document_has_exactly_its_own_row_whatever_becomes_of_deliveries(
    seed: int, steps: int, count: int
) -> None:
    """Settlements that are late, repeated or lost, consumers that die: parts that do not count are not seen."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(dq.Parquet(Path(folder)), seed, steps, count))
