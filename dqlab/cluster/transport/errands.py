"""What the scheduler asks of a worker, and clients of the scheduler, so that errors come through.

The connections of Dask's scheduler open no error, and it takes a worker's end for that of the caller.
An error that a handler raises is logged with Dask's whole traceback, which lands in the notebook's cell where the
scheduler runs in the kernel.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

from distributed import Scheduler

from dqlab.cluster.transport.internals import ask_handler
from dqlab.cluster.transport.sealed import open_here, seal_value
from dqlab.errors import DqlabError

__all__ = ["WorkerLost", "answering", "ask_worker", "opened"]

_RAISED = "dq_raised"


class WorkerLost(DqlabError):
    """A worker died, was about to leave, or had no plugin yet, during a call."""

    text = (
        "worker {worker} did not do what it was asked ({call}): {reason}. Nothing was made there, and nothing is lost "
        "by it. Call again: the workers that are left are asked then."
    )


def answering(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return a handler whose errors, if they are dqlab's, `opened` raises as they are; Dask passes on the others."""

    @wraps(handler)
    async def answer(**arguments: Any) -> Any:
        try:
            return await handler(**arguments)
        except DqlabError as error:
            return {_RAISED: seal_value(error)}

    return answer


async def ask_worker(scheduler: Scheduler, address: str, call: str, **arguments: Any) -> Any:
    """Ask a worker by one of our handlers.

    Raises
    ------
    WorkerLost
        It is not there any more, leaves, or has only just joined.
    DqlabError
        What the handler raised.
    """
    try:
        answer = await ask_handler(scheduler.rpc, address, call, **arguments)
    except OSError as error:
        raise WorkerLost(worker=address, call=call, reason=str(error) or "no answer") from error
    if answer is None:  # so Dask answers for a handler that it does not know; none of ours answers None
        raise WorkerLost(worker=address, call=call, reason="its plugin is not there: it leaves, or has just joined")
    return opened(answer)


def opened(answer: Any) -> Any:
    """Return the answer of an `answering` handler, or raise what it raised."""
    if isinstance(answer, dict) and _RAISED in answer:
        raise open_here(answer[_RAISED])
    return answer
