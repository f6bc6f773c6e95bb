"""The table of runs that leads the dashboard, below what needs the user: dead is never green, any column sorts it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from dqlab.live.panels.axis import Caption, strip
from dqlab.live.panels.page import PANELS
from dqlab.live.panels.runs import LEAST_DEAD
from dqlab.live.panels.scene import scene
from dqlab.live.run_picture import run_view
from dqlab.stats import Counts, RunState, RunStats, Snapshot

Open = Callable[..., Any]


@pytest.fixture
def ended(feed: Any) -> list[RunStats]:
    """Three runs that have ended: without a dead document, with one, and with nothing else."""
    now: Snapshot = feed.now
    thumbs = now.runs[-1]
    ended = [
        replace(thumbs, name="clean", counts=Counts(acked=10_000), total=10_000),
        replace(thumbs, name="one-dead", counts=Counts(acked=9_999, dead=1), total=10_000, started=thumbs.started + 1),
        replace(thumbs, name="all-dead", counts=Counts(dead=10_000), total=10_000, started=thumbs.started + 2),
    ]
    feed.change(of_queue="", of_run="", runs=tuple(ended), runs_total=3)
    return ended


def panel_scene(feed: Any) -> Any:
    """What the panel of all queues draws now."""
    return scene(feed.now, feed.past, 1800.0, "", "")


def bars(page: Any) -> list[tuple[str, str, float]]:
    """Name, colour and length of each bar."""
    data = page.panels[0]._bars.data
    lengths = [float(right - left) for left, right in zip(data["left"], data["right"], strict=True)]
    return list(zip(data["name"], data["colour"], lengths, strict=True))


def names(page: Any, expected: list[str]) -> list[str]:
    """The runs, from top to bottom."""
    left = page.panels[0]._chart.left.text
    return sorted(expected, key=lambda name: left.index(f"<b>{name}</b>"))


@pytest.mark.long
@pytest.mark.parametrize("wall", [False, True])
def test_a_run_with_dead_documents_is_never_green(open_page: Open, ended: list[RunStats], *, wall: bool) -> None:
    """From afar the wall showed a green tick for 10,000 dead of 10,000, and "3 done"."""
    page = open_page(*(PANELS if wall else ("runs",)), wall=wall)
    theme, drawn = page.theme, bars(page)

    assert {(name, colour) for name, colour, _ in drawn} == {
        ("clean", theme.acked),
        ("one-dead", theme.acked),
        ("one-dead", theme.dead),
        ("all-dead", theme.dead),
    }
    panel: Any = page.panels[0]
    assert list(panel._dead.data["y"]) == [0.5, 1.5], "three pixels at the end of both bars"
    left = page.panels[0]._chart.left.text
    assert left.count('class="g done"') == 1
    assert left.count('class="g dead"') == 2
    assert '<b class="bad">all dead</b>' in left
    assert page.doc.get_model_by_name("runs-answer").text.startswith("1 done, 1 all dead, 1 some dead")


def test_one_dead_document_is_seen_and_takes_no_share_that_it_does_not_have(
    open_page: Open, ended: list[RunStats]
) -> None:
    """One of 10,000 coloured 12 % of the bar."""
    page = open_page("runs")
    panel: Any = page.panels[0]
    lengths = {(name, colour): length for name, colour, length in bars(page)}
    right = dict(zip(panel._bars.data["name"], panel._bars.data["right"], strict=True))
    (mark,) = (each for each in panel._chart.figure.renderers if each.data_source is panel._dead)

    red, green = lengths["one-dead", page.theme.dead], lengths["one-dead", page.theme.acked]
    assert red / (red + green) == pytest.approx(1 / 10_000, rel=0.1)
    assert (mark.glyph.width, mark.glyph.width_units) == (LEAST_DEAD, "screen")
    assert set(panel._dead.data["x"]) == {right["one-dead"], right["all-dead"]}
    assert '<b class="bad">1</b>' in panel._chart.right.text


def test_a_cancelled_run_looks_as_in_its_own_view(open_page: Open, feed: Any) -> None:
    """Here it had a red cross and a bar of grey and red, there a struck ring and a bar of green, red and grey."""
    counts = Counts(acked=500, dead=200, cancelled=300)
    run = replace(feed.now.runs[0], state=RunState.CANCELLED, counts=counts, units=None, ended=feed.now.at, eta=None)
    feed.change(runs=(run,))

    page = open_page("runs")
    theme, drawn = page.theme, bars(page)
    whole = sum(length for *_, length in drawn)

    assert [colour for _, colour, _ in drawn] == [theme.acked, theme.dead, theme.cancelled]
    assert [round(length / whole, 2) for *_, length in drawn] == [0.5, 0.2, 0.3]
    left = page.panels[0]._chart.left.text
    assert 'class="g cancelled"' in left
    assert 'class="bad"' not in left
    assert [each.state for each in run_view(run).bars] == ["acked", "dead", "cancelled"]


@pytest.mark.parametrize(("state", "glyph"), [(RunState.STOPPED, "dead"), (RunState.INCOMPLETE, "waiting")])
def test_a_run_that_stopped_or_is_incomplete_has_the_glyph_of_its_own_view(
    open_page: Open, feed: Any, state: RunState, glyph: str
) -> None:
    """The widget and the sidebar have a cross and a warning there."""
    feed.change(runs=(replace(feed.now.runs[0], state=state),))

    assert f'class="g {glyph}"' in open_page("runs").panels[0]._chart.left.text


def test_runs_that_wait_are_counted_once_whatever_they_wait_for(open_page: Open, feed: Any) -> None:
    """One waited for its sink, one for a stuck document: "1 waiting, 1 waiting"."""
    run = replace(feed.now.runs[0], state=RunState.RUNNING)
    others = replace(run, name="b", stuck=True), replace(run, name="c", state=RunState.WAITING)
    feed.change(of_queue="", of_run="", runs=(run, *others), runs_total=3)

    assert open_page("runs").panels[0].answer(panel_scene(feed)) == "1 running, 2 waiting"


def test_a_run_in_progress_with_dead_documents_has_a_red_end(open_page: Open) -> None:
    """Whether it goes well is seen while it goes on."""
    page = open_page("runs")

    assert ("parse-invoices", page.theme.dead) in {(name, colour) for name, colour, _ in bars(page)}
    assert '<b class="bad">212</b>' in page.panels[0]._chart.right.text


def test_runs_are_sorted_by_the_column_that_is_pressed_and_backwards_by_the_second_press(
    open_page: Open, ended: list[RunStats]
) -> None:
    """Which of them is worst, slowest, next to end is one press away."""
    page = open_page("runs")
    order = page.doc.get_model_by_name("runs-order")
    every = [run.name for run in ended]

    order.value = "dead"
    assert names(page, every) == ["all-dead", "one-dead", "clean"]
    head = page.panels[0]._right_head.text
    assert 'data-value="-dead"' in head
    assert 'aria-label="Sort by dead, sorted now"' in head

    order.value = "-dead"
    assert names(page, every) == ["clean", "one-dead", "all-dead"]
    order.value = "name"
    assert names(page, every) == ["all-dead", "clean", "one-dead"]
    order.value = "<nonsense>"
    assert names(page, every)[-1] == "clean"


def test_speeds_in_the_table_of_runs_name_their_time(open_page: Open) -> None:
    """That of an ended run, over all of it, stood below those of the last minute."""
    said = "".join(str(getattr(model, "text", "")) for model in open_page("runs").doc.models)

    assert "speed: 60 s at work, of ended runs the whole run" in said


def test_a_run_names_who_made_it(open_page: Open, feed: Any) -> None:
    """On a cluster that several people share, the first question about a run that fails is whose it is."""
    first, *others = feed.now.runs
    feed.change(runs=(replace(first, owner="ana, invoices.ipynb"), *others))
    panel = open_page("runs").panels[0]

    assert ">by</span>" in panel._right_head.text
    assert '<span class="mut">ana, invoices.ipynb</span>' in panel._chart.right.text
    table = panel.table(panel_scene(feed))
    owners = {row[0].text: row[-2].text for row in table.rows}
    assert owners["parse-invoices"] == "ana, invoices.ipynb"
    assert owners["ocr-scans"] == "\N{EN DASH}"


def test_a_wall_has_no_buttons_in_its_table(open_page: Open) -> None:
    """Nobody can press them."""
    assert "<button" not in open_page(wall=True).panels[0]._left_head.text


def test_runs_of_other_queues_are_not_listed_with_a_chosen_queue(open_page: Open, feed: Any, clock: Any) -> None:
    """Figures of one queue above runs of all were read as those of the queue."""
    page = open_page("runs", queue="ocr")

    assert "<b>ocr-scans</b>" in page.panels[0]._chart.left.text
    assert "parse-invoices" not in page.panels[0]._chart.left.text
    feed.change(runs_total=25)
    clock.now += 1
    page.look()
    assert "of the newest 5 runs of all queues" in page.panels[0]._chart.left.text


def test_the_table_leads_the_page_below_what_needs_the_user(open_page: Open) -> None:
    """The two questions of somebody who comes back: what do I have to do, and when is it done."""
    page = open_page()
    said = page.doc.get_model_by_name("needs").text

    assert next(iter(PANELS)) == "runs"
    assert "Needs you 3" in said
    assert said.index("<b>61 dead</b> KeyError") < said.index("<b>c5</b> held one document")
    assert "pages · parse-invoices" in said


def test_dead_documents_of_ended_runs_need_the_user_until_they_are_retried(
    open_page: Open, feed: Any, clock: Any, ended: list[RunStats]
) -> None:
    """At the end of all runs the page said that nothing was to be done, with 10,001 dead."""
    feed.change(attention=(), attention_total=0)
    page = open_page()
    said = page.doc.get_model_by_name("needs").text

    assert "Needs you 1" in said
    assert "<b>10,001 dead</b> in 2 runs that have ended" in said
    before = feed.now.totals
    feed.change(totals=replace(before, runs=30, failed_runs=12, dead_at_rest=10_240))  # 27 of them are not listed
    clock.now += 1
    page.look()
    assert "<b>10,240 dead</b> in 12 runs that have ended" in page.doc.get_model_by_name("needs").text
    feed.change(totals=before)
    feed.change(runs=(ended[0], replace(ended[1], state=RunState.RUNNING, ended=None)))
    clock.now += 1
    page.look()
    assert "nothing now" in page.doc.get_model_by_name("needs").text


def test_now_at_the_edge_of_the_chart_is_read_to_its_end() -> None:
    """Of runs that have all ended it lay on the right edge, and read "nov"."""
    words = strip([Caption(98.0, "now", kind="now"), Caption(50.0, "19:37", kind="tick")], 0.0, 100.0)

    assert 'class="now" style="left:clamp(14px,98.00%,calc(100% - 14px))"' in words
    assert 'class="tick" style="left:50.00%"' in words
