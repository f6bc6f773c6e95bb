"""When rows become a part: many enough, old enough, or nothing else runs; and what becomes of a sink that refuses."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cluster.consumer import sink_writing
from dqlab.cluster.consumer.running.chunk import Chunk, Columns, Lease
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.consumer.sink_writing import EARLY, FEWEST, SHARE, Gathering
from dqlab.cluster.consumer.slot import portions_of
from dqlab.cluster.transport.sealed import seal_value
from dqlab.datasets.sink_parts import SinkRow, refer_all
from dqlab.frame import Frame, Kind, Outcome

pytestmark = pytest.mark.long

ORIGIN = Origin("consumer/q/0", "w", 1 << 30)


class Shelf:
    """Keeps parts; refuses as often as it is told, and waits while it is shut."""

    def __init__(self) -> None:
        self.parts: dict[str, list[Any]] = {}
        self.hurried: list[bool] = []
        self.refuse = 0
        self.open = threading.Event()
        self.open.set()

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        self.open.wait(10)
        if self.refuse:
            self.refuse -= 1
            raise OSError("the shelf is full")
        self.parts[part] = [row.value for row in rows]
        self.hurried.append(hurried)
        return refer_all(part, len(rows))


class Bench:
    """A gathering, and chunks for it."""

    def __init__(self) -> None:
        self.shelf, self.runs, self.holds, self.wanted = Shelf(), True, list[str](), True
        names = count()
        self.gathering = Gathering(
            dq.Parquet("out"), self.shelf, lambda: f"p{next(names)}", ORIGIN, self._hold, lambda: self.runs
        )

    async def _hold(self, why: str) -> bool:
        self.holds.append(why)
        return self.wanted

    def chunk(self, n: int) -> tuple[Chunk, Columns]:
        frame = Frame.decode(Frame.encode([b"x"] * n, kind=Kind.ELEMENT, ordinal=100))
        chunk = Chunk(Lease(0, 1, 1, 60.0, sink=True), [1], [frame])
        return chunk, Columns.of((at, Outcome.ACK, seal_value(at), None) for at in range(n))

    async def keep(self, n: int) -> Columns:
        return await self.gathering.keep(*self.chunk(n))


def played(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        try:
            await asyncio.wait_for(scenario(bench), 20)
        finally:
            bench.shelf.open.set()
            bench.gathering.close()

    asyncio.run(run())


def test_rows_of_several_chunks_are_one_part() -> None:
    """Chunks are of 50 to 100 ms, and a file for each would be too many."""

    async def scenario(bench: Bench) -> None:
        kept = await asyncio.gather(*(bench.keep(20) for _ in range(5)))

        assert [len(values) for values in bench.shelf.parts.values()] == [100]
        references = [reference for each in kept for reference in each.payloads]
        assert references == refer_all("p0", 100)

    played(scenario)


def test_rows_that_are_enough_wait_for_no_others() -> None:
    """A fast function has hundreds in a moment."""

    async def scenario(bench: Bench) -> None:
        bench.gathering._began = asyncio.get_running_loop().time() - 100  # of a run that is no longer young
        await asyncio.wait_for(bench.keep(FEWEST), 0.5)
        bench.gathering.written = EARLY + SHARE * FEWEST * 3
        late = asyncio.ensure_future(bench.keep(FEWEST))
        await asyncio.sleep(0.2)
        assert not late.done()  # a part of a large run may be larger
        await asyncio.wait_for(bench.keep(2 * FEWEST), 0.5)
        assert len((await late).payloads) == FEWEST

    played(scenario)


def test_a_part_that_fills_up_at_once_is_written_in_a_hurry_and_one_of_a_slow_function_is_not() -> None:
    """Compression that takes longer and leaves less costs a fast function time, and a slow one nothing."""

    async def scenario(bench: Bench) -> None:
        await bench.keep(FEWEST)
        bench.runs = False
        await bench.keep(FEWEST - 1)
        assert bench.shelf.hurried == [True, False]

    played(scenario)


def test_a_row_waits_for_a_second_at_most_and_not_at_all_when_nothing_else_runs() -> None:
    """A document that takes long is done when it is done; the last one of a run has none behind it."""

    async def scenario(bench: Bench) -> None:
        loop = asyncio.get_running_loop()
        bench.gathering._began = loop.time() - 100
        began = loop.time()
        await bench.keep(1)
        assert 0.8 < loop.time() - began < 5
        bench.runs, began = False, loop.time()
        await bench.keep(1)
        assert loop.time() - began < 0.8

    played(scenario)


def test_functions_run_ahead_of_a_sink_by_two_parts_alone() -> None:
    """Results of a sink that is slow would fill the memory."""

    async def scenario(bench: Bench) -> None:
        bench.shelf.open.clear()
        waiting = [asyncio.ensure_future(bench.keep(FEWEST)) for _ in range(2)]
        await asyncio.sleep(0.05)
        chunk, _ = bench.chunk(5)
        room = asyncio.ensure_future(bench.gathering.room(chunk))
        await asyncio.sleep(0.3)
        assert bench.gathering.crowded
        assert not room.done()
        bench.shelf.open.set()
        await asyncio.gather(*waiting)
        await asyncio.wait_for(room, 1)
        chunk.todo.clear()  # one that is given back waits for nothing
        bench.gathering.held = "full"
        await asyncio.wait_for(bench.gathering.room(chunk), 1)

    played(scenario)


def test_what_a_sink_refuses_is_kept_and_the_run_is_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows, under the same name; and the hold ends with the first part that is written."""
    monkeypatch.setattr(sink_writing, "AGAIN_S", (0.01, 0.02))

    async def scenario(bench: Bench) -> None:
        bench.shelf.refuse = 3
        await bench.keep(7)

        assert bench.shelf.parts == {"p0": list(range(7))}
        assert bench.holds == ["its rows cannot be written to out: OSError: the shelf is full"] * 3 + [""]
        assert not bench.gathering.crowded

    played(scenario)


