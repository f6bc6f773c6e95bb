"""Whether the message that runs here was cancelled: a thread cannot be killed, but it can ask."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dqlab.cluster.consumer.running.execution import Queued

__all__ = ["cancelled", "running"]

running: ContextVar[tuple[Queued, int | None] | None] = ContextVar("dqlab_running", default=None)
"""The chunk that runs in this context, and the message's position; None: the one that the chunk says is running."""


def cancelled() -> bool:
    """Return whether the message that is being processed here was cancelled.

    For functions that take long, to be asked now and then; what they return after that is dropped. Messages
    that run in a process need not ask: their process is killed. Outside of a message the answer is False.

    Examples
    --------
    >>> def index(document):
    ...     for page in pages(document):
    ...         if dq.cancelled():
    ...             return None
    ...         add(page)
    """
    here = running.get()
    if here is None:
        return False
    chunk, index = here
    return (chunk.running if index is None else index) in chunk.cancelled
