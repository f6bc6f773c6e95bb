"""Calls handlers so that dqlab's errors reach the caller: of workers by the scheduler, of the scheduler by clients.

Dask's scheduler does not unpickle errors. Dask also logs an error of a handler with its whole traceback, and where the
scheduler runs in the kernel, that lands in the notebook's cell. So errors travel as answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from distributed import Scheduler

from dqlab.cluster.transport.internals import ask_handler
from dqlab.cluster.transport.sealed import open_here, seal_value
from dqlab.errors import DqlabError

_RAISED = "dq_raised"


class WorkerLost(DqlabError):
    """A worker died, was about to leave, or had no plugin yet, during a call."""

    text = (
        "worker {worker} could not carry out {call}: {reason}. It created nothing, and nothing is lost. Call again: "
        "another worker is used then."
    )

    def __init__(self, *, worker: str, call: str, reason: str, leaving: bool = False) -> None:
        # leaving: it leaves, or its cluster was restarted, so an actor is made again elsewhere.
        super().__init__(worker=worker, call=call, reason=reason, leaving=leaving)


def answering(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Wrap a handler so that it returns dqlab's errors, which `opened` raises at the caller."""

    @wraps(handler)
    async def answer(**arguments: Any) -> Any:
        try:
            return await handler(**arguments)
        except DqlabError as error:
            return {_RAISED: seal_value(error)}

    return answer


async def ask_worker(scheduler: Scheduler, address: str, call: str, **arguments: Any) -> Any:
    """Call one of our handlers on a worker, and raise the handler's error, or WorkerLost for a worker that is gone."""
    try:
        answer = await ask_handler(scheduler.rpc, address, call, **arguments)
    except OSError as error:  # not passed on: Dask would take the worker's closed connection for the caller's
        raise WorkerLost(worker=address, call=call, reason=str(error) or "no answer") from error
    if answer is None:  # Dask's answer for an unknown handler; none of ours returns None
        raise WorkerLost(worker=address, call=call, reason="it has no dqlab plugin: it is leaving, or has just joined")
    return opened(answer)


def opened(answer: Any) -> Any:
    """Return the answer of an `answering` handler, or raise its error."""
    if isinstance(answer, dict) and _RAISED in answer:
        raise open_here(answer[_RAISED])
    return answer
