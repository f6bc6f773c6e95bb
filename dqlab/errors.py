"""Every error dqlab raises on purpose.

An error is a sentence with named gaps, and the values that fill them. The values are attributes, for code; the sentence
is `str(error)`, for people: what failed, what happened to the data, what to do next. All cross process borders.

::

    DqlabError
    ├── UnsupportedSystem · ConnectFailed · VersionMismatch ── DaskTooOld
    ├── SchedulerGone · LabClosed · WorkersGone · ActorGone
    │                   CallTimeout · StoreFailed
    ├── PutError ── QueueFull · QueueDraining · PutTimeout · PutFailed · MessageTooLarge
    │               FunctionTooLarge · NotPicklable
    ├── FrameCorrupt · ProcessDied · MessageTimeout · MemoryLimit
    ├── RunError ── RunNotFound · RunExists · RunFailed ── CallsFailed · CodeGone
    │               DocumentsLost · ResultsMissing · RunCancelled · RunStalled
    │               SubmissionIncomplete · DocumentsNotPut · ResultsFull · AllFailed · WaitTimeout
    │               JoinStalled
    ├── MessageError ── Reject · NotACall · ResultTooLarge · ResultNotPicklable · ResultUnreadable
    │                   MessageNotFound
    └── UsageError ── BadName · BadOption · UnknownOption · RunsInFlight · QueueNotFound · QueueInUse · QueueClosed
                    FolderNotFound · NotADocument · DocumentsUsedUp · LengthUnknown
"""

from __future__ import annotations

from functools import partial
from typing import Any

from dqlab.crashes import MemoryLimit as MemoryLimit
from dqlab.crashes import MessageTimeout as MessageTimeout
from dqlab.crashes import ProcessDied as ProcessDied
from dqlab.sentence import DqlabError as DqlabError


class DqlabWarning(UserWarning):
    """A warning of dqlab; a notebook shows its sentence alone, without the file and line it came from."""


# --- the cluster ----------------------------------------------------------------------------


class ConnectFailed(DqlabError):
    """No scheduler answered at the address that was given."""

    text = (
        "no scheduler answered at {address!r} within {seconds:g} s ({reason}). Nothing was started. Check the "
        "address, start one with `dask scheduler`, or call dq.connect() without one for a cluster on this machine."
    )


class UnsupportedSystem(DqlabError, ImportError):
    """dqlab is imported on a system that it cannot run on."""

    text = (
        "dqlab does not run on {system}: it needs Linux or macOS. Nothing was imported. Install the Windows Subsystem "
        "for Linux, WSL, with `wsl --install`, then install and start dqlab and Jupyter inside it."
    )


class VersionMismatch(DqlabError):
    """Client, scheduler or a worker run different protocol versions of dqlab."""

    text = (
        "this process speaks dqlab protocol {ours} (dqlab {our_version}), {who} speaks {theirs} (dqlab {their_version}"
        "). Nothing was sent. Install the same version in both places: pip install 'dqlab=={their_version}'"
    )


class DaskTooOld(VersionMismatch, ImportError):
    """The Dask of this process, of the scheduler or of a worker is older than dqlab can work with."""

    text = (
        "{who} runs Dask {found}, and dqlab needs {oldest} or newer. No queue was opened and nothing was sent. Install "
        "a newer one in that environment, pip install 'dask>={oldest}' 'distributed>={oldest}', and start it again."
    )


class SchedulerGone(DqlabError):
    """The scheduler stopped answering; with it went every transient queue."""

    text = (
        "the scheduler at {address} is gone ({reason}). If its process has ended, transient queues went with it; "
        "durable ones are in their store. Start again, dq.connect() or dq.connect(store=...), and map them again."
    )


class LabClosed(DqlabError):
    """The lab, or its Dask client, was closed; what was made with it cannot be asked any more."""

    text = "lab {lab!r} was closed, so {what} cannot be asked any more. {left}"


class WorkersGone(DqlabError):
    """No worker process of an embedded cluster is left."""

    text = (
        "no worker process of lab {lab!r} is left, and what its transient queues held went with them; durable ones "
        "are in their store. Connect again, lab = dq.connect() or %dq connect -o lab, then map or attach again."
    )


class ActorGone(DqlabError):
    """A queue or consumer is not registered with the scheduler, or its process died."""

    text = (
        "{name!r} is gone: {reason}. If it was transient, its messages and results are lost; if it was durable, "
        "they are in its store. Connect again, with lab = dq.connect() or %dq connect -o lab, and map or attach again."
    )


class StoreFailed(ActorGone):
    """The files of a durable queue fail, and have failed for a while."""

    text = (
        "{name!r} cannot be opened: {reason} What was confirmed is on disk. The log is opened again by itself, once a "
        "minute at least, and runs go on then; lab.queue(NAME) tries it at once."
    )


