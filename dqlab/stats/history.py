"""Statistics over time: evenly spaced points, ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from dqlab.keywords import SuggestsAttributes
from dqlab.stats.snapshot import Mark, from_plain, plain

MAX_POINTS = 360
"""Most points of one series; the step grows with the span."""


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

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Rebuild a History from `to_dict`."""
        return from_plain(cls, data)
