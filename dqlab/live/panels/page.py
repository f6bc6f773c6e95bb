"""Run one open page: its models, its scene, and when it is updated."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bokeh.core.properties import without_property_validation
from bokeh.document import Document
from bokeh.models import CustomJS, InlineStyleSheet, TextInput, Toggle

from dqlab.clock import Clock, SystemClock
from dqlab.live.panels.changes import HeldChanges, html, show
from dqlab.live.panels.depth import DepthPanel
from dqlab.live.panels.failures import FailuresPanel
from dqlab.live.panels.head import Controls, Needs, Overview
from dqlab.live.panels.look import read, tokens
from dqlab.live.panels.markup import listed, text
from dqlab.live.panels.panel import Panel, Stage, place
from dqlab.live.panels.runs import RunsPanel
from dqlab.live.panels.scene import LATELY, USUAL, WHOLE, Readings, Request, Scene, scene, span_of_run
from dqlab.live.panels.storage import StoragePanel
from dqlab.live.panels.throughput import ThroughputPanel
from dqlab.live.panels.unacked import UnackedPanel
from dqlab.numbers import clock as spell_clock
from dqlab.stats import Snapshot

__all__ = ["PANELS", "Page"]

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
PERIOD = 250
"""Milliseconds between checks for changes."""
MOST_FAILING = 20
"""Most queues whose failures per minute are added up where all queues are shown."""
FRAME = 0.98
"""Seconds between two frames, a little less than a second, so that none is left out."""
AT_ONCE = 2
"""Panels drawn in one step, so that the scheduler is never blocked for long; a frame is sent when all are drawn."""
LOOKING = """let inside = true
let waiting = 0
const tell = () => {
  clearTimeout(waiting)
  const seen = inside && !document.hidden
  if (seen) eyes.active = true
  else waiting = setTimeout(() => { eyes.active = false }, %d)
}
new IntersectionObserver(([seen]) => { inside = seen.isIntersecting; tell() }).observe(document.documentElement)
document.addEventListener("visibilitychange", tell)
window.addEventListener("pagehide", () => clearTimeout(waiting))"""
"""Reports whether the page is visible: not in a hidden tab of the browser, nor in a hidden frame. A tab that closes is
hidden first, so a hidden page is reported only once it has lived on for a while."""
HIDDEN = 1000
"""Milliseconds that a page is hidden before it is no longer updated."""
PRESSING = """const find = (root, test) => {
  for (const each of root.querySelectorAll("*")) {
    if (test(each)) return each
    const found = each.shadowRoot && find(each.shadowRoot, test)
    if (found) return found
  }
}
const focused = () => {
  let each = document.activeElement
  while (each?.shadowRoot?.activeElement) each = each.shadowRoot.activeElement
  return each
}
document.addEventListener("click", (event) => {
  const button = event.composedPath().find((each) => each.dataset?.dq)
  const model = button && eyes.document.get_model_by_name(button.dataset.dq)
  if (!model) return
  if (button.ariaPressed) {
    button.ariaPressed = String(button.ariaPressed !== "true")
    const pressed = document.querySelectorAll('button[aria-pressed="true"]')
    model.value = [...pressed].map((each) => each.dataset.value).join(",")
    return
  }
  model.value = button.dataset.value
  const same = (each) => each.dataset?.dq === button.dataset.dq && each.dataset.word === button.dataset.word
  const until = Date.now() + 1000
  const keep = setInterval(() => {
    if (Date.now() > until) clearInterval(keep)
    if (focused() === document.body) find(document, same)?.focus()
  }, 50)
})"""
"""Passes a press of a button in our HTML to a model; the button has the model's name and the value. The HTML is then
written again, so the focus moves to the button that replaces the pressed one."""
SPEAKING = """const canvases = (root) => [...root.querySelectorAll("*")].flatMap((each) => [
  ...(each.tagName === "CANVAS" ? [each] : []), ...(each.shadowRoot ? canvases(each.shadowRoot) : []),
])
const speak = () => document.querySelectorAll("section.card").forEach((card) => {
  const answer = eyes.document.get_model_by_name(`${card.dataset.panel}-answer`)
  const words = new DOMParser().parseFromString(answer?.text ?? "", "text/html").body.textContent
  const [first, ...others] = canvases(card)
  first?.setAttribute("role", "img")
  first?.setAttribute("aria-label", `${card.getAttribute("aria-label")}: ${words}`)
  others.forEach((each) => each.setAttribute("aria-hidden", "true"))
  card.toggleAttribute("data-spoken", Boolean(first))
})
const name = () => document.querySelectorAll(".top *").forEach((each) => {
  each.shadowRoot?.querySelector("select")?.setAttribute("aria-label", "Queue")
  each.shadowRoot?.querySelectorAll(".bk-btn").forEach((button) => {
    button.setAttribute("aria-pressed", String(button.classList.contains("bk-active")))
  })
})
document.addEventListener("click", () => setTimeout(name))
setInterval(() => { speak(); name() }, 2000)"""
"""Gives each panel's drawing the panel's answer as a text alternative, once for all its layers, and gives names and
states to the controls."""
LOST = """let last = Date.now()
let written = false
const seen = () => {
  if (written) return
  last = Date.now()
  document.body.classList.toggle("dq-lost", stamp.text.includes('class="lost"'))
}
const lose = () => {
  document.body.classList.add("dq-lost")
  written = true
  stamp.text = `<span class="lost">No answer since ${new Date(last).toTimeString().slice(0, 8)}</span>`
  written = false
}
let awake = Date.now()
stamp.properties.text.change.connect(seen)
stamp.document.on_event("connection_lost", lose)
setInterval(() => {
  const now = Date.now()
  if (document.hidden || !eyes.active || stamp.text.includes("held at") || now - awake > 3000) last = now
  awake = now
  if (now - last > %d && !document.body.classList.contains("dq-lost")) lose()
}, 500)"""
"""Shows since when there is no news, also where the connection stands and the scheduler hangs: the time of day beside
the controls changes with every second. A page that was hidden or asleep has to wait as long again."""
WRITING = """const kind = Object.getPrototypeOf(Bokeh.index.get_by_id(stamp.id))
const whole = kind.rerender
const tags = (text) => (text.match(/<\\/?[a-z0-9]+/gi) ?? []).join()
kind.rerender = function () {
  const { text } = this.model
  const shape = tags(text)
  const figures = this.markup_el?.isConnected && this.dqText !== text && this.dqShape === shape
  this.dqText = text
  this.dqShape = shape
  if (figures) this.markup_el.innerHTML = text
  else whole.call(this)
}"""
"""Writes HTML into its place where only texts and attributes have changed. Bokeh would make the place again for every
change, with its style sheets, and lay out its surroundings: half of the cost of an open page."""
PATIENCE = 4000
"""Milliseconds after which a page without news is marked as stale."""


class Page:
    """Panels in a document, for as long as it is open."""

    def __init__(
        self, doc: Document, readings: Readings, asked: Request, names: Sequence[str], clock: Clock | None = None
    ) -> None:
        self.doc = doc
        self._readings = readings
        self._asked = asked
        self._clock: Clock = clock or SystemClock()
        theme = tokens(asked.theme)
        theme = replace(theme, scale=1.2) if asked.wall else theme
        sheet = InlineStyleSheet(css=read("panel.css"))
        self.theme = theme
        self._stage = Stage(theme, sheet, wall=asked.wall, alone=len(names) == 1)
        self.panels: list[Panel] = []
        self._names = tuple(names)
        self._places = {name: place(name) for name in names}
        self._answers = {name: html(sheet, "answer") for name in names}
        for name, answer in self._answers.items():
            answer.name = f"{name}-answer"
        self._listed = {name: html(sheet, "listed") for name in names}
        for name, place_of_table in self._listed.items():
            place_of_table.name = f"{name}-table"
        self._tables = TextInput(name="tables", visible=False)
        self._tables.on_change("value", lambda _, __, ___: self.look())
        self._stamp = html(sheet, "stamp")
        self._stamp.name = "stamp"
        self._eyes = Toggle(name="eyes", active=True, visible=False)
        self._eyes.on_change("active", lambda _, __, seen: self.look() if seen else None)
        self._stage.again = self.look
        self._needs = Needs(sheet)
        self._summary = Overview(sheet)
        self._controls = Controls(self, sheet, self._asked)
        self._seen: Snapshot | None = None
        self._scene: Scene | None = None
        self._frame = HeldChanges(doc)
        self._undrawn: list[Panel] = []
        self._looked = self._counted = -math.inf
        self._broken = self._completing = False
        self._build()

    @property
    def seq(self) -> int:
        """Number of the newest change."""
        return self._readings.seq

    def look(self, **changes: Any) -> None:
        """Switch to another queue or span of time, at once."""
        self._asked = replace(self._asked, **changes)
        self._seen, self._looked, self._undrawn = None, -math.inf, []
        self.update()

    def complete(self) -> None:
        """Make the next missing panel, and schedule the one after it."""
        if len(self.panels) < len(self._names) and self._is_open:
            self._make(self._names[len(self.panels)])
            self.update()
            # A step of its own for each panel: the scheduler's event loop runs in between.
            self.doc.add_next_tick_callback(self.complete)
        else:
            self._completing = False

    def update(self) -> None:
        """Take a step of drawing, four times a second, while the page is visible."""
        if not self._is_open:
            return
        if len(self.panels) < len(self._names) and not self._completing:
            self._completing = True
            self.doc.add_next_tick_callback(self.complete)
        try:
            # Without validation: Bokeh would check each value of each column, in the scheduler's event loop.
            without_property_validation(self._update)()
        except Exception:
            # Once, and not four times a second until someone closes the page.
            if not self._broken:
                logger.exception("event=panels_broken")
            self._broken = True
            since = f" since {spell_clock(self._seen.at)}" if self._seen is not None else ""
            show(self._stamp, text=f'<span class="lost">No answer{since}</span>')
        else:
            self._broken = False

    def _update(self) -> None:
        now = self._clock.monotonic()
        if self._controls.held:
            if now - self._counted >= FRAME:
                self._counted = now
                self._controls.miss(self._readings.seq)
                if self._seen is not None:
                    show(self._stamp, text=f'<span class="warn">held at {spell_clock(self._seen.at)}</span>')
            return
        first = self._seen is None
        with self._frame:
            if not self._undrawn:
                self._begin(now)
            # The first frame is drawn whole: a new page must not fill up piece by piece.
            step = len(self._undrawn) if first else AT_ONCE
            due, self._undrawn = self._undrawn[:step], self._undrawn[step:]
            for panel in due:
                panel.draw(self._shown)
                chosen = panel.name in self._tables.value.split(",")
                shown = listed(panel.table(self._shown), panel.title) if chosen else ""
                show(self._listed[panel.name], text=shown)
        if not self._undrawn:
            self._frame.send()

    def _begin(self, now: float) -> None:
        """Begin a frame, if something has changed."""
        if now - self._looked < FRAME:
            return
        snapshot = self._readings.snapshot(self._asked.queue, self._asked.run)
        self._looked = now
        # By identity: `Readings` returns the same Snapshot while it is valid.
        if snapshot is self._seen:
            return
        self._seen, self._scene = snapshot, self._scene_of(snapshot)
        self._stage.axis.move(self._scene)
        self._undrawn = list(self.panels)
        self._write(self._scene)

    @property
    def _shown(self) -> Scene:
        assert self._scene is not None
        return self._scene

    def _write(self, seen: Scene) -> None:
        """Update words and figures."""
        for panel in self.panels:
            show(self._answers[panel.name], text=self._answer(panel, seen))
        if not self._stage.alone:
            self._needs.draw(seen)
            self._summary.draw(seen)
            self._controls.draw(seen)
        show(self._stamp, text=f"live · {spell_clock(seen.snapshot.at)}")

    def _answer(self, panel: Panel, seen: Scene) -> str:
        """Return a panel's answer, with the queue where no control names it."""
        scope = f"queue {seen.queue.name}" if seen.queue.state else "all queues"
        return text(f"{panel.answer(seen)} · {scope}" if self._stage.alone else panel.answer(seen))

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
            history = replace(history, classes=self._readings.classes(failing[:MOST_FAILING], history.end))
        return scene(snapshot, history, span, asked.queue, asked.run)

    @property
    def _is_open(self) -> bool:
        """Whether a browser is connected, as far as that is known, and shows the page."""
        session = getattr(self.doc.session_context, "session", None)
        return bool(self._eyes.active) and (session is None or getattr(session, "connection_count", 1) > 0)

    def _make(self, name: str) -> None:
        panel = PANELS[name](self._stage)
        self.panels.append(panel)
        if self._scene is not None:
            show(self._answers[name], text=self._answer(panel, self._scene))
            panel.draw(self._scene)
        self._places[name].children = panel.parts

    def _build(self) -> None:
        # Only the first panel: the others are made in steps of their own once the page is visible, so that the first
        # picture does not wait for them, and the scheduler is not blocked.
        self._make(self._names[0])
        self.update()
        # Frozen: Bokeh would compute the models of the document again after each root.
        with self.doc.models.freeze():
            for root in self._roots():
                self.doc.add_root(root)
        self.doc.js_on_event("document_ready", CustomJS(args={"eyes": self._eyes}, code=LOOKING % HIDDEN))
        self.doc.js_on_event("document_ready", CustomJS(args={"eyes": self._eyes}, code=PRESSING))
        self.doc.js_on_event("document_ready", CustomJS(args={"stamp": self._stamp}, code=WRITING))
        self.doc.js_on_event("document_ready", CustomJS(args={"eyes": self._eyes}, code=SPEAKING))
        self.doc.js_on_event(
            "document_ready", CustomJS(args={"stamp": self._stamp, "eyes": self._eyes}, code=LOST % PATIENCE)
        )
        self.doc.add_periodic_callback(self.update, PERIOD)

    def _roots(self) -> list[Any]:
        panels = [
            *self._places.values(),
            *self._answers.values(),
            *self._listed.values(),
            self._tables,
            self._eyes,
            self._stamp,
        ]
        if self._stage.alone:
            return panels
        return [*panels, self._needs.root, self._summary.root, *self._controls.roots()]
