"""What cannot be brought back, or not from here: messages that went with their worker, and inputs that are used up."""

from __future__ import annotations

from dqlab.errors import DqlabError, RunError, UsageError, WaitTimeout

__all__ = ["InputChanged", "InputNotHere", "InputUsedUp", "MessagesLost", "NoAnswer", "NotSentAgain"]


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


class NotSentAgain(RunError):
    """Lost documents were refused: they are there again, or the run takes no more."""

    text = (
        "not all lost documents of run {run!r} were sent again: somebody else has sent them meanwhile, or has "
        "cancelled the run. None of them is in the run twice. run.lost() says which are still missing; call "
        "run.resubmit_lost() for those, unless run.state is 'cancelled'."
    )


class NoAnswer(WaitTimeout):
    """The time given to wait() or results() is over, and a shard has given no answer in it."""

    text = (
        "run {run!r} could not be asked within {seconds:g} s: a shard of queue {queue!r} gives no answer. It hangs, or "
        "is just being opened by another worker. The run was left as it is. Call run.wait(timeout=...) again; "
        "lab.doctor() says what is wrong."
    )
