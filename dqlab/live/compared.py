"""Show a comparison of new code with old: what was found, and the first documents that differ, before and after."""

from __future__ import annotations

from collections import Counter
from typing import Any

from dqlab import numbers
from dqlab.live.palette import Ink
from dqlab.live.parts import Line, Part, Steps, line
from dqlab.live.tables import ROWS, Cell, Column, Table
from dqlab.numbers import many
from dqlab.runs.compare.comparison import Became, Compared, Comparison, difference
from dqlab.texts import one_line

WIDTH = 76
"""Columns of a line of what was found."""
_COLUMNS = (
    Column("document", mono=True, whole=True),
    Column("became"),
    Column("before", mono=True),
    Column("after", mono=True),
)
_STEPS = (
    "run.accept(found)    # take this code; redo='changed' runs again what differs",
    "found.to_frame()    # every document of the sample",
)


def compared_parts(found: Comparison) -> list[Part]:
    """Return what was found, the first documents that differ, and the next steps."""
    parts: list[Part] = [*_lines(found)]
    if found.changed:
        parts.append(_table(found.changed))
    return [*parts, *([Steps(_STEPS, "")] if found.changed else [])]


def first_differences(found: Comparison, known: int, most: int = 3) -> list[str]:
    """Return in a line each the next documents that differ, after the first `known`, up to `most` in all."""
    new = found.changed[known:most] if known < most else ()
    return [f"{one_line(each.key, 40)} {each.became}: {' → '.join(_texts(each))}" for each in new]


def _lines(found: Comparison) -> list[Line]:
    lines: list[str] = []
    for sentence in found.summary.split("\n"):
        head, *parts = sentence.split(" · ")
        for part in parts:  # broken only between figures
            if len(head) + len(part) + 3 > WIDTH:
                lines.append(head)
                head = part
            else:
                head = f"{head} · {part}"
        lines.append(head)
    return [line(each) for each in lines]


def _table(changed: tuple[Compared, ...]) -> Table:
    rows = tuple(_row(each) for each in changed[:ROWS])
    kinds = Counter(str(each.became) for each in changed)
    named = ", ".join(f"{numbers.count(n)} {kind}" for kind, n in kinds.most_common())
    first = f"the first {ROWS} of {many(len(changed), 'document')}: " if len(changed) > ROWS else ""
    return Table(_COLUMNS, rows, notes=(first + named,))


def _row(each: Compared) -> tuple[Cell, ...]:
    before, after = _texts(each)
    fails = each.became is Became.NEWLY_FAILS
    return (
        Cell(one_line(each.key, 60)),
        Cell(str(each.became), Ink.BAD if fails else Ink.PLAIN),
        Cell(before, Ink.WARN if not each.failed else Ink.QUIET),
        Cell(after, Ink.BAD if fails else Ink.GOOD),
    )


def _texts(each: Compared) -> tuple[str, str]:
    """Return the two results, or the failure in place of one, as they differ."""
    if each.became is Became.CHANGED:
        before, after = difference(each.before, each.after)
    else:
        error = one_line(each.error, 60)
        (before, _), (_, after) = difference(each.before, ""), difference("", each.after)
        before, after = (error, after) if each.failed else (before, error)
    return one_line(_quoted(each.before, before), 90), one_line(_quoted(each.after, after), 90)


def _quoted(value: Any, text: str) -> str:
    return "(empty)" if isinstance(value, str) and not text else text
