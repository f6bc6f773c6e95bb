"""Draw the head of a page: its controls, what needs the user, and seven figures.

Controls change the view: another queue, another span of time, Hold. Nothing here changes a queue.

"""

from __future__ import annotations

from typing import Any, Protocol

from bokeh.models import CustomJS, Div, InlineStyleSheet, RadioButtonGroup, Select, Toggle

from dqlab.live.details import age_of, last_ends, sure, with_pause
from dqlab.live.next_lines import failed_lines, next_line
from dqlab.live.panels.changes import html, show
from dqlab.live.panels.look import read
from dqlab.live.panels.markup import codes, glyph, strong, text, unit
from dqlab.live.panels.scene import SPANS, WHOLE, Request, Scene
from dqlab.live.run_rows import AT_WORK, LAST_MINUTE, WHOLE_RUN
from dqlab.numbers import (
    UNKNOWN,
    amount,
    count,
    due,
    duration,
    many,
    moment,
    noun_of,
    rate,
    share,
    size,
    soon,
    speed,
)
from dqlab.stats import Attention, RunStats, Severity

__all__ = ["Controls", "Needs", "Overview"]

ALL = "all queues"
LABELS = [*(label for label, _ in SPANS), "whole run"]
VALUES = [*(span for _, span in SPANS), WHOLE]
ADDRESS = """const url = new URL(window.location)
url.searchParams.set(name, String(values === null ? cb_obj.value : values[cb_obj.active]))
window.history.replaceState(null, "", url)"""
"""Keeps the address in step, so that a reload shows the same."""


class Looks(Protocol):
    """A page, as its controls use it."""

    @property
    def seq(self) -> int:
        """Number of the newest change."""
        ...

    def look(self, **changes: Any) -> None:
        """Show another queue, run or span."""
        ...


class Controls:
    """The line above the figures."""

    def __init__(self, page: Looks, sheet: InlineStyleSheet, asked: Request) -> None:
        style, self._page, self._wall = InlineStyleSheet(css=read("controls.css")), page, asked.wall
        self._from = 0
        self._where = html(sheet, "where")
        self._where.name = "where"
        chosen = [(asked.queue, asked.queue)] if asked.queue else []
        self._queues = Select(
            name="queues", value=asked.queue, options=[("", ALL), *chosen], stylesheets=[style], margin=0
        )
        self._spans = RadioButtonGroup(
            name="spans",
            labels=LABELS,
            active=VALUES.index(asked.span) if asked.span in VALUES else None,
            stylesheets=[style],
            margin=0,
        )
        self._hold = Toggle(name="hold", label="Hold", stylesheets=[style], margin=0)
        self._queues.on_change("value", lambda _, __, queue: page.look(queue=queue, run=""))
        self._spans.on_change("active", lambda _, __, at: page.look(span=VALUES[at]) if at is not None else None)
        self._hold.on_change("active", lambda _, __, held: self._held(held=held))
        spans = [*(f"{span:.0f}" for _, span in SPANS), "run"]
        self._queues.js_on_change("value", CustomJS(args={"name": "queue", "values": None}, code=ADDRESS))
        self._spans.js_on_change("active", CustomJS(args={"name": "span", "values": spans}, code=ADDRESS))

    @property
    def held(self) -> bool:
        """Whether the page stands still."""
        return bool(self._hold.active)

    def roots(self) -> list[Any]:
        """Return the models to place."""
        # A wall display has nobody who presses, so it has no controls.
        return [self._where] if self._wall else [self._where, self._queues, self._spans, self._hold]

    def miss(self, seq: int) -> None:
        """Show how much has changed since the page was held."""
        show(self._hold, label=f"Held, {many(seq - self._from, 'change')} missed")

    def draw(self, scene: Scene) -> None:
        """Update the name and the list of queues."""
        lab = scene.snapshot.lab or "dqlab"
        chosen = f" <span>queue</span> {strong(scene.queue.name if scene.queue.state else ALL)}" if self._wall else ""
        window = f" <span>last {text(scene.window)}</span>" if self._wall else " <span>queue</span>"
        show(self._where, text=f"{text(lab)}{chosen}{window}")
        if not self._wall:
            names = [queue.name for queue in scene.snapshot.queues]
            # A Select whose value is not among its options shows another queue than the page.
            gone = [self._queues.value] if self._queues.value and self._queues.value not in names else []
            show(self._queues, options=[("", ALL), *((name, name) for name in [*names, *gone])])

    def _held(self, *, held: bool) -> None:
        if held:
            self._from = self._page.seq
            self.miss(self._from)
        else:
            self._hold.label = "Hold"
            self._page.look()


