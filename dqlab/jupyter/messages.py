"""The sentences that lines print about labs, runs and dead documents, each true in the state in which it is printed.

Python's errors name keywords of Python; here they name the words of a line.
"""

from __future__ import annotations

import reprlib
import shlex
import warnings
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from difflib import get_close_matches

from dqlab.documents import Documents
from dqlab.errors import DqlabError, RunExists, UsageError, in_words
from dqlab.jupyter.wrapping import fitted
from dqlab.lab import Lab
from dqlab.live.display import Mode, mode
from dqlab.live.parts import Code, Title, line
from dqlab.live.render import render_html
from dqlab.live.style import Ink
from dqlab.notebook import in_jupyter, with_cells
from dqlab.numbers import many
from dqlab.runs.code.sealing import Uncomparable
from dqlab.runs.failures import DeadLetter, Failures, letter_named
from dqlab.runs.run import Run
from dqlab.runs.run_book import NothingFailed
from dqlab.runs.session import Durability
from dqlab.runs.submit.elements import why_empty
from dqlab.stats import NO_ROOM, Counts, RunState, RunStats
from dqlab.texts import block, one_line

COUNTING = 1.0
"""Seconds to wait for a submission to count its documents, so that the line can report their number."""
ASKING = 1.0
"""Seconds to fetch the state of an interrupted run."""
FEW = 200
"""Results below which a run without failures is one that people start over."""
NAMED = 5
"""Most runs that are named one by one."""

_STANDINGS = {
    RunState.PAUSED: "it is paused: %dq resume",
    RunState.WAITING: "it waits, for there are no consumers, or its store takes nothing",
}


class Said(int):
    """A number that a line has printed in a sentence, so that a notebook does not display it again."""

    def _ipython_display_(self) -> None:
        """Display nothing in a notebook."""
        if not in_jupyter():
            raise NotImplementedError  # a terminal has written "Out[1]:" by now, and needs a value after it


@contextmanager
def in_words_of_a_line(function: str | None = None, *, defined: bool = False) -> Iterator[None]:
    """Describe what to do about an existing run of `function`, or with other documents, in the words of a line."""
    try:
        yield
    except RunExists as error:
        raise name_taken(error, function, defined=defined) from None


def name_taken(error: RunExists, function: str | None, *, defined: bool, dead: int = 1, left: int = 0) -> RunExists:
    """Return the error with the next steps in the words of a line, for `dead` documents and `left` that wait or run."""
    if not error.in_python:
        return error
    if function is not None and error.other_code:
        news = f"The function {function} is defined now as its cell has it. " if defined else ""
        retry = f"To run its failed documents with {function}: %dq retry {error.run} --fn {function}. " if dead else ""
        if left:
            retry += f"To run the rest with {function} too: %dq retry {error.run} --fn {function} --rest. "
        steps = (
            f"{news}{retry}To start over: submit with --on-existing new. To keep it, with the results of the code it "
            f"had: %dq attach {error.run}."
        )
    else:
        steps = (
            "To run what is new or has changed, and keep the rest: submit with --on-existing update. To start over "
            "with these documents: --on-existing new. To keep both: another --name."
        )
    return RunExists(run=error.run, difference=error.difference, other_code=error.other_code, steps=steps)


def is_fresh(counts: Counts) -> bool:
    """Return whether so little of a run is done, and nothing failed, that starting over is what most people want."""
    return not counts.dead and counts.acked < FEW


@contextmanager
def warned() -> Iterator[list[str]]:
    """Collect warnings about code that is compared with a run's, in the words of a line, and let others through."""
    sentences: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for kind in (Uncomparable, NothingFailed):
            warnings.simplefilter("always", kind)  # Python would show it once, and a cell runs again
        yield sentences
    for warning in caught:
        if issubclass(warning.category, Uncomparable | NothingFailed):
            said = str(warning.message).replace("on_existing='new'", "--on-existing new")
            sentences.append(said.replace("another name=", "another --name"))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def submitted(
    run: Run, documents: object, expression: str, *, function: str | None = None, retries: bool = False
) -> str:
    """Return how much was submitted or attached to, or raise `RunExists` where the documents turn out to be others."""
    # Only what is known by now: nothing is listed or counted a second time, which may take minutes.
    submitter = run.submitter
    settled = submitter is None or submitter.join(COUNTING)
    attached = submitter is not None and submitter.verifies
    if submitter is not None and isinstance(submitter.error, RunExists) and attached:
        raise submitter.error
    if submitter is not None and submitter.error is not None and submitter.unsent:
        error = submitter.error
        return f"{run.name}: the input stopped at document {submitter.count}: {type(error).__name__}: {error}"
    stats = run.stats()
    elements = () if submitter is None else submitter.elements
    if settled and not stats.counts.all and (submitter is None or submitter.error is None):
        return f"{run.name}: {expression} has no documents, so there is nothing to do. {why_empty(elements)}"
    if attached or settled or not isinstance(documents, Sized) or isinstance(documents, Documents):
        ended = settled or (attached and stats.total is not None)
        amount = many(stats.counts.all, "document") + ("" if ended else " so far")
    else:
        amount = many(len(documents), "document")
    if attached and not retries:
        left = stats.counts.left
        rest = f", {left:,} of them not done yet: {'they go' if left > 1 else 'it goes'} on" if left else ""
        return f"Attached to run {run.name!r} ({amount}{rest}); nothing runs again"
    called = run.name == function or function is None or run.name.startswith(f"{function}-")
    over = "" if called else f"{function}() over "
    return f"{run.name}: {over}{amount} on queue {run.queue}, {many(stats.consumers, 'consumer')}"


