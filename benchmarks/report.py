"""What was measured, as a table for people and as JSON for machines."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Peer, Series, Verdict
from benchmarks.harness import Load
from benchmarks.sizes import Sizes

__all__ = ["Measured", "missed", "table", "write_json"]

SCHEMA = 1
NAME_WIDTH = 64


@dataclass(frozen=True)
class Measured:
    """One room's figures, and what else the machine did meanwhile."""

    room: str
    figures: Sequence[Figure]
    load: Load


def missed(rooms: Sequence[Measured]) -> list[Figure]:
    """Return the figures that miss their floor."""
    return [figure for room in rooms for figure in room.figures if figure.verdict is Verdict.MISSED]


def table(measured: Measured) -> str:
    """Return one room as lines of text."""
    load = measured.load
    title = (
        f"{measured.room}  ({load.seconds:.0f} s; load average {load.before:.1f} before, {load.after:.1f} after; "
        f"others used {load.others:.2f} cores)"
    )
    return "\n".join([title, *_lines(measured.figures)])


def _lines(figures: Sequence[Figure]) -> Iterator[str]:
    for figure in figures:
        yield _line(f"  {figure.name}", figure.ours, figure.unit, _judged(figure))
        for peer in figure.peers:
            yield _line(f"    {peer.name}", peer.series, figure.unit, _compared(figure, peer))


def _line(name: str, series: Series, unit: str, remark: str) -> str:
    spread = f"{_short(series.low)} - {_short(series.high)}, n={len(series.values)}"
    value = f"{_short(series.median)} {unit}"
    return f"{name:<{NAME_WIDTH}}{value:>19}  ({spread})".ljust(NAME_WIDTH + 48) + remark


def _judged(figure: Figure) -> str:
    target = figure.target
    if target is None:
        return ""
    aim = "" if target.aim is None else f", aim {_short(target.aim)}"
    return f"{figure.verdict.value} (floor {_short(target.floor)}{aim})"


def _compared(figure: Figure, peer: Peer) -> str:
    if min(figure.ours.median, peer.series.median) <= 0 or figure.unit.startswith("%"):
        return ""
    return f"dqlab is {_short(figure.times_better(peer))}x as good"


def _short(value: float) -> str:
    """Return three digits, and one more below 10: 0.01234, 1.234, 12.3, 123, 12,300."""
    size = abs(value)
    if size >= 100:
        digits = max(0, len(str(int(size))) - 3)
        return f"{round(value, -digits):,.0f}"
    return f"{value:.4g}" if size < 10 else f"{value:.3g}"


def write_json(rooms: Sequence[Measured], sizes: Sizes, when: datetime, folder: Path) -> Path:
    """Write every value of every run to `bench-<date>.json`; return its path."""
    path = folder / f"bench-{when:%Y-%m-%dT%H%M%S}.json"
    report = {
        "schema": SCHEMA,
        "when": when.isoformat(timespec="seconds"),
        "mode": "full" if sizes.full else "quick",
        "machine": _machine(),
        "rooms": [
            {"room": room.room, "load": room.load.to_dict(), "figures": [_plain(figure) for figure in room.figures]}
            for room in rooms
        ],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return path


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("dqlab", "dask", "distributed")},
    }


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "unit": figure.unit,
        "better": figure.better.value,
        **_spread(figure.ours),
        "floor": figure.target.floor if figure.target else None,
        "aim": figure.target.aim if figure.target else None,
        "verdict": figure.verdict.name.lower(),
        "peers": [{"name": peer.name, **_spread(peer.series)} for peer in figure.peers],
    }


def _spread(series: Series) -> dict[str, Any]:
    return {"median": series.median, "low": series.low, "high": series.high, "values": list(series.values)}
