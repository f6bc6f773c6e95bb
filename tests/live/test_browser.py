"""The run widget in a real browser, alone in a page, with a model that only records."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from dqlab.live.html import run_html
from dqlab.live.rows import Silence, connecting_view, run_view
from dqlab.live.lab_view import QueuesView
from dqlab.live.view import RunView
from dqlab.live.widget import script, styles
from dqlab.stats import ClassStats, Counts, RunState, RunStats
from tests.chromium import chromium, needs_chromium

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
  window.state = state;
  window.cleanup = widget.render({ model: window.model, el: document.getElementById("out") });
}"""

Show = Callable[..., Any]

pytestmark = [pytest.mark.browser, needs_chromium]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def show(browser: Any) -> Iterator[Show]:
    """Open a page with the widget drawing a view; fails on any error in the page."""
    pages, errors = [], []

    def open_page(view: RunView, *, width: int = 1000, dark: bool = False) -> Any:
        page = browser.new_page(viewport={"width": width, "height": 600})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content(PAGE % {"css": styles(), "light": str(not dark).lower(), "theme": DARK if dark else LIGHT})
        page.evaluate(START, [script(), as_sent(view, first=True)])
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []


def as_sent(view: RunView | QueuesView, *, first: bool = False) -> Any:
    """The parts of a view as they look after their way through JSON; the first ones with the kind of widget."""
    kind = "run" if isinstance(view, RunView) else "queue" if view.single else "lab"
    return json.loads(json.dumps({**({"kind": kind, "answered": 0} if first else {}), **view.parts()}))


