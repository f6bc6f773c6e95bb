"""Builds a History from the tracks of queues, runs and consumers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import ceil, floor

from dqlab.cluster.statistics.known import CLASS_MINUTES, DEPTH_MINUTES, Known, KnownConsumer, QueueTrack
from dqlab.stats import History, short_name
from dqlab.stats.meter import RATE_WINDOW
from dqlab.stats.snapshot import MAX_CONSUMERS, MAX_POINTS, MAX_QUEUES, Figures

STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
"""Possible seconds between points. The smallest that needs at most `MAX_POINTS` is used."""

Series = tuple[float | None, ...]


SHORTEST = 10.0
"""Least seconds of a history, however young the cluster is."""


def history(known: Known, span: float, queue: str, run: str, *, whole: bool = False) -> History:
    """Return the history of the last `span` seconds, with `whole` up to the current, unfinished step."""
    # A moving chart shows only finished steps, and always the same span. A reader (`whole`) gets no more than the life
    # of the cluster, and also the unfinished step, so that the rates add up to all messages.
    wall = known.clock.wall()
    if whole:
        born = wall if known.all.ring.born is None else known.all.ring.born
        span = max(SHORTEST, min(span, wall - born + 1.0))
    run_key = _run_key(known, queue, run)
    queue = run_key[0] if run_key else queue
    step = next((step for step in STEPS if span / step < MAX_POINTS), STEPS[-1])
    points = min(MAX_POINTS, max(2, ceil(span / step) + 1))
    t0 = (floor(wall / step) + whole) * step - (points - 1) * step
    track = known.of(queue).track if queue else known.all
    gauges = dict(zip(QueueTrack.GAUGES, map(tuple, track.ring.gauges(t0, step, points)), strict=True))
    put, settled, failed = map(tuple, track.ring.rates(t0, step, points))
    consumers, idle = _consumers(known, queue, t0, step, points)
    left: Series = tuple(known.of(queue).run(run_key[1]).ring.gauges(t0, step, points)[0]) if run_key else ()
    classes = track.classes.items() if queue else []
    return History(
        t0=float(t0),
        step=float(step),
        queue=queue,
        run=run,
        ready=gauges["ready"],
        delayed=gauges["delayed"],
        leased=gauges["leased"],
        dead=gauges["dead"],
        in_rate=put,
        out_rate=settled,
        failure_rate=failed,
        units_left=left,
        live=gauges["live"] if any(gauges["live"]) else (),
        garbage=gauges["garbage"] if any(gauges["live"]) else (),
        consumers=consumers,
        idle=idle,
        classes={mark: tuple(each.ring.amounts(0, now=wall, slots=CLASS_MINUTES)) for mark, each in classes},
        depths={} if queue else _depths(known, wall),
        marks=tuple(known.marks_of(queue, t0)),
        now=_now(known, queue, track),
        most=_most(track, t0 if whole else wall - span, wall),
    )


def _now(known: Known, queue: str, track: QueueTrack) -> Figures:
    """Return the current figures, with failures as the mean over the last minute."""
    if track.ring.born is None:
        return Figures()
    now = known.clock.monotonic()
    own = [track] if queue else [each.track for each in known.queues.values()]
    ready, delayed, leased, *_ = track.gauges
    return Figures(
        waiting=ready + delayed,
        unacked=leased,
        in_rate=sum(each.put.rate(now) or 0.0 for each in own),
        out_rate=sum(each.out.rate(now) or 0.0 for each in own),
        failure_rate=sum(each.failed.growth(now) for each in own) / RATE_WINDOW,
    )


def _most(track: QueueTrack, start: float, wall: float) -> Figures:
    """Return the largest values since the minute of an instant."""
    rows = list(track.highs.ring.finest(start))
    (ready,), (delayed,), (leased,), *_ = track.ring.gauges(start, 1.0, 1)  # a gauge holds until its next entry
    if ready is not None and delayed is not None and leased is not None:
        rows.append((ready + delayed, leased, 0.0, 0.0, 0.0))
    if not rows:
        return Figures()
    first = floor(start / 60) + 1
    *_, failed = track.ring.rates(first * 60.0, 60.0, max(1, floor(wall / 60) + 2 - first))
    largest = Figures(*map(max, zip(*rows, strict=True)))
    # Failures count by the minute, as charts draw them: the failures of one second are not a speed.
    return replace(largest, failure_rate=max((rate for rate in failed if rate is not None), default=0.0))


def _run_key(known: Known, queue: str, run: str) -> tuple[str, str] | None:
    if not run:
        return None
    for name in [queue] if queue else known.names:
        for key in known.of(name).lanes.named(run):
            return name, key
    return None


def _depths(known: Known, wall: float) -> dict[str, Series]:
    t0 = floor(wall / 60) * 60 - (DEPTH_MINUTES - 1) * 60
    names = known.names[:MAX_QUEUES]
    return {name: tuple(known.queues[name].track.depth.gauges(t0, 60, DEPTH_MINUTES)[0]) for name in names}


def _consumers(
    known: Known, queue: str, t0: float, step: float, points: int
) -> tuple[dict[str, Series], dict[str, Series]]:
    """Return pages per second and idle shares by consumer, or by worker if there are many consumers."""
    consumers = {name: one for name, one in known.consumers.items() if queue in ("", one.report.queue)}
    if len(consumers) > MAX_CONSUMERS and not queue:
        return _hosts(known, t0, step, points)
    several = len({one.report.queue for one in consumers.values()}) > 1
    groups: dict[str, list[KnownConsumer]] = {}
    for name, one in consumers.items():
        own = f"{one.report.queue}/{short_name(name)}" if several else short_name(name)
        groups.setdefault(own if len(consumers) <= MAX_CONSUMERS else one.report.host, []).append(one)
    speeds, idle = {}, {}
    for group, members in list(groups.items())[:MAX_CONSUMERS]:
        units, busy = _summed(members, t0, step, points)
        speeds[group] = units
        idle[group] = _idle(busy, sum(one.report.slots for one in members))
    return speeds, idle


def _hosts(known: Known, t0: float, step: float, points: int) -> tuple[dict[str, Series], dict[str, Series]]:
    slots: dict[str, int] = {}
    for one in known.consumers.values():
        slots[one.report.host] = slots.get(one.report.host, 0) + one.report.slots
    speeds, idle = {}, {}
    for host in list(slots)[:MAX_CONSUMERS]:
        units, busy = known.host_rings[host].rates(t0, step, points)
        speeds[host], idle[host] = tuple(units), _idle(busy, slots[host])
    return speeds, idle


def _idle(busy: Iterable[float | None], slots: int) -> Series:
    return tuple(None if share is None else max(0.0, 1 - share / max(1, slots)) for share in busy)


def _summed(tracks: Iterable[KnownConsumer], t0: float, step: float, points: int) -> tuple[Series, Series]:
    rows = [track.ring.rates(t0, step, points) for track in tracks]
    units, busy = (
        tuple(
            sum(known) if (known := [value for value in values if value is not None]) else None
            for values in zip(*(row[kind] for row in rows), strict=True)
        )
        for kind in (0, 1)
    )
    return units, busy
