"""How a result was made stands in its own row, whatever becomes of deliveries, settlements, shards and logs.

The shard, the chunks and the parts are the real ones, as in `test_sink_deliveries`. Each value has what its row must
have of it.
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
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.notes import FAR_APART
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.datasets.lineage_columns import Gathered
from dqlab.datasets.sink_parts import Reader, open_parts
from dqlab.datasets.sinks import claim
from dqlab.frame import Frame, Kind
from dqlab.rules.states import State
from dqlab.runs.reading.results import _decoded, _open_all, _with_rows
from tests.cluster.consumer.test_sink_deliveries import RUN, Scene
from tests.cluster.desk import DeskActor, opened
from tests.kit.sampled import examples

COUNT = 40
RETRY = {"retries": 9, "backoff": 0.001, "max_backoff": 0.001}


class Noting(Scene):
    """The same scene, with or without a sink, over a log or in memory; each value has how it was made."""

    def __init__(self, actor: DeskActor, sink: Any, dice: random.Random, count: int, log: Path | None) -> None:
        super().__init__(actor, sink, dice, count)
        self.ending = False
        self.log, self.now, self.since = log, time.perf_counter() - 1e4, time.time() - time.perf_counter()

    async def lease(self) -> None:
        """Lease as any; what the lease says of attempts is what the rules have counted: failures, and deaths alone."""
        before = len(self.chunks)
        await super().lease()
        for _, chunk in self.chunks[before:]:
            for index in range(chunk.count):
                record = self.actor.shard.lanes[RUN].trouble.get(chunk.id_at(index))
                assert chunk.attempts_at([index])[0] == 1 + (0 if record is None else record.deliveries)

    def _noted(self, chunk: Chunk, index: int) -> dict[str, Any]:
        self.now += self.dice.choice([0.0, 0.001, FAR_APART, 3.0])
        ordinal, attempt = chunk.ordinal_at(index), chunk.attempts_at([index])[0]
        chunk.code = f"code{self.turns % 2}"  # as if the run had been retried with other code
        chunk.took[index], chunk.ended[index] = float(self.turns), self.now
        if ordinal % 3:
            chunk.versions[index] = f"v{ordinal // 4}"
        return {"took": self.turns, "at": self.since + self.now, "attempt": attempt, "consumer": chunk.lease.consumer}

    def _written(self, chunk: Chunk) -> bytes | None:
        if self.sink is not None:
            return super()._written(chunk)
        return (
            chunk.collect() if self.ending else chunk.collect(self.dice.randint(1, 9), self.dice.choice([20, 1 << 20]))
        )

    async def end(self) -> None:
        self.ending = True
        await super().end()

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
    scene = Noting(actor, sink, dice, count, log)
    for at in range(0, count, 10):
        frame = Frame.encode(
            [b"x"] * min(10, count - at), kind=Kind.ELEMENT, run=RUN, producer=b"p" * 16, sequence=at // 10, ordinal=at
        )
        await actor.put(pack({"frames": 1, "wait": 0.0}, frame))
    acts = [scene.lease, scene.lease, scene.run, scene.run, scene.settle, scene.settle, scene.arrive, scene.give_back]
    for _ in range(steps):
        await dice.choice([*acts, scene.die, *([scene.restart, scene.compact] if dice.random() < 0.2 else [])])()
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