def overflowing(page: Any) -> list[str]:
    """Elements that stick out of the card, and the page itself if it scrolls sideways."""
    script = """() => {
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


@pytest.mark.parametrize("width", [320, 388, 400, 410, 700, 1000, 1600])
def test_nothing_sticks_out_at_any_width(show: Show, running: RunStats, width: int) -> None:
    """A number that is cut is a wrong number."""
    page = show(run_view(running), width=width)

    assert overflowing(page) == []
    assert page.locator(".dq-v").first.inner_text().startswith("315,894")
    cut = "[...document.querySelectorAll('.dq-v, .dq-s')].filter((v) => v.scrollWidth > v.clientWidth).length"
    assert page.evaluate(cut) == 0


def test_names_of_300_characters_shorten_the_name_not_the_figures(show: Show, running: RunStats) -> None:
    """Names are shortened at the end, figures never."""
    page = show(run_view(replace(running, name="n" * 300, queue="q" * 300)), width=400)

    assert overflowing(page) == []
    assert page.get_by_role("button", name="Pause").is_visible()


def test_chip_says_the_state_and_is_announced(show: Show, running: RunStats, done: RunStats) -> None:
    """A screen reader hears a change of state, and a quarter of the way, but no tick."""
    page = show(run_view(running))
    chip = page.get_by_role("status")
    assert chip.inner_text().startswith("Running")
    assert chip.text_content() == "Running50 percent of pages settled"

    page.evaluate("view => update(view)", as_sent(run_view(done)))

    assert chip.inner_text().startswith("Done, 212 dead")
    assert page.get_by_role("button", name="Pause").count() == 0


def test_pause_sends_one_message_and_waits_for_the_next_view(show: Show, running: RunStats) -> None:
    """A second press of a button that did not react yet must not do anything."""
    page = show(run_view(running))

    page.get_by_role("button", name="Pause").click()

    assert page.evaluate("sent") == [{"command": "pause"}]
    assert page.get_by_role("button", name="Pause").is_disabled()
    page.evaluate("view => update(view)", as_sent(run_view(replace(running, state=RunState.PAUSED))))
    assert page.get_by_role("button", name="Resume").is_enabled()


def test_cancel_asks_in_place_with_the_safe_answer_in_focus(show: Show, running: RunStats) -> None:
    """Enter, pressed out of habit, keeps the run."""
    page = show(run_view(running))

    page.get_by_role("button", name="Cancel run…").click()

    dialog = page.get_by_role("alertdialog")
    assert "Cancel 16,121 documents? 31,877 results stay." in dialog.inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Keep running"
    assert page.get_by_role("button", name="Pause").is_disabled()
    page.keyboard.press("Enter")
    assert not dialog.is_visible()
    assert page.evaluate("sent") == []
    assert page.evaluate("document.activeElement.textContent") == "Cancel run…"


def test_the_button_that_cancels_repeats_the_count(show: Show, running: RunStats) -> None:
    """What will be lost is said on the button itself, and stays true while the run goes on."""
    page = show(run_view(running))
    page.get_by_role("button", name="Cancel run…").click()

    later = replace(running.counts, ready=15_000)
    page.evaluate("view => update(view)", as_sent(run_view(replace(running, counts=later))))
    page.get_by_role("button", name="Cancel 15,275").click()

    assert page.evaluate("sent") == [{"command": "cancel"}]


def test_narrow_widget_keeps_cancel_behind_a_menu(show: Show, running: RunStats) -> None:
    """At 400 px there is room for Pause and a menu; Escape closes what was opened and gives the focus back."""
    page = show(run_view(running), width=400)
    more = page.get_by_role("button", name="More")
    assert not page.get_by_role("button", name="Cancel run…").is_visible()

    more.click()
    assert page.evaluate("document.activeElement.textContent") == "Cancel run…"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "More"
    more.click()
    page.get_by_role("menuitem", name="Cancel run…").click()

    assert page.evaluate("document.activeElement.textContent") == "Keep running"
    assert overflowing(page) == []


def test_failures_table_lists_classes_and_can_be_closed(show: Show, running: RunStats) -> None:
    """What fails and why is readable without a click."""
    page = show(run_view(running))
    rows = page.locator("tbody tr")
    assert rows.count() == 4
    assert rows.first.locator("td").all_inner_texts() == [
        "PdfError",
        "invalid xref table",
        "parse:31",
        "128",
        "140",
        "acme/2021/inv-30991.pdf",
    ]

    toggle = page.get_by_role("button", name="Failures 4 classes")
    assert toggle.get_attribute("aria-expanded") == "true"
    toggle.click()

    assert toggle.get_attribute("aria-expanded") == "false"
    assert not page.locator("table").is_visible()


GREY = """(each) => { const [r, g, b] = getComputedStyle(each).%s.match(/[\\d.]+/g).map(Number);
  return Math.max(r, g, b) - Math.min(r, g, b) < 16; }"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_zero_is_grey_with_its_glyph(show: Show, running: RunStats, done: RunStats, dark: bool) -> None:
    """A red cross before "dead 0" frightens at the very moment when all is well."""
    page = show(run_view(replace(done, counts=Counts(acked=3), units=None, classes=())), dark=dark)
    dead = page.locator(".dq-leg > span", has_text="dead")

    assert dead.locator("path").evaluate(GREY % "stroke")
    assert dead.locator("b").evaluate(GREY % "color")
    assert not page.locator(".dq-leg > span", has_text="acked").locator("circle").evaluate(GREY % "fill")

    retried = replace(running.classes[0], dead=0, retrying=3)
    page.evaluate("view => update(view)", as_sent(run_view(replace(running, classes=(retried, running.classes[1])))))

    assert page.locator("tbody tr").first.locator("td").nth(3).evaluate(GREY % "color")
    assert not page.locator("tbody tr").last.locator("td").nth(3).evaluate(GREY % "color")


def test_rows_do_not_move_under_the_pointer(show: Show, running: RunStats) -> None:
    """A row that moves while it is read, or clicked, is another row."""
    page = show(run_view(running))
    page.locator("tbody tr").first.hover()

    turned = replace(running, classes=running.classes[::-1])
    page.evaluate(
        "view => { const real = performance.now(); performance.now = () => real + 60000; update(view); }",
        as_sent(run_view(turned)),
    )
    assert page.locator("tbody td").first.inner_text() == "PdfError"
    page.mouse.move(1, 1)
    page.evaluate("view => update(view)", as_sent(run_view(turned)))

    assert page.locator("tbody td").first.inner_text() == "WorkerKilled"


