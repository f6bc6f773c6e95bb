"""Errors of wrong calls."""

from __future__ import annotations

from dqlab.errors.sentence import DqlabError

__all__ = [
    "BadName",
    "BadOption",
    "DocumentsUsedUp",
    "FolderNotFound",
    "LengthUnknown",
    "NotADocument",
    "QueueClosed",
    "QueueInUse",
    "QueueNotFound",
    "RunsInFlight",
    "UnknownOption",
    "UsageError",
]


class UsageError(DqlabError):
    """The call itself is wrong; nothing was done."""

    text = "{reason}"


class BadName(UsageError):
    """A name that is not valid for a queue or run."""

    text = (
        "{kind} name {name!r} {problem}. Names are 1-100 characters: letters, digits, '.', '_' and '-', "
        "starting with a letter or digit. Try {suggestion!r}."
    )


class BadOption(UsageError):
    """An option has an invalid value."""

    text = "{option}={value:brief}: {problem}"


class UnknownOption(UsageError, TypeError):
    """A keyword that the function does not have; a TypeError as well, as for any function."""

    text = "{function}() has no option {option!r}. {hint} Nothing was done."


class RunsInFlight(UsageError):
    """Closing a lab would end unfinished work."""

    text = (
        "{what} of lab {lab!r} is not done, so that lab was left open and no other was made. {steps}; then connect "
        "again. Or give it up with %dq close."
    )


class QueueNotFound(UsageError):
    """No queue of that name is open."""

    text = "no queue named {queue!r} here.{hint} Queues that exist: {known}. Open one with lab.queue({queue!r})."


class QueueInUse(UsageError):
    """Other clients have the queue open."""

    text = "queue {queue!r} is open in {others} other client(s); it was left open. Use pool.close(force=True)."


class QueueClosed(UsageError):
    """The queue was closed; its handle can no longer be used."""

    text = "queue {queue!r} was closed. Open it again with lab.queue({queue!r})."


class FolderNotFound(UsageError):
    """The folder in which a listing of documents starts does not exist."""

    text = (
        "there is no folder {folder!r}, so no documents to list. Check the path or URL before the first "
        "wildcard; a relative path starts at the current directory."
    )


class NotADocument(UsageError):
    """An element of a listing of documents is neither path, URL nor document."""

    text = (
        "element {position} is a {type}, not a path, URL or Document. Documents lists files; to process "
        "other values pass the iterable itself: pool.map(function, values)."
    )


class DocumentsUsedUp(UsageError):
    """Documents that came from an iterator were iterated a second time."""

    text = (
        "the {kind} behind these documents can be read once, and has been read. Pass a list, or a callable that "
        "returns a new iterator each time: Documents(make_paths), not Documents(make_paths())."
    )


class LengthUnknown(UsageError, TypeError):
    """Documents that come from an iterator cannot be counted; a TypeError so that list() works."""

    text = (
        "documents from an iterator have no length: counting would use them up. Pass a list, or a callable that "
        "returns a new iterator each time."
    )
