"""Lay out a checkup: the worst finding first with its advice, then a table of processes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from dqlab import numbers
from dqlab.live.palette import Ink
from dqlab.live.parts import GAP, Box, Part, Title, line
from dqlab.live.tables import Cell, Column, Table
from dqlab.numbers import UNKNOWN, many
from dqlab.stats import Severity
from dqlab.texts import one_line

_LOOKS = {
    Severity.PROBLEM: ("✕", "problem", Ink.BAD),
    Severity.WARNING: ("◐", "warning", Ink.WARN),
    Severity.NOTE: ("○", "note", Ink.READY),
}
"""Glyph, word and ink by severity."""
_COMPARED = ("host", "python", "dqlab", "protocol", "dask", "distributed", "cloudpickle", "msgpack", "fsspec")
_FIGURES = frozenset({"memory", "late", "files", "clock", "leaves in", "pid"})
_REACHED = {"directly": "", "through the scheduler": "indirectly"}
_CLOCK = 1.0
"""Seconds by which clocks may differ."""
_LONGEST = 600


def checkup_parts(checkup: Any) -> tuple[Part, ...]:
    """Return the parts of a checkup."""
    verdict, ink = _verdict(checkup)
    when = f"{numbers.clock(checkup.at)}, took {numbers.duration(checkup.took)}"
    parts: list[Part] = [Title(_line(checkup.of), verdict, ink=ink), line(when, Ink.QUIET)]
    for finding in checkup.findings:
        if finding.severity in _LOOKS:
            parts += [GAP, _finding(finding)]
    fine = [finding for finding in checkup.findings if finding.severity is Severity.OK]
    parts += [GAP] if fine else []
    parts += [Box(_line(each.what), Ink.GOOD, each.check, "●", quiet=True) for each in fine]
    return (*parts, GAP, _processes(checkup.processes))


def _finding(finding: Any) -> Box:
    glyph, word, ink = _LOOKS[finding.severity]
    end = ":" if finding.command else "."
    advice = f"{_line(finding.advice)}{end}" if finding.advice else ""
    mark, command = f"{glyph} {word}", _line(finding.command)
    return Box(f"{_line(finding.what)}.", ink, finding.check, mark, advice, command)


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


def _line(text: str) -> str:
    return one_line(text, _LONGEST)
