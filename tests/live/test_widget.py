"""The Python side of the widget, and what it leaves in the notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="the extra `lab` is not installed")

from dqlab.live.canvas import HtmlCanvas, WidgetCanvas
from dqlab.live.rows import run_view
from dqlab.live.view import Command
from dqlab.live.widget import RunWidget
from dqlab.stats import RunStats

WIDGET = "application/vnd.jupyter.widget-view+json"


class Output:
    """A cell's output: what was displayed, then what replaced it."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def show(self, data: dict[str, Any]) -> Output:
        self.shown.append(data)
        return self

    def update(self, data: dict[str, Any], *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


@pytest.fixture
def pressed() -> list[Command]:
    return []


@pytest.fixture
def widget(running: RunStats, pressed: list[Command]) -> Iterator[RunWidget]:
    widget = RunWidget(run_view(running), on_press=pressed.append)
    yield widget
    widget.close()


def test_view_is_one_plain_dict(widget: RunWidget, running: RunStats) -> None:
    """One message per tick, whatever changed."""
    assert widget.view == run_view(running).to_dict()
    assert [name for name in widget.keys if not name.startswith("_")] == [
        "layout",
        "tabbable",
        "tooltip",
        "view",
    ]


def test_show_replaces_the_view(widget: RunWidget, done: RunStats) -> None:
    """And nothing else."""
    widget.show(run_view(done))

    assert widget.view["chip"] == "Done, 212 dead"


def test_press_only_hands_on_the_command(widget: RunWidget, pressed: list[Command]) -> None:
    """It may run in a thread beside a busy cell."""
    for command in Command:
        widget._handle_custom_msg({"command": command.value}, [])

    assert pressed == list(Command)


@pytest.mark.parametrize("content", [{}, {"command": "rm -rf"}, {"command": ["pause"]}, "pause", None, 3])
def test_strange_messages_do_nothing(widget: RunWidget, pressed: list[Command], content: Any) -> None:
    """The front end is not trusted to be ours."""
    widget._handle_custom_msg(content, [])

    assert pressed == []


def test_press_is_answered_beside_a_busy_cell_where_the_kernel_can(widget: RunWidget) -> None:
    """Without it Pause waits for the very cell that should be paused."""
    widget.comm._reply_subshell_for = None
    widget._answer_beside_a_busy_cell()

    assert widget.comm._reply_subshell_for({"any": 1}, "subshell-7") == "subshell-7"


def test_older_kernels_are_left_alone(widget: RunWidget) -> None:
    """The attribute is private; where it is missing the press is handled when the cell ends."""
    before = dict(vars(widget.comm))
    widget._answer_beside_a_busy_cell()

    assert vars(widget.comm) == before


def test_live_output_carries_text_and_html_too(running: RunStats) -> None:
    """Converters and consoles that know no widgets show the table."""
    output = Output()
    canvas = WidgetCanvas(output.show, lambda command: None)
    canvas.draw(run_view(running))
    canvas.finish(run_view(running))

    assert {WIDGET, "text/html", "text/plain"} <= set(output.shown[0])
    assert output.shown[0]["text/plain"].startswith("parse-invoices  running")


def test_last_view_replaces_the_widget_by_what_can_be_saved(running: RunStats, done: RunStats) -> None:
    """Reopened without its kernel, a widget says "model not found"; the notebook is the lab book."""
    output = Output()
    canvas = WidgetCanvas(output.show, lambda command: None)
    canvas.draw(run_view(running))
    canvas.draw(run_view(done))
    assert len(output.shown) == 1

    canvas.finish(run_view(done))

    assert set(output.shown[-1]) == {"text/html", "text/plain"}
    assert canvas.gone


def test_run_that_was_over_before_it_was_shown_makes_no_widget(done: RunStats) -> None:
    """Quick runs leave a table and nothing to clean up."""
    output = Output()
    canvas = WidgetCanvas(output.show, lambda command: None)
    canvas.finish(run_view(done))

    assert [set(data) for data in output.shown] == [{"text/html", "text/plain"}]


def test_html_is_refreshed_at_most_once_a_second(running: RunStats, done: RunStats, clock: Any) -> None:
    """Front ends without widgets draw the whole fragment each time."""
    output = Output()
    canvas = HtmlCanvas(output.show, clock=clock)
    for _ in range(9):
        canvas.draw(run_view(running))
        clock.now += 0.25
    assert len(output.shown) == 3

    canvas.finish(run_view(done))

    assert output.shown[-1]["text/plain"].startswith("parse-invoices  done, 212 dead")