def test_markup_in_names_and_messages_stays_text(show: Show, running: RunStats) -> None:
    """Messages come from documents; a document must not run code in the notebook."""
    evil = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
    entry = ClassStats(evil, evil, evil, evil, 1, 0, running.at, running.at, evil)
    page = show(run_view(replace(running, name=evil, queue=evil, why=evil, classes=(entry,))))

    assert page.evaluate("window.hacked") is None
    assert page.locator("img, script").count() == 0
    assert "<img" in page.locator("h1").inner_text()


def test_silence_keeps_the_numbers_grey_and_dated(show: Show, running: RunStats) -> None:
    """Old numbers never pose as new ones."""
    page = show(run_view(running, silence=Silence(38, 8)))

    assert page.get_by_role("status").inner_text().startswith("No answer")
    assert "No answer for 38 s. Trying again in 8 s." in page.locator(".dq-notice").inner_text()
    assert "as of 14:22:07" in page.locator(".dq-sub").inner_text()
    assert page.locator(".dq-bar").evaluate("each => getComputedStyle(each).filter") == "grayscale(1)"
    page.get_by_role("button", name="Retry now").click()
    assert page.evaluate("sent") == [{"command": "retry"}]


def test_a_state_that_exists_is_at_least_two_pixels_wide(show: Show, running: RunStats) -> None:
    """64 of 48,210 in flight is little, but not nothing."""
    page = show(run_view(replace(running, units=None)), width=400)

    widths = page.evaluate("[...document.querySelectorAll('.dq-bar i')].map((i) => i.getBoundingClientRect().width)")
    assert len(widths) == 5
    assert min(widths) >= 2


@pytest.mark.parametrize("width", [400, 1000])
def test_last_picture_fits_its_page(show: Show, done: RunStats, width: int) -> None:
    """Long names of documents break; a figure beyond the edge would be lost in print."""
    long = replace(done.classes[0], key="a_document_without_a_single_space_in_its_name.pdf")
    page = show(run_view(done), width=width)

    page.evaluate("html => { out.innerHTML = html; }", run_html(run_view(replace(done, classes=(long,)))))

    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_closing_the_view_leaves_no_listener(show: Show, running: RunStats) -> None:
    """Outputs are cleared and drawn again all day; each must take its listener with it."""
    page = show(run_view(running))

    page.evaluate("cleanup()")

    assert page.evaluate("listeners.size") == 0


STATES = [
    RunState.SUBMITTING,
    RunState.PAUSED,
    RunState.WAITING,
    RunState.STOPPED,
    RunState.INCOMPLETE,
    RunState.CANCELLED,
]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_state_fits_and_is_readable(show: Show, running: RunStats, done: RunStats, dark: bool) -> None:
    """Text has at least 4.5:1 contrast on its ground in both themes, in every state."""
    stats = [replace(running, state=state, why="because of a reason") for state in STATES]
    stats[0] = replace(stats[0], total=None)
    stats += [running, done, replace(running, total=0, counts=Counts(), units=None, state=RunState.DONE)]
    views = [run_view(each) for each in stats]
    views += [run_view(running, silence=Silence(38, 8)), connecting_view("parse-invoices")]
    page = show(views[0], width=400, dark=dark)
    for view in views:
        page.evaluate("view => update(view)", as_sent(view))
        assert overflowing(page) == [], view.face
        assert page.evaluate(POOR_CONTRAST) == [], view.face
        assert page.get_by_role("status").inner_text().startswith(view.chip)


POOR_CONTRAST = """() => {
  const parse = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const linear = (x) => x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = c.map((x) => linear(x / 255));
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => { const own = parse(getComputedStyle(e).backgroundColor);
    return own[3] === 1 || !e.parentElement ? own : over(own, ground(e.parentElement)); };
  const poor = [];
  for (const e of document.querySelectorAll(".dq-card *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || !e.getClientRects().length || e.disabled) continue;
    const back = ground(e), ink = over(parse(getComputedStyle(e).color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) poor.push(`${e.className} ${e.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""