class Needs:
    """A line for each alert, and one for dead documents of runs that have ended."""

    def __init__(self, sheet: InlineStyleSheet) -> None:
        self.root: Div = html(sheet, "needs")
        self.root.name = "needs"

    def draw(self, scene: Scene) -> None:
        """Update the lines."""
        found = scene.snapshot.attention
        lines = [_need_line(each) for each in found]
        beyond = scene.snapshot.attention_total - len(found)
        if beyond > 0:
            lines.append(f'<li class="mut">and {count(beyond)} more</li>')
        lines += _ended(scene)
        head = f"Needs you {count(len(lines) - (beyond > 0) + max(beyond, 0))}"
        body = f"<ul>{''.join(lines)}</ul>" if lines else '<span class="mut">nothing now</span>'
        show(self.root, text=f'<div class="n"><b>{head}</b>{body}</div>')


def _need_line(need: Attention) -> str:
    bad = need.severity is Severity.PROBLEM
    where = " · ".join(dict.fromkeys(each for each in (need.queue, need.run) if each and each != need.subject))
    return (
        f"<li>{glyph('dead' if bad else 'slow')}<span>{strong(need.subject)} {text(need.text)}"
        f"{f' <i class=mut>{text(need.detail)}</i>' if need.detail else ''}{_next([next_line(need)])}</span>"
        f'<i class="mut">{text(where)}</i></li>'
    )


def _next(lines: list[str]) -> str:
    """Return the lines to type next, as HTML."""
    # The page has no buttons that change a queue, so it names a line.
    return f' <span class="next">· next: {codes(lines)}</span>' if any(lines) else ""


def _ended(scene: Scene) -> list[str]:
    """Return the line about dead documents of ended runs, listed or not."""
    ended = [run for run in scene.runs if run.resting and run.counts.dead]
    # The queue counts runs that are not listed too; an older scheduler sends zeros.
    amount = max(len(ended), scene.queue.failed_runs)
    dead = max(sum(run.counts.dead for run in ended), scene.queue.dead_at_rest)
    if not amount:
        return []
    where = f"run {ended[0].name}" if amount == len(ended) == 1 else many(amount, "run")
    verb = "has" if amount == 1 else "have"
    return [
        f"<li>{glyph('dead')}<span>{strong(f'{count(dead)} dead')} in {text(where)} that {verb} ended"
        f"{_next(failed_lines(ended) if ended else ['%dq runs'])}</span></li>"
    ]


Figure = tuple[str, str, str, str, str]
"""Label, figure, unit, second line, and the class of both when they need attention."""


LONG = 7
"""Characters from which a figure is written smaller: it is never cut."""


class Overview:
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
        show(self.root, text=f'{scope}<div class="kpi">{"".join(map(_figure_html, figures))}</div>')


def _figure_html(figure: Figure) -> str:
    label, value, of, second, kind = figure
    loud, below = ("bad", "") if kind == "bad" else ("", kind)
    loud += " long" if len(value) > LONG else ""
    return (
        f'<div><div class="lab">{text(label)}</div><div class="v {loud}">{text(value)}<small>{text(of)}</small></div>'
        f'<div class="lab {below}">{text(second)}</div></div>'
    )


def _scope(scene: Scene) -> str:
    """Return the scope of the figures, as HTML."""
    if scene.run is None:
        return f"of queue {strong(scene.queue.name)}" if scene.queue.state else f"of {strong('all queues')}"
    others = len(scene.runs) - 1 + (scene.unlisted_runs or 0)
    more = f", one of {many(others + 1, 'run')}" if others else ""
    return f"of run {strong(scene.run.name)} on queue {strong(scene.run.queue)}{more}"


def _left(scene: Scene) -> Figure:
    run = scene.run
    if run is None:
        counts = scene.queue.counts
        held = f"{count(counts.waiting)} waiting, {count(counts.leased)} unacked"
        return "Left", count(counts.left), noun_of(counts.left, "message"), held, ""
    more = amount(run.units.left, run.unit) if run.units is not None else ""
    return "Left", count(run.counts.left), noun_of(run.counts.left, "document"), more, ""


