"""Serve pages on the dashboard of a running scheduler, and run one open page: controls, head, panels, pictures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from bokeh.application import Application
from bokeh.application.handlers import FunctionHandler
from bokeh.application.handlers.document_lifecycle import DocumentLifecycleHandler
from bokeh.document import Document
from bokeh.models import CustomJS, InlineStyleSheet, RadioButtonGroup, Select
from bokeh.server.contexts import ApplicationContext
from bokeh.server.tornado import BokehTornado
from bokeh.server.urls import per_app_patterns
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.scheduler import template_variables

from dqlab.live.details import needs
from dqlab.live.lab_picture import lab_figures, queue_figures
from dqlab.live.panels.figures import DepthPanel, FailuresPanel, RunsPanel, StoragePanel, ThroughputPanel, UnackedPanel
from dqlab.live.panels.parts import (
    Panel,
    Stage,
    code,
    colours,
    column,
    html,
    look,
    page_template,
    read,
    show,
    strong,
    text,
    times,
    variables,
)
from dqlab.live.panels.scene import (
    LATELY,
    SPANS,
    USUAL,
    WHOLE,
    Feed,
    Readings,
    Request,
    Scene,
    feed_of,
    request,
    scene,
    span_of_run,
)
from dqlab.live.run_picture import run_figures
from dqlab.live.views import Figure, Need
from dqlab.numbers import clock as spell_clock
from dqlab.numbers import count
from dqlab.stats import Snapshot
from dqlab.stats.attention import at_rest
from dqlab.texts import as_word

logger = logging.getLogger("dqlab.panels")

PANELS: dict[str, type[Panel]] = {
    "runs": RunsPanel,
    "depth": DepthPanel,
    "unacked": UnackedPanel,
    "throughput": ThroughputPanel,
    "failures": FailuresPanel,
    "storage": StoragePanel,
}
"""Panels by their names in addresses, in the order of the page."""
PERIOD = 1000
"""Milliseconds between two pictures."""
MOST_FAILING = 20
"""Most queues whose failures per minute are added up where all queues are shown."""
MOST_NEEDS = 8
"""Most lines about what needs the user."""
ALL = "all queues"
LONG = 7
"""Characters from which a figure is written smaller: it is never cut."""
ADDRESS = """const url = new URL(window.location)
url.searchParams.set(name, String(values === null ? cb_obj.value : values[cb_obj.active]))
window.history.replaceState(null, "", url)"""
"""Keeps the address in step, so that a reload shows the same."""
HEARD = """window.dqHeard = Date.now()
document.body.classList.toggle("dq-lost", cb_obj.text.startsWith("No answer"))"""
LOST = 'stamp.text = stamp.text.replace(/^live/, "No answer since")'
"""Says since when there is no news. The time of day beside the controls changes with every picture, which also shows
where the connection stands and the scheduler hangs."""
WATCHING = """window.dqHeard = Date.now()
setInterval(() => { if (stamp.text.startsWith("live") && Date.now() - window.dqHeard > %d) { %s } }, 1000)"""
PATIENCE = 5000
"""Milliseconds after which a page without news is marked as stale."""


class Page:
    """Panels in a document, for as long as it is open."""

    def __init__(self, doc: Document, readings: Readings, asked: Request, names: Sequence[str]) -> None:
        theme = colours(asked.theme)
        self.doc, self._readings, self._asked = doc, readings, asked
        self.stage = stage = Stage(theme, alone=len(names) == 1)
        self.panels = [PANELS[name](stage) for name in names]
        self._words = {name: html(stage.sheet, "words") for name in names}
        self._head = {name: html(stage.sheet, name) for name in ("where", "needs", "summary", "stamp")}
        self._queues, self._spans = self._controls(stage.sheet)
        self._seen: Snapshot | None = None
        self._broken = False
        doc.theme = look(theme)
        self.update()
        columns = [column(panel.name, [self._words[panel.name], *panel.parts]) for panel in self.panels]
        # Frozen: Bokeh would look through all models again after each root.
        with doc.models.freeze():
            for root in (*columns, *self._head.values(), self._queues, self._spans):
                doc.add_root(root)
        stamp = self._head["stamp"]
        stamp.js_on_change("text", CustomJS(code=HEARD))
        doc.js_on_event("document_ready", CustomJS(args={"stamp": stamp}, code=WATCHING % (PATIENCE, LOST)))
        doc.js_on_event("connection_lost", CustomJS(args={"stamp": stamp}, code=LOST))
        # Dask's own: it ends with the session, and keeps no page alive.
        add_periodic_callback(doc, self, PERIOD)

    def look(self, **changes: Any) -> None:
        """Switch to another queue or span of time, at once."""
        self._asked = replace(self._asked, **changes)
        self._seen = None
        self.update()

    def update(self) -> None:
        """Draw what has changed since the last picture."""
        stamp = self._head["stamp"]
        try:
            snapshot = self._readings.snapshot(self._asked.queue, self._asked.run)
            # By identity: `Readings` returns the same Snapshot while it is valid.
            if snapshot is not self._seen:
                self._draw(self._scene_of(snapshot))
                self._seen, self._broken = snapshot, False
                show(stamp, text=f"live {spell_clock(snapshot.at)}")
        except Exception:
            # Once, and not every second until someone closes the page.
            if not self._broken:
                logger.exception("event=panels_broken")
            self._broken = True
            since = f" since {spell_clock(self._seen.at)}" if self._seen is not None else ""
            show(stamp, text=f"No answer{since}")

    def _draw(self, seen: Scene) -> None:
        start, end = times(seen, [seen.start, seen.end])
        show(self.stage.range, start=float(start), end=float(end))
        for panel in self.panels:
            panel.draw(seen)
            show(self._words[panel.name], text=self._title(panel, seen))
        if self.stage.alone:
            return
        show(self._head["where"], text=text(seen.snapshot.lab or "dqlab"))
        show(self._head["needs"], text=_needs(seen))
        show(self._head["summary"], text=_summary(seen))
        names = [queue.name for queue in seen.snapshot.queues]
        # A Select whose value is not among its options shows another queue than the page.
        gone = [self._asked.queue] if self._asked.queue and self._asked.queue not in names else []
        show(self._queues, options=[("", ALL), *((name, name) for name in [*names, *gone])])

    def _title(self, panel: Panel, seen: Scene) -> str:
        """Return the title of a panel, its answer, and its figures."""
        scope = f"queue {seen.queue.name}" if seen.queue.state else ALL
        answer = panel.answer(seen) + (f" · {scope}" if self.stage.alone else "")
        head = f"<h2>{text(panel.title)}</h2><span>{text(answer)}</span>"
        return f'<div class="hd">{head}</div><div class="facts">{panel.facts(seen)}</div>'

    def _scene_of(self, snapshot: Snapshot) -> Scene:
        asked = self._asked
        span = asked.span
        if span in (WHOLE, LATELY):
            span = span_of_run(snapshot, asked.queue, asked.run)
        if asked.span == LATELY:
            span = min(span, USUAL) if any(asked.queue in ("", run.queue) for run in snapshot.runs) else USUAL
        history = self._readings.history(span, asked.queue, asked.run)
        # The history of all queues has no classes.
        if not history.classes:
            failing = [queue.name for queue in snapshot.queues if queue.counts.dead or queue.retrying]
            history = replace(history, classes=self._readings.classes(failing[:MOST_FAILING]))
        return scene(snapshot, history, span, asked.queue, asked.run)

    def _controls(self, sheet: InlineStyleSheet) -> tuple[Select, RadioButtonGroup]:
        """Return what changes the view, and nothing else: another queue, another span of time."""
        asked, place = self._asked, {"stylesheets": [sheet], "margin": 0}
        chosen = [(asked.queue, asked.queue)] if asked.queue else []
        values = [*(span for _, span in SPANS), WHOLE]
        queues = Select(name="queues", title="queue", value=asked.queue, options=[("", ALL), *chosen], **place)
        spans = RadioButtonGroup(
            name="spans",
            labels=[*(label for label, _ in SPANS), "whole run"],
            active=values.index(asked.span) if asked.span in values else None,
            **place,
        )
        queues.on_change("value", lambda _, __, queue: self.look(queue=queue, run=""))
        spans.on_change("active", lambda _, __, at: self.look(span=values[at]) if at is not None else None)
        spelt = [*(f"{span:.0f}" for _, span in SPANS), "run"]
        queues.js_on_change("value", CustomJS(args={"name": "queue", "values": None}, code=ADDRESS))
        spans.js_on_change("active", CustomJS(args={"name": "span", "values": spelt}, code=ADDRESS))
        return queues, spans


def _needs(seen: Scene) -> str:
    """Return a line for each alert, and for dead documents of runs that have ended."""
    snapshot = seen.snapshot
    every = snapshot.runs_total == len(snapshot.runs)
    resting = [rests for queue in snapshot.queues if (rests := at_rest(queue, snapshot.runs, all_runs=every))]
    found = needs([*snapshot.attention, *resting], (), MOST_NEEDS, several=True)
    total = snapshot.attention_total + len(resting)
    lines = [_need(each) for each in found]
    lines += [f"<li><span>and {count(total - len(found))} more</span></li>"] if total > len(found) else []
    body = f"<ul>{''.join(lines)}</ul>" if lines else "<span>nothing now</span>"
    return f"<h2>Needs you {count(total)}</h2>{body}"


def _need(need: Need) -> str:
    # The page has no buttons that change a queue, so it names a line.
    line = need.line or (f"%dq failed {as_word(need.run)}" if need.run else f"lab.queue({need.queue!r}).dead()")
    next_one = f" · next: {code(line)}" if line else ""
    return (
        f'<li><i class="key {"dead" if need.tone == "bad" else "leased"}"></i><span>{strong(need.subject)} '
        f"{text(need.text)} <i>{text(need.detail)}</i>{next_one}</span><i>{text(need.queue)}</i></li>"
    )


def _summary(seen: Scene) -> str:
    """Return the headline figures of the run and of the queue, or of all queues."""
    rows = [(f"run {seen.run.name}", run_figures(seen.run))] if seen.run is not None else []
    if seen.queue.state:
        rows.append((f"queue {seen.queue.name}", queue_figures(seen.snapshot, seen.queue)))
    else:
        rows.append((ALL, lab_figures(seen.snapshot)))
    return "".join(
        f'<h2>{text(of)}</h2><div class="kpi">{"".join(map(_figure, figures))}</div>' for of, figures in rows
    )


def _figure(figure: Figure) -> str:
    long = " long" if len(figure.value) > LONG else ""
    second = ", ".join(part for part in (figure.second, figure.extra) if part)
    return (
        f'<div><p>{text(figure.label)}</p><p class="v {figure.tone}{long}">{text(figure.value)}'
        f"<small>{text(figure.unit)}</small></p><p>{text(second)}</p></div>"
    )


def serve(scheduler: Any, applications: Mapping[str, Callable[..., Any]], page: str) -> None:
    """Serve applications that are not served yet, and name them in the navigation."""
    servers = getattr(scheduler.http_application, "applications", ())
    tornado = next((app for app in servers if isinstance(app, BokehTornado)), None)
    if tornado is None:
        raise ImportError("the scheduler has no Bokeh dashboard, so it shows no panels")
    # Dask makes these lists once for each scheduler: changed in place, they reach pages opened later.
    shown = template_variables(scheduler)
    for url, make in applications.items():
        if url not in tornado.app_paths:
            _add(tornado, url, partial(make, scheduler, {"prefix": f"{tornado.prefix}/", **shown}))
    # `page` gets a place in the bar; the others are found under "More...".
    name, pages, plots = page.strip("/"), shown["pages"], shown["plots"]
    if name not in pages:
        pages.insert(min(1, len(pages)), name)
    there = {plot["url"] for plot in plots}
    plots.extend(
        {"url": url.strip("/"), "name": f"dq {url.rsplit('-', 1)[-1].title()}"}
        for url in applications
        if url != page and url.strip("/") not in there
    )
    plots.sort(key=lambda plot: plot["name"].lower())


def _add(tornado: Any, url: str, make: Callable[[Any], Any]) -> None:
    """Add an application, as Bokeh's server does with those that it begins with."""
    application = Application(FunctionHandler(make, trap_exceptions=False))
    application.add(DocumentLifecycleHandler())
    context = ApplicationContext(application, io_loop=tornado._loop, url=url)
    base = f"{tornado.prefix}{url}"
    settings = {"application_context": context, "bokeh_websocket_path": f"{base}/ws"}
    tornado.add_handlers(r".*", [(base + path, view, settings) for path, view, *_ in per_app_patterns])
    tornado._applications[url] = context
    tornado._loop.add_callback(context.run_load_hook)


