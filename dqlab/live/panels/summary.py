"""The seven figures above the panels: how much is left, until when, how fast, held, dead, by whom, on disk."""

from __future__ import annotations

from bokeh.models import Div, InlineStyleSheet

from dqlab.live.panels.changes import html, show
from dqlab.live.panels.markup import strong, text, unit
from dqlab.live.panels.scene import Scene
from dqlab.numbers import UNKNOWN, between, count, duration, many, minute, noun_of, rate, share, size, span
from dqlab.stats import RunStats

__all__ = ["Summary"]

Figure = tuple[str, str, str, str, str]
"""Label, figure, unit, second line, and the class of both when they need attention."""


LONG = 7
"""Characters of a figure, from which it is smaller: it is never cut."""


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
        scope = f'<div class="scope">Figures {_scope(scene)}</div>'
        show(self.root, text=f'{scope}<div class="kpi">{"".join(map(_html, figures))}</div>')


def _html(figure: Figure) -> str:
    label, value, of, second, kind = figure
    loud, below = ("bad", "") if kind == "bad" else ("", kind)
    loud += " long" if len(value) > LONG else ""
    return (
        f'<div><div class="lab">{text(label)}</div><div class="v {loud}">{text(value)}<small>{text(of)}</small></div>'
        f'<div class="lab {below}">{text(second)}</div></div>'
    )


def _scope(scene: Scene) -> str:
    """Return what the figures are of, as HTML."""
    if scene.run is None:
        return f"of queue {strong(scene.queue.name)}" if scene.queue.state else f"of {strong('all queues')}"
    others = len(scene.runs) - 1
    more = f", one of {many(others + 1, 'run')}" if others else ""
    return f"of run {strong(scene.run.name)} on queue {strong(scene.run.queue)}{more}"


def _left(scene: Scene) -> Figure:
    run = scene.run
    if run is None:
        counts = scene.queue.counts
        held = f"{count(counts.waiting)} waiting, {count(counts.leased)} unacked"
        return "Left", count(counts.left), noun_of(counts.left, "message"), held, ""
    more = f"{count(run.units.left)} {run.unit}" if run.units is not None else ""
    return "Left", count(run.counts.left), noun_of(run.counts.left, "document"), more, ""


def _done(scene: Scene) -> Figure:
    run, queue, at = scene.run, scene.queue, scene.snapshot.at
    if run is None:
        return _empty(scene, queue.empty_in, at)
    if run.ended is not None:
        return "Done at", minute(run.ended), "", f"took {duration(run.elapsed)}", ""
    if run.eta is None:
        return "Done at", UNKNOWN, "", run.why or _no_eta(run), ""
    sure = f"80 % sure: {between(minute(run.eta.p10), minute(run.eta.p90))}"
    if minute(run.eta.p10) == minute(run.eta.p90):
        sure = "80 % sure, to the minute"
    return "Done at", minute(run.eta.p50), f"in {span(run.eta_in)}", sure, ""


def _empty(scene: Scene, empty_in: float | None, at: float) -> Figure:
    """Return when the queue, or the last of all queues, is empty; queues without an estimate are named."""
    queue, endless = scene.queue, () if scene.queue.state else scene.snapshot.endless
    if empty_in is None:
        why = queue.why or ("nothing waits" if not queue.counts.left else "not known yet")
        return "Empty at", UNKNOWN, "", why, ""
    names = " and ".join(endless) if len(endless) < 3 else many(len(endless), "queue")
    return "Empty at", minute(at + empty_in), f"in {span(empty_in)}", f"without {names}" if endless else "", ""


def _no_eta(run: RunStats) -> str:
    return "not known yet" if run.state in ("running", "submitting") else str(run.state)


def _speed(scene: Scene) -> Figure:
    run = scene.run
    if run is None:
        return "Speed, 60 s", rate(scene.queue.out_rate), "messages/s", f"in {rate(scene.queue.in_rate)} messages/s", ""
    if run.units is None:
        return "Speed, 60 s", rate(run.rate), "documents/s", "", ""
    return "Speed, 60 s", rate(run.units_rate), f"{run.unit}/s", f"{rate(run.rate)} documents/s", ""


def _noun(scene: Scene) -> str:
    """Return what a run counts, and what a queue counts."""
    return "message" if scene.run is None else "document"


def _queues(scene: Scene) -> str:
    """Return what a figure is of that a run has no own of, behind a word."""
    return "" if scene.run is None else " in queue" if scene.queue.state else " in all queues"


def _unacked(scene: Scene) -> Figure:
    unacked, held = scene.snapshot.unacked, scene.counts.leased
    age = f"oldest{_queues(scene)} {duration(unacked.oldest_age)}" if unacked.oldest_age is not None else ""
    second = age or ("none held" if not held else "")
    return "Unacked", count(held), noun_of(held, _noun(scene)), second, "warn" if unacked.past else ""


def _dead(scene: Scene) -> Figure:
    run, dead, all_dead = scene.run, scene.counts.dead, scene.queue.counts.dead
    words = [f"{share(run.dead_share, places=2)} of settled"] if run is not None and run.counts.settled else []
    if run is not None and all_dead > dead:
        words.append(f"{count(all_dead)}{_queues(scene)}")
    return "Dead", count(dead), noun_of(dead, _noun(scene)), ", ".join(words), "bad" if dead else ""


def _consumers(scene: Scene) -> Figure:
    snapshot = scene.snapshot
    amount = scene.consumers
    idle = f"{share(snapshot.idle_share, places=0)} idle" if snapshot.idle_share is not None else ""
    slow = f"{count(snapshot.slow_consumers)} slow" if snapshot.slow_consumers else ""
    words = ", ".join(filter(None, (slow, idle)))
    waits = not amount and scene.counts.left > 0
    return "Consumers", count(amount), "", words or ("work waits" if waits else ""), "warn" if slow or waits else ""


def _disk(scene: Scene) -> Figure:
    storage, label = scene.snapshot.storage, f"On disk{_queues(scene)}"
    if not storage.total:
        return label, UNKNOWN, "", "in memory", ""
    return label, *unit(size(storage.total)), f"{share(storage.garbage_share, places=0)} garbage", ""
