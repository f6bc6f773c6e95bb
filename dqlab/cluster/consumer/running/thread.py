"""The thread in which a consumer's slot runs users' code."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

__all__ = ["CallBroken", "SlotThread"]

P = ParamSpec("P")
T = TypeVar("T")


class CallBroken(Exception):
    """A call ended with an exception that was raised in its thread from outside, or that is not an `Exception`."""


class SlotThread(Executor):
    """One daemon thread that runs one call after another, whatever exceptions reach it in between.

    A function may have had an exception raised in its thread from outside, as `stopit` does, which comes when the
    function is over. In the thread of a `ThreadPoolExecutor` it ends the thread, and calls that are submitted later
    are never run.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._come = threading.Semaphore(0)
        self._over = False
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call behind those before it; return its future."""
        if self._over:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._calls.append((future, partial(fn, *args, **kwargs)))
        self._come.release()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Accept no more calls; the thread ends behind the last one."""
        self._over = True
        if cancel_futures:
            for future, _ in list(self._calls):
                future.cancel()
        self._come.release()
        if wait and self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while self._calls or not self._over:
            try:
                self._run()
            except BaseException as error:  # noqa: BLE001 - it was raised here from outside, for a call that is over
                self._break(error)

    def _run(self) -> None:
        """Run the first call. It stays the first until it has ended, so that none is forgotten between two lines."""
        if not self._calls:
            self._come.acquire()
            return
        future, call = self._calls[0]
        if not future.done() and future.set_running_or_notify_cancel():
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - the caller's
                future.set_exception(error)
            else:
                future.set_result(result)
        self._calls.popleft()

    def _break(self, error: BaseException) -> None:
        """End the call that was running, if one was; one that was not begun is begun next."""
        if self._calls and self._calls[0][0].running():
            future, _ = self._calls.popleft()
            broken = CallBroken(f"{type(error).__name__} was raised in its thread")
            broken.__cause__ = error
            future.set_exception(broken)
