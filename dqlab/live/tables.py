"""Tables of queues, failures and results, before they become text or HTML.

A `Table` is columns, cells and sentences; `text`, `html` and the panels' `markup` draw it. Owns which columns there are
and how a table reports what it leaves out.
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from dqlab import numbers
from dqlab.live.palette import Ink
from dqlab.numbers import many
from dqlab.stats import QueueStats, RunStats, Snapshot
from dqlab.texts import one_line

__all__ = [
    "NO_TABLE",
    "Cell",
    "Column",
    "Table",
    "failures_table",
    "results_table",
    "runs_table",
    "status_table",
]

ROWS = 10
"""Documents that a table shows before it counts the rest."""


class Column(NamedTuple):
    """One column; figures stand right, code and documents in a fixed-width face, shares behind a small bar."""

    title: str
    right: bool = False
    mono: bool = False
    bars: bool = False


class Cell(NamedTuple):
    """One cell's text and what it means; panels draw a glyph by its name, and how far a bar is filled, 0 to 1."""

    text: str
    ink: Ink = Ink.PLAIN
    glyph: str = ""
    filled: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of ready strings; `total` is a last row, `notes` are sentences below."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()


NO_TABLE = Table((), ())
_STATUS = (
    Column("queue"),
    Column("state"),
    Column("ready", right=True),
    Column("delayed", right=True),
    Column("unacked", right=True),
    Column("dead", right=True),
    Column("in/s", right=True),
    Column("out/s", right=True),
    Column("lag", right=True),
    Column("disk", right=True),
)


def status_table(snapshot: Snapshot, *, only: str = "") -> Table:
    """Return all queues, one row each; empty ones share a line below.

    Parameters
    ----------
    snapshot : Snapshot
    only : str, optional
        The one queue that is shown, empty or not.
    """
    durable = snapshot.totals.disk is not None
    columns = _STATUS if durable else (*_STATUS[:-1], Column("size", right=True))
    if only:
        rows = tuple(_queue_cells(queue, durable=durable) for queue in snapshot.queues if queue.name == only)
        return Table(columns, rows, notes=() if rows else (f"no queue named {one_line(only)}",))
    busy = [queue for queue in snapshot.queues if not queue.empty]
    idle = [one_line(queue.name, 40) for queue in snapshot.queues if queue.empty]
    notes = []
    if idle:
        names = ", ".join(idle[:5])
        notes.append(f"{len(idle)} empty: {names}" + (f" and {len(idle) - 5} more" if len(idle) > 5 else ""))
    if snapshot.queues_total > len(snapshot.queues):
        hidden = snapshot.queues_total - len(snapshot.queues)
        notes.append(f"and {many(hidden, 'queue')} not listed; the total counts all")
    if not snapshot.queues:
        notes.append("no queues yet")
    total = _queue_cells(snapshot.totals, durable=durable, total=True) if len(busy) > 1 else ()
    return Table(columns, tuple(_queue_cells(queue, durable=durable) for queue in busy), total, tuple(notes))


def _queue_cells(queue: QueueStats, *, durable: bool, total: bool = False) -> tuple[Cell, ...]:
    def number(amount: int, ink: Ink = Ink.PLAIN) -> Cell:
        return Cell(numbers.count(amount), ink if amount else Ink.QUIET)

    counts, state = queue.counts, one_line(queue.state, 24)
    return (
        Cell(one_line(queue.name, 60), Ink.STRONG if total else Ink.PLAIN),
        Cell(state, Ink.WARN if queue.why else Ink.PLAIN),
        number(counts.ready),
        number(counts.delayed),
        number(counts.leased),
        number(counts.dead, Ink.BAD),
        Cell(numbers.rate(queue.in_rate)),
        Cell(numbers.rate(queue.out_rate)),
        Cell("" if total else numbers.duration(queue.lag, units=1) if queue.lag < 60 else numbers.span(queue.lag)),
        Cell(numbers.size(queue.disk if durable else queue.nbytes)),
    )


def runs_table(runs: Sequence[RunStats], hidden: int = 0) -> Table:
    """Return runs, one row each, in their order.

    Parameters
    ----------
    runs : sequence of RunStats
    hidden : int, default 0
        Number of runs that are left out.
    """
    columns = (
        Column("run"),
        Column("queue"),
        Column("state"),
        Column("done", right=True),
        Column("dead", right=True),
        Column("started"),
        Column("code", mono=True),
    )
    rows = tuple(
        (
            Cell(one_line(run.name, 60)),
            Cell(one_line(run.queue, 40)),
            Cell(str(run.state), Ink.WARN if run.why else Ink.PLAIN),
            Cell(numbers.share(run.share)),
            Cell(numbers.count(run.counts.dead), Ink.BAD if run.counts.dead else Ink.QUIET),
            Cell(numbers.age(run.started, now=run.at) if run.started else numbers.UNKNOWN),
            Cell(f"{one_line(run.code.name, 40)} v{run.code.version}"),
        )
        for run in runs
    )
    notes = (f"and {numbers.count(hidden)} more",) if hidden > 0 else ()
    return Table(columns, rows, notes=notes if rows else ("no runs yet",))


def failures_table(failures: Sequence[Any], limit: int = ROWS) -> Table:
    """Return the first dead documents, one row each.

    Parameters
    ----------
    failures : sequence
        Objects with ``key``, ``error``, ``message``, ``at``, ``deliveries`` and ``version``.
    limit : int, default 10
        Rows shown; the rest is counted.
    """
    columns = (
        Column("document", mono=True),
        Column("error"),
        Column("message", mono=True),
        Column("at", mono=True),
        Column("deliveries", right=True),
        Column("code", mono=True),
    )
    rows = tuple(
        (
            Cell(one_line(each.key, 60)),
            Cell(one_line(each.error, 40), Ink.BAD),
            Cell(one_line(each.message, 80)),
            Cell(one_line(each.at, 40)),
            Cell(numbers.count(each.deliveries)),
            Cell(one_line(each.version, 12)),
        )
        for each in islice(failures, limit)
    )
    return Table(columns, rows, notes=_rest(len(failures), len(rows), "dead document"))


def results_table(results: Any, limit: int = ROWS) -> Table:
    """Return the first results with their keys.

    Parameters
    ----------
    results : sequence with ``keys()``
        `Results` of a run; only its first page is read.
    limit : int, default 10
        Rows shown; the rest is counted.
    """
    shown = zip(islice(results.keys(), limit), islice(results, limit), strict=False)
    rows = tuple((Cell(one_line(key, 60)), Cell(one_line(reprlib.repr(value), 80))) for key, value in shown)
    columns = (Column("document", mono=True), Column("result", mono=True))
    return Table(columns, rows, notes=_rest(len(results), len(rows), "result"))


def _rest(total: int, shown: int, noun: str) -> tuple[str, ...]:
    if total > shown:
        return (f"the first {numbers.count(shown)} of {many(total, noun)}",)
    return (many(total, noun) if total else f"no {noun}s",)