def _done(scene: Scene) -> Figure:
    run, queue, at = scene.run, scene.queue, scene.snapshot.at
    if run is None:
        return _empty(scene, queue.empty_in, at)
    if run.ended is not None:
        return "Done at", moment(run.ended, now=at), "", f"took {duration(run.elapsed)}", ""
    if run.eta is None:
        return "Done at", UNKNOWN, "", run.why or _no_eta(run), ""
    return "Done at", due(run.eta.p50, now=run.at), f"in {soon(run.eta.p50 - run.at)}", sure(run.eta, run.at), ""


def _empty(scene: Scene, empty_in: float | None, at: float) -> Figure:
    """Return when the queue, or the last of all queues, will be empty."""
    queue, endless = scene.queue, () if scene.queue.state else scene.snapshot.endless
    if empty_in is None:
        why = queue.why or ("nothing waits" if not queue.counts.left else "not known yet")
        return "Empty at", UNKNOWN, "", why, ""
    # Without an estimate of their own, the named queues may be the last ones.
    names = " and ".join(endless) if len(endless) < 3 else many(len(endless), "queue")
    return "Empty at", due(at + empty_in, now=at), f"in {soon(empty_in)}", f"without {names}" if endless else "", ""


def _no_eta(run: RunStats) -> str:
    if run.state == "running":
        return last_ends(run) or "not known yet"
    return "not known yet" if run.state == "submitting" else str(run.state)


def _speed(scene: Scene) -> Figure:
    run = scene.run
    if run is not None and run.resting:
        label, value, unit, second, more = _speed_of(f"Speed, {WHOLE_RUN}", run, run.mean_rate, run.mean_units_rate)
        return label, value, unit, ", ".join(part for part in (second, with_pause(run)) if part), more
    if run is None:
        return (
            f"Out, {LAST_MINUTE}",
            rate(scene.queue.out_rate),
            "messages/s",
            f"in {rate(scene.queue.in_rate)} messages/s",
            "",
        )
    return _speed_of(f"Speed, {AT_WORK}", run, run.rate, run.units_rate)


def _speed_of(label: str, run: RunStats, documents: float | None, units: float | None) -> Figure:
    if run.units is None:
        return label, rate(documents), "documents/s", "", ""
    value, _, per_second = speed(units, run.unit).partition(" ")
    return label, value, per_second or f"{run.unit}/s", speed(documents, "documents"), ""


def _noun(scene: Scene) -> str:
    """Return the word for what a run counts, or a queue."""
    return "message" if scene.run is None else "document"


def _queues(scene: Scene) -> str:
    """Return the scope of a figure that no run has, to follow its label."""
    return "" if scene.run is None else " in queue" if scene.queue.state else " in all queues"


def _unacked(scene: Scene) -> Figure:
    unacked, held = scene.snapshot.unacked, scene.counts.leased
    age = f"oldest{_queues(scene)} {age_of(unacked.oldest[0])}" if unacked.oldest else ""
    second = age or ("none held" if not held else "")
    return "Unacked", count(held), noun_of(held, _noun(scene)), second, "warn" if unacked.past else ""


def _dead(scene: Scene) -> Figure:
    run, dead, all_dead = scene.run, scene.counts.dead, scene.queue.counts.dead
    words = [f"{share(run.dead_share, places=2)} of what ran"] if run is not None and run.counts.settled else []
    if run is not None and all_dead > dead:
        words.append(f"{count(all_dead)}{_queues(scene)}")
    return "Dead", count(dead), noun_of(dead, _noun(scene)), ", ".join(words), "bad" if dead else ""


def _consumers(scene: Scene) -> Figure:
    snapshot = scene.snapshot
    amount = scene.consumers
    of = _queues(scene) if not scene.queue.state else ""
    idle = f"{share(snapshot.idle_share, places=0)} idle{of}" if snapshot.idle_share is not None else ""
    troubles = snapshot.consumer_troubles
    words = ", ".join(filter(None, (troubles, idle)))
    waits = not amount and scene.counts.left > 0
    return "Consumers", count(amount), "", words or ("work waits" if waits else ""), "warn" if troubles or waits else ""


def _disk(scene: Scene) -> Figure:
    storage, label = scene.snapshot.storage, f"On disk{_queues(scene)}"
    if not storage.total:
        return label, UNKNOWN, "", "transient", ""
    return label, *unit(size(storage.total)), f"{share(storage.garbage_share, places=0)} garbage", ""
