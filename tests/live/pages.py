"""Widgets alone in a page of a real browser, with a model that only records."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from dqlab.live.views import QueuesView, RunView

__all__ = ["DARK", "LIGHT", "PAGE", "START", "Show", "as_sent", "overflowing"]

Show = Callable[..., Any]

LIGHT = """--jp-ui-font-family: Helvetica, Arial, sans-serif; --jp-layout-color1: #fff;
--jp-ui-font-color1: rgba(0,0,0,.87); --jp-ui-font-color2: rgba(0,0,0,.6); --jp-brand-color1: #1565c0;
--jp-border-color1: #bdbdbd; --jp-border-color2: #e0e0e0; --jp-border-color3: #eee; background: #fff"""
DARK = """--jp-ui-font-family: Helvetica, Arial, sans-serif; --jp-layout-color1: #1c1c1c;
--jp-ui-font-color1: rgba(255,255,255,.88); --jp-ui-font-color2: rgba(255,255,255,.62); --jp-brand-color1: #82b6f5;
--jp-border-color1: #616161; --jp-border-color2: #3d3d3d; --jp-border-color3: #2a2a2a; background: #111"""

PAGE = """<!doctype html><meta charset="utf-8"><style>%(css)s</style>
<body data-jp-theme-light="%(light)s" style="margin:0;padding:12px;%(theme)s"><div id="out"></div></body>"""
START = """async ([source, state]) => {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const { default: widget } = await import(url);
  const listeners = new Set();
  window.sent = [];
  window.model = {
    get: (name) => window.state[name],
    send: (message) => window.sent.push(message),
    on: (name, listener) => listeners.add([name, listener]),
    off: (name, listener) => listeners.forEach((each) => each[1] === listener && listeners.delete(each)),
  };
  window.listeners = listeners;
  window.update = (parts) => {
    const before = window.state;
    window.state = { ...before, answered: before.answered + 1, ...parts };
    const changed = Object.keys(window.state).filter((name) => window.state[name] !== before[name]);
    listeners.forEach(([name, listener]) => changed.includes(name.replace("change:", "")) && listener());
  };
  // A kernel that runs dates its numbers every second; the widget shows it when one stops.
  const beat = () => listeners.forEach(([name, listener]) => name === "change:numbers" && listener());
  window.beats = setInterval(beat, 500);
  window.state = state;
  window.cleanup = widget.render({ model: window.model, el: document.getElementById("out") });
}"""


def as_sent(view: RunView | QueuesView, *, first: bool = False) -> Any:
    """The parts of a view as they look after their way through JSON; the first ones with the kind of widget."""
    kind = "run" if isinstance(view, RunView) else "queue" if view.single else "lab"
    return json.loads(json.dumps({**({"kind": kind, "answered": 0} if first else {}), **view.parts()}))


def overflowing(page: Any) -> list[str]:
    """Elements that stick out of the card, and the page itself if it scrolls sideways."""
    script = """async () => {
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      const card = document.querySelector(".dq-card").getBoundingClientRect();
      const out = [...document.querySelectorAll(".dq-card *")].filter((each) => {
        const box = each.getBoundingClientRect();
        if (each.closest(".dq-ell, td, .dq-said, [role=menu]") || !box.width) return false;
        return box.right > card.right + 0.5 || box.left < card.left - 0.5;
      }).map((each) => each.outerHTML.slice(0, 80));
      if (document.documentElement.scrollWidth > innerWidth) out.push("page scrolls sideways");
      return out;
    }"""
    return page.evaluate(script)
