"""Single calls and values on their way into a queue."""

from __future__ import annotations

import asyncio
import uuid
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

from dqlab.cluster.consumer.message import Message
from dqlab.cluster.consumer.running.functions import pack_function
from dqlab.cluster.transport.handle import Handle
from dqlab.cluster.transport.sealed import blob_hash, seal_or_explain
from dqlab.config import nbytes, option
from dqlab.errors import BadOption, DqlabWarning, MessageTooLarge
from dqlab.frame import NO_ID, Kind
from dqlab.runs.code.sealing import function_bytes
from dqlab.runs.forgetting import Forgetting
from dqlab.runs.put import PutResult
from dqlab.runs.submit.sender import CONFIRM_WAIT, PutSender
from dqlab.runs.submit.ticket import Entry, Ticket

__all__ = ["PlainPuts"]

CLOSE_TIMEOUT = 5.0

WARNED_AT = 6
"""Frames between a warning and the user's line: every put comes here the same way, without comprehensions,
which are frames of their own before Python 3.12."""

_Entries: TypeAlias = dict[int, tuple[Callable[..., Any], Entry]]
"""Functions met in one put, by identity; held, so that no identity is used twice."""


class PlainPuts:
    """Puts of single calls and values into lane 0 of a queue.

    One sender per client; messages of one client stay in order.

    Parameters
    ----------
    forgets : bool
        Results are forgotten when their `PutResult` is gone: nobody else reads them.
    serve : callable, optional
        Gives the queue its consumers again, as a coroutine: another client may have closed and opened it meanwhile.
    """

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
        self._sender.on_unserved = self._serve_again if serve is not None else None

    def _serve_again(self) -> None:
        """Have the queue served, unless that is under way; on the event loop."""
        if self._serve is not None and (self._serving is None or self._serving.done()):
            self._serving = asyncio.get_running_loop().create_task(self._serve(), name="dqlab-serve")

    def values(self, values: Iterable[Any]) -> PutResult:
        """Put plain values; a `Message` among them as the call it is."""
        entries: _Entries = {}
        sealed: list[tuple[Entry, bytes]] = []
        for position, value in enumerate(values):
            if isinstance(value, Message):
                sealed.append(self._call(value.func, value.args, value.kwargs, position, entries))
            else:
                sealed.append(self._value(value, position))
        return self._send(sealed)

    def calls(self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]) -> PutResult:
        """Put (function, args, kwargs)."""
        entries: _Entries = {}
        sealed: list[tuple[Entry, bytes]] = []
        for position, (fn, args, kwargs) in enumerate(calls):
            sealed.append(self._call(fn, args, kwargs, position, entries))
        return self._send(sealed)

    def _value(self, value: Any, position: int) -> tuple[Entry, bytes]:
        return self._values, self._sealed(value, f"value {position}", position)

    def _call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], position: int, entries: _Entries
    ) -> tuple[Entry, bytes]:
        if not callable(fn):
            raise BadOption(option=f"call {position}", value=fn, problem="its first element is not a function.")
        known = entries.get(id(fn))
        if known is None:
            entries[id(fn)] = known = (fn, _entry(fn))
        return known[1], self._sealed((args, kwargs), f"the arguments of call {position}", position)

    def flush(self, timeout: float | None = CONFIRM_WAIT) -> None:
        """Wait until all puts are confirmed."""
        self.handle.link.check_open()
        self._sender.flush(timeout)

    def settle(self) -> None:
        """Confirm what is under way, for at most 5 s."""
        if self._sender.busy and self._sender.failure is None:
            self._sender.flush(CLOSE_TIMEOUT)

    def close(self) -> None:
        """Take no more."""
        self._sender.close()

    def _send(self, sealed: Sequence[tuple[Entry, bytes]]) -> PutResult:
        ticket = Ticket(len(sealed))
        if not sealed:
            ticket.done.set_result([])
        for entry, payload in sealed:
            self._sender.append(entry, payload, ticket)
        result = PutResult(self.handle, ticket)
        if self._forgetting is not None and sealed:
            weakref.finalize(result, self._forgetting.drop, ticket).atexit = False
        return result

    def _sealed(self, value: Any, what: str, position: int) -> bytes:
        payload = seal_or_explain(value, what)
        if len(payload) > self._warn:
            if len(payload) > self._limit:
                raise MessageTooLarge(position=position, size=len(payload), limit=self._limit)
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"a message of {len(payload):,} bytes: send references (paths, URLs) and open them in the function",
                    DqlabWarning,
                    stacklevel=WARNED_AT,
                )
        return payload


def _entry(fn: Callable[..., Any]) -> Entry:
    pickled = function_bytes(fn, remember=True)
    hash = blob_hash(pickled)
    return Entry(Kind.CALL, hash, pack_function(pickled, code=hash.hex()[:6]))