def test_rows_that_are_no_longer_wanted_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was dropped, or cancelled, while its sink refused."""
    monkeypatch.setattr(sink_writing, "AGAIN_S", (0.01, 0.02))

    async def scenario(bench: Bench) -> None:
        bench.shelf.refuse = 1_000_000
        chunk, done = bench.chunk(3)
        cancelled = asyncio.ensure_future(bench.gathering.keep(chunk, done))
        await asyncio.sleep(0.1)
        chunk.cancel([(1, 4)])
        assert (await cancelled).outcomes == [Outcome.RETURN] * 3
        assert bench.holds[-1] == ""

        bench.wanted = False
        assert (await bench.keep(2)).outcomes == [Outcome.RETURN] * 2
        assert bench.gathering.idle

    played(scenario)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(1, 60))
def test_the_chunks_of_a_lease_have_all_its_messages_and_differ_by_few(counts: list[int], about: int) -> None:
    """Cut at each frame of the input, a chunk of 934 messages was followed by one of 66."""
    firsts = [1000 * number for number in range(len(counts))]
    frames = [Frame.decode(Frame.encode([b"x"] * n, kind=Kind.ELEMENT, ordinal=7 * n)) for n in counts]

    portions = list(portions_of(firsts, frames, about))

    ids = [
        first + at
        for firsts, cuts in portions
        for first, cut in zip(firsts, cuts, strict=True)
        for at in range(cut.count)
    ]
    assert ids == [first + at for first, n in zip(firsts, counts, strict=True) for at in range(n)]
    sizes = [sum(cut.count for cut in cuts) for _, cuts in portions]
    assert len(set(sizes[:-1])) <= 1
    assert sizes[-1] <= sizes[0] <= max(2 * about, 1)
    assert len(sizes) <= max(1, round(sum(counts) / about))
