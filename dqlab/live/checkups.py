"""Show a checkup as text and as HTML: the worst finding first with its advice, then a table of processes.

A line to be copied stands on its own and is never cut.

"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from dqlab import numbers
from dqlab.live.html import inked, quiet, table_html, wrap
from dqlab.live.palette import Ink
from dqlab.live.style import PLAIN, Span, TextStyle, columns, paint
from dqlab.live.tables import Cell, Column, Table
from dqlab.numbers import UNKNOWN, many
from dqlab.stats import Severity
from dqlab.texts import one_line

__all__ = ["checkup_html", "checkup_text"]

_LOOKS = {
    Severity.PROBLEM: ("✕", "problem", Ink.BAD),
    Severity.WARNING: ("◐", "warning", Ink.WARN),
    Severity.NOTE: ("○", "note", Ink.READY),
}
"""Glyph, word and ink by severity."""
_EDGES = {Ink.BAD: "#E0533F", Ink.WARN: "#9A6200", Ink.READY: "#888"}
_COMPARED = ("host", "python", "dqlab", "protocol", "dask", "distributed", "cloudpickle", "msgpack", "fsspec")
_FIGURES = frozenset({"memory", "late", "files", "clock", "leaves in", "pid"})
_REACHED = {"directly": "", "through the scheduler": "indirectly"}
_CLOCK = 1.0
"""Seconds by which clocks may differ."""
_LONGEST = 600
_INDENT = "    "


def checkup_text(checkup: Any, style: TextStyle = PLAIN) -> str:
    """Return a checkup as text."""
    head = [Span(f"{one_line(checkup.of, _LONGEST)}  ", Ink.STRONG), Span(*_verdict(checkup))]
    lines = [_whole(head, style), paint([Span(_when(checkup), Ink.QUIET)], style)]
    for finding in checkup.findings:
        if finding.severity in _LOOKS:
            lines += ["", *_finding_lines(finding, style)]
    fine = [finding for finding in checkup.findings if finding.severity is Severity.OK]
    width = max((len(finding.check) for finding in fine), default=0)
    lines += [""] if fine else []
    for finding in fine:
        row = f"● {finding.check:<{width}}  {_line(finding.what)}"
        first, *rest = _wrapped(row, style.width, " " * (width + 4))
        lines.append(_whole([Span("●", Ink.GOOD), Span(first[1:], Ink.QUIET)], style))
        lines += [_whole([Span(line, Ink.QUIET)], style) for line in rest]
    if checkup.processes:
        from dqlab.live.text import table_text  # a store alone has no processes, and needs no part of a cluster

        lines += ["", table_text(_processes(checkup.processes), style)]
    return "\n".join(lines)


def checkup_html(checkup: Any) -> str:
    """Return a checkup as a fragment that needs nothing else."""
    verdict, ink = _verdict(checkup)
    title = f"<b>{escape(one_line(checkup.of, _LONGEST))}</b> &nbsp;{inked(verdict, ink)} &nbsp;{quiet(_when(checkup))}"
    parts = [f'<div style="font-size:15px;margin:0 0 8px">{title}</div>']
    parts += [_finding_block(finding) for finding in checkup.findings if finding.severity in _LOOKS]
    rows = [
        f'<div style="margin:2px 0">{inked("●", Ink.GOOD)} {escape(finding.check)}: {quiet(_line(finding.what))}</div>'
        for finding in checkup.findings
        if finding.severity is Severity.OK
    ]
    table = [table_html(_processes(checkup.processes))] if checkup.processes else []
    return wrap([*parts, *rows, *table], width=1100)


def _processes(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the facts of all processes, with columns for those hosts and versions alone that differ."""
    known = [row for row in rows if row["python"]]
    differing = [name for name in _COMPARED if len({row.get(name) for row in known}) > 1]
    shown = {
        "memory": [_of(row["memory"], row["memory_limit"]) for row in rows],
        "late": [f"{row['lag'] * 1000:.0f} ms" if row["python"] else UNKNOWN for row in rows],
        "files": [numbers.count(row["descriptors"]) for row in rows],
        "clock": [f"{row['clock_ahead']:+.0f} s" if abs(row["clock_ahead"]) > _CLOCK else "" for row in rows],
        **{name: [str(row.get(name) or UNKNOWN) for row in rows] for name in differing},
        "job": [row["job"] for row in rows],
        "leaves in": ["" if row["leaves_in"] is None else numbers.duration(row["leaves_in"]) for row in rows],
        "reached": [_REACHED.get(row["answers"], "no") for row in rows],
        "pid": [str(row["pid"] or "") for row in rows],
        "holds": [", ".join(row["shards"]) for row in rows],
        "serves": [", ".join(row["consumers"]) for row in rows],
    }
    shown = {title: cells for title, cells in shown.items() if any(cells)}
    columns = (Column("process", whole=True), *(Column(title, right=title in _FIGURES) for title in shown))
    body = tuple(
        (
            Cell(one_line(row["process"], _LONGEST).removeprefix("the ")),
            *(Cell(one_line(text, _LONGEST)) for text in cells),
        )
        for row, cells in zip(rows, zip(*shown.values(), strict=True), strict=True)
    )
    same = [f"{name} {known[0][name]}" for name in _COMPARED if name not in differing and known[0].get(name)]
    return Table(columns, body, notes=tuple(textwrap.wrap(f"everywhere: {', '.join(same)}", 78)) if same else ())


