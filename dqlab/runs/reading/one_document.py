"""One document of a run: what it printed, how long it took, and a debugger where it fails."""

from __future__ import annotations

import asyncio
import inspect
import pdb
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import newest_code
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.sealed import open_here, opened_blob, opened_plan
from dqlab.config import check_count, seconds_or_none
from dqlab.documents import Labelled, key_text, label_of
from dqlab.errors import ActorGone, BadOption, CallTimeout
from dqlab.failures.failure import users_part
from dqlab.frame import Kind
from dqlab.notebook import shell
from dqlab.numbers import duration
from dqlab.plan import Plan, is_model
from dqlab.printed import Logs
from dqlab.runs.failures import letter_named
from dqlab.runs.submit.elements import key_of, repeats
from dqlab.stats import short_name
from dqlab.texts import as_name, one_line

if TYPE_CHECKING:
    from dqlab.runs.run import Run

LOGS = "logs"
"""The side column of results that has what documents printed."""


class Slowest(list[calls.SlowRow]):
    """The slowest documents of a run, the slowest first."""

    def __repr__(self) -> str:
        if not self:
            return "no document has a result whose seconds were recorded"
        rows = [(duration(each.seconds), one_line(each.key), short_name(each.consumer)) for each in self]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(f"{took:>{widths[0]}}  {key:<{widths[1]}}  on {consumer}" for took, key, consumer in rows)


def logs_of(run: Run, key: str | int, since: float | str | None = None) -> Logs:
    """Return what a document has printed, or raise `BadOption`."""
    age = seconds_or_none(since, name="since")
    if type(key) not in (str, int):
        problem = "is no key: a text or a number, or a position as '#17'. Nothing was read."
        raise BadOption(option="key", value=key, problem=problem)
    position = str(key).removeprefix("#")
    if age is not None:
        if (lately := _running(run, str(key), position, age)) is not None:
            return lately
        problem = f"is for a document that runs: no consumer says that it runs {key!r}. Leave it out for what is kept."
        raise BadOption(option="since", value=since, problem=problem)
    if (by_key := _beside(run, key_text(key), None)) is not None:
        return by_key
    if (letter := letter_named(run.failures(), str(key))) is not None:
        return letter.logs
    if position.isdecimal() and (found := _beside(run, "", int(position))) is not None:
        return found
    if (running := _running(run, str(key), position)) is not None:
        return running
    problem = f"names no document of run {run.name!r} that has ended or runs now. '#17' is a position in the input."
    raise BadOption(option="key", value=key, problem=problem)


def _beside(run: Run, key: str, ordinal: int | None) -> Logs | None:
    """Return what a document with a result printed, or None where no result has this key or ordinal."""
    for answer, parts in _answers(run, lambda cursor: calls.RiderCall(run.id, LOGS, key, ordinal, cursor)):
        if answer.found:
            return Logs.from_bytes(parts[0]) if len(parts[0]) else Logs.of("")
    return None


def _answers(run: Run, call: Callable[[int], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the answers of all shards to a call that goes on from a cursor."""
    for shard in range(run.handle.shards):
        cursor: int | None = 0
        while cursor is not None:
            answer, parts = run.handle.link.sync(run.handle.ask(shard, call(cursor)))
            yield answer, parts
            cursor = answer.cursor


def _running(run: Run, key: str, position: str, age: float | None = None) -> Logs | None:
    """Return what a document that runs now has printed so far, or None if no consumer says that it runs it."""
    link = run.handle.link
    for consumer in [consumer.name for consumer in run.snapshot().consumers if consumer.queue == run.queue]:
        ref = Ref(f"consumer/{run.queue}/{consumer.removeprefix('c')}", link.client, direct=link.direct)
        for name in dict.fromkeys((key, f"#{position}")):
            try:
                _, parts = link.sync(calls.PrintedCall(run.id, as_name(name), age).ask(ref.call))
            except (ActorGone, CallTimeout):  # it left meanwhile, or does not answer: others may have it
                break
            if parts:
                return Logs.from_bytes(parts[0])
    return None


def slowest(run: Run, n: int) -> Slowest:
    """Return the documents with results that took longest."""
    check_count("n", n)
    found = list[calls.SlowRow]()
    for answer, _ in _answers(run, lambda cursor: calls.SlowestCall(run.id, n, cursor)):
        found = nlargest(n, [*found, *(calls.SlowRow(*row) for row in answer.rows)])
    return Slowest(row._replace(key=label_of(str(row.key)) if row.key else row.ordinal) for row in found)


def debug(run: Run, key: str | int) -> Any:
    """Run a document here, and open a debugger where its function raises."""
    arguments, named = _arguments(run, key)
    blob = run.handle.link.sync(newest_code(run.handle, run.id)).blob
    try:
        function, plan = open_here(opened_blob(blob)), opened_plan(blob) or Plan()
        if is_model(function):
            function = function(**(plan.init or {}))
        named |= {name: make() for name, make in (plan.setup or {}).items()}
        return _called(function, arguments if plan.batch is None else ([*arguments],), named)
    except Exception as error:  # noqa: BLE001 - it is shown, and the debugger stands where it was raised
        trace = users_part(error.__traceback__, None)
        print(f"{type(error).__name__}: {error}")  # noqa: T201 - above the debugger's prompt
        ipython = shell()
        debugger = pdb.Pdb() if ipython is None else ipython.InteractiveTB.debugger_cls()
        debugger.reset()
        debugger.interaction(None, trace)
    return None


def _arguments(run: Run, key: str | int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what the function of a run is called with for a document, or raise `BadOption`."""
    letter = letter_named(run.failures(), str(key))
    if letter is not None and letter.kind is Kind.CALL:
        given, named = letter.argument
        return tuple(given), dict(named)
    if letter is not None:
        return (_bare(letter.argument),), {}
    elements = None if run.submitter is None else run.submitter.elements
    for ordinal, element in enumerate(elements if elements is not None and repeats(elements) else ()):
        if str(key) in (str(key_of(element, ordinal)), f"#{ordinal}"):
            return (_bare(element),), {}
    problem = f"names no dead document of run {run.name!r}, and none of its input, as far as this process has it"
    raise BadOption(option="key", value=key, problem=f"{problem}. For any document: run.function()(document).")


def _bare(element: Any) -> Any:
    return element.value if type(element) is Labelled else element


def _called(function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    result = function(*arguments, **named)
    if not (inspect.isawaitable(result) or inspect.isasyncgen(result)):
        return list(result) if inspect.isgenerator(result) else result

    async def whole() -> Any:
        return [row async for row in result] if inspect.isasyncgen(result) else await result

    with ThreadPoolExecutor(1) as thread:  # a notebook's own thread has a running loop
        return thread.submit(asyncio.run, whole()).result()
