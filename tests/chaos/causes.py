"""What excuses what: when messages may go with their queue or its town, and when an error may be an answer."""

from __future__ import annotations

from tests.chaos.history import Closing, History, Refusal
from tests.chaos.plan import BRIEF
from tests.chaos.truth import Confirmed

__all__ = ["HEARD", "LIMIT", "dropped_by_closing", "is_fair", "went_with_town"]

LIMIT = 40.0
"""Seconds after an act within which calls may still fail: the longest that a call waits for a worker that is gone."""

HEARD = 5.0
"""Seconds after which a client has certainly heard what was confirmed to it."""

FAIR = {"QueueFull", "RunNotFound"}
"""Errors with which an order may be answered at any time: a queue may be paused for good, a run not be mapped yet."""
FAIR_IN_UNREST = {
    *("CallTimeout", "NoWorkers", "PutTimeout", "RunStalled", "WorkerLost"),
    *("DiskFailed", "DiskFull", "LogFailed"),
}
"""The same while what is needed is taken away, and up to `LIMIT` seconds after that."""
FAIR_OF_A_CLOSED_QUEUE = {"ActorGone", "NoSuchActor", "QueueClosed", "QueueNotFound"}
"""What a client may be answered that uses a queue which others close."""
FAIR_OF_DASK = {"CommClosedError", "OSError", "TimeoutError"}
"""The same of what Dask itself is told to do."""
FAIR_WITHOUT_TOWN = {"ConnectFailed", "LabClosed", "SchedulerGone"}
"""The same once a town was killed."""


def went_with_town(history: History, queue: str) -> bool:
    """Return whether a transient queue may have ended with its whole cluster; nothing less costs it a message."""
    return not history.queue(queue).durable and any(one.what == "town" for one in history.takings)


def dropped_by_closing(history: History, confirmed: Confirmed) -> bool:
    """Return whether messages went with a transient queue when it was closed; a durable one has them in its store."""
    return not history.queue(confirmed.queue).durable and any(
        one.queue == confirmed.queue and confirmed.at <= one.ended + HEARD for one in history.closed
    )


def is_fair(history: History, refusal: Refusal) -> bool:
    """Return whether an order may be answered with that error at that time."""
    if not refusal.typed:
        return False
    if refusal.name in FAIR or (BRIEF in refusal.what and refusal.name in FAIR_OF_A_CLOSED_QUEUE):
        return True
    if refusal.name in FAIR_OF_A_CLOSED_QUEUE and any(_by_closing(refusal, one) for one in history.closed):
        return True
    if refusal.name == "SubmissionIncomplete":  # of a client that was killed, however late that is found
        return any(one.began <= refusal.at for one in history.unrest)
    if not any(one.began <= refusal.at <= one.ended + LIMIT for one in history.unrest):
        return False
    if refusal.name == "ActorGone":  # a shard is gone for good only with a transient queue
        gone = [puts.queue.name for puts in history.puts if f"queue/{puts.queue.name}/" in refusal.text]
        return any(went_with_town(history, queue) for queue in gone)
    town_died = any(one.what == "town" for one in history.takings)
    return refusal.name in FAIR_IN_UNREST | FAIR_OF_DASK or (town_died and refusal.name in FAIR_WITHOUT_TOWN)


def _by_closing(refusal: Refusal, closing: Closing) -> bool:
    """Return whether an error came while a queue was closed, or soon after, and is about that queue."""
    about = refusal.what + refusal.text
    return closing.began <= refusal.at <= closing.ended + LIMIT and closing.queue in about