def _of(used: int, limit: int | None) -> str:
    shown = numbers.size(used or None)
    return f"{shown} of {numbers.size(limit)}" if used and limit else shown


def _verdict(checkup: Any) -> tuple[str, Ink]:
    counts = [
        (sum(finding.severity is severity for finding in checkup.findings), word, ink)
        for severity, (_, word, ink) in _LOOKS.items()
    ]
    amounts = [many(count, word) for count, word, _ in counts if count]
    worst = next((ink for count, _, ink in counts[:2] if count), Ink.GOOD)
    word = "not healthy" if not checkup else "works, not as it should" if counts[1][0] else "healthy"
    return word + (f": {', '.join(amounts)}" if amounts else ""), worst


def _when(checkup: Any) -> str:
    return f"{numbers.clock(checkup.at)}, took {numbers.duration(checkup.took)}"


def _line(text: str) -> str:
    return one_line(text, _LONGEST)


def _finding_lines(finding: Any, style: TextStyle) -> list[str]:
    glyph, word, ink = _LOOKS[finding.severity]
    mark = f"{glyph} {word}" if style.unicode else word
    first, *rest = _wrapped(f"{mark} {finding.check}: {_line(finding.what)}.", style.width, _INDENT)
    lines = [
        _whole([Span(mark, ink), Span(first[len(mark) :])], style),
        *(_whole([Span(line)], style) for line in rest),
    ]
    if finding.advice:
        advice = _wrapped(f"{_INDENT}{_line(finding.advice)}{':' if finding.command else '.'}", style.width, _INDENT)
        lines += [_whole([Span(line)], style) for line in advice]
    if finding.command:
        lines.append(_whole([Span(f"{_INDENT}{_INDENT}{_line(finding.command)}", Ink.STRONG)], style))
    return lines


def _whole(line: list[Span], style: TextStyle) -> str:
    """Return a line uncut."""
    # A line wider than the style has one long word, such as a path, or is to be copied: both are needed whole.
    return paint(line, replace(style, width=max(style.width, columns("".join(span.text for span in line)))))


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    # Unbroken words: a path cut at a hyphen could not be copied.
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _finding_block(finding: Any) -> str:
    glyph, word, ink = _LOOKS[finding.severity]
    inner = f"<b>{inked(f'{glyph} {word}', ink)} {escape(finding.check)}</b>: {escape(_line(finding.what))}."
    if finding.advice:
        inner += f"<div>{escape(_line(finding.advice))}{':' if finding.command else '.'}</div>"
    if finding.command:
        inner += f'<code style="overflow-wrap:anywhere">{escape(_line(finding.command))}</code>'
    return f'<div style="border-left:3px solid {_EDGES[ink]};padding-left:8px;margin:0 0 8px">{inner}</div>'
