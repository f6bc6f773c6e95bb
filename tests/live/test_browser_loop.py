"""Fix, retry, done: what the widget of a run offers while it runs and after its end, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.live.details import examples
from dqlab.live.next_lines import NotebookNames, run_here
from dqlab.live.run_picture import Focus, Standing, run_view
from dqlab.live.views import RunView
from dqlab.stats import Counts, History, RunState, RunStats, Snapshot, StopReason
from tests.kit.chromium import needs_chromium
from tests.live.conftest import CODE
from tests.live.pages import Show, as_sent

pytestmark = [pytest.mark.browser, needs_chromium]

RESULTS = '# without the documents that have no result: 212 dead\nrun.results(errors="skip").to_frame()'
NAMES = NotebookNames(run="run", magic=True, cluster="tcp://10.0.0.2:8786")
LETTER = SimpleNamespace(id=7, key="lux/contract-7.pdf", deliveries=4, version="a41f9c", traceback="Traceback")
ASKED = """() => { window.asked = [];
  for (const name of ['dqlab-insert', 'dqlab-open'])
    addEventListener(name, (event) => { asked.push([name, event.detail]); event.preventDefault(); }); }"""
BOXES = """() => Object.fromEntries(['header', '.dq-news', '.dq-prog', '.dq-stats', '.dq-two', 'footer'].map((name) => {
  const { top, bottom } = document.querySelector(`.dqlab ${name}`).getBoundingClientRect();
  return [name, [top, bottom]];
}))"""


@pytest.fixture
def focus(snapshot: Snapshot, past: History) -> Focus:
    return Focus(snapshot, past, CODE, names=NAMES)


@pytest.fixture
def ended(done: RunStats, focus: Focus) -> RunView:
    """The end, 212 dead, and the function was redefined."""
    return run_view(done, focus._replace(newer=True))


def moved(page: Any, before: dict[str, list[float]]) -> list[str]:
    """Parts that are elsewhere, by more than a browser rounds."""
    now = page.evaluate(BOXES)
    pairs = {name: zip(now[name], places, strict=True) for name, places in before.items()}
    return [name for name, ends in pairs.items() if any(abs(one - other) > 1 for one, other in ends)]


def update(page: Any, view: RunView) -> None:
    page.evaluate("async (view) => { update(view); await new Promise(requestAnimationFrame); }", as_sent(view))


@pytest.mark.parametrize("width", [420, 1000, 1100])
def test_nothing_jumps_when_the_state_changes(
    show: Show, running: RunStats, done: RunStats, focus: Focus, width: int
) -> None:
    """What is read, or about to be pressed, stays where it is: paused, asked, ended, retried."""
    assert focus.snapshot is not None
    others = tuple(each for each in focus.snapshot.consumers if each.name != "c5")  # without a notice of what c5 holds
    focus = focus._replace(snapshot=replace(focus.snapshot, consumers=others))
    page = show(run_view(running, focus), width=width)
    page.evaluate("async () => { await new Promise(requestAnimationFrame); }")
    before = page.evaluate(BOXES)

    clean = replace(done, counts=Counts(acked=48_210), units=None, classes=())
    views = {
        "paused": run_view(replace(running, state=RunState.PAUSED, why="by root, 19:30"), focus),
        "running": run_view(running, focus),
        "refused": run_view(running, focus, standing=Standing(trouble="Pause failed: no.")),
        "done with dead": run_view(done, focus._replace(newer=True)),
        "retried": run_view(running, focus, standing=Standing(busy="61 documents sent through again.")),
        "done": run_view(clean, focus),
    }
    for name, view in views.items():
        update(page, view)
        assert moved(page, before) == [], name


@pytest.mark.smoke
def test_after_the_end_the_redefined_function_is_the_first_thing_to_press(show: Show, ended: RunView) -> None:
    """Of many, a hundred can go first."""
    page = show(ended)
    retry = page.get_by_role("button", name="Retry 212 with parse v5")
    assert "dq-pri" in (retry.get_attribute("class") or "")

    retry.click()
    update(page, ended)
    page.get_by_role("button", name="100 first").first.click()

    assert page.evaluate("sent") == [{"command": "retry"}, {"command": "retry", "n": 100}]


def test_a_class_of_many_is_retried_a_hundred_first(show: Show, running: RunStats, focus: Focus) -> None:
    """As in the sidebar."""
    page = show(run_view(running, focus._replace(newer=True)))
    page.get_by_role("button", name="Failures").click()
    page.locator("tr[data-fingerprint]", has_text="PdfError").click()
    detail = page.locator(".dq-detail")
    assert detail.get_by_role("button").all_inner_texts() == ["Retry 128 with parse v5", "100 first"]

    detail.get_by_role("button", name="100 first").click()

    assert page.evaluate("sent.at(-1)") == {"command": "retry", "target": running.classes[0].fingerprint, "n": 100}


def test_what_is_to_be_inserted_is_asked_of_the_page(show: Show, ended: RunView) -> None:
    """Results, and the function to edit; neither is sent to the kernel, nothing is run."""
    page = show(ended)
    page.evaluate(ASKED)

    page.get_by_role("button", name="Results").click()
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Insert cell with parse()").click()
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Open").click()

    assert page.evaluate("asked") == [
        ["dqlab-insert", {"source": RESULTS}],
        ["dqlab-insert", {"source": CODE.rstrip()}],
        [
            "dqlab-open",
            {"cluster": "tcp://10.0.0.2:8786", "name": "parse-invoices", "queue": "pages", "run": "parse-invoices"},
        ],
    ]
    assert page.evaluate("sent") == []


def test_where_no_page_inserts_cells_they_are_copied_and_that_is_said(show: Show, ended: RunView) -> None:
    """In VS Code, and in a notebook without the extension."""
    page = show(ended)
    page.evaluate("""() => { window.put = [];
      Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => put.push(text) } }); }""")

    page.get_by_role("button", name="Results").click()

    page.wait_for_function("put.length === 1")
    assert page.evaluate("put") == [RESULTS]
    assert page.locator(".dq-notice").inner_text().startswith("Copied. Paste it into a cell: # without")


def test_one_failed_document_is_run_here_by_a_cell(show: Show, running: RunStats, focus: Focus) -> None:
    """The cell calls the function with the document; the user runs it."""
    fingerprint = running.classes[0].fingerprint
    of = examples(fingerprint, [LETTER], lambda letter: run_here(letter, running, NAMES))
    page = show(run_view(running, focus._replace(examples=of)))
    page.evaluate(ASKED)
    page.get_by_role("button", name="Failures").click()
    page.locator("tr[data-fingerprint]", has_text="PdfError").click()

    page.get_by_role("button", name="Run this one here").click()

    ((name, detail),) = page.evaluate("asked")
    assert name == "dqlab-insert"
    assert detail["source"] == "%dq debug lux/contract-7.pdf parse-invoices"


@pytest.fixture
def hopeless(running: RunStats, focus: Focus) -> RunView:
    """A run that paused itself because all of its first documents failed; its cell was not edited since."""
    worst = replace(running.classes[0], dead=100, retrying=0)
    stopped = replace(
        running, state=RunState.STOPPED, stop=StopReason.ALL_FAILED, why="all of its first 100 documents failed",
        counts=Counts(dead=100, ready=1_900), units=None, total=2_000, eta=None, classes=(worst,), classes_total=1,
    )  # fmt: skip
    return run_view(stopped, focus)


def test_the_code_with_which_everything_failed_is_not_what_is_pressed_first(show: Show, hopeless: RunView) -> None:
    """*Fix & retry…* led to one coloured button, which sent all documents through the same code again."""
    page = show(hopeless)
    tools = page.get_by_role("toolbar", name="Run controls")
    fix = tools.get_by_role("button", name="Fix & retry…")
    assert tools.get_by_role("button").first.inner_text() == "Fix & retry…"
    assert "dq-pri" in (fix.get_attribute("class") or "")

    fix.click()

    detail = page.locator(".dq-detail")
    assert detail.locator(".dq-mend").inner_text() == (
        "All have failed with parse v4. Edit its cell and run it, then retry with the new code."
    )
    assert "dq-pri" not in (
        detail.get_by_role("button", name="Retry 100 with the same code").get_attribute("class") or ""
    )
    assert page.evaluate("sent.map((each) => each.command)") == ["show"]


def test_a_second_enter_presses_no_other_button(show: Show, ended: RunView, running: RunStats, focus: Focus) -> None:
    """The focus went from *100 first* to *Pause*, and then to *Retry 234*: Enter paused the run, or retried all."""
    page = show(ended)
    page.get_by_role("button", name="100 first").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("sent") == [{"command": "retry", "n": 100}]

    update(page, run_view(running, focus))
    page.get_by_role("button", name="Pause").wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.keyboard.press("Enter")
    update(page, ended)
    page.get_by_role("button", name="100 first").first.wait_for()
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.keyboard.press("Enter")

    assert page.evaluate("sent.length") == 1