class CallTimeout(DqlabError):
    """A queue or consumer did not answer in time; the call may or may not have taken effect."""

    text = (
        "{name!r} did not answer {call}() within {seconds:g} s; it may still act on the call. "
        "Look at lab.stats(), then call again: puts and settles that arrive twice count once."
    )


# --- putting --------------------------------------------------------------------------------


class PutError(DqlabError):
    """A put was refused; nothing of it is in the queue."""

    text = "the put was refused: {reason}"


class QueueFull(PutError):
    """No room within the time a put waits, and nobody who makes room."""

    text = (
        "queue {queue!r} is full: {messages:,} of {maxsize:,} messages, {bytes:,} of {max_bytes:,} bytes, "
        "and no room came within {seconds:g} s because {reason}. These messages were not queued. "
        "Start consumers, resume the queue, or open it with a larger maxsize=."
    )


class QueueDraining(PutError):
    """The queue takes no more messages because it was told to drain."""

    text = (
        "queue {queue!r} is draining and takes no new messages; these were not queued. "
        "Call pool.resume() to open it again."
    )


class PutTimeout(PutError):
    """A put was not confirmed in time; it may or may not be in the queue."""

    text = (
        "queue {queue!r} did not confirm a put of {count:,} messages within {seconds:g} s. They may be "
        "queued. Call flush() again: a frame that arrives twice is counted once."
    )


class PutFailed(PutError):
    """A put ended with an error that is not of dqlab."""

    text = (
        "a put on queue {queue!r} failed: {reason}. {count:,} messages were not confirmed; they may be queued, and no "
        "put was repeated. This should not happen: please report it with the log of this process, then put them again."
    )


class MessageTooLarge(PutError):
    """One message is above the limit; a document's contents do not belong in a message."""

    text = (
        "message {position} is {size:,} bytes, the limit is {limit:,}. It was not queued. Send a reference "
        "(a path or URL) and open it in the function, or raise the limit before connecting: "
        "dask.config.set({{'dqlab.message.max-bytes': '4 MiB'}})."
    )


