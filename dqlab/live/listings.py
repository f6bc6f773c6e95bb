"""Show a listing of documents as a table: its first rows, its totals, and the line that submits it."""

from __future__ import annotations

import textwrap
from typing import Any

from dqlab import numbers
from dqlab.documents import Document, Documents
from dqlab.documents.summary import Summary, format_of, lacking, summarize
from dqlab.live.palette import Ink
from dqlab.live.tables import Cell, Column, Table
from dqlab.notebook import shell
from dqlab.numbers import many
from dqlab.texts import one_line

_FORMATS = 5
_WIDTH = 78
"""Characters of a line of notes: tables cut longer lines, and these say why a listing ends."""
_LONGEST = 300


def listing_table(documents: Documents) -> Table:
    """Look at a listing for two seconds at most, and return what was found."""
    return table_of(summarize(documents), _variable(documents))


def _variable(documents: Documents) -> str:
    """Return the name of the variable that holds a listing, and "" for none."""
    names: dict[str, Any] = getattr(shell(), "user_ns", {})
    return next((name for name, value in names.items() if value is documents and not name.startswith("_")), "")


def table_of(summary: Summary, name: str) -> Table:
    """Return a summary as a table, where `name` is the variable that holds the listing, if any."""
    paged = summary.paged > 0
    columns: tuple[Column, ...] = (Column("document", mono=True), Column("format"), Column("size", right=True))
    columns += (Column("pages", right=True),) if paged else ()
    rows = tuple(_cells(document, paged=paged) for document in summary.first)
    total: tuple[Cell, ...] = ()
    if summary.count > len(summary.first):
        size = _known(numbers.size(summary.size), summary.sized, summary.count)
        pages = _known(numbers.count(summary.pages), summary.paged, summary.count)
        total = (Cell(many(summary.count, "document"), Ink.STRONG), Cell(""), Cell(size))
        total += (Cell(pages),) if paged else ()
    # A listing known to be empty has nothing to submit.
    empty = summary.whole and not summary.count
    lines = () if empty or not name else (f"%%dq submit --over {name} --watch -o run",)
    notes = tuple(line for note in _notes(summary) for line in textwrap.wrap(note, _WIDTH, break_on_hyphens=False))
    return Table(columns, rows, total, notes, lines)


def _cells(document: Document, *, paged: bool) -> tuple[Cell, ...]:
    pages = (Cell(numbers.count(document.page_count)),) if paged else ()
    return (
        Cell(one_line(document.key, _LONGEST)),
        Cell(format_of(document), Ink.QUIET),
        Cell(numbers.size(document.size)),
        *pages,
    )


def _known(text: str, known: int, count: int) -> str:
    """Return a sum, marked as a lower bound where not every document has a value."""
    return text if known == count else (f">{text}" if known else numbers.UNKNOWN)


def _notes(summary: Summary) -> list[str]:
    notes = [one_line(summary.label, _LONGEST)]
    if not summary.repeats:
        return [*notes, "from an iterator, which counting would consume: documents are counted when they are submitted"]
    if not summary.count:
        nothing = one_line(summary.none, 600) or "no documents: check the path or pattern"
        notes.append(nothing if summary.whole else "none listed so far")
    elif len(summary.formats) > 1:
        common = summary.formats.most_common()
        formats = [f"{numbers.count(amount)} {name or 'without ending'}" for name, amount in common[:_FORMATS]]
        rest = sum(amount for _, amount in common[_FORMATS:])
        notes.append(" · ".join([*formats, *([f"{numbers.count(rest)} of other formats"] if rest else [])]))
    for kind, amount in summary.formats.most_common():
        if (missing := lacking(kind)) is not None:
            notes.append(f"{numbers.count(amount)} {kind}: need the extra {missing.extra}: {missing.install}")
    if summary.unreadable:
        named = ", ".join(one_line(key, 80) for key in summary.named)
        more = ", …" if summary.unreadable > len(summary.named) else ""
        notes.append(f"{many(summary.unreadable, 'document')} cannot be read from here: {named}{more}")
    if summary.error:
        notes.append(f"the listing ends there: {one_line(summary.error, 600)}")
    elif not summary.whole:
        notes.append("so far: counting was stopped after 2 s, and a run lists all of them")
    return notes
