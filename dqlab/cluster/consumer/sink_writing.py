"""Gathers the rows of a consumer's slots and writes them as parts into the sinks of their runs.

Owns when a part is written: when rows of all slots fill it, when the first row has waited long enough, or when nothing
else runs here. A part is written, and for a durable queue synced to disk, before any of its rows is settled. Knows
neither how a part is written (`datasets.sink_parts`) nor how an outcome is settled (`slot`).
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol

from dqlab.cluster.consumer.running.chunk import Chunk, Columns
from dqlab.cluster.consumer.running.execution import Origin, failed
from dqlab.cluster.consumer.running.threads import SlotThread
from dqlab.cluster.transport.calls import FindSinkCall, HoldCall
from dqlab.cluster.transport.sealed import open_alike
from dqlab.cluster.transport.wire import Packed
from dqlab.datasets.sink_parts import SinkRows, Writer, writer_of
from dqlab.datasets.sinks import Sink, prefix_of, sink_of
from dqlab.errors import RunNotFound, in_words
from dqlab.frame import Outcome
from dqlab.texts import one_line

logger = logging.getLogger("dqlab.consumer")

FEWEST, EARLY, SHARE = 500, 25_000, 40
"""Fewest rows of a part, which grows with the run: after `EARLY` rows to 1/`SHARE` of the rows since then. The rows in
hand of a killed consumer run again, and must stay a small share of the run, however fast it is. A part costs a
millisecond, and each row in it a microsecond."""
PART_BYTES = 32 << 20
"""Bytes of pickled results above which a part is written."""
SOONEST, SOON, LONGEST = 0.05, 1.0, 10.0
"""Seconds that a row waits, at most: at the start of a run, after ten seconds, and after a quarter of an hour. A slow
function leaves a part each time."""
LOOK_S = 0.02
"""Seconds between two checks whether anything runs here."""
SLOW_S = 10.0
"""Seconds that writing a part may take until its run is held up."""
AGAIN_S = 1.0, 5.0
"""Shortest and longest pause before a part is tried again; each try reports to the run's shards that it is held up."""
KEEP = 32
"""Runs whose gatherings are kept."""


async def hold(calls: Iterable[Callable[[str, bytes], Awaitable[Packed]]], run: bytes, reporter: str, why: str) -> bool:
    """Report to a run's shards why results cannot be kept, "" once they can; return whether some are still to come."""
    # A shard that does not answer may still want results. It forgets a report after a while, so callers repeat it.
    asked = HoldCall(run, reporter, why)
    answers = await asyncio.gather(*(asked.ask(call) for call in calls), return_exceptions=True)
    wanted = False
    for answer in answers:
        if not isinstance(answer, BaseException):
            known, _ = answer
            wanted |= known.wanted
        elif not isinstance(answer, RunNotFound):  # the shard is on the move: the next report reaches it
            logger.warning("event=hold_unknown reporter=%s %s", reporter, answer)
            wanted = True
    return wanted


class Calls(Protocol):
    """Calls a shard."""

    async def call(self, function: str, body: bytes, /) -> bytes:
        """Return the answer of a shard's method."""
        ...


@dataclass(eq=False)
class _Lot:
    """Finished messages of a chunk that wait to be written, and the future of their outcomes."""

    chunk: Chunk
    done: Columns
    ready: asyncio.Future[Columns]
    since: float
    rows: int = field(init=False)
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.done.outcomes.count(Outcome.ACK)
        self.nbytes = sum(map(len, self.done.payloads))

    @property
    def given_up(self) -> bool:
        """Whether no row of the lot is wanted any more."""
        return self.ready.done() or self.chunk.cancelled.issuperset(self.done.positions)


def _total(lots: Collection[_Lot]) -> tuple[int, int]:
    """Return the rows and bytes of lots."""
    return sum(lot.rows for lot in lots), sum(lot.nbytes for lot in lots)