PAGE = "/dq"
ABSENT = (
    "dqlab is not on this scheduler yet. In a notebook, dq.connect({address!r}) puts it there; "
    "then open this page again."
)

# Weak: a scheduler that ended must not stay alive for its pages.
_readings: WeakKeyDictionary[Any, Readings] = WeakKeyDictionary()


def draw_from(scheduler: Any, feed: Feed) -> None:
    """Make the pages of a scheduler draw a feed."""
    _readings[scheduler] = Readings(feed)


def forget(scheduler: Any) -> None:
    """Make new pages of a scheduler show that there is nothing to draw."""
    _readings.pop(scheduler, None)


def _readings_of(scheduler: Any) -> Readings | None:
    feed = None if scheduler in _readings else feed_of(scheduler)
    if feed is not None:
        draw_from(scheduler, feed)
    return _readings.get(scheduler)


def open_page(names: Sequence[str], scheduler: Any, extra: dict[str, Any], doc: Document) -> Page | None:
    """Fill a document with panels, or with one sentence where there is nothing to draw yet."""
    context = doc.session_context
    asked = request(context.request.arguments if context is not None and context.request is not None else {})
    alone = len(names) == 1
    doc.title = f"dqlab {names[0]}" if alone else "dqlab"
    doc.template = page_template()
    readings = _readings_of(scheduler)
    opened = Page(doc, readings, asked, names) if readings is not None else None
    doc.template_variables.update(extra)
    doc.template_variables.update(
        css=read("page.css"),
        theme=asked.theme,
        variables=variables(asked.theme),
        panels={name: PANELS[name].title for name in names} if opened is not None else {},
        absent=ABSENT.format(address=getattr(scheduler, "address", "")),
        alone=alone,
        wall=asked.wall,
    )
    return opened


APPLICATIONS = {
    PAGE: partial(open_page, list(PANELS)),
    **{f"/individual-dq-{name}": partial(open_page, [name]) for name in PANELS},
}
"""By address, each called with (scheduler, extra, document), as Dask's own."""
