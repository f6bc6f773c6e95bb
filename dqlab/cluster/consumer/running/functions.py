"""The functions of users on a consumer: opened once, with the objects that are made for one, such as a model."""

from __future__ import annotations

import fcntl
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from dqlab.cluster.consumer.running.chunk import UNDECIDED
from dqlab.cluster.consumer.running.execution import HALT, Origin, Work, take
from dqlab.cluster.consumer.running.here import Queued
from dqlab.cluster.transport.sealed import open_value, opened_plan
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.documents.storage import learn
from dqlab.failures.failure import Failure
from dqlab.plan import Plan, is_model
from dqlab.stats.counts import StopReason
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.cluster.transport.ref import Ref  # a process that only runs functions does not need Dask

KEEP = 64
Setup: TypeAlias = tuple[bytes, float]
"""The run whose function had objects made last, and how many seconds that took."""
TURN_S = 120.0
"""Seconds to wait until no other process of this machine makes objects; then they are made all the same."""
LOOK_S = 0.05


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


class SetupFailed(Exception):
    """The objects for a function could not be made; no document is to blame."""

    def __init__(self, what: str, cause: BaseException) -> None:
        super().__init__(what)
        self.what, self.cause = what, cause


class Objects:
    """The objects made for one function, until another function needs its own."""

    # Only the thread that runs the function touches them, so no two threads ever use the same object.

    def __init__(self) -> None:
        self._hash = b""
        self._call: Any = None
        self.made: list[Any] = []
        self._failed: tuple[bytes, float, SetupFailed] | None = None
        self._seconds = 0.0
        self._lock: BinaryIO | None = None

    def ready(self, hash: bytes, work: Work, leased_at: float) -> Work:
        """Return a function that is ready for documents, or raise SetupFailed; the first time makes what it needs."""
        plan = work.plan or Plan()
        setup = plan.setup or {}
        if not setup and not is_model(work.call):
            return work
        if hash != self._hash:
            self._check(hash, leased_at)
            self.close()
            began = time.monotonic()
            what = getattr(work.call, "__name__", "the function")
            try:
                with self._turn():
                    call = work.call
                    if is_model(call):
                        call = call(**(plan.init or {}))
                        self.made.append(call)
                    made = {name: make() for name, make in setup.items()}
                    self.made += made.values()
            except BaseException as error:
                self.close()
                self._failed = hash, time.monotonic(), SetupFailed(what, error)
                raise self._failed[2] from error
            self._hash, self._call = hash, partial(call, **made) if made else call
            self._seconds = time.monotonic() - began
        return replace(work, call=self._call)

    def seconds(self, hash: bytes) -> float:
        """Return how long it took to make those of a function, 0 where it has none here."""
        return self._seconds if hash == self._hash else 0.0

    def _check(self, hash: bytes, leased_at: float) -> None:
        """Raise again what failed for messages that were leased before: the run is paused, and a try may take long."""
        if self._failed is not None and self._failed[0] == hash and leased_at <= self._failed[1]:
            raise self._failed[2]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until no other process of this user makes objects on this machine: memory peaks while a model loads."""
        import tempfile  # here: a process that only runs functions starts sooner without it

        path = Path(tempfile.gettempdir()) / f"dqlab-setup-{os.getuid()}.lock"
        until = time.monotonic() + TURN_S
        with suppress(OSError):  # no room or no right to write: then without turns
            self._lock = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb")
        try:
            while self._lock is not None and time.monotonic() < until:
                with suppress(OSError, ValueError):
                    fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(LOOK_S)
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """Give the turn to make objects back, from any thread: what makes them here may never end."""
        lock, self._lock = self._lock, None
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # processes that were forked meanwhile, as by a model, have it open too
            lock.close()

    def close(self) -> None:
        """End the objects: call `close` of those that have it."""
        made, self.made, self._hash, self._call = self.made, [], b"", None
        for each in reversed(made):
            with suppress(BaseException):  # users' code, whose results nobody needs any more
                close = getattr(each, "close", None)
                if callable(close):
                    close()


def halt_all(chunk: Queued, failed: SetupFailed, origin: Origin) -> None:
    """Leave all messages of a chunk undecided, for a run that pauses because its function cannot be set up."""
    outcome = halted(failed, origin)
    while (index := take(chunk)) is not None:
        chunk.done.append((index, UNDECIDED, outcome, None))


def halted(failed: SetupFailed, origin: Origin) -> bytes:
    """Return the payload of a message without an outcome of its own: why its run pauses, and the failure."""
    error = failed.cause
    failure = Failure.from_exception(
        error, key=None, code="", consumer=origin.consumer, worker=origin.worker, when=time.time(), seconds=0.0
    )
    last = one_line(f"{failure.error}: {failure.message}" if failure.message else failure.error, 300)
    at = f" at {failure.at}" if failure.at else ""
    why = f"its function could not be set up on {origin.worker}, in {failed.what}: {last}{at}"
    return pack({HALT: [StopReason.UNMADE, why]}, failure.to_bytes())
