"""Runs work that Ctrl-C does not reach: an interrupt ends only the wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from distributed.core import Status

T = TypeVar("T")


class Undisturbed(threading.Thread, Generic[T]):
    """A daemon thread whose `outcome` is the result or error of its work."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.outcome: Future[T] = Future()
        self._work = work

    def run(self) -> None:
        """Do the work and set the outcome."""
        try:
            found = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(found)


def undisturbed(work: Callable[[], T], name: str) -> T:
    """Return the result of `work`, done in a thread that continues after an interrupt of the wait."""
    thread = Undisturbed(work, name)
    try:
        thread.start()
    except RuntimeError:  # the interpreter is shutting down, and starts no more threads
        return work()
    return thread.outcome.result()


_starting = threading.RLock()
"""Guards `_closing` of all objects. Reentrant, since a signal handler of this thread may close an object too."""


class ClosesUndisturbed:
    """A Dask client or cluster whose `close` continues after an interrupt, and is waited for by the next `close`."""

    # An interrupt cancels Dask's own close in the middle, and the next close waits forever for the cancelled one.

    _closing: Undisturbed[Any] | None = None

    def close(self, timeout: float | None = None) -> Any:
        """Close it, or raise TimeoutError after `timeout` seconds while closing continues."""
        parent: Any = super()
        this: Any = self
        if this.status in (Status.closed, "closed", "newly-created") or this.asynchronous:
            return parent.close()
        with _starting:
            if self._closing is None or self._closing.outcome.done():
                self._closing = Undisturbed(parent.close, "dqlab-close")
            closing = self._closing
            if closing.ident is None:  # not started: it is new, or an interrupt hit the earlier call just here
                try:
                    closing.start()
                except RuntimeError:  # the interpreter is shutting down, and starts no more threads
                    self._closing = None
                    return parent.close(**({} if timeout is None else {"timeout": timeout}))
        return closing.outcome.result(timeout)


class ClusterClosesUndisturbed(ClosesUndisturbed):
    """A Dask cluster that can be closed again after an error in the middle."""

    async def _close(self) -> None:
        this: Any = self
        try:
            await super()._close()  # type: ignore[misc]
        except BaseException:
            if this.status is Status.closing:  # else the next close waits forever for this one
                this.status = Status.failed
            raise
