"""Errors of a run as a whole."""

from __future__ import annotations

from dqlab.errors.sentence import DqlabError
from dqlab.errors.usage import UsageError

__all__ = [
    "AllFailed",
    "CallsFailed",
    "CodeGone",
    "DocumentsLost",
    "DocumentsNotPut",
    "InputChanged",
    "InputNotHere",
    "InputResized",
    "InputUsedUp",
    "JoinStalled",
    "NoAnswer",
    "NotSentAgain",
    "ResultsForgotten",
    "ResultsFull",
    "ResultsMissing",
    "RunCancelled",
    "RunError",
    "RunExists",
    "RunFailed",
    "RunNotFound",
    "RunStalled",
    "SubmissionIncomplete",
    "WaitTimeout",
]


class RunError(DqlabError):
    """An error of a run as a whole."""

    text = "run {run!r}: {reason}"


class RunNotFound(RunError):
    """No run of that name is known here."""

    text = "no run named {run!r} here.{hint} Runs that exist: {known}."


class RunExists(RunError):
    """The name belongs to a run of other code or other documents."""

    text = "run {run!r} exists with {difference}. It was left as it is. {steps}"
    IN_PYTHON = (
        "Use on_existing='new' to cancel and drop it and start over, on_existing='retry-failed' to retry its dead "
        "documents with this code, or another name=."
    )
    """What to do next, as a call has it; a line of a notebook has other words."""

    def __init__(self, *, run: str, difference: str, steps: str = IN_PYTHON) -> None:
        super().__init__(run=run, difference=difference, steps=steps)


class RunFailed(RunError):
    """Some documents of the run are dead; the others have their results."""

    text = (
        "{dead:,} of {total:document} of run {run!r} failed, the first with {first}. {others}"
        "See run.failures(); fix the function, then run.retry(fn=...)."
    )
    OTHERS = "What succeeded: run.results(errors='skip'). "
    """Hint about the other documents, if there are any."""


class CallsFailed(RunFailed):
    """Messages of a put are dead or cancelled; the others have their results."""

    text = "{dead:,} of {total:message} of a {run} failed, the first with {first}. {others}Put again what failed."
    OTHERS = "What succeeded, with dead letters in the places of what failed: results(errors='return'). "


class ResultsForgotten(RunError):
    """Messages of a put succeeded, and their results were freed before they were read."""

    text = (
        "{forgotten:,} of {total:result} of a {run} {forgotten:was|were} freed by pool.forget(); the messages "
        "succeeded, so nothing has to be mended. Put them again only to have their results once more."
    )


class DocumentsLost(RunError):
    """Messages or results were in a worker that died, or in damaged files; `ranges` has their ordinals."""

    text = (
        "{lost:,} of {total:document} of run {run!r} {lost:is|are} lost: {how}. {first} run.resubmit_lost() sends them "
        "again; run.lost() has all of them. Results of the others: run.results(errors='skip')."
    )


class ResultsMissing(RunError):
    """Documents were acknowledged and their results are missing, which is a defect; `ranges` has their ordinals."""

    text = (
        "{missing:,} of {acked:processed document} of run {run!r} {missing:has|have} no result, which must not happen: "
        "{first}. The others have theirs: run.results(errors='skip'). Map these documents once more under another "
        "name; `dqlab fsck` looks at a store, lab.doctor() at the rest. Please report this."
    )


class RunCancelled(RunError):
    """The run was cancelled, so there will be no complete results."""

    text = (
        "run {run!r} was cancelled: {cancelled:,} of {total:document} {cancelled:was|were} not processed. The results "
        "of the {acked:,} finished ones: run.results(errors='skip')."
    )


class CodeGone(RunError):
    """The newest code of a run was lost with the worker or the file that kept it."""

    text = (
        "the newest code of run {run!r}, {code!r} (version {version}), is kept nowhere any more: it was lost with a "
        "worker or in a damaged file. Nothing was sent again. Pass the function: run.retry(fn=...)."
    )


class RunStalled(RunError):
    """Work is waiting and no consumer has existed for a while."""

    text = (
        "run {run!r} stands still: {waiting:message} {waiting:waits|wait} in queue {queue!r} and no consumer has "
        "existed for {seconds:g} s. Nothing is lost. Start consumers: more workers, a ConsumerPool, or map with "
        "consumers='auto'."
    )


