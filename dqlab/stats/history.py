"""Statistics over time: evenly spaced points, ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.snapshot import Mark, from_plain, plain

__all__ = ["MAX_POINTS", "Figures", "History"]

MAX_POINTS = 360
"""Most points of one series; the step grows with the span."""
PIECES = (5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
"""Seconds that one piece of a run's speed may cover."""


QUIET = 5.0
"""Seconds without a new message after which the net rate is measured from these seconds alone."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures beside a history's lines, each None where nothing is known."""

    waiting: float | None = None
    """Messages ready or delayed."""
    unacked: float | None = None
    """Messages leased."""
    in_rate: float | None = None
    """Messages put per second."""
    out_rate: float | None = None
    """Messages settled per second."""
    failure_rate: float | None = None
    """Deliveries that failed, per second."""


@dataclass(frozen=True, slots=True)
class History(SuggestsAttributes):
    """Series over one span of time for one queue, one run or all queues, None where nothing is known."""

    # Points stand at ``t0 + i * step``, and the last one is now.
    t0: float
    """Seconds since 1970 UTC of the first point."""
    step: float
    """Seconds between points."""
    queue: str = ""
    run: str = ""
    ready: tuple[float | None, ...] = ()
    delayed: tuple[float | None, ...] = ()
    leased: tuple[float | None, ...] = ()
    dead: tuple[float | None, ...] = ()
    in_rate: tuple[float | None, ...] = ()
    """Messages put per second."""
    out_rate: tuple[float | None, ...] = ()
    """Messages settled per second."""
    failure_rate: tuple[float | None, ...] = ()
    """Deliveries that failed, per second."""
    units_left: tuple[float | None, ...] = ()
    """Pages or bytes left of the run that was asked for, in its unit; documents where neither is known."""
    live: tuple[float | None, ...] = ()
    garbage: tuple[float | None, ...] = ()
    """Bytes on disk, `live` and `garbage`."""
    consumers: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Pages per second by consumer; by worker where there are more than 32 consumers."""
    idle: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Idle share by the same names, 0 to 1."""
    classes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Deliveries that failed in each minute, by fingerprint; the last minute last, at most 120 of them."""
    depths: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Messages waiting by queue, one point a minute over the last half hour; only where all queues were asked for."""
    marks: tuple[Mark, ...] = ()
    """What people did in this span."""
    now: Figures = Figures()
    """The figures of the snapshot at the same instant."""
    most: Figures = Figures()
    """The largest values in this span, also rates by the second, whatever the step; failures by the minute. For spans
    beyond the last quarter of an hour, the span begins with a whole minute."""

    @property
    def times(self) -> list[float]:
        """Seconds since 1970 UTC of each point."""
        return [self.t0 + self.step * at for at in range(len(self.ready))]

    @property
    def end(self) -> float:
        """Seconds since 1970 UTC of the last point."""
        return self.t0 + self.step * max(0, len(self.ready) - 1)

    def since_known(self) -> History:
        """Return the same history from the first point with a known value."""
        first = next((at for at, value in enumerate(self.ready) if value is not None), 0)
        if not first:
            return self
        # Series of another length (`classes`, `depths`) have minutes of their own, and stay whole.
        points = len(self.ready)

        def cut(series: Any) -> Any:
            if isinstance(series, tuple):
                return series[first:] if len(series) == points else series
            return {name: each[first:] if len(each) == points else each for name, each in series.items()}

        names = [each.name for each in fields(self) if isinstance(getattr(self, each.name), tuple)]
        rest = {name: cut(getattr(self, name)) for name in (*names, "consumers", "idle") if name != "marks"}
        return replace(self, t0=self.t0 + first * self.step, **rest)

    def net_rate(self, over: float = 20.0) -> tuple[float, float] | None:
        """Return messages put less those settled, per second, and the seconds this covers, or None if unknown."""
        points = max(1, math.ceil(over / self.step))
        last = zip(self.in_rate[-points:], self.out_rate[-points:], strict=False)
        known = [(put, settled) for put, settled in last if put is not None and settled is not None]
        if not known:
            return None
        # After a batch that arrived at once the queue gets shorter: seconds before its last message would hide that.
        quiet = next((at for at, (put, _) in enumerate(reversed(known)) if put), len(known))
        if quiet * self.step >= QUIET:
            known = known[-quiet:]
        return sum(put - settled for put, settled in known) / len(known), len(known) * self.step

    def pulse(self, limit: int = 60, *, cancelled: float = 0.0) -> tuple[float, tuple[float | None, ...]]:
        """Return the seconds of a piece and the run's mean speed in each piece, in its unit per second."""
        changes = [None if before is None or now is None else now - before for before, now in pairwise(self.units_left)]
        drops = [(change, at) for at, change in enumerate(changes) if change is not None]
        # Cancelled documents leave at once, in one step. They are no speed: add them back to the largest drop.
        if cancelled and drops:
            largest, at = min(drops)
            changes[at] = min(0.0, largest + cancelled)
        # While input arrives, its growth hides how much was settled: these steps are unknown.
        comes = [at < len(self.in_rate) and bool(self.in_rate[at]) for at in range(1, len(changes) + 1)]
        input_ends = max((at for at, each in enumerate(changes) if comes[at] and each and each > 0), default=-1)
        speeds: list[float | None] = []
        for at, change in enumerate(changes):
            known = change is not None and not (comes[at] and at <= input_ends)
            if known or speeds:
                speeds.append(max(0.0, -change) / self.step if known and change is not None else None)
        span = len(speeds) * self.step
        seconds = next((each for each in PIECES if each >= self.step and span <= each * limit), PIECES[-1])
        each = max(1, round(seconds / self.step))
        pieces = [
            [speed for speed in speeds[at : at + each] if speed is not None] for at in range(0, len(speeds), each)
        ]
        return each * self.step, tuple(sum(piece) / len(piece) if piece else None for piece in pieces)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Rebuild a History from `to_dict`."""
        return from_plain(cls, data)
