"""Choose what a page shows by its address, and hold it at one instant, in words that several panels need.

The sessions of a scheduler share `Readings`: a snapshot or history for several of them is computed once.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Protocol, TypeVar

from dqlab.clock import Clock, SystemClock
from dqlab.numbers import span as spell_span
from dqlab.stats import History, QueueStats, RunStats, Snapshot


class Feed(Protocol):
    """A source of statistics in the same process, as the scheduler's plugin is one."""

    @property
    def seq(self) -> int:
        """Number of the newest change, which stays the same while only time passes."""
        ...

    def snapshot(self, queue: str = "", run: str = "") -> Snapshot:
        """Return everything now, with the details of one queue or run, if one is named."""
        ...

    def history(self, span: float, queue: str = "", run: str = "") -> History:
        """Return the statistics of the last `span` seconds."""
        ...


def feed_of(scheduler: Any) -> Feed | None:
    """Return the feed of a scheduler, or None when no dqlab is installed on it yet."""
    plugin = scheduler.plugins.get("dqlab")
    return None if plugin is None else getattr(plugin, "collector", None)


SPANS = (("5 min", 300.0), ("30 min", 1800.0), ("2 h", 7200.0))
WHOLE = 0.0
"""Stands for the time since the run began."""
LATELY = -1.0
"""Stands for the time since the run began, from 5 to 30 minutes, so that a young run fills its chart."""
USUAL, SHORTEST, LONGEST = 1800.0, 60.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of an address, as in ``?queue=NAME&run=NAME&span=1800&theme=dark&wall=1``."""

    theme: str = "light"
    queue: str = ""
    run: str = ""
    span: float = LATELY
    """Seconds."""
    wall: bool = False


def request(arguments: Mapping[str, Sequence[bytes]]) -> Request:
    """Parse the arguments, without invalid ones."""

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


@dataclass(frozen=True, slots=True)
class Scene:
    """A snapshot and its history, with the queue and the run that are shown."""

    snapshot: Snapshot
    history: History
    span: float
    """Seconds that the time axis covers."""
    queue: QueueStats
    """The chosen queue, or the sum over all."""
    run: RunStats | None
    """The chosen run, the one of the chosen queue, or the only one in progress."""
    zone: float
    """Seconds that clocks here are ahead of UTC."""

    @property
    def runs(self) -> tuple[RunStats, ...]:
        """The listed runs of the chosen queue, or all."""
        return tuple(run for run in self.snapshot.runs if not self.queue.state or run.queue == self.queue.name)

    @property
    def unlisted_runs(self) -> int:
        """How many more runs there are."""
        total = self.queue.runs if self.queue.state else self.snapshot.runs_total
        return max(0, total - len(self.runs))

    def full(self, values: Sequence[float | None]) -> list[float]:
        """Return a series of the history with a value for each instant, zeros where none is known."""
        known = values if len(values) == len(self.history.ready) else [0.0] * len(self.history.ready)
        return [each or 0.0 for each in known]

    @property
    def end(self) -> float:
        """Right end of the time axis, seconds since 1970 UTC."""
        return self.history.end if self.history.ready else self.snapshot.at

    @property
    def start(self) -> float:
        """Left end of the time axis."""
        return self.end - self.span

    @property
    def window(self) -> str:
        """The span in words, as in ``30 min``."""
        return spell_span(self.span)


def scene(snapshot: Snapshot, history: History, span: float, queue: str, run: str) -> Scene:
    """Choose the queue and the run, and return the scene."""
    seen = snapshot.run(run) if run else _run_of(snapshot, queue)
    chosen = snapshot.queue(queue or (seen.queue if run and seen is not None else ""))
    offset = datetime.fromtimestamp(snapshot.at, tz=UTC).astimezone().utcoffset()
    zone = offset.total_seconds() if offset is not None else 0.0
    return Scene(snapshot, history, span, chosen or snapshot.totals, seen, zone)


def span_of_run(snapshot: Snapshot, queue: str, run: str) -> float:
    """Return the seconds since a run began, or the first of several, in full minutes."""
    seen = snapshot.run(run) if run else _run_of(snapshot, queue)
    runs = [seen] if seen is not None else [run for run in snapshot.runs if queue in ("", run.queue)]
    begun = min((run.started for run in runs if run.started), default=snapshot.at)
    # In full minutes the axis keeps its scale, and readings of the same span are shared.
    return min(max(math.ceil((snapshot.at - begun) / 60.0) * 60.0, SHORTEST), LONGEST)


def _run_of(snapshot: Snapshot, queue: str) -> RunStats | None:
    runs = [run for run in snapshot.runs if queue in ("", run.queue)]
    going = [run for run in runs if not run.finished]
    if queue:
        return next(iter(going or runs), None)
    # Of several runs in progress none stands for all queues.
    return going[0] if len(going) == 1 else None


FRESH = 0.9
"""Seconds that a reading is valid. A little less than the period of pages, so that no page gets the same reading twice
because it asked a moment early."""
KEPT = 3.0
"""Seconds after which an unused reading is dropped."""

T = TypeVar("T")


class Readings:
    """Recent readings of a feed, by queue, run and span."""

    def __init__(self, feed: Feed, clock: Clock | None = None) -> None:
        self.feed = feed
        self._clock: Clock = clock or SystemClock()
        self._kept: dict[tuple[Any, ...], tuple[float, Any]] = {}

    def snapshot(self, queue: str, run: str) -> Snapshot:
        """Return a snapshot that is at most a second old."""
        return self._read((queue, run), lambda: self.feed.snapshot(queue, run))

    def history(self, span: float, queue: str, run: str) -> History:
        """Return a history that is at most a second old."""
        return self._read((span, queue, run), lambda: self.feed.history(span, queue, run).since_known())

    def classes(self, queues: Sequence[str]) -> dict[str, tuple[int, ...]]:
        """Return failed deliveries per minute by class, added up over queues, the present minute last."""
        summed: dict[str, tuple[int, ...]] = {}
        for queue in queues:
            for mark, amounts in self.history(SHORTEST, queue, "").classes.items():
                pairs = zip_longest(reversed(summed.get(mark, ())), reversed(amounts), fillvalue=0)
                summed[mark] = tuple(one + other for one, other in pairs)[::-1]
        return summed

    def _read(self, key: tuple[Any, ...], read: Callable[[], T]) -> T:
        now = self._clock.monotonic()
        at, value = self._kept.get(key, (-FRESH, None))
        if key not in self._kept or now - at >= FRESH:
            value = read()
            # Drop unused readings here: a page that is closed does not report it.
            kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < KEPT}
            self._kept = {**kept, key: (now, value)}
        fresh: T = value
        return fresh