def attached(run: Run, variable: str) -> str:
    """Return which run a variable holds, and what the run does."""
    stats = run.stats()
    counts = stats.counts
    parts = [f"{amount:,} {word}" for amount, word in ((counts.acked, "acked"), (counts.dead, "dead")) if amount]
    return f"{variable} is run {run.name!r}: {', '.join([many(counts.all, 'document'), *parts])}; {said_of(stats)}"


def standing(run: Run) -> str:
    """Return what happens to a run that is no longer waited for."""
    try:
        stats = run.stats(timeout=ASKING)
    except DqlabError as error:
        return f"it cannot be asked: {error}"
    return said_of(stats)


def said_of(stats: RunStats) -> str:
    """Return what a run will do by itself, or how to make it continue."""
    if stats.state is RunState.STOPPED:
        return f"it paused itself: {stats.why or NO_ROOM}; {_way_on(stats)}"
    return "it is done" if stats.resting else _STANDINGS.get(stats.state, "it goes on")


def _way_on(stats: RunStats) -> str:
    """Return how to make a run continue that paused itself, in the words of a line."""
    name = shlex.quote(stats.name)
    if stats.fails_throughout:
        return f"mend its function, then %dq retry {name} --rest; %dq cancel {name} gives it up"
    if stats.unread:
        return f"then %dq resume {name}; %dq cancel {name} gives it up"
    return f"%dq drop runs that were read, then %dq resume {name}; %dq cancel {name} gives it up"


def end(lab: Lab) -> str:
    """Close a lab, and return a sentence on what ended with it."""
    # All of it before close(): a closed lab answers nothing.
    transient = {pool.name for pool in lab.queues if pool.durability is Durability.TRANSIENT}
    runs = [run.name for run in lab.runs if run.queue in transient]
    kept = lab.store is not None and any(pool.durability is Durability.DURABLE for pool in lab.queues)
    ended = lab.ended
    lab.close()
    if not lab.embedded and ended:
        return f"lab {lab.name} is closed; its cluster had ended before"
    if not lab.embedded:
        return f"lab {lab.name} is closed; its cluster, with queues and runs, was left as it is"
    if not runs:
        there = f". Its queues are in {lab.store}: the same %dq connect brings them back" if kept else ""
        return f"lab {lab.name} is closed; its cluster ended with it{there}"
    named = ", ".join(runs[:NAMED]) + (f" and {len(runs) - NAMED} more" if len(runs) > NAMED else "")
    return f"lab {lab.name} is closed; its cluster ended with it, and the results of {named} are gone"


# --- one dead document ---------------------------------------------------------------------

TITLE = 100
"""Most characters of a message that fit into a title."""
PRINTED = "it printed:"


def find_letter(failures: Failures, word: str) -> DeadLetter:
    """Return the dead document with this key, message id or "#POSITION" in the input, or raise `UsageError`."""
    keys: list[str] = []
    if (found := letter_named(failures, word, keys)) is not None:
        return found
    near = get_close_matches(word, keys, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {many(len(keys), 'dead document')}: %dq failed"
    raise UsageError(reason=f"run {failures.name!r} has no dead document {word!r}. {hint}")


def letter_bundle(letter: DeadLetter, **_: object) -> dict[str, str]:
    """Return a dead document as text and, unless only text is wanted, as HTML."""
    head, lines, traceback = _head(letter), _lines(letter), block(with_cells(letter.traceback.rstrip()))
    said = [line if line[:1].isspace() else fitted(line) for line in traceback.split("\n")]  # code stays as it is
    printed = block(letter.logs)
    text = "\n".join([*map(fitted, (head, *lines)), "", *said, *(("", PRINTED, printed) if printed else ())])
    if mode() is Mode.TEXT:
        return {"text/plain": text}
    output = (line(PRINTED, Ink.QUIET), Code(printed)) if printed else ()
    html = render_html((Title(head), *(line(each, Ink.QUIET) for each in lines), Code(traceback), *output))
    return {"text/plain": text, "text/html": html}


def _head(letter: DeadLetter) -> str:
    """Return document and error in one line, without a long message that the traceback repeats."""
    message = one_line(letter.message, 300)
    repeated = len(message) > TITLE and letter.message[:TITLE] in letter.traceback
    return f"{one_line(letter.key)}  {one_line(letter.error)}{f': {message}' * (bool(message) and not repeated)}"


def _lines(letter: DeadLetter) -> list[str]:
    code = f"code {one_line(letter.version)}, " if letter.version else ""
    place = one_line(letter.at) or "a place unknown"
    return [
        f"dead after {many(letter.deliveries, 'delivery')} ({one_line(letter.reason)}), {code}at {place}",
        f"document: {_document(letter)}",
        f"message {letter.id}, position {letter.ordinal} in the input",
    ]


def _document(letter: DeadLetter) -> str:
    try:
        return one_line(_SHORT.repr(letter.document), 300)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - opening it runs arbitrary code of its class
        return f"cannot be opened here: {one_line(in_words(error))}"


_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 300
