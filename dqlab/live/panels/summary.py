"""The seven figures above the panels: how much is left, until when, how fast, held, dead, by whom, on disk."""

from __future__ import annotations

from bokeh.models import Div, InlineStyleSheet

from dqlab.live.panels.changes import html, show
from dqlab.live.panels.markup import text, unit
from dqlab.live.panels.scene import Scene
from dqlab.numbers import UNKNOWN, between, count, duration, many, minute, rate, share, size, span
from dqlab.stats import RunStats

__all__ = ["Summary"]

Figure = tuple[str, str, str, str, str]
"""Label, figure, unit, second line, and the class of both when they need attention."""


class Summary:
    """Seven figures in one line, or in two or four columns where it is narrow."""

    def __init__(self, sheet: InlineStyleSheet) -> None:
        self.root: Div = html(sheet, "summary")
        self.root.name = "summary"

    def draw(self, scene: Scene) -> None:
        """Update the figures."""
        figures = (
            _left(scene),
            _done(scene),
            _speed(scene),
            _unacked(scene),
            _dead(scene),
            _consumers(scene),
            _disk(scene),
        )
        show(self.root, text=f'<div class="kpi">{"".join(map(_html, figures))}</div>')


def _html(figure: Figure) -> str:
    label, value, of, second, kind = figure
    loud, below = ("bad", "") if kind == "bad" else ("", kind)
    return (
        f'<div><div class="lab">{text(label)}</div><div class="v {loud}">{text(value)}<small>{text(of)}</small></div>'
        f'<div class="lab {below}">{text(second)}</div></div>'
    )


def _left(scene: Scene) -> Figure:
    run = scene.run
    if run is None:
        counts = scene.queue.counts
        return "Left", count(counts.left), "messages", many(scene.snapshot.runs_total, "run"), ""
    more = f"{count(run.units.left)} {run.unit}" if run.units is not None else run.name
    return "Left", count(run.counts.left), "documents", more, ""


def _done(scene: Scene) -> Figure:
    run, queue, at = scene.run, scene.queue, scene.snapshot.at
    if run is None:
        if queue.empty_in is None:
            return "Empty at", UNKNOWN, "", queue.why, ""
        return "Empty at", minute(at + queue.empty_in), f"in {span(queue.empty_in)}", "", ""
    if run.ended is not None:
        return "Done at", minute(run.ended), "", f"took {duration(run.elapsed)}", ""
    if run.eta is None:
        return "Done at", UNKNOWN, "", run.why or _no_eta(run), ""
    sure = f"80 % sure: {between(minute(run.eta.p10), minute(run.eta.p90))}"
    if minute(run.eta.p10) == minute(run.eta.p90):
        sure = "80 % sure, to the minute"
    return "Done at", minute(run.eta.p50), f"in {span(run.eta_in)}", sure, ""


def _no_eta(run: RunStats) -> str:
    return "not known yet" if run.state in ("running", "submitting") else str(run.state)


def _speed(scene: Scene) -> Figure:
    run = scene.run
    if run is None:
        return "Speed, 60 s", rate(scene.queue.out_rate), "messages/s", f"in {rate(scene.queue.in_rate)} messages/s", ""
    if run.units is None:
        return "Speed, 60 s", rate(run.rate), "documents/s", "", ""
    return "Speed, 60 s", rate(run.units_rate), f"{run.unit}/s", f"{rate(run.rate)} documents/s", ""


def _unacked(scene: Scene) -> Figure:
    unacked, held = scene.snapshot.unacked, scene.counts.leased
    age = (
        f"oldest {duration(unacked.oldest_age)}" if unacked.oldest_age is not None else "none held" if not held else ""
    )
    return "Unacked", count(held), "messages", age, "warn" if unacked.past else ""


def _dead(scene: Scene) -> Figure:
    run, dead = scene.run, scene.counts.dead
    of = f"{share(run.dead_share, places=2)} of settled" if run is not None and run.counts.settled else ""
    return "Dead", count(dead), "messages", of, "bad" if dead else ""


def _consumers(scene: Scene) -> Figure:
    snapshot = scene.snapshot
    amount = scene.consumers
    idle = f"{share(snapshot.idle_share, places=0)} idle" if snapshot.idle_share is not None else ""
    slow = f"{count(snapshot.slow_consumers)} slow" if snapshot.slow_consumers else ""
    words = ", ".join(filter(None, (slow, idle)))
    waits = not amount and scene.counts.left > 0
    return "Consumers", count(amount), "", words or ("work waits" if waits else ""), "warn" if slow or waits else ""


def _disk(scene: Scene) -> Figure:
    storage = scene.snapshot.storage
    if not storage.total:
        return "On disk", UNKNOWN, "", "in memory", ""
    return "On disk", *unit(size(storage.total)), f"{share(storage.garbage_share, places=0)} garbage", ""
