"""Numbers as people read them.

Owns the spelling of counts, shares, rates, sizes, durations and times of day, so that a number looks the same in every
view. Pure text, without colours, widths or a clock; `UNKNOWN` stands where a number is not known. Instants are seconds
since 1970 UTC, shown in the zone of the process, as the cell that prints them would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

UNKNOWN = "\N{EN DASH}"
"""Replaces a number that is not known."""

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def count(value: int | None) -> str:
    """Return a count with grouped thousands (``16,121``)."""
    return UNKNOWN if value is None else f"{value:,}"


def many(amount: int, noun: str) -> str:
    """Return a count with its noun (``1 document``, ``16,121 documents``)."""
    return f"{count(amount)} {noun_of(amount, noun)}"


def noun_of(amount: int | None, noun: str) -> str:
    """Return a noun without its count, in the singular or plural that the count needs."""
    if amount == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("ry") else f"{noun}{'es' if noun.endswith('s') else 's'}"


def few_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names and how many more there are (``a, b, c and 1,021 more``)."""
    more = f" and {count(len(names) - most)} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def share(value: float | None, *, places: int = 1) -> str:
    """Return a share, from 0 to 1, as a percentage with `places` digits after the point (``65.5 %``)."""
    if value is None or math.isnan(value):
        return UNKNOWN
    # ``0 %`` and ``100 %`` stand for exactly none and all: a run with one document left must not look done.
    if value <= 0:
        return "0 %"
    if value >= 1:
        return "100 %"
    if value < 0.001:
        return "<0.1 %"
    step = 10.0**-places
    return f"{min(value * 100, 100 - step):.{places}f} %"


def rate(value: float | None) -> str:
    """Return a rate in three digits (``451``, ``23.9``, ``0.70``), to which the caller adds the unit."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value <= 0:
        return "0"
    if value < 0.005:
        return "<0.01"
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def size(value: int | None) -> str:
    """Return bytes in decimal units with two or three digits (``1.8 GB``, ``310 MB``)."""
    if value is None:
        return UNKNOWN
    if value < 1000:
        return f"{value} B"
    amount, units = value / 1000, iter(("kB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 999.5 and unit != "TB":  # 999.6 would be rounded to four digits
        amount, unit = amount / 1000, next(units)
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:,.0f} {unit}"


def amount(value: int | None, unit: str, *, of: int | None = None) -> str:
    """Return an amount with its unit (``1 page``, ``1.2 GB``), or as a part `of` a whole (``40 of 3,281 pages``)."""
    if of is not None:
        whole, part = amount(of, unit), bare(value, unit)
        # Bytes name the unit of the part only where it differs: ``1.2 of 3.4 GB``, ``310 MB of 3.4 GB``.
        number, _, same = part.partition(" ")
        return f"{number if same and whole.endswith(f' {same}') else part} of {whole}"
    if unit == "bytes" or value is None:
        return size(value)
    return many(value, unit.removesuffix("s"))


def bare(value: int | None, unit: str) -> str:
    """Return an amount whose unit stands beside it (``16,121``), but bytes with their own unit (``1.2 GB``)."""
    return size(value) if unit == "bytes" else count(value)


def speed(value: float | None, unit: str) -> str:
    """Return the amount of a unit per second (``451 pages/s``, ``12 MB/s``)."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if unit != "bytes":
        return f"{rate(value)} {unit}/s"
    return "<1 B/s" if 0 < value < 1 else f"{size(max(0, round(value)))}/s"


def duration(seconds: float | None, *, units: int = 2) -> str:
    """Return a duration in at most `units` units (``4 min 12 s``, ``3 h 39 min``, ``0.7 s``)."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds <= 0:
        return "0 s"
    if seconds < 0.05:
        return "<0.1 s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    rest = int(seconds)  # cut, not rounded: a duration never claims time that has not passed
    parts: list[str] = []
    for length, name in _UNITS:
        amount, rest = divmod(rest, length)
        if amount or parts:
            parts.append(f"{amount} {name}")
        if len(parts) == units:
            break
    while len(parts) > 1 and parts[-1].startswith("0 "):
        parts.pop()
    return " ".join(parts)


def span(seconds: float | None) -> str:
    """Return a duration that changes seldom while people watch it (``42 s``, ``23 min``, ``3 h 39 min``)."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 60:
        return f"{int(max(seconds, 0))} s"
    return duration(seconds, units=1 if seconds < 3_600 else 2)


def soon(seconds: float) -> str:
    """Return the time until an event (``45 s``), from two minutes on to the nearest minute (``12 min``)."""
    return f"{max(1, round(seconds))} s" if seconds < 120 else duration(60.0 * round(seconds / 60.0))


def ahead(early: float, likely: float, late: float) -> str:
    """Return when an event is due, as unsure as the estimate is (``10 to 30 s``, ``up to 9 min``)."""
    early, late = max(0.0, early), max(0.0, late)
    length, unit = (1, "s") if late < 120 else (60, "min") if late < 7_200 else (3_600, "h")
    step = 5 if unit == "s" and late > 20 else 1
    low, high = math.floor(early / length / step) * step, math.ceil(late / length / step) * step
    if high - low <= step or late - early <= 0.2 * likely:
        return soon(likely)
    least = f"{low}"
    if low == 0 and unit != "s":  # the early end in the next smaller unit: "0 to 2 min" would promise no wait at all
        low = math.floor(early / 5) * 5 if unit == "min" else math.floor(early / 60)
        least = f"{low} s" if unit == "min" else f"{low} min"
    return f"{least} to {high} {unit}" if low else f"up to {high} {unit}"


def due(at: float, *, now: float) -> str:
    """Return the time of an event to the nearest minute (``14:34``), with the day if it is another one."""
    at += 30.0
    moment = _moment(at)
    return minute(at) if date(at) == date(now) else f"{moment.day} {_MONTHS[moment.month - 1]} {minute(at)}"


def moment(at: float, *, now: float) -> str:
    """Return when a past event was (``14:03``), on another day only the date, so that it stays true when read later."""
    return minute(at) if date(at) == date(now) else date(at)


def instant(at: float, *, now: float) -> str:
    """Return when a past event was to the second (``14:22:07``), on another day with the day (``20 Nov, 14:22:07``)."""
    moment = _moment(at)
    return clock(at) if date(at) == date(now) else f"{moment.day} {_MONTHS[moment.month - 1]}, {clock(at)}"


def between(low: str, high: str) -> str:
    """Return a range of two spelled numbers with an en dash, or the one number where both are equal."""
    return low if low == high else f"{low}\N{EN DASH}{high}"


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC).astimezone()


def clock(at: float) -> str:
    """Return the time of day (``14:22:07``)."""
    return f"{_moment(at):%H:%M:%S}"


def minute(at: float) -> str:
    """Return the time of day without seconds (``14:22``)."""
    return f"{_moment(at):%H:%M}"


def date(at: float) -> str:
    """Return the date (``21 Nov 2026``)."""
    moment = _moment(at)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def seen(first: float, last: float, *, now: float) -> str:
    """Return when something first and last happened (``first 13:59, last 14:22``, or ``at 14:03``)."""
    began, ended = moment(first, now=now), moment(last, now=now)
    return f"at {ended}" if began == ended else f"first {began}, last {ended}"
