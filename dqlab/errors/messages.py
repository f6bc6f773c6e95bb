"""Errors of one message: what its function raised or returned, and why its process ended first."""

from __future__ import annotations

from functools import partial
from typing import Any

from dqlab.errors.sentence import DqlabError

__all__ = [
    "MemoryLimit",
    "MessageError",
    "MessageNotFound",
    "MessageTimeout",
    "NotACall",
    "ProcessDied",
    "Reject",
    "ResultNotPicklable",
    "ResultTooLarge",
    "ResultUnreadable",
]


class MessageError(DqlabError):
    """Why one message failed; seen in `failures()`."""

    text = "the message failed: {reason}"


class Reject(MessageError):
    """Raise it in a function to send the message to the dead letters at once, without retries.

    Parameters
    ----------
    reason : str
        Shown in `failures()`.
    """

    text = "rejected: {reason}"

    def __init__(self, reason: str = "no reason given") -> None:
        super().__init__(reason=str(reason))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fields["reason"],)


class NotACall(MessageError):
    """A plain value reached a consumer that only runs functions."""

    text = (
        "a value of type {type} reached a consumer without its own process_item. It is kept as a dead letter. "
        "Subclass ConsumerBaseClass and define process_item, or use pool.submit(function, value)."
    )


class ResultTooLarge(MessageError):
    """One result is above the limit."""

    text = (
        "the result is {size:byte}, the limit is {limit:,}. It was not kept. "
        "Write it to a file in the function and return its path."
    )


class ResultNotPicklable(MessageError):
    """The function returned something that cannot leave its process."""

    text = "the result, of type {type}, cannot be pickled: {reason}. It was not kept. Return plain data instead."


class ResultUnreadable(MessageError):
    """A result cannot be unpickled in the process that reads it; the others can be read.

    Attributes
    ----------
    key : str or int
        Key of the document, or id of the message.
    error, reason : str
        Class and text of the exception that unpickling raised.
    payload : bytes
        The result as it was pickled.
    """

    text = (
        "the result of {what} cannot be unpickled in this process: {error}: {reason}. Its {size:byte} {size:is|are} in "
        ".payload of this error, and the other results can be read: results(errors='return') has this error in its "
        "place. Make what it needs importable here and read again, or return plain data and process it again."
    )

    def __init__(self, payload: bytes = b"", **fields: Any) -> None:
        super().__init__(**fields)
        self.payload = payload  # not a field: those are shown, and this may be long

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.payload, **self.fields), ()


class MessageNotFound(MessageError):
    """No message with that id is known."""

    text = "queue {queue!r} knows no message {id}: it never existed, or was dropped with its run."


class ProcessDied(DqlabError):
    """The process ended in the middle of a message: a crash of native code, `os._exit`, a kill."""

    text = (
        "the process {how}. Only this message lost its attempt; the others went on in a new process. "
        "The traceback says where it was, if that is known."
    )


class MessageTimeout(DqlabError):
    """A message took longer than its run allows."""

    text = (
        "exceeded timeout of {seconds:g} s, so its process was killed; the others went on in a new one. "
        "Map with a longer timeout=, or give the function less to do at a time."
    )


class MemoryLimit(DqlabError):
    """A message's process took more memory than its run allows."""

    text = (
        "used more than {limit}, so its process was killed; the others went on in a new one. "
        "Map with a larger memory=, or give the function less to do at a time."
    )
