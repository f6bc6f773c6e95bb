"""How statistics were over time: evenly spaced points, ready to be drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqlab.stats.snapshot import Mark, from_plain, plain

__all__ = ["MAX_POINTS", "Figures", "History"]

MAX_POINTS = 360
"""Most points of one series; the step grows with the span."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is written beside a history's lines; None where nothing is known.

    Attributes
    ----------
    waiting, unacked : float or None
        Messages ready or delayed, and leased.
    in_rate, out_rate, failure_rate : float or None
        Messages put, settled, and deliveries that failed, per second.
    """

    waiting: float | None = None
    unacked: float | None = None
    in_rate: float | None = None
    out_rate: float | None = None
    failure_rate: float | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Series over one span of time, for one queue, one run or all queues.

    Points stand at ``t0 + i * step``; the last one is now. None is where nothing is known: before a queue was there.

    Attributes
    ----------
    t0, step : float
        Seconds since 1970 UTC of the first point, and seconds between points.
    ready, delayed, leased, dead : tuple of float or None
        Messages by state.
    in_rate, out_rate, failure_rate : tuple of float or None
        Messages put, settled, and deliveries that failed, per second.
    units_left : tuple of float or None
        Pages left of the run that was asked for; documents where page counts are unknown.
    live, garbage : tuple of float or None
        Bytes on disk.
    consumers : mapping of str to tuple
        Pages per second by consumer; one name for each worker where there are more than 32 consumers.
    idle : mapping of str to tuple
        Idle share by the same names, 0 to 1.
    classes : mapping of str to tuple of int
        Deliveries that failed in each minute, by fingerprint; the last minute last, at most 120 of them.
    depths : mapping of str to tuple
        Messages waiting by queue, one point a minute over the last half hour; where all queues were asked for.
    marks : tuple of Mark
        What people did in this span.
    now : Figures
        As the snapshot of the same instant has them.
    most : Figures
        The largest values in this span: by the second, rates too, over any length. Before the last quarter of an hour
        the span begins with a whole minute.
    """

    t0: float
    step: float
    queue: str = ""
    run: str = ""
    ready: tuple[float | None, ...] = ()
    delayed: tuple[float | None, ...] = ()
    leased: tuple[float | None, ...] = ()
    dead: tuple[float | None, ...] = ()
    in_rate: tuple[float | None, ...] = ()
    out_rate: tuple[float | None, ...] = ()
    failure_rate: tuple[float | None, ...] = ()
    units_left: tuple[float | None, ...] = ()
    live: tuple[float | None, ...] = ()
    garbage: tuple[float | None, ...] = ()
    consumers: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    idle: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    classes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    depths: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    marks: tuple[Mark, ...] = ()
    now: Figures = Figures()
    most: Figures = Figures()

    @property
    def times(self) -> list[float]:
        """Seconds since 1970 UTC of each point."""
        return [self.t0 + self.step * at for at in range(len(self.ready))]

    @property
    def end(self) -> float:
        """Seconds since 1970 UTC of the last point."""
        return self.t0 + self.step * max(0, len(self.ready) - 1)

    @property
    def units_rate(self) -> list[float | None]:
        """Pages per second of all consumers together, at each point; None before there was one."""
        known = [
            [value for value in point if value is not None] for point in zip(*self.consumers.values(), strict=True)
        ]
        return [sum(point) if point else None for point in known]

    def net_rate(self, over: float = 20.0) -> float | None:
        """Return messages put less those settled, per second, over the last seconds; None where nothing is known."""
        last = slice(-max(1, math.ceil(over / self.step)), None)
        known = [
            put - settled
            for put, settled in zip(self.in_rate[last], self.out_rate[last], strict=False)
            if put is not None and settled is not None
        ]
        return sum(known) / len(known) if known else None

    def pulse(self, limit: int = 60) -> tuple[float, tuple[float | None, ...]]:
        """Return pages per second in equal pieces of the span: seconds of one piece, and the mean of each.

        Parameters
        ----------
        limit : int, default 60
            Most pieces; a piece is a whole number of minutes.
        """
        rates = self.units_rate
        while rates and rates[0] is None:
            del rates[0]
        minutes = max(1, math.ceil(len(rates) * self.step / 60.0 / limit))
        each = max(1, round(60.0 * minutes / self.step))
        pieces = [[rate for rate in rates[at : at + each] if rate is not None] for at in range(0, len(rates), each)]
        return each * self.step, tuple(sum(piece) / len(piece) if piece else None for piece in pieces)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON-ready data."""
        data: dict[str, Any] = plain(self)
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> History:
        """Rebuild a History from `to_dict`."""
        return from_plain(cls, data)
