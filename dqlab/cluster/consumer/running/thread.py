"""The thread in which a consumer's slot runs users' code."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class CallBroken(Exception):
    """A call ended with an exception that was raised in its thread from outside or is not an `Exception`."""


class SlotThread(Executor):
    """One daemon thread that runs calls one after another, whatever exceptions reach it between them."""

    # Not a `ThreadPoolExecutor`: libraries such as `stopit` raise an exception in a function's thread from outside, and
    # it may arrive when the function has ended. It would end the pool's thread, and later calls would never run.

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._submitted = threading.Semaphore(0)
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call and return its future."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[T] = Future()
        self._calls.append((future, partial(fn, *args, **kwargs)))
        self._submitted.release()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Accept no more calls, and end the thread after the last one."""
        self._closed = True
        if cancel_futures:
            for future, _ in list(self._calls):
                future.cancel()
        self._submitted.release()
        if wait and self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while self._calls or not self._closed:
            try:
                self._run()
            except BaseException as error:  # noqa: BLE001 - raised here from outside, for a call that has ended
                self._break(error)

    def _run(self) -> None:
        """Run the first call."""
        # The call stays in the queue until it has ended: an exception from outside may come between any two lines, and
        # must leave no call without an outcome.
        if not self._calls:
            self._submitted.acquire()
            return
        future, call = self._calls[0]
        if not future.done() and future.set_running_or_notify_cancel():
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - for the caller
                future.set_exception(error)
            else:
                future.set_result(result)
        self._calls.popleft()

    def _break(self, error: BaseException) -> None:
        """Fail the call that was running, if any."""
        # A call that has not begun stays first, and `_work` runs it next.
        if self._calls and self._calls[0][0].running():
            future, _ = self._calls.popleft()
            broken = CallBroken(f"{type(error).__name__} was raised in its thread")
            broken.__cause__ = error
            future.set_exception(broken)