class SubmissionIncomplete(RunError):
    """The input ended early; what was submitted before continues."""

    text = (
        "the input of run {run!r} stopped at position {position:,}: {reason}. The {position:element} "
        "before it {position:was|were} submitted and {position:goes|go} on; their results: run.results(errors='skip')."
    )


class InputResized(RunError):
    """An input has fewer or more elements than when it was mapped; the cause of a `SubmissionIncomplete`."""

    text = (
        "the input had {had:element} when it was mapped and gave {read} when it was read: it was changed "
        "meanwhile. Map a copy of it: list(batch)."
    )


class DocumentsNotPut(RunError):
    """The input of a run was read to its end, and its queue did not confirm all of it."""

    text = (
        "{missing:,} of {read:document} of run {run!r} {missing:was|were} read from its input, and its queue never "
        "confirmed them, without an error that says why. The {held:other} {held:goes|go} on; their results: "
        "run.results(errors='skip'). Map the same documents under this name again: only the missing ones are sent."
    )


class ResultsFull(RunError):
    """No room is left for results; the run paused itself."""

    text = (
        "run {run!r} paused itself: its queue keeps {used:byte} of results, the limit is {limit:,}. Nothing is "
        "lost. Read and run.drop() runs that are finished: then it goes on by itself. Or return less per document "
        "(write it to a file)."
    )


class AllFailed(RunError):
    """The first documents of the run all failed; it paused itself."""

    text = (
        "run {run!r} paused itself: {why}. Nothing is lost: {now}. See run.failures(); fix the function, then "
        "run.retry(fn=..., rest=True), in a notebook %dq retry {run} --rest. Or go on regardless with "
        "run.resume(); map with stop_if=None never pauses."
    )


class WaitTimeout(RunError):
    """The timeout of wait() or results() has expired; the run is unaffected."""

    text = (
        "run {run!r} is not done after {seconds:g} s: {left:message} left.{why} It was left as it is. "
        "Call run.wait(timeout=...) again, or look at run.counts and run.state."
    )


class JoinStalled(RunError):
    """join() would wait forever."""

    text = (
        "join() would never end: {waiting:message} {waiting:waits|wait} in queue {queue!r} and {reason} for "
        "{seconds:g} s. Nothing is lost. Call start() on a ConsumerPool, or lab.queue({queue!r}).resume(), or "
        "run.resume() on its paused runs."
    )


class InputUsedUp(UsageError):
    """The documents of a run came from an iterator, which yields them once."""

    text = (
        "the documents of run {run!r} came from a {kind}, which gives them once, so the {lost:,} lost ones cannot be "
        "read again. Nothing was sent. Map all of them again under the name {run!r}, from a list or from dq.Documents, "
        "then call resubmit_lost(). run.lost() says which they are."
    )


class InputNotHere(UsageError):
    """The documents of a run are known only to the process that mapped them."""

    text = (
        "the documents of run {run!r} were mapped by another process, so this one cannot send the {lost:,} lost ones "
        "again. Nothing was sent. Map the same documents under the name {run!r}, which attaches to the run, then call "
        "resubmit_lost(). run.lost() says which they are."
    )


class InputChanged(RunError):
    """The input was read again for lost documents, and differs from what was mapped."""

    text = (
        "run {run!r} was mapped over other documents than its input holds now ({difference}). From there on nothing "
        "was sent again, and what is lost stays counted as lost. Bring the input back to what it was, then call "
        "run.resubmit_lost(); or map the new documents under another name."
    )


class NotSentAgain(RunError):
    """Lost documents were refused: they are there again, or the run accepts no more."""

    text = (
        "not all lost documents of run {run!r} were sent again: another client has sent them meanwhile, or has "
        "cancelled the run. None of them is in the run twice. run.lost() says which are still missing; call "
        "run.resubmit_lost() for those, unless run.state is 'cancelled'."
    )


class NoAnswer(WaitTimeout):
    """The timeout of wait() or results() has expired, and a shard has not answered in that time."""

    text = (
        "run {run!r} could not be asked within {seconds:g} s: a shard of queue {queue!r} does not answer. It hangs, or "
        "is just being opened by another worker. The run was left as it is. Call run.wait(timeout=...) again; "
        "lab.doctor() says what is wrong."
    )
