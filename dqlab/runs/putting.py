"""How calls and values are put into a queue pool by hand, under the ancestor's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dqlab.config import seconds
from dqlab.errors import BadOption
from dqlab.frame import Kind
from dqlab.runs.put import PutResult
from dqlab.runs.puts import PlainPuts
from dqlab.runs.submit.sender import CONFIRM_WAIT

__all__ = ["Putting"]


class Putting:
    """The part of a queue pool that puts. Nothing here waits, except `flush` and for a full buffer."""

    _puts: PlainPuts

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> PutResult:
        """Put one call; returns at once.

        Raises
        ------
        NotPicklable
            The function or an argument cannot be sent.
        MessageTooLarge
            The arguments are above the limit.
        QueueFull, QueueDraining
            An earlier put was refused; raised by `flush` and the result of that put as well.
        """
        return self._calls([(fn, args, kwargs)])

    def batch_submit(
        self,
        calls: Iterable[tuple[Any, ...]],
        *,
        timeout: float | None = None,
        worker_class: type | None = None,
        sync_mode: bool = True,
        batch_size: int | None = None,
    ) -> PutResult:
        """Put many calls at once; nothing of them is put when one of them cannot be.

        Parameters
        ----------
        calls : iterable of tuple
            Each ``(fn, *args)``, or ``(fn, args, kwargs)`` with a tuple and a dict.
        timeout, worker_class, sync_mode, batch_size
            The ancestor's; they change nothing.
        """
        return self._calls(_call(call, position) for position, call in enumerate(calls))

    def put(self, value: Any, timeout: float | None = None) -> PutResult:
        """Put one plain value, for a consumer with its own `process_item`; a `Message` as the call it is.

        Parameters
        ----------
        timeout : float, optional
            The ancestor's; it changes nothing: putting does not wait, and asking for ``.ids`` has its own limit.
        """
        return self._values([value])

    def put_many(self, values: Iterable[Any], timeout: float | None = None) -> PutResult:
        """Put many plain values; nothing of them is put when one of them cannot be pickled."""
        return self._values(values)

    put_nowait = put
    put_many_sync = put_many

    def flush(self, timeout: float | str | None = CONFIRM_WAIT) -> None:
        """Wait until every put of this client is confirmed.

        Raises
        ------
        PutTimeout
            Not confirmed in time; never with None.
        QueueFull, QueueDraining
            A put was refused, and nobody has asked for its ids or results.
        """
        self._puts.flush(seconds(timeout, name="timeout"))

    def _calls(self, calls: Iterable[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]) -> PutResult:
        self._before_put(Kind.CALL)
        return self._puts.calls(calls)

    def _values(self, values: Iterable[Any]) -> PutResult:
        self._before_put(Kind.VALUE)
        return self._puts.values(values)

    def _before_put(self, kind: Kind) -> None:
        """Raise when the pool takes no puts; see that somebody serves them."""
        raise NotImplementedError


def _call(call: Any, position: int) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    if not isinstance(call, tuple | list) or not call:
        raise BadOption(option=f"call {position}", value=call, problem="a call is (function, argument, ...).")
    fn, *args = call
    if len(args) == 2 and isinstance(args[0], tuple) and isinstance(args[1], dict):
        return fn, args[0], args[1]
    return fn, tuple(args), {}
