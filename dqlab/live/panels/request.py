"""The arguments in the address of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["LATELY", "LONGEST", "SHORTEST", "SPANS", "USUAL", "WHOLE", "Request", "request"]

SPANS = (("5 min", 300.0), ("30 min", 1800.0), ("2 h", 7200.0))
WHOLE = 0.0
"""Stands for all the time since the run began."""
LATELY = -1.0
"""Stands for the time since the run began, from 5 to 30 minutes: a young one fills its chart."""
USUAL, SHORTEST, LONGEST = 1800.0, 60.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of an address: ``?queue=NAME&run=NAME&span=1800&theme=dark&wall=1``; `span` is in seconds."""

    theme: str = "light"
    queue: str = ""
    run: str = ""
    span: float = LATELY
    wall: bool = False


def request(arguments: Mapping[str, Sequence[bytes]]) -> Request:
    """Parse the arguments; invalid ones are ignored."""

    def last(name: str) -> str:
        values = arguments.get(name) or [b""]
        return values[-1].decode("utf-8", "replace")

    return Request(
        theme="dark" if last("theme") == "dark" else "light",
        queue=last("queue"),
        run=last("run"),
        span=_span(last("span")),
        wall=last("wall") not in ("", "0"),
    )


def _span(spelt: str) -> float:
    if spelt in ("run", "whole"):
        return WHOLE
    try:
        span = float(spelt)
    except ValueError:
        return LATELY
    return min(max(span, SHORTEST), LONGEST) if math.isfinite(span) else LATELY