class Gathering:
    """The rows of one run on one consumer."""

    def __init__(
        self,
        sink: Sink,
        writer: Writer,
        names: Callable[[], str],
        origin: Origin,
        hold: Callable[[str], Any],  # reports why rows cannot be written, "" when they can; returns whether to go on
        busy: Callable[[], bool],  # returns whether more rows may follow soon
    ) -> None:
        self._sink, self._writer, self._names, self._origin = sink, writer, names, origin
        self._thread = SlotThread(f"dq-{origin.consumer}-sink")
        """One for each run: a sink that does not answer must not stop other runs."""
        self._hold, self._busy = hold, busy
        self._waiting: deque[_Lot] = deque()
        self._here: set[_Lot] = set()
        """The lots that wait or are being written."""
        self._news, self._left = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._began: float | None = None
        self.written = 0
        """Rows that this consumer has written."""
        self.held = ""

    @property
    def part_rows(self) -> int:
        """About how many rows the next part gets."""
        return min(self._sink.rows, max(FEWEST, (self.written - EARLY) // SHARE))

    @property
    def crowded(self) -> bool:
        """Whether functions run ahead of the sink."""
        return bool(self.held) or self._fills(*_total(self._here), 2)

    def _fills(self, rows: int, nbytes: int, parts: int = 1) -> bool:
        return rows >= parts * self.part_rows or nbytes >= parts * PART_BYTES

    @property
    def idle(self) -> bool:
        """Whether no row of the run is here."""
        return not self._here and (self._task is None or self._task.done())

    async def room(self, chunk: Chunk) -> None:
        """Wait until the sink has room for a chunk's rows, or the chunk has been given back."""
        while self.crowded and chunk.todo and not chunk.finished:
            self._left.clear()
            with_news = asyncio.ensure_future(self._left.wait())
            # With a timeout, since nothing sets the event when the chunk is given back.
            await asyncio.wait((with_news,), timeout=10 * LOOK_S)
            with_news.cancel()

    async def keep(self, chunk: Chunk, done: Columns) -> Columns:
        """Write the acked rows among some outcomes, together with other lots, and return the outcomes to settle."""
        loop = asyncio.get_running_loop()
        lot = _Lot(chunk, done, loop.create_future(), loop.time())
        if not lot.rows:
            return done
        self._began = self._began if self._began is not None else lot.since
        self._waiting.append(lot)
        self._here.add(lot)
        self._news.set()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run(), name="dqlab-sink")
        try:
            return await lot.ready
        finally:  # also when the settling task is cancelled: rows that stay counted would crowd the run for ever
            self._here.discard(lot)
            self._left.set()

    def close(self) -> None:
        """Write no more parts."""
        if self._task is not None:
            self._task.cancel()
        self._thread.close()

    # --- inside -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._waiting:
            await self._enough()
            lots, rows, nbytes = list[_Lot](), 0, 0
            while self._waiting and not (lots and self._fills(rows, nbytes)):
                lot = self._waiting.popleft()
                if not lot.ready.done():
                    lots.append(lot)
                    rows, nbytes = rows + lot.rows, nbytes + lot.nbytes
            try:
                # Full before its rows were old: the function is fast, and waits for the writing of each part.
                await self._write(lots, hurried=self._fills(rows, nbytes))
            except Exception as error:  # each lot's chunk gets it, and loses its lease
                logger.exception("event=sink_failed sink=%s", self._sink)
                for lot in lots:
                    if not lot.ready.done():
                        lot.ready.set_exception(error)

    async def _enough(self) -> None:
        """Wait until the waiting rows are worth a part."""
        loop, idle = asyncio.get_running_loop(), 0
        assert self._began is not None
        while not self._fills(*_total(self._waiting)):
            now = loop.time()
            age = now - self._began
            patience = max(SOONEST, min(SOON, age / 10), min(LONGEST, age / 100))
            left = self._waiting[0].since + patience - now
            # Two checks in a row: between two chunks a slot is idle for a moment.
            idle = 0 if self._busy() else idle + 1
            if left <= 0 or idle > 1:
                return
            self._news.clear()
            try:
                async with asyncio.timeout(min(left, LOOK_S)):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _write(self, lots: list[_Lot], *, hurried: bool) -> None:
        """Try to write a part until it is written, or no longer wanted."""
        # One name for all tries, so that a sink can replace what a failed try has left.
        part, pause = self._names(), AGAIN_S[0]
        while lots:
            try:
                await self._written(part, lots, hurried=hurried)
            except Exception as error:  # noqa: BLE001 - a user's sink may raise anything, which views show
                why = one_line(in_words(error), 300)
            else:
                if self.held:
                    await self._report("")
                for lot in lots:
                    if not lot.ready.done():
                        lot.ready.set_result(lot.done)
                return
            logger.warning("event=sink_refused sink=%s part=%s %s", self._sink, part, why)
            wanted = await self._report(f"its rows cannot be written to {self._sink}: {why}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, AGAIN_S[1])
            for lot in [lot for lot in lots if not wanted or lot.given_up]:
                lots.remove(lot)
                if not lot.ready.done():
                    lot.ready.set_result(Columns.returned(lot.done.positions))
        if self.held:
            await self._report("")

    async def _written(self, part: str, lots: list[_Lot], *, hurried: bool) -> None:
        writing = asyncio.wrap_future(self._thread.submit(partial(self._write_part, part, list(lots), hurried=hurried)))
        while not (await asyncio.wait((writing,), timeout=SLOW_S))[0]:
            await self._report(f"its rows cannot be written to {self._sink} yet: it is slow to answer")
        writing.result()

    async def _report(self, why: str) -> bool:
        self.held = why
        return bool(await self._hold(why))

    def _write_part(self, part: str, lots: list[_Lot], *, hurried: bool) -> None:
        """Write rows, in the thread of this sink, and have their outcomes refer to them."""
        rows, places = SinkRows(), list[Sequence[int]]()
        for lot in lots:
            at, opened = opened_rows(lot.chunk, lot.done, self._origin)
            rows.extend(opened)
            places.append(at)
        references = iter(self._writer.write(part, rows, hurried=hurried) if rows else ())
        self.written += len(rows)
        for lot, at in zip(lots, places, strict=True):
            refer_to(lot.chunk, lot.done, at, references, self._origin)


class Sinks:
    """The gatherings of one consumer, by run."""

    # `here` names this process in errors.
    def __init__(self, consumer: str, here: str, origin: Origin) -> None:
        self._consumer, self._here, self._origin = consumer, here, origin
        self._gatherings: dict[bytes, Gathering] = {}
        self._numbers, self._token = count(), uuid.uuid4().hex[:8]
        self.busy: Callable[[], bool] = lambda: False
        """Returns whether any slot runs a chunk or is about to."""

    async def of(self, run: bytes, shards: dict[int, Any], shard: int) -> Gathering:
        """Return the gathering of a run, after asking a shard for its sink once."""
        found = self._gatherings.get(run)
        if found is None:
            there, _ = await FindSinkCall(run).ask(shards[shard].call)
            found = self._gatherings.get(run)  # another slot may have been faster
            if found is None:
                self._forget_some()
                sink, id = sink_of(there.sink), run.hex()
                stem = f"{prefix_of(id)}c{self._consumer.rpartition('/')[2]}-{self._token}-"
                found = self._gatherings[run] = Gathering(
                    sink,
                    writer_of(sink, there.name, id, self._here, durable=there.durable),
                    lambda: f"{stem}{next(self._numbers):06d}",
                    self._origin,
                    lambda why: self._hold(run, shards, why),
                    lambda: self.busy(),
                )
        return found

    async def keep(self, chunk: Chunk, shards: dict[int, Any]) -> None:
        """Write the rows of a chunk's finished messages, if its run has a sink."""
        if chunk.lease.sink and (taken := chunk.pending()).payloads:
            chunk.refer(await (await self.of(chunk.run, shards, chunk.lease.shard)).keep(chunk, taken))

    def piece(self, run: bytes) -> int:
        """Return how many messages of a run to run as one chunk, as many as a part of it has rows now."""
        found = self._gatherings.get(run)
        return FEWEST if found is None else max(FEWEST, found.part_rows)

    def _forget_some(self) -> None:
        """Remove the oldest idle gatherings beyond `KEEP`."""
        # A run that continues is looked up again.
        idle = [run for run, gathering in self._gatherings.items() if gathering.idle]
        for run in idle[: max(0, len(self._gatherings) - KEEP)]:
            self._gatherings.pop(run).close()

    async def _hold(self, run: bytes, shards: dict[int, Any], why: str) -> bool:
        calls = [ref.call for ref in shards.values()]
        return await hold(calls, run, self._consumer, why)

    def close(self) -> None:
        """Write no more parts."""
        for gathering in self._gatherings.values():
            gathering.close()


def opened_rows(chunk: Chunk, done: Columns, origin: Origin) -> tuple[Sequence[int], SinkRows]:
    """Return which outcomes are rows, and these; a value that cannot be opened becomes a failure."""
    acked, payloads, values = Outcome.ACK, done.payloads, list[Any]()
    places: Sequence[int] = range(len(payloads))
    if done.outcomes.count(acked) < len(payloads):
        places = [place for place in places if done.outcomes[place] is acked]
    try:
        values = open_alike([payloads[place] for place in places])  # all at once, as nearly always
    except Exception:  # noqa: BLE001 - opening runs users' code
        some, places = places, list[int]()
        for place in some:
            try:
                values.append(pickle.loads(payloads[place]))
                places.append(place)
            except Exception as error:  # noqa: BLE001 - opening runs users' code
                _fail(chunk, done, place, error, origin)
    if not places:
        return places, SinkRows()
    # Column by column: a loop over rows takes as long as writing them.
    n, indexes, keys = len(places), [done.positions[place] for place in places], done.keys
    if n < len(payloads):
        keys = [keys[place] for place in places]
    now = time.perf_counter()
    since, versions = time.time() - now, chunk.versions
    columns = (
        chunk.ordinals_at(indexes),
        keys,
        values,
        list(map(versions.get, indexes)),
        [chunk.code] * n,
        chunk.seconds_at(indexes),
        chunk.attempts_at(indexes),
        [chunk.lease.consumer] * n,
        [since + (chunk.ended[index] or now) for index in indexes],
    )
    return places, SinkRows(columns, [] if chunk.columns is None else [chunk.columns])


def refer_to(
    chunk: Chunk, done: Columns, places: Sequence[int], references: Iterable[bytes | Exception], origin: Origin
) -> None:
    """Put references in place of results, and failures in place of rows that the sink rejects."""
    for place, reference in zip(places, references, strict=False):
        if isinstance(reference, bytes):
            done.payloads[place] = reference
        else:
            _fail(chunk, done, place, reference, origin)


def _fail(chunk: Chunk, done: Columns, place: int, error: Exception, origin: Origin) -> None:
    outcome = failed(done.positions[place], error, origin, chunk.code, done.keys[place], 0.0)
    _, done.outcomes[place], done.payloads[place], _ = outcome
