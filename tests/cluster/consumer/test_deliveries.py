"""What becomes of results: each document has its own row, key, dead letter and lineage, of the delivery that counts.

The shard, the chunks and the parts are the real ones. What is played is the order: of leases, of functions' ends, of
parts, of settlements that come late, twice or never, of consumers that die, of messages that are given back, and of
shards that restart. Each value has what its row must have of it.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.consumer.running.notes import FAR_APART
from dqlab.cluster.consumer.sink_writing import opened_rows, refer_to
from dqlab.cluster.transport.sealed import seal_value
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.datasets.lineage import ROW_LINEAGE, Gathered
from dqlab.datasets.sink_parts import Reader, Writer, open_parts, writer_of
from dqlab.datasets.sinks import claim
from dqlab.failures.failure import Failure
from dqlab.frame import Frame, Kind, Outcome, Settlement
from dqlab.rules.states import State
from dqlab.runs.reading.results import _decoded, _open_all, _with_rows
from tests.cluster.desk import DeskActor, opened
from tests.kit.sampled import examples

RUN = b"r" * 16
ORIGIN = Origin("consumer/q/0", "w", 1 << 30)
COUNT = 40
RETRY = {"retries": 9, "backoff": 0.001, "max_backoff": 0.001}


def failed(ordinal: int) -> bytes:
    error = ValueError(f"about {ordinal}")
    return Failure.from_exception(error, when=0.0, seconds=0.0, key=f"k{ordinal}").to_bytes()


class Scene:
    """A run on one shard, with or without a sink and a log, and consumers that do one thing after another.

    Each value has how it was made.
    """

    def __init__(self, actor: DeskActor, sink: Any, dice: random.Random, count: int, log: Path | None) -> None:
        self.ending = False
        self.log, self.now, self.since = log, time.perf_counter() - 1e4, time.time() - time.perf_counter()
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
        for index in range(chunk.count):  # what the lease says of attempts: failures, and deaths alone
            record = self.actor.shard.lanes[RUN].trouble.get(chunk.id_at(index))
            assert chunk.attempts_at([index])[0] == 1 + (0 if record is None else record.deliveries)

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
                chunk.done.append((index, Outcome.REJECT, failed(ordinal), f"k{ordinal}"))
            elif ordinal % 5 == 0 and ordinal not in self.failed:
                self.failed.add(ordinal)
                chunk.done.append((index, Outcome.FAIL, failed(ordinal), f"k{ordinal}"))
            else:
                value = {"n": ordinal, "delivery": self.turns, **self._noted(chunk, index)}
                chunk.done.append((index, Outcome.ACK, seal_value(value), f"k{ordinal}"))

    def _noted(self, chunk: Chunk, index: int) -> dict[str, Any]:
        self.now += self.dice.choice([0.0, 0.001, FAR_APART, 3.0])
        ordinal, attempt = chunk.ordinal_at(index), chunk.attempts_at([index])[0]
        chunk.code = f"code{self.turns % 2}"  # as if the run had been retried with other code
        chunk.took[index], chunk.ended[index] = float(self.turns), self.now
        if ordinal % 3:
            chunk.versions[index] = f"v{ordinal // 4}"
        return {"took": self.turns, "at": self.since + self.now, "attempt": attempt, "consumer": chunk.lease.consumer}

    def _written(self, chunk: Chunk) -> bytes | None:
        """Return the settlement of what has ended, once it is written as a part where there is a sink."""
        if self.sink is None:
            few = self.dice.randint(1, 9), self.dice.choice([20, 1 << 20])
            return chunk.collect() if self.ending else chunk.collect(*few)
        taken = chunk.pending()
        if not taken.payloads:
            return None
        assert self.writer is not None
        places, rows = opened_rows(chunk, taken, ORIGIN)
        self.parts += 1
        references = self.writer.write(f"{RUN.hex()[:8]}-c-{self.parts}", rows) if rows else []
        refer_to(chunk, taken, places, references, ORIGIN)
        chunk.refer(taken)
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
        """Have what is dead run again, which bears the key and the words of its own failure."""
        for letter in self.actor.shard.dead_letters(RUN) if self.log is None else ():
            failure = Failure.from_bytes(letter.failure)
            assert (failure.key, failure.message) == (f"k{letter.ordinal}", f"about {letter.ordinal}")
        await self.actor.retry(pack({"run": RUN, "classes": [], "after": -1, "limit": None}))

    async def end(self) -> None:
        """Have everything come to its end."""
        self.ending = True
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

    async def restart(self) -> None:
        """Have the shard end, and another one open its log."""
        if self.log is not None:
            await self.actor.hand_over(pack({}))
            self.actor = await opened(self.log)

    async def compact(self) -> None:
        if self.log is not None:
            await self.actor.compact(pack({"wait": 10.0}))


async def play(sink: Any, seed: int, steps: int, count: int, log: Path | None) -> None:
    dice = random.Random(seed)
    record: dict[str, Any] = {"name": "numbers", "codes": [{"name": "f", "hash": "h", "short": "s"}]}
    if sink is not None:
        record["sink"] = sink.record()
        claim(sink, "numbers", RUN.hex())
    actor = await opened(log)
    await actor.control(pack({"op": "open", "open": {"run": RUN, "record": record, "retry": RETRY}}))
    scene = Scene(actor, sink, dice, count, log)
    for at in range(0, count, 10):
        frame = Frame.encode(
            [b"x"] * min(10, count - at), kind=Kind.ELEMENT, run=RUN, producer=b"p" * 16, sequence=at // 10, ordinal=at
        )
        await actor.put(pack({"frames": 1, "wait": 0.0}, frame))
    acts = [scene.lease, scene.lease, scene.run, scene.run, scene.settle, scene.settle, scene.arrive, scene.give_back]
    for _ in range(steps):
        rare = [scene.restart, scene.compact, scene.work, scene.retry] if dice.random() < 0.2 else []
        await dice.choice([*acts, scene.die, *rare])()
    await scene.end()
    await scene.compact()
    await scene.restart()

    open_parts.clear()
    assert scene.actor.shard.lanes[RUN].counts[State.ACKED] == count
    reader = None if sink is None else Reader(sink, "numbers", RUN.hex())
    rows, ordinals = list[dict[str, Any]](), list[int]()
    gathered, at = Gathered(), 0
    while at < count:
        stop = min(count, at + dice.randint(1, 9))
        _, parts = unpack(await scene.actor.page(pack({"run": RUN, "lo": at, "hi": stop})))
        for settlement in map(Settlement.decode, parts):
            assert settlement.keys() == [f"k{n}" for n in settlement.ordinals()]
        page = _open_all(_decoded(parts), referring=reader is not None)
        page = page if reader is None else [*chain.from_iterable(_with_rows(page, reader))]
        for stretch in page:
            assert stretch.lineage is not None
            assert len(stretch.lineage) == len(stretch.values)
            gathered.add(stretch.lineage)
            rows += stretch.values
            ordinals += range(stretch.ordinal, stretch.end)
        at = page[-1].end
    columns = {name: column.to_pylist() for name, column in gathered.arrow().items()}

    assert ordinals == [row["n"] for row in rows] == list(range(count))
    assert set(columns) == set(ROW_LINEAGE)
    assert columns["_seconds"] == [row["took"] for row in rows]
    assert columns["_attempts"] == [row["attempt"] for row in rows]
    assert columns["_consumer"] == [row["consumer"] for row in rows]
    assert columns["_version"] == [f"v{n // 4}" if n % 3 else None for n in range(count)]
    assert set(columns["_code"]) <= {"code0", "code1"}
    for made, row in zip(columns["_at"], rows, strict=True):
        assert abs(made.timestamp() - row["at"]) <= FAR_APART / 2 + 0.01
    await scene.actor.hand_over(pack({}))


@pytest.mark.long
@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 120), count=st.integers(1, COUNT), sinks=st.booleans())
def test_each_row_has_its_own_lineage_whatever_becomes_of_deliveries(
    seed: int, steps: int, count: int, sinks: bool
) -> None:
    """Seconds of a neighbour look as right as one's own: nobody would find out."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(dq.Parquet(Path(folder)) if sinks else None, seed, steps, count, None))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sinks", [False, True])
def test_each_row_keeps_its_lineage_in_a_log(tmp_path: Path, seed: int, sinks: bool) -> None:
    """Through restarts and compactions of a durable queue."""
    sink = dq.Parquet(tmp_path / "out") if sinks else None
    asyncio.run(play(sink, seed, 80, COUNT, tmp_path / "log"))