class FunctionTooLarge(PutError):
    """A function, with what it captures, is above what a durable queue can keep."""

    text = (
        "the function is {size:,} bytes with the values it captures, a durable queue keeps functions of up to "
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

    text = "not a valid {kind}: {reason} ({size:,} bytes). Nothing of it was used."


# --- runs -----------------------------------------------------------------------------------


class RunError(DqlabError):
    """Something about a run as a whole."""

    text = "run {run!r}: {reason}"


class RunNotFound(RunError):
    """No run of that name is known here."""

    text = (
        "no run named {run!r} here.{hint} Runs that exist: {known}. "
        "Without a store, a run of an embedded cluster ends with the process that made it."
    )


class RunExists(RunError):
    """The name belongs to a run of other code or other documents."""

    text = (
        "run {run!r} exists with {difference}. It was left as it is. Use on_existing='new' to cancel and "
        "drop it and start over, on_existing='retry-failed' to retry its dead documents with this code, "
        "or another name=."
    )


class RunFailed(RunError):
    """Some documents of the run are dead; the others have their results."""

    text = (
        "{dead:,} of {total:,} documents of run {run!r} failed, the first with {first}. {others}"
        "See run.failures(); fix the function, then run.retry(fn=...)."
    )
    OTHERS = "What succeeded: run.results(errors='skip'). "
    """What is said of the other documents, where there are any."""


class CallsFailed(RunFailed):
    """Messages of a put are dead, or were cancelled; the others have their results."""

    text = "{dead:,} of {total:,} messages of a {run} failed, the first with {first}. {others}Put again what failed."
    OTHERS = "What succeeded, with dead letters in the places of what failed: results(errors='return'). "


class DocumentsLost(RunError):
    """Messages or results were in a worker that died, or in damaged files; `ranges` has their ordinals."""

    text = (
        "{lost:,} of {total:,} documents of run {run!r} are lost: {how}. {first} run.resubmit_lost() sends them "
        "again; run.lost() has all of them. Results of the others: run.results(errors='skip')."
    )


class ResultsMissing(RunError):
    """Documents were acknowledged and their results are not there, which is a defect; `ranges` has their ordinals."""

    text = (
        "{missing:,} of {acked:,} processed documents of run {run!r} have no result, which must not happen: {first}. "
        "The others have theirs: run.results(errors='skip'). Map these documents once more under another name; "
        "`dqlab fsck` looks at a store, lab.doctor() at the rest. Please report this."
    )


class RunCancelled(RunError):
    """The run was cancelled, so there will be no complete results."""

    text = (
        "run {run!r} was cancelled: {cancelled:,} of {total:,} documents were not processed. The results of the "
        "{acked:,} finished ones: run.results(errors='skip')."
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
        "run {run!r} stands still: {waiting:,} messages wait in queue {queue!r} and no consumer has existed for "
        "{seconds:g} s. Nothing is lost. Start consumers: more workers, a ConsumerPool, or map with consumers='auto'."
    )


class SubmissionIncomplete(RunError):
    """The input ended early; what was submitted before goes on."""

    text = (
        "the input of run {run!r} stopped at position {position:,}: {reason}. The {position:,} elements "
        "before it were submitted and go on; their results: run.results(errors='skip')."
    )


class DocumentsNotPut(RunError):
    """The input of a run was read to its end, and its queue did not confirm all that was read."""

    text = (
        "{missing:,} of {read:,} documents of run {run!r} were read from its input, and its queue never confirmed "
        "them, without an error that says why. The {held:,} others go on; their results: run.results(errors='skip'). "
        "Map the same documents under this name again: only the missing ones are sent."
    )


class ResultsFull(RunError):
    """No room is left for results; the run paused itself."""

    text = (
        "run {run!r} paused itself: its queue keeps {used:,} bytes of results, the limit is {limit:,}. Nothing is "
        "lost. Read and run.drop() runs that are finished, or return less per document (write it to a file)."
    )


class AllFailed(RunError):
    """The first documents of the run failed, every one of them; it paused itself."""

    text = (
        "run {run!r} paused itself: {why}. Nothing is lost: {now}. See run.failures(); fix the function, then "
        "run.retry(fn=..., rest=True), in a notebook %dq retry {run} --rest. Or go on regardless with "
        "run.resume(); map with stop_if=None never pauses."
    )


class WaitTimeout(RunError):
    """The time given to wait() or results() is over; nothing happened to the run."""

    text = (
        "run {run!r} is not done after {seconds:g} s: {left:,} messages left.{why} It was left as it is. "
        "Call run.wait(timeout=...) again, or look at run.counts and run.state."
    )


class JoinStalled(RunError):
    """join() would wait for ever."""

    text = (
        "join() would never end: {waiting:,} messages wait in queue {queue!r} and {reason} for {seconds:g} s. "
        "Nothing is lost. Call start() on a ConsumerPool, or resume the queue."
    )


# --- one message ----------------------------------------------------------------------------


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
        "the result is {size:,} bytes, the limit is {limit:,}. It was not kept. "
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
        Of the document, or the message's id.
    error, reason : str
        Class and text of what unpickling raised.
    payload : bytes
        The result as it was pickled.
    """

    text = (
        "the result of {what} cannot be unpickled in this process: {error}: {reason}. Its {size:,} bytes are in "
        ".payload of this error, and the other results can be read: results(errors='return') has this error in its "
        "place. Make what it needs importable here and read again, or return plain data and process it again."
    )

    def __init__(self, payload: bytes = b"", **fields: Any) -> None:
        super().__init__(**fields)
        self.payload = payload  # no field: those are shown, and this may be long

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.payload, **self.fields), ()


class MessageNotFound(MessageError):
    """No message with that id is known."""

    text = "queue {queue!r} knows no message {id}: it never existed, or was dropped with its run."


# --- how it was called ----------------------------------------------------------------------


class UsageError(DqlabError):
    """The call itself is wrong; nothing was done."""

    text = "{reason}"


class BadName(UsageError):
    """A queue or run name that cannot be a name."""

    text = (
        "{kind} name {name!r} {problem}. Names are 1-100 characters: letters, digits, '.', '_' and '-', "
        "starting with a letter or digit. Try {suggestion!r}."
    )


class BadOption(UsageError):
    """An option has a value it cannot have."""

    text = "{option}={value!r}: {problem}"


class UnknownOption(UsageError, TypeError):
    """A keyword that the function does not have; a TypeError as well, as for any function."""

    text = "{function}() has no option {option!r}. {hint} Nothing was done."


class RunsInFlight(UsageError):
    """A lab would be closed, and with it work that is not done."""

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
    """The queue was closed; its handle is of no more use."""

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
        "the {kind} behind these documents gives them once, and that is over. Pass a list, or a callable that "
        "returns a new iterator each time: Documents(make_paths), not Documents(make_paths())."
    )


class LengthUnknown(UsageError, TypeError):
    """Documents that come from an iterator cannot be counted; a TypeError so that list() works."""

    text = (
        "documents from an iterator have no length: counting would use them up. Pass a list, or a callable that "
        "returns a new iterator each time."
    )
