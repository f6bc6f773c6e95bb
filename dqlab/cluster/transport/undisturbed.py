"""Work that Ctrl-C does not reach: an interrupt ends the wait for it, and not the work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from distributed.core import Status

__all__ = ["ClosesUndisturbed", "ClusterClosesUndisturbed", "Undisturbed", "undisturbed"]

T = TypeVar("T")


class Undisturbed(threading.Thread, Generic[T]):
    """A thread, which ends with the process; `outcome` has what `work` returns or raises."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.outcome: Future[T] = Future()
        self._work = work

    def run(self) -> None:
        """Work."""
        try:
            found = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(found)


def undisturbed(work: Callable[[], T], name: str) -> T:
    """Return what `work` returns; in a thread, which continues when an interrupt ends the wait."""
    thread = Undisturbed(work, name)
    try:
        thread.start()
    except RuntimeError:  # the interpreter ends, and starts no thread
        return work()
    return thread.outcome.result()


_starting = threading.RLock()
"""Guards which close of an object is under way."""


class ClosesUndisturbed:
    """A Dask client or cluster whose `close` goes on when the wait for it ends; called again, it waits for that one.

    Dask's is cancelled in the middle, and its next one waits forever for the one that was cancelled.
    """

    _closing: Undisturbed[Any] | None = None

    def close(self, timeout: float | None = None) -> Any:
        """Close it, and wait for that.

        Raises
        ------
        TimeoutError
            It has not closed in `timeout` seconds; that goes on.
        """
        parent: Any = super()
        this: Any = self
        if this.status in (Status.closed, "closed", "newly-created") or this.asynchronous:
            return parent.close()
        with _starting:
            if self._closing is None or self._closing.outcome.done():
                self._closing = Undisturbed(parent.close, "dqlab-close")
            closing = self._closing
            if closing.ident is None:  # also after an interrupt just here
                try:
                    closing.start()
                except RuntimeError:  # the interpreter ends, and starts no thread
                    self._closing = None
                    return parent.close(**({} if timeout is None else {"timeout": timeout}))
        return closing.outcome.result(timeout)


class ClusterClosesUndisturbed(ClosesUndisturbed):
    """A Dask cluster that can also be closed again after an error in the middle; Dask's waits for the first one."""

    async def _close(self) -> None:
        this: Any = self
        try:
            await super()._close()  # type: ignore[misc]
        except BaseException:
            if this.status is Status.closing:
                this.status = Status.failed
            raise
