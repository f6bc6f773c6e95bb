"""Puts of single calls and values: send them, await their results, and free results that nothing can read any more."""

from __future__ import annotations

import asyncio
import logging
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from hashlib import blake2b
from inspect import Signature
from typing import Any, Literal, TypeAlias

from dqlab.cluster.consumer.actor import Message
from dqlab.cluster.transport import calls, queue_calls
from dqlab.cluster.transport.internals import event_loop
from dqlab.cluster.transport.orders import Forget
from dqlab.cluster.transport.protocol import PARK
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.ref import limited
from dqlab.cluster.transport.sealed import SealError, blob_hash, make_sealer, pack_function, seal_or_explain
from dqlab.config import nbytes, option, seconds_or_none
from dqlab.errors import (
    BadOption,
    CallTimeout,
    DqlabError,
    DqlabWarning,
    MessageTooLarge,
    PutTimeout,
    ResultsFull,
    ResultsMissing,
    RunFailed,
    RunStalled,
    WaitTimeout,
)
from dqlab.errors.rendering import interruptible
from dqlab.frame import NO_ID, Kind
from dqlab.keywords import SuggestsAttributes
from dqlab.notebook import in_script
from dqlab.numbers import many
from dqlab.rules.ranges import shard_of
from dqlab.runs.code.sealing import check_function, check_takes, function_bytes, own_signature, warn_of_changes
from dqlab.runs.failures import Failures
from dqlab.runs.reading.results import check_errors, check_readable, open_settlements
from dqlab.runs.submit.sender import CONFIRM_WAIT, Entry, LoneSender, PutSender, Ticket
from dqlab.runs.waiting import ENDS_WITH_SCRIPT, Deadline, Standstill, expects_workers, name_pause, no_answer

logger = logging.getLogger("dqlab.sender")

PAGE = 1000
"""Messages for which one call fetches results."""
GATHER_S = 0.5
"""Seconds between two reports of results that nothing can read any more."""
FORGOTTEN_AT_ONCE = 1000
"""Ranges of ids in one order."""
CLOSE_TIMEOUT = 5.0
WARNED_AT = 6
"""Frames between a warning and the user's line.

The same for every put, so keep comprehensions out of this path: before Python 3.12 they have frames of their own.
"""

_ARGUMENTS = "the arguments of call"
_CALL = tuple, list
_Shape: TypeAlias = tuple[Any, ...]
"""How many arguments a call has by position, and the names of the others: all that decides whether they fit."""
_Entries: TypeAlias = dict[int, tuple[Callable[..., Any], Entry, Signature | None, set[_Shape]]]
"""The functions of one put, by identity, with their signatures and the shapes of calls that fit them.

Keeping the functions alive keeps identities unique.
"""


