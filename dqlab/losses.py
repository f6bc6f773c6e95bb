"""What cannot be brought back, or not from here: messages that went with their worker, and inputs that are used up."""

from __future__ import annotations

from dqlab.errors import DqlabError, RunError, UsageError

__all__ = ["InputChanged", "InputNotHere", "InputUsedUp", "MessagesLost"]


class MessagesLost(DqlabError):
    """Single calls or values were in the memory of a worker that died."""

    text = (
        "{lost:,} of {total:,} messages of a put on queue {queue!r} are lost: worker {worker} died, and they, or their "
        "results, were in its memory. The queue goes on: put them again. A durable queue survives its workers."
    )


class InputUsedUp(UsageError):
    """The documents of a run came from an iterator, which gives them once."""

    text = (
        "the documents of run {run!r} came from a {kind}, which gives them once, so the {lost:,} lost ones cannot be "
        "read again. Nothing was sent. Map all of them again under the name {run!r}, from a list or from dq.Documents, "
        "then call resubmit_lost(). run.lost() says which they are."
    )


class InputNotHere(UsageError):
    """The documents of a run are known to the process that mapped them, and not to this one."""

    text = (
        "the documents of run {run!r} were mapped by another process, so this one cannot send the {lost:,} lost ones "
        "again. Nothing was sent. Map the same documents under the name {run!r}, which attaches to the run, then call "
        "resubmit_lost(). run.lost() says which they are."
    )


class InputChanged(RunError):
    """The input was read again for lost documents, and is not what was mapped."""

    text = (
        "run {run!r} was mapped over other documents than its input holds now ({difference}). From there on nothing "
        "was sent again, and what is lost stays counted as lost. Bring the input back to what it was, then call "
        "run.resubmit_lost(); or map the new documents under another name."
    )
