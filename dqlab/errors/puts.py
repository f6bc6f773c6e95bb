"""Errors of putting messages into a queue."""

from __future__ import annotations

from dqlab.errors.sentence import DqlabError

__all__ = [
    "FrameCorrupt",
    "FunctionTooLarge",
    "MessageTooLarge",
    "MessagesLost",
    "NotPicklable",
    "PutError",
    "PutFailed",
    "PutTimeout",
    "QueueDraining",
    "QueueFull",
]


class PutError(DqlabError):
    """A put was refused; nothing of it is in the queue."""

    text = "the put was refused: {reason}"


class QueueFull(PutError):
    """No room was made within the time that a put waits, and nothing will make room."""

    text = (
        "queue {queue!r} is full: {messages:,} of {maxsize:message}, {bytes:,} of {max_bytes:byte}, "
        "and no room came within {seconds:g} s because {reason}. These messages were not queued. "
        "Start consumers, resume the queue, or open it with a larger maxsize=."
    )


class QueueDraining(PutError):
    """The queue accepts no more messages because it is draining."""

    text = (
        "queue {queue!r} is draining and takes no new messages; these were not queued. "
        "Call pool.resume() to open it again."
    )


class PutTimeout(PutError):
    """A put was not confirmed in time; it may or may not be in the queue."""

    text = (
        "queue {queue!r} did not confirm a put of {count:message} within {seconds:g} s. {count:It|They} may be "
        "queued. Call flush() again: a frame that arrives twice is counted once."
    )


class PutFailed(PutError):
    """A put ended with an error that is not dqlab's."""

    text = (
        "a put on queue {queue!r} failed: {reason}. {count:message} {count:was|were} not confirmed; {count:it|they} "
        "may be queued, and no put was repeated. This should not happen: please report it with the log of this "
        "process, then put them again."
    )


class MessageTooLarge(PutError):
    """One message is above the limit; a document's contents do not belong in a message."""

    text = (
        "message {position} is {size:byte}, the limit is {limit:,}. It was not queued. Send a reference "
        "(a path or URL) and open it in the function, or raise the limit before connecting: "
        "dask.config.set({{'dqlab.message.max-bytes': '4 MiB'}})."
    )


class FunctionTooLarge(PutError):
    """A function, with what it captures, is above what a durable queue can keep."""

    text = (
        "the function is {size:byte} with the values it captures, a durable queue keeps functions of up to "
        "{limit:,}. Nothing of it was queued, and nothing else changed. Load large values inside the function, from a "
        "file, or use a transient queue."
    )


class NotPicklable(PutError):
    """A function or an argument cannot be sent to another process."""

    text = (
        "{what} cannot be pickled: {reason}. It was not queued. Build such objects (connections, locks, "
        "open files) inside the function, or pass what is needed to make them."
    )


class FrameCorrupt(DqlabError):
    """Bytes that should be a frame are not."""

    text = "not a valid {kind}: {reason} ({size:byte}). Nothing of it was used."


class MessagesLost(DqlabError):
    """Single calls or values were in the memory of a worker that died, or of a queue that was closed."""

    text = (
        "{lost:,} of {total:message} of a put on queue {queue!r} {lost:is|are} lost: {how}, and {lost:it, or its "
        "result, was|they, or their results, were} in its memory. The queue goes on: put them again. A durable queue "
        "keeps them."
    )
    CLOSED = "the queue was closed, and opened again"
    """How they were lost if no worker died."""