class PlainPuts:
    """Puts single calls and values into lane 0 of a queue."""

    # One sender for all puts of a client: it keeps their order.
    # `forgets` frees results when their `PutResult` is gone, so nothing else may read them. `serve` starts consumers
    # again, since another client may have closed and reopened the queue.

    def __init__(
        self,
        handle: Handle,
        maxsize: int | None,
        max_bytes: int | None,
        *,
        forgets: bool = False,
        serve: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.handle, self._serve = handle, serve
        self._serving: asyncio.Task[None] | None = None
        self._sender = PutSender(handle, run=NO_ID, producer=uuid.uuid4().bytes, maxsize=maxsize, max_bytes=max_bytes)
        self._warn = nbytes(option("message.warn-bytes"), name="dqlab.message.warn-bytes")
        limit = nbytes(option("message.max-bytes"), name="dqlab.message.max-bytes")
        self._limit = limit if max_bytes is None else min(limit, max_bytes)
        self._values = Entry(Kind.VALUE)
        self._warned = False
        self._forgetting = Forgetting(handle) if forgets else None
        self._unserved = self._serve_again if serve is not None else None
        self._sender.on_unserved = self._unserved

    @property
    def failed(self) -> bool:
        """Whether every further put raises the error of an earlier one."""
        return self._sender.failure is not None

    def _serve_again(self) -> None:
        """Start serving the queue on the event loop, unless that is under way."""
        if self._serve is not None and (self._serving is None or self._serving.done()):
            self._serving = asyncio.get_running_loop().create_task(self._serve(), name="dqlab-serve")

    def values(self, values: Iterable[Any]) -> PutResult:
        """Put plain values, and put each `Message` among them as a call."""
        # No check of a Message's arguments: a user's own consumer class may call its function with others.
        put = _Put()
        for position, value in enumerate(values):
            put.add(*self._value(value, position, put))
        return self._send(put)

    def calls(self, calls: Iterable[Any]) -> PutResult:
        """Put calls: (function, *args), or (function, args, kwargs) with a tuple and a dict."""
        put, seal = _Put(), make_sealer()
        for position, call in enumerate(calls):
            if not isinstance(call, _CALL) or not call:
                raise BadOption(option=f"call {position}", value=call, problem="a call is (function, argument, ...).")
            its: tuple[tuple[Any, ...], dict[str, Any]] = tuple(call[1:]), {}
            if len(its[0]) == 2 and isinstance(call[1], tuple) and isinstance(call[2], dict):
                its = call[1], call[2]
            entry = put.entry(call[0], its, position)
            try:
                payload = seal(its)
            except SealError:
                payload = seal_or_explain(its, _ARGUMENTS, position)
            put.add(entry, payload)
        return self._send(put)

    def alone(self, value: Any, unique: str | None, *, within: float, delay: float) -> PutResult:
        """Put one value, or `Message`, once for its key, and wait for the confirmation."""
        if unique is not None and not (isinstance(unique, str) and unique):
            raise BadOption(option="unique", value=unique, problem="must be a text, the same wherever it is put.")
        put = _Put()
        put.add(*self._value(value, 0, put))
        self._check_sizes(put)
        key = uuid.uuid4().bytes if unique is None else blake2b(unique.encode(), digest_size=16).digest()
        sender = LoneSender(self.handle, key, within=within, delay=delay)
        sender.on_unserved = self._unserved
        ticket = Ticket(1)
        sender.extend(put.slices, ticket)
        result = PutResult(self.handle, ticket, self._unserved)
        _ = result.ids  # waits, and raises what was refused
        result.existed = sender.existed
        if not result.existed:
            self._forget_with(result)
        return result

    def _value(self, value: Any, position: int, put: _Put) -> tuple[Entry, bytes]:
        if not isinstance(value, Message):
            return self._values, seal_or_explain(value, "value", position)
        its = value.args, value.kwargs
        return put.entry(value.func, its, position, check=False), seal_or_explain(its, _ARGUMENTS, position)

    def flush(self, timeout: float | None = CONFIRM_WAIT) -> None:
        """Wait until all puts are confirmed."""
        self.handle.link.check_open()
        self._sender.flush(timeout)

    def settle(self) -> None:
        """Wait up to 5 s for the confirmation of puts under way."""
        if self._sender.busy and self._sender.failure is None:
            self._sender.flush(CLOSE_TIMEOUT)

    def close(self) -> None:
        """Accept no more puts."""
        self._sender.close()

    def _send(self, put: _Put) -> PutResult:
        self._check_sizes(put)
        ticket = Ticket(len(put))
        if not put:
            ticket.done.set_result([])
        self._sender.extend(put.slices, ticket)
        result = PutResult(self.handle, ticket, self._unserved)
        if put:
            self._forget_with(result)
        return result

    def _forget_with(self, result: PutResult) -> None:
        """Forget the results of a put when nothing can read them any more."""
        if self._forgetting is not None:
            # The callback must not refer to `result`, which would live for ever. Not at exit: the loop has ended then.
            weakref.finalize(result, self._forgetting.drop, result._ticket).atexit = False

    def _check_sizes(self, put: _Put) -> None:
        """Raise `MessageTooLarge` for the first message above the limit, and warn of large ones once."""
        sizes = [len(payload) for _, payloads in put.slices for payload in payloads]
        largest = max(sizes, default=0)
        if largest > self._limit:
            position = next(at for at, size in enumerate(sizes) if size > self._limit)
            raise MessageTooLarge(position=position, size=sizes[position], limit=self._limit)
        if largest > self._warn and not self._warned:
            self._warned = True
            large = next(size for size in sizes if size > self._warn)
            warnings.warn(
                f"a message of {large:,} bytes: send references (paths, URLs) and open them in the function",
                DqlabWarning,
                stacklevel=WARNED_AT,
            )


class _Put:
    """The messages of one put: all are sealed before one is sent, since a put is refused as a whole."""

    def __init__(self) -> None:
        self.slices: list[tuple[Entry, list[bytes]]] = []
        """Neighbours that have one function."""
        self._last: Entry | None = None
        self._payloads: list[bytes] = []
        self._entries: _Entries = {}

    def __len__(self) -> int:
        return sum(len(payloads) for _, payloads in self.slices)

    def add(self, entry: Entry, payload: bytes) -> None:
        """Add a message."""
        if entry is not self._last:
            self._last, self._payloads = entry, []
            self.slices.append((entry, self._payloads))
        self._payloads.append(payload)

    def entry(
        self, fn: Any, its: tuple[tuple[Any, ...], dict[str, Any]], position: int, *, check: bool = True
    ) -> Entry:
        """Return what the calls of a function share, or raise `BadOption` where it cannot be called like this."""
        args, kwargs = its
        known, shape = self._entries.get(id(fn)), (len(args), *kwargs)
        if known is None:
            check_function(fn, option=f"function of call {position}")
            signature = own_signature(fn) if check else None
            check_takes(fn, signature, args, kwargs, position)  # first: pickling the function costs more
            self._entries[id(fn)] = known = (fn, _entry(fn), signature, {shape})
        elif shape not in known[3]:  # `bind` of a signature costs more than all else here
            check_takes(fn, known[2], args, kwargs, position)
            known[3].add(shape)
        return known[1]


class PutResult(SuggestsAttributes):
    """The messages of one put, returned at once; `ids` and `durability` wait for the confirmation.

    Parameters
    ----------
    ticket : Ticket
        Where the sender records the outcome of the messages.

    Attributes
    ----------
    existed : bool
        Whether nothing was put, because `unique` stood for this message already.
    """

    def __init__(self, handle: Handle, ticket: Ticket, serve: Callable[[], None] | None = None) -> None:
        self._handle, self._ticket, self._serve = handle, ticket, serve
        self.existed = False

    def __repr__(self) -> str:
        done = self._ticket.done
        state = "sending" if not done.done() else "refused" if done.exception() else "confirmed"
        return f"<PutResult of {many(self._ticket.count, 'message')} on {self._handle.name!r}: {state}>"

    def __bool__(self) -> bool:
        return self._ticket.count > 0

    def __len__(self) -> int:
        return self._ticket.count

    @property
    def ids(self) -> list[int]:
        """The messages' ids, in the order of the put; waits at most 30 s.

        Raises
        ------
        PutTimeout
            The put was not confirmed within 30 s.
        QueueFull, PutError
            The put was refused.
        """
        return [id for lo, hi in self._ranges() for id in range(lo, hi)]

    @property
    def durability(self) -> str:
        """Which failures these messages survive once they are confirmed.

        "transient": the end of every worker, but not of the cluster. "always": the end of every process, and a power
        cut. "interval": the same, except for the last 50 ms before a power cut. "os": the end of every process.
        """
        self._ranges()
        return self._handle.promise

    def results(self, timeout: float | str | None = None, errors: Literal["raise", "return"] = "raise") -> list[Any]:
        """Wait until all messages are settled; return their values in the order of the put.

        Parameters
        ----------
        errors : {"raise", "return"}
            What to do about messages that failed, and results that cannot be unpickled in this process: raise, or
            return their `DeadLetter` or `ResultUnreadable` in their place.
        timeout : float or str, optional
            Seconds, or "5m"; None: no limit.

        Raises
        ------
        RunFailed
            Some messages are dead or were cancelled; the error names the first failure.
        ResultsMissing
            Some messages succeeded, and `QueuePool.forget` freed their results.
        ResultUnreadable
            A result cannot be unpickled in this process.
        WaitTimeout
            The timeout has expired; the messages stay queued.
        RunStalled
            No consumer has existed for 5 s.
        ResultsFull
            The queue has no room for more results of single calls, and has stopped.
        """
        check_errors(errors)
        ends = self._handle.link.embedded and in_script()
        what_next = ENDS_WITH_SCRIPT if ends else "Call results() again."
        text = f"no longer waiting for {self!r}, which was left as it is. {what_next}"
        with interruptible(text):
            return self._results(Deadline(seconds_or_none(timeout, name="timeout")), instead=errors == "return")

    def _results(self, deadline: Deadline, *, instead: bool) -> list[Any]:
        sync, values = self._handle.link.sync, list[Any]()
        self._ticket.read = True  # an error of the put is raised here, so that a later `flush` need not raise it again
        ranges, parts = sync(self._first_look(deadline))
        for lo, hi in ranges:
            for start in range(lo, hi, PAGE):
                stop = min(hi, start + PAGE)
                if parts is None:
                    parts = sync(self._settled(start, stop, deadline))
                values += self._page(start, stop, parts, instead=instead)
                parts = None
        return values

    def _ranges(self) -> list[tuple[int, int]]:
        self._ticket.read = True
        return self._handle.link.sync(self._confirmed())

    async def _confirmed(self, limit: float | None = None) -> list[tuple[int, int]]:
        limit = CONFIRM_WAIT if limit is None else min(limit, CONFIRM_WAIT)
        try:
            async with limited(limit):
                return await self._ticket.landed()
        except TimeoutError:
            raise PutTimeout(queue=self._handle.name, count=self._ticket.count, seconds=limit) from None

    async def _first_look(self, deadline: Deadline) -> tuple[list[tuple[int, int]], list[memoryview] | None]:
        """Wait for the ids and then for the first page of results."""
        # Both in one coroutine: to cross threads a second time would cost as much as a call.
        ranges = await self._confirmed(deadline.limit)
        if not ranges:
            return ranges, None
        lo, hi = ranges[0]
        return ranges, await self._settled(lo, min(hi, lo + PAGE), deadline)

    async def _settled(self, lo: int, hi: int, deadline: Deadline) -> list[memoryview]:
        """Wait until none of these ids is ready, delayed or leased, then return the first page of their results."""
        serve = self._serve
        queue = self._handle.name
        name = f"put on {queue}"
        standstill = Standstill(f"queue {queue!r}", deadline.limit)
        while True:
            wait = deadline.within(0.5 if standstill.begun else PARK)
            try:
                async with asyncio.timeout(deadline.patience):
                    answer, parts = await self._handle.ask(
                        shard_of(lo), calls.WaitSettledCall(NO_ID, lo, hi, wait), wait=wait
                    )
            except (CallTimeout, TimeoutError) as error:  # the shard is being recreated
                if deadline.over:
                    raise WaitTimeout(run=name, seconds=deadline.limit, why=no_answer(queue)) from error
                standstill.unanswered(queue)
                continue
            if not answer.left:
                return parts
            if answer.stopped:
                puts = f"puts on {self._handle.name}"
                raise ResultsFull(run=puts, used=answer.stored, limit=answer.results_maxsize)
            pause = name_pause("", queue, run_paused=False, queue_paused=answer.paused)
            if deadline.over:
                why = f"{many(answer.left, 'message')} left.{pause}{answer.why}"
                raise WaitTimeout(run=name, seconds=deadline.limit, why=why)
            alone = not (answer.consumers or answer.paused)
            if alone and serve is not None:
                # The queue was closed and reopened. At the put, consumers of the closed queue still waited at the new
                # one, so the queue seemed to be served; they have left since.
                serve()
                serve = None
            lonely = standstill.look(pause, alone=alone)
            if lonely and not await expects_workers(self._handle.link):
                raise RunStalled(run=name, queue=self._handle.name, waiting=answer.left, seconds=round(lonely))

    def _page(self, lo: int, hi: int, parts: list[memoryview], *, instead: bool) -> list[Any]:
        found: dict[int, Any] = {}
        cursor = lo
        while cursor < hi:
            if cursor > lo:
                _, parts = self._handle.link.sync(self._handle.ask(shard_of(lo), calls.PageCall(NO_ID, cursor, hi)))
            page = open_settlements(parts)
            if not page:
                break
            for stretch in page:
                values = stretch.values if instead else check_readable(stretch).values
                found.update(zip(range(stretch.ordinal, stretch.end), values, strict=True))
            cursor = page[-1].end
        acked = len(found)
        if instead and acked < hi - lo:
            others = _letters(self._handle).named(set(range(lo, hi)) - found.keys())
            found.update((letter.id, letter) for letter in others)
        if len(found) < hi - lo:
            gone = self._forgotten(lo, hi, acked)
            if gone and (instead or acked + gone == hi - lo):
                were, all_of_them = "was" if gone == 1 else "were", many(hi - lo, "result")
                raise ResultsMissing(
                    reason=f"{gone:,} of {all_of_them} of a put on {self._handle.name} {were} freed by pool.forget(); "
                    "the messages succeeded, so nothing needs fixing. Put them again only to have their results once "
                    "more."
                )
            raise self._dead(lo, hi, acked + gone)
        return [found[ordinal] for ordinal in range(lo, hi)]

    def _forgotten(self, lo: int, hi: int, kept: int) -> int:
        """Return how many calls succeeded and have lost their results since."""
        handle, asked = self._handle, calls.WaitSettledCall(NO_ID, lo, hi, wait=0.0)
        answer, _ = handle.link.sync(handle.ask(shard_of(lo), asked))
        return max(0, answer.acked - kept)

    def _dead(self, lo: int, hi: int, acked: int) -> RunFailed:
        first = next((letter for letter in _letters(self._handle) if lo <= letter.id < hi), None)
        what = f"{first.error} ({first.reason}): {first.message}" if first else "a cancelled message"
        others = "What succeeded, with dead letters in the places of what failed: results(errors='return'). "
        steps = f"{others if acked else ''}Put again what failed."
        run, all_of_it = f"put on {self._handle.name}", many(hi - lo, "message")
        return RunFailed(run=run, dead=hi - lo - acked, of=f"{all_of_it} of a {run}", first=what, steps=steps)


class Forgetting:
    """Reports to a queue which results nobody can read any more."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._tickets: deque[Ticket] = deque()
        self._awake = False
        """Whether `_run` is due; garbage collection may call `drop` anywhere, so no lock guards this."""

    def drop(self, ticket: Ticket) -> None:
        """Record that nobody can read a put's results any more; safe in any thread and in garbage collection."""
        # Without a lock: garbage collection may run this in the middle of a block that holds any lock.
        self._tickets.append(ticket)
        if not self._awake:
            self._wake()

    def _wake(self) -> None:
        if not self._handle.link.closed:
            self._awake = True
            try:
                event_loop(self._handle.link.client).call_soon_threadsafe(self._begin)
            except RuntimeError:  # the loop has ended, and this client with it
                self._tickets.clear()

    def _begin(self) -> None:
        # Kept in an attribute: the event loop itself holds a task only by a weak reference.
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dqlab-forget-{self._handle.name}")

    async def _run(self) -> None:
        try:
            while self._tickets and not self._handle.link.closed:
                await asyncio.sleep(GATHER_S)
                await self._tell()
        finally:
            # In this order: a `drop` between the last look and this line has seen `_awake`, and relies on this check.
            self._awake = False
            if self._tickets:
                self._wake()

    async def _tell(self) -> None:
        """Send the ranges of confirmed puts, and keep the other tickets for later."""
        forgotten: dict[int, list[tuple[int, int]]] = {}
        for _ in range(len(self._tickets)):  # not a loop over the deque: `drop` appends meanwhile
            ticket = self._tickets.popleft()
            if not ticket.done.done():
                self._tickets.append(ticket)
            elif ticket.done.exception() is None:
                for ids in ticket.ranges:
                    forgotten.setdefault(shard_of(ids[0]), []).append(ids)
        for shard, ranges in forgotten.items():
            ranges.sort()
            for at in range(0, len(ranges), FORGOTTEN_AT_ONCE):
                # `coming`: a message that is not settled yet is forgotten when it settles.
                order = Forget(NO_ID, ranges[at : at + FORGOTTEN_AT_ONCE], coming=True)
                try:
                    await self._handle.order(order, shard=shard)
                except DqlabError as error:  # the results stay and take room, until `forget` or the end of the queue
                    logger.debug("event=forget_failed queue=%s %s", self._handle.name, error)


def _entry(fn: Callable[..., Any]) -> Entry:
    pickled = function_bytes(fn)
    warn_of_changes(fn)
    hash = blob_hash(pickled)
    return Entry(Kind.CALL, hash, pack_function(pickled, code=hash.hex()[:6]))


def _letters(handle: Handle) -> Failures:
    progress = handle.link.sync(queue_calls.progress_of(handle, NO_ID))
    return Failures("puts", handle, NO_ID, [counts.dead for counts in progress.by_shard])
