"""Every error dqlab raises on purpose.

An error is a sentence with named gaps, and the values that fill them. The values are attributes, for code; the sentence
is `str(error)`, for people: what failed, what happened to the data, what to do next. All cross process borders.

::

    DqlabError
    ├── ConnectFailed · VersionMismatch
    ├── SchedulerGone · LabClosed · ActorGone
    ├── CallTimeout · SubmitFailed · JobsPending · JobsDied
    ├── PutError ── QueueFull · PutTimeout · PutFailed · MessageTooLarge · NotPicklable
    ├── FrameCorrupt · ProcessDied · MessageTimeout · MemoryLimit
    ├── RunError ── RunNotFound · RunExists · RunFailed
    │               ResultsMissing · PartsMissing · RunCancelled · RunStalled
    │               SubmissionIncomplete ── Rehearsed
    │               ResultsFull · WaitTimeout · RunHalted ── AllFailed
    ├── MessageError ── Reject · ResultTooLarge · ResultRefused · AnswerInvalid · ResultUnreadable · MessageNotFound
    │                   DocumentError ── DocumentChanged · DocumentDamaged · DocumentEncrypted · PageFailed
    │                                    FileUnreadable · RecordInvalid · WrongKind · ColumnNotFound
    └── UsageError ── BadOption
                      NoAttribute · PositionNotFound · LengthUnknown
                      QueueNotFound · QueueClosed · InputNotFound · InputUnreadable · ExtraMissing
"""

from __future__ import annotations

import re
import reprlib
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from string import Formatter
from typing import Any, ClassVar

from dqlab.errors.rendering import rendered
from dqlab.numbers import many
from dqlab.texts import block, one_line

_ENDS_A_SENTENCE = re.compile(r"\{(\w+)\}\.(?=\s|$)")


class _Sentences(Formatter):
    """Fills gaps as `str.format` does, counts with their nouns and verbs."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Return a value as its gap wants it."""
        if format_spec == "brief":
            return one_line(_BRIEFLY.repr(value), 200)
        if isinstance(value, int) and "|" in format_spec:
            one, several = format_spec.split("|")
            return one if value == 1 else several
        if isinstance(value, int) and _NOUN.fullmatch(format_spec):
            return many(value, format_spec)
        return super().format_field(value, format_spec)


_NOUN = re.compile(r"[a-z ]{2,}")
"""A noun has two letters or more: Python's own formats of numbers, such as "d", have one."""
_SENTENCES = _Sentences()
_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxstring = _BRIEFLY.maxother = _BRIEFLY.maxlong = 200


class DqlabError(Exception):
    """Root of all errors of dqlab.

    Parameters
    ----------
    **fields
        Values for the gaps in `text`. Each becomes an attribute, unchanged; the sentence shows it printable.
    """

    text: ClassVar[str] = "dqlab failed"

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.fields = fields
        sentence = _SENTENCES.vformat(self.text, (), _without_second_period(self.text, fields))
        self.sentence = sentence if sentence.isprintable() else block(sentence)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})  # `self.fields` would recurse while an error is unpickled
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __str__(self) -> str:
        return self.sentence

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)

    def _render_traceback_(self) -> list[str]:
        """Render for IPython, which calls it by this name."""
        return rendered(self)


class DqlabWarning(UserWarning):
    """A warning of dqlab; a notebook shows only its sentence, without the file and line it came from."""


