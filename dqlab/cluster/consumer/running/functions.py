"""Functions on a consumer: fetched once by hash, opened in the executor, evicted when others follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from dqlab.cluster.consumer.running.execution import Work
from dqlab.cluster.transport.sealed import open_value, opened_plan
from dqlab.cluster.transport.wire import unpack
from dqlab.documents.storage import learn
from dqlab.errors import DqlabError

if TYPE_CHECKING:
    from dqlab.cluster.transport.ref import Ref  # a process that only runs functions does not need Dask

KEEP = 64


class FunctionCache:
    """The last 64 functions that this consumer opened."""

    def __init__(self) -> None:
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()
        self._opened: OrderedDict[bytes, Work] = OrderedDict()

    async def fetch(self, queue: Ref, hash: bytes) -> bytes | None:
        """Return a function's blob, fetched from its queue at first, or None when the queue has lost it."""
        if hash not in self._blobs:
            from dqlab.cluster.transport.calls import FunctionCall  # here: it loads Dask, see above

            answer, parts = await FunctionCall(hash).ask(queue.call)
            if not answer.known:
                return None
            self._blobs[hash] = blob = bytes(parts[0])
            learn(unpack(blob)[0].get("options", ()))  # also where messages run in a process: it may be refused
            while len(self._blobs) > KEEP:
                self._blobs.popitem(last=False)
        return self._blobs[hash]

    def open(self, hash: bytes, blob: bytes) -> Work:
        """Return a function, unpickled at first."""
        # Only in the executor's thread: unpickling imports users' modules, which may take seconds.
        work = self._opened.get(hash)
        if work is None:
            meta, parts = unpack(blob)
            learn(meta.get("options", ()))  # before the function is opened: it may hold documents itself
            call, plan = open_value(parts[0]), opened_plan(blob)
            work = Work(
                InThreads(call, plan.threads) if plan is not None and plan.threads else call, meta["code"], plan=plan
            )
            self._opened[hash] = work
            while len(self._opened) > KEEP:
                self._opened.popitem(last=False)
        return work


def makes_objects(blob: bytes) -> bool:
    """Return whether objects have to be made for a packed function."""
    return "makes" in unpack(blob)[0].get("plan", ())


class InThreads:
    """A plain function as a coroutine function, whose calls run in up to `most` threads."""

    def __init__(self, call: Callable[..., Any], most: int) -> None:
        # Not the event loop's own threads: they are six on two processors.
        self._call, self._threads = call, ThreadPoolExecutor(most, "dq-calls")

    async def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function in a thread, in the context of its message."""
        import asyncio  # here: a process that only runs functions starts in half the time without it

        call = partial(copy_context().run, self._call, *args, **named)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)


class FunctionLost(DqlabError):
    """The queue no longer has the function of a message."""

    text = "the queue no longer has the function of this message. Retry the run with fn=."