def _without_second_period(text: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the values, without the period of a sentence where the text has one after its gap."""
    ending = (name for name in _ENDS_A_SENTENCE.findall(text) if isinstance(fields.get(name), str))
    return fields | {name: fields[name].removesuffix(".") for name in ending}


def _rebuild(kind: type[DqlabError], fields: dict[str, Any]) -> DqlabError:
    return kind(**fields)


def in_words(error: BaseException) -> str:
    """Return class and text of any error, whose text may raise in turn."""
    with suppress(BaseException):  # what broke first is what counts
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    return type(error).__name__


class _UsersCode:
    """Ends a block at any exception of users' code in it, also `SystemExit`, but for Ctrl-C."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and not issubclass(kind, KeyboardInterrupt)


users_code = _UsersCode()

# --- The cluster and this installation: connecting, missing parts, and processes that are gone.


class ConnectFailed(DqlabError):
    """No scheduler answered at the given address."""

    text = (
        "no scheduler answers at {address!r}: {reason}. Nothing was started. Check the "
        "address, start one with `dask scheduler`, or call dq.connect() without one for a cluster on this machine."
    )


class VersionMismatch(DqlabError):
    """Client, scheduler or a worker run versions of dqlab that differ in the protocol, or a Dask that is too old."""

    text = "{reason}"


class SchedulerGone(DqlabError):
    """The scheduler stopped answering; every transient queue is lost with it."""

    text = "the scheduler at {address} is gone ({reason}). {left}"
    UNKNOWN = (
        "If its process has ended, transient queues went with it; durable ones are in their store. Start again, "
        "dq.connect() or dq.connect(store=...), and map them again."
    )
    """What is left of the queues, where the kind of cluster is not known."""

    def __init__(self, *, address: str, reason: str, left: str = UNKNOWN, kept: bool = True) -> None:
        super().__init__(address=address, reason=reason, left=left, kept=kept)


class LabClosed(DqlabError):
    """The lab, or its Dask client, was closed; objects made with it can no longer be used."""

    text = "lab {lab!r} {how}, so {what} can no longer be used. {left}"

    def __init__(self, *, lab: str, what: str, left: str, how: str = "was closed", kept: bool = True) -> None:
        super().__init__(lab=lab, how=how, what=what, left=left, kept=kept)


class ActorGone(DqlabError):
    """A queue or consumer is not registered with the scheduler, or its process died."""

    text = "{name!r} {how}: {reason}. {left}"
    UNKNOWN = (
        "If it was transient, its messages and results are lost; if it was durable, they are in its store. Connect "
        "again, with lab = dq.connect(store=...), or dq.connect() if it had no store, and map or attach again."
    )
    """What is left of the queue, where no more is known."""
    NO_FILES = (
        "{what} was kept in those files alone: without them nothing of it can be read. When they are back, {found}; "
        "if they are gone for good, map its documents again."
    )
    """What is left of a durable queue after its files were deleted or moved."""
    LOST = (
        "It goes on if a worker comes back there; lab.queue(NAME) gives it up, and opens an empty queue. With "
        "dq.connect(..., store=DIRECTORY), in a directory that all machines see, queues outlive their machine."
    )
    """What is left of a transient queue whose log is on a machine that has no worker any more."""
    FAILED = (
        "What was confirmed is on disk. The log is opened again by itself, once a minute at least, and runs go on "
        "then; lab.queue(NAME) tries it at once."
    )
    """What is left of a durable queue whose files have been failing for a while."""

    def __init__(
        self, *, name: str, reason: str, left: str = UNKNOWN, how: str = "is gone", without_files: bool = False
    ) -> None:
        # without_files: the log of a durable queue was deleted or moved.
        super().__init__(name=name, reason=reason, left=left, how=how, without_files=without_files)


class CallTimeout(DqlabError):
    """A queue or consumer did not answer in time; the call may or may not have taken effect."""

    text = (
        "{name!r} did not answer {call}() within {seconds:g} s: its process may be stopped, busy or out of reach. It "
        "may still act on the call. lab.doctor(), or `dqlab doctor` in a terminal, examines the cluster; then call "
        "again: puts and settles that arrive twice count once."
    )


# --- Putting messages into a queue.


class PutError(DqlabError):
    """A put was refused; none of it is in the queue."""

    text = "the put was refused: {reason}"


class QueueFull(PutError):
    """No room was made within the time that a put waits, and nothing will make room."""

    text = (
        "queue {queue!r} is full: {messages:,} of {maxsize:message}, {bytes:,} of {max_bytes:byte}, "
        "and no room was made within {seconds:g} s because {reason}. These messages were not queued. "
        "Start consumers, resume the queue, or open it with a larger maxsize=."
    )


class PutTimeout(PutError):
    """A put was not confirmed in time; it may or may not be in the queue."""

    text = (
        "queue {queue!r} did not confirm a put of {count:message} within {seconds:g} s. {count:It|They} may be "
        "queued, and {count:is|are} not sent again. lab.doctor() shows why it does not answer. When it does, put "
        "{count:it|them} again: {count:it runs|they run} twice if {count:it was|they were} queued."
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


class NotPicklable(PutError):
    """A function or an argument cannot be sent to another process."""

    text = (
        "{what} cannot be pickled: {reason}. It was not queued. Build such objects (connections, locks, "
        "open files) inside the function, or pass what is needed to make them."
    )


class FrameCorrupt(DqlabError):
    """Bytes are not a valid frame."""

    text = "not a valid {kind}: {reason} ({size:byte}). It was not used."


# --- One message: what its function raised or returned, and why its process ended first.


class MessageError(DqlabError):
    """The reason why one message failed; shown in `failures()`."""

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


class ResultTooLarge(MessageError):
    """One result is above the limit."""

    text = (
        "the result is {size:byte}, the limit is {limit:,}. It was not kept. "
        "Map with sink=dq.Parquet('out/'), which takes larger ones of plain data; or write it to a file in the "
        "function and return its path."
    )


class ResultRefused(MessageError):
    """The function returned what is no result, or cannot be kept as one; another return value is needed."""

    text = "{reason}"


class AnswerInvalid(MessageError):
    """What the function returned does not fit the class of its return annotation; `field` names where."""

    text = (
        "the answer is no {type}: {reason}. It was not kept as a result; the failure's traceback ends with it. "
        "Correct what makes it or the class, then run.retry(fn=...). To have it asked again, map with "
        "retry=dq.Retry(on=dq.errors.AnswerInvalid)."
    )
    field: str


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
        "the result of {what} cannot be unpickled in this process: {error}: {reason}. Its {size:byte} "
        "{size:is|are} in .payload of this error, and the other results can be read: results(errors='return') has "
        "this error in its place. Make what it needs importable here and read again, or return plain data and "
        "process it again."
    )

    def __init__(self, payload: bytes = b"", **fields: Any) -> None:
        super().__init__(**fields)
        self.payload = payload  # not a field: those are shown, and this may be long

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), self.payload, **self.fields), ()


class MessageNotFound(MessageError):
    """No message with that id is known."""

    text = "queue {queue!r} has no message {id}: it never existed, or was dropped with its run."


class ProcessDied(DqlabError):
    """The process ended in the middle of a message: a crash of native code, `os._exit`, a kill."""

    text = (
        "the process {how}. Only this message lost its attempt; the others went on in a new process. "
        "The traceback shows where it was, if that is known."
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


# --- Wrong calls.


class UsageError(DqlabError):
    """The call itself is wrong; nothing was done."""

    text = "{reason}"


class BadOption(UsageError):
    """An option has an invalid value."""

    text = "{option}={value:brief}: {problem}"


class NoAttribute(UsageError, AttributeError):
    """An object, or the module, does not have this name, or it cannot be set; an AttributeError as well."""

    text = "{what} {problem}. {hint}"


class PositionNotFound(UsageError, IndexError):
    """A position after the end; an IndexError as well, as for any sequence."""

    text = "{what} has {length}; there is none at position {position}."


class QueueNotFound(UsageError):
    """No queue of that name is open."""

    text = "no queue named {queue!r} here.{hint} Queues that exist: {known}. Open one with lab.queue({queue!r})."


class QueueClosed(UsageError):
    """The queue was closed; its handle can no longer be used."""

    text = "queue {queue!r} was closed. Open it again with lab.queue({queue!r})."


class InputNotFound(UsageError):
    """The folder, archive or files of an input are not there; an input that comes later may be waited for."""


class InputUnreadable(UsageError):
    """A folder or an archive cannot be listed, at all or from there on."""

    text = "{what} cannot be listed: {reason}. {left} {hint}."


class LengthUnknown(UsageError, TypeError):
    """Documents that come from an iterator cannot be counted; a TypeError so that list() works."""

    text = (
        "documents from an iterator have no length: counting would use them up. Pass a list, or a callable that "
        "returns a new iterator each time."
    )


# --- Documents that are rows of tables or records of files, and the files they are part of.


class DocumentError(MessageError):
    """A document, or its file, is not as expected; a retry would fail the same way."""

    text = "{reason}"


class DocumentChanged(DocumentError):
    """A document has changed since it was listed."""

    text = (
        "document {document!r} has changed since it was listed: its version was {was}, now it is {now}. None of it "
        "was read, and it has no result. {way}"
    )
    OF_FILE = (
        "To read it as it is now, have the function read document.refreshed() and retry; or list it again, by mapping "
        "the documents under another name or with on_existing='new'."
    )
    OF_ROW = "It is a row: map the rows again under another name or with on_existing='new'."
    OF_PARTS = (
        "Its parts are not those of the file any more: map the documents again under another name or with "
        "on_existing='new'."
    )

    def __init__(self, *, document: str | int, was: str, now: str, way: str = OF_FILE) -> None:
        super().__init__(document=document, was=was, now=now, way=way)


class DocumentDamaged(DocumentError):
    """A document ends too early, or its bytes do not match its format."""

    text = (
        "document {document!r} is damaged: {reason}. What was read of it is not counted. Copy it again from where it "
        "came from; then have the function read document.refreshed() and retry, or map the documents again."
    )


class DocumentEncrypted(DocumentError):
    """A document opens only with a password."""

    text = (
        "document {document!r} is encrypted, and no password is asked for. None of it was read. Decrypt it first, "
        "or have the function open {where!r} with a library that takes the password."
    )


class PageFailed(DocumentError):
    """One page of a document cannot be read."""

    text = (
        "page {page} of document {document!r} cannot be read: {reason}. Its other pages are not touched. Make the "
        "file again, or have the function catch PageFailed and go on with the next page."
    )


class FileUnreadable(DocumentError):
    """A file is damaged, incomplete or in another format, or this user cannot read it."""

    text = (
        "{where!r} cannot be read as {form}: {reason}. None of its documents from there on was processed; "
        "those before it keep their results. {hint}."
    )
    OF_SERVER = (
        "Its server is busy, ended the transfer early or did not answer: look at the server, then map the input again"
    )


class RecordInvalid(DocumentError):
    """A line of a file is not a record, or Python cannot hold a value of a row, as a date after the year 9999."""


class WrongKind(DocumentError):
    """A method or value was used that only documents of another kind have."""

    text = "document {key!r} is {kind}, and {asked} is not available for it. Nothing was read. Use {instead}."


class ColumnNotFound(DocumentError, KeyError):
    """A table has no column of that name; a KeyError as well."""

    text = "{where!r} has no column {column!r}.{hint} Nothing was {done}. Columns: {known}."


# --- A run as a whole.


class RunError(DqlabError):
    """An error of a run as a whole."""

    text = "run {run!r}: {reason}"


class RunNotFound(RunError):
    """No run of that name is known here."""

    text = "no run named {run!r} here.{hint} Runs that exist: {known}."


class RunExists(RunError):
    """The name belongs to a run with other code or other documents."""

    text = "run {run!r} exists with {difference}. It was left as it is. {steps}"
    START_OVER = "Another name= keeps both; on_existing='new' cancels and drops it and starts over"
    UPDATE = "; on_existing='update' runs what is new or has changed, once the run has ended"
    RETRY = "; on_existing='retry-failed' retries its dead documents with this code"
    """What works where only the code differs: a retry compares the documents too."""

    def __init__(
        self, *, run: str, difference: str, other_code: bool = False, steps: str = "", in_python: bool | None = None
    ) -> None:
        # in_python: whether `steps` are lines of Python, not of `%dq`; by default those that are made here are.
        if in_python is None:
            in_python = not steps
        steps = steps or f"{self.START_OVER}{self.RETRY if other_code else self.UPDATE * ('documents' in difference)}."
        super().__init__(run=run, difference=difference, other_code=other_code, steps=steps, in_python=in_python)


class RunFailed(RunError):
    """Some documents of the run, or calls of a put, are dead; the others have their results."""

    text = "{dead:,} of {of} failed, the first with {first}. {steps}"


class ResultsMissing(RunError):
    """Results are not there any more: damaged with their files, freed, or missing by a defect."""

    text = "{reason}"


class PartsMissing(RunError):
    """Some parts of a document that was split are not in the run, so it cannot be put together again.

    Attributes
    ----------
    document : str
        Its key, as it was before it was split.
    had, pages : int
        Its pages in parts of the run, and all.
    documents : list of str
        The keys of all such documents.
    """

    text = (
        "document {document!r} has {pages:page}, and run {run!r} has {had:,} of them in its parts, so it was not put "
        "together ({count:document} of this run {count:is|are} like that). Parts were chosen, or the submission ended "
        "early. Choose documents before they are split, docs.where(...).split(pages=...), or map the same documents "
        "under this name again. The others: run.results(errors='skip', merge=...); all parts: run.results()."
    )


class RunCancelled(RunError):
    """The run was cancelled, so there will be no complete results."""

    text = (
        "run {run!r} was cancelled: {cancelled:,} of {total:document} {cancelled:was|were} not processed.{unsent} The "
        "results of the {acked:,} finished ones: run.results(errors='skip')."
    )

    def __init__(self, *, unsent: str = "", **fields: Any) -> None:
        super().__init__(unsent=unsent, **fields)


class RunStalled(RunError):
    """Work is waiting and no consumer that can run it has existed for a while; `unable` says what it needs."""

    text = (
        "run {run!r} makes no progress: {waiting:message} {waiting:waits|wait} in queue {queue!r} and {nobody} for "
        "{seconds:g} s. Nothing is lost. {steps}"
    )

    def __init__(self, *, nobody: str = "no consumer has existed", unable: str = "", **fields: Any) -> None:
        steps = "Start consumers (more workers, start() of a ConsumerPool, map with consumers='auto'), or resume it."
        if unable:
            nobody = f"{unable}: no consumer could run it"
            steps = "Start workers that have it, and it goes on by itself; or cancel it, and map it with less."
        super().__init__(**(fields | {"nobody": nobody, "steps": steps, "unable": unable}))


class SubmissionIncomplete(RunError):
    """The input ended early; documents that were already submitted continue."""

    text = "the input of run {run!r} stopped at position {position:,}: {reason}. {left}"

    def __init__(self, *, run: str, position: int, reason: str, left: str = "") -> None:
        were, go = ("was", "goes") if position == 1 else ("were", "go")
        before = f"The {many(position, 'element')} before it {were} submitted and {go} on"
        so_far = f"{before}; their results: run.results(errors='skip')." if position else "Nothing was submitted."
        super().__init__(run=run, position=position, reason=reason, left=left or so_far)


class Rehearsed(SubmissionIncomplete):
    """A sample of the input was submitted, and the rest waits until its user decides."""

    text = (
        "run {run!r} has {reason}, and the rest waits for you: run.rehearsal shows what the sample says, run.go() "
        "submits the rest, run.cancel() gives it up. Results of the sample: run.results(errors='skip')."
    )

    def __init__(self, *, run: str, reason: str) -> None:
        RunError.__init__(self, run=run, reason=reason)


class ResultsFull(RunError):
    """No room is left for results; the run paused itself."""

    text = (
        "run {run!r} paused itself: its queue keeps {used:byte} of results, the limit is {limit:,}. Nothing is "
        "lost. Read and run.drop() runs that are finished: then it continues by itself. Or return less per document "
        "(sink=dq.Parquet('out/') of map keeps results in files)."
    )


class WaitTimeout(RunError):
    """The timeout of wait() or results() has expired; the run is unaffected."""

    text = (
        "run {run!r} is not done after {seconds:g} s: {why} It was left as it is. "
        "Call run.wait(timeout=...) again, or look at run.counts and run.state."
    )


class RunHalted(RunError):
    """The run paused itself until a user does something.

    What it calls or a storage refuses it, its budget is spent, or its class or what `setup` names could not be made.
    """

    text = "run {run!r} paused itself: {why}{steps}"


class AllFailed(RunHalted):
    """So many documents of the run failed that it paused itself; see `stop_if` of `map`."""

    text = (
        "run {run!r} paused itself: {why}. Nothing is lost: {now}. See run.failures(); then "
        "run.retry() once what the documents need is there, or run.retry(fn=..., rest=True) with other code, in a "
        "notebook %dq retry {run} --rest. Or go on regardless with run.resume(); map with stop_if=None never pauses."
    )


# --- Batch systems and their jobs.


class ExtraMissing(UsageError, ImportError):
    """A package is not installed that only some of dqlab's features need."""

    text = (
        "{what} need {missing}, which is not installed in this Python. Nothing was changed. Install it, also in the "
        "other Pythons of jobs, workers and notebooks: {install}"
    )

    @classmethod
    def of(cls, error: ImportError, package: str, *, what: str, extra: str | None) -> ExtraMissing:
        """Return the error for a failed import of a package, or of one that it needs, in the Python that lacks it."""
        name = error.name or package
        missing = package if name.partition(".")[0] == package.partition(".")[0] else name
        wanted = package if extra is None else f"'dqlab[{extra}]'"
        install = f"{shlex.quote(sys.executable or 'python')} -m pip install {wanted}"
        return cls(what=what, missing=missing, extra=extra, install=install)

    @classmethod
    @contextmanager
    def without(cls, package: str, *, what: str, extra: str) -> Iterator[None]:
        """Raise the error if an import of the block fails."""
        try:
            yield
        except ImportError as error:
            raise cls.of(error, package, what=what, extra=extra) from error


class SubmitFailed(DqlabError):
    """The batch system refuses the job."""

    text = (
        "{system} accepted no job: {reason}. Nothing runs. Look at the script with dq.hpc.recipe({kind!r}, ...), mend "
        "the options, then connect again."
    )


class JobsPending(DqlabError):
    """Jobs are submitted, and none runs yet."""

    text = (
        "no worker joined within {seconds:g} s: {waiting} of {system} ({jobs}) {wait}, reason: {reason}. {left} To "
        "wait longer: dq.connect(..., timeout='30m'); to ask for less: fewer cores, less memory, a shorter walltime."
    )


class JobsDied(DqlabError):
    """Jobs started and ended before a worker joined."""

    text = (
        "job {job} of {system} ended before its worker joined. The end of {log}:\n{tail}\nNothing was queued. {left} "
        "Fix it, often with python= or job_script_prologue=['module load ...'], then connect again."
    )


_PUBLIC = DqlabError, DqlabWarning
__all__ = [name for name, kind in globals().items() if isinstance(kind, type) and issubclass(kind, _PUBLIC)]
__all__ += ["in_words", "users_code"]
