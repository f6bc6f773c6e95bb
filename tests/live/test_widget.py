"""The Python side of the widget, and what it leaves in the notebook."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("anywidget", reason="the extra `lab` is not installed")

from dqlab.errors import UsageError
from dqlab.live.canvases import (
    TWIN_PERIOD,
    HtmlCanvas,
    LooseCanvas,
    WidgetCanvas,
    draws_widgets,
    in_vscode,
    script,
    styles,
)
from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.run_picture import Focus, run_view
from dqlab.live.views import (
    Ask,
    Button,
    Chart,
    CodePane,
    Command,
    ConsumerRow,
    Consumers,
    Example,
    FailureRow,
    Figure,
    HeldRow,
    Leases,
    Need,
    Notice,
    Press,
    QueueRow,
    QueuesView,
    RunLine,
    RunView,
)
from dqlab.live.widget import LiveWidget
from dqlab.stats import Counts, History, RunState, RunStats, Snapshot
from tests.live.scenes import lab_history, many_queues

pytestmark = pytest.mark.lowest

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
def pressed() -> list[Press]:
    return []


@pytest.fixture
def widget(running: RunStats, pressed: list[Press]) -> Iterator[LiveWidget]:
    widget = LiveWidget(run_view(running), on_press=pressed.append)
    yield widget
    widget.close()


def test_picture_is_sent_in_parts(widget: LiveWidget, running: RunStats) -> None:
    """Each a plain value that is compared as a whole, and sent when it differs."""
    parts = run_view(running).parts()

    assert {name: getattr(widget, name) for name in parts} == parts
    assert widget.kind == "run"


def test_press_only_hands_on_the_command(widget: LiveWidget, pressed: list[Press]) -> None:
    """It may run in a thread beside a busy cell."""
    for command in Command:
        widget._handle_custom_msg({"command": command.value}, [])

    assert [press.command for press in pressed] == list(Command)


def test_press_says_which_queue_run_class_and_how_many(widget: LiveWidget, pressed: list[Press]) -> None:
    """Buttons stand in rows."""
    content = {"command": "scale", "queue": "pages", "run": "r", "target": "f1", "n": 4}
    widget._handle_custom_msg(content, [])

    assert pressed == [Press(Command.SCALE, "pages", "r", "f1", 4)]


def test_a_run_that_has_ended_gives_signs_of_life_until_its_view_is_final(done: RunStats, clock: Any) -> None:
    """Nothing else comes of a run at rest: its buttons looked alive after their kernel had died."""
    canvas = LooseCanvas(lambda press: None, clock=clock)
    canvas.draw(run_view(done))
    widget = canvas.widget
    signs = []
    for _ in range(40):
        clock.now += 0.25
        canvas.beat()
        signs.append(widget.beats)
    assert signs[-1] == 4, "one every three seconds"

    canvas.finish(run_view(done))

    assert widget.beats == 0
    widget.close()


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"command": "rm -rf"},
        {"command": ["pause"]},
        {"command": "pause", "queue": ["pages"]},
        {"command": "pause", "queue": "q" * 301},
        {"command": "scale", "n": -1},
        {"command": "scale", "n": 10**9},
        {"command": "scale", "n": "4"},
        {"command": "scale", "n": True},
        "pause",
        None,
        3,
    ],
)
def test_strange_messages_do_nothing(widget: LiveWidget, pressed: list[Press], content: Any) -> None:
    """The front end is not trusted to be ours."""
    widget._handle_custom_msg(content, [])

    assert pressed == []


def test_press_is_answered_beside_a_busy_cell_where_the_kernel_can(widget: LiveWidget) -> None:
    """Without it Pause waits for the very cell that should be paused."""
    widget.comm._reply_subshell_for = None
    widget._answer_beside_a_busy_cell()

    assert widget.comm._reply_subshell_for({"any": 1}, "subshell-7") == "subshell-7"


def test_older_kernels_are_left_alone(widget: LiveWidget) -> None:
    """The attribute is private; where it is missing the press is handled when the cell ends."""
    before = dict(vars(widget.comm))
    widget._answer_beside_a_busy_cell()

    assert vars(widget.comm) == before


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


def test_view_that_goes_on_has_its_last_state_to_be_saved_beside_it(running: RunStats, clock: Any) -> None:
    """Opened again without its kernel it stood as it had begun."""
    output = Output()
    canvas = WidgetCanvas(output.show, lambda command: None, clock=clock)
    canvas.draw(run_view(running))
    widget = canvas.widget
    widget._receive(None, {"command": "keep"}, [])
    canvas.draw(run_view(replace(running, counts=replace(running.counts, acked=31_999))))
    assert "31,999" in widget.twin["text/html"]
    assert not widget.over

    canvas.draw(run_view(replace(running, counts=replace(running.counts, acked=32_000))))
    assert "31,999" in widget.twin["text/html"]  # it costs more than what changes
    clock.now += TWIN_PERIOD
    canvas.draw(run_view(replace(running, counts=replace(running.counts, acked=32_001))))
    assert "32,001" in widget.twin["text/html"]


def test_view_that_has_ended_is_saved_in_place_of_the_widget(running: RunStats, done: RunStats, clock: Any) -> None:
    """At once, however recent the twin before."""
    canvas = WidgetCanvas(Output().show, lambda command: None, clock=clock)
    canvas.draw(run_view(running))
    canvas.widget._receive(None, {"command": "keep"}, [])
    canvas.draw(run_view(running))
    canvas.draw(run_view(done))

    assert "done, 212 dead" in canvas.widget.twin["text/plain"]
    assert canvas.widget.over


def test_widget_in_a_layout_has_its_last_state_to_be_saved_beside_the_layout(
    running: RunStats, done: RunStats, clock: Any
) -> None:
    """The layout is the user's, and may hold more: nothing is saved in its place."""
    canvas = LooseCanvas(lambda command: None, clock=clock)
    canvas.draw(run_view(running))
    canvas.widget._receive(None, {"command": "keep"}, [])
    canvas.draw(run_view(done))

    assert "done, 212 dead" in canvas.widget.twin["text/plain"]
    assert not canvas.widget.over


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


class Wire:
    """Counts what a widget sends."""

    def __init__(self, widget: LiveWidget) -> None:
        self.messages: list[dict[str, Any]] = []
        widget.comm.send = self.send

    def send(self, data: Any = None, **_: Any) -> None:
        self.messages.append(data)

    @property
    def size(self) -> int:
        return sum(len(json.dumps(message)) for message in self.messages)


def busy(stats: RunStats, at: int) -> RunStats:
    """The run some quarters of a second later: every number has moved."""
    counts = replace(stats.counts, acked=stats.counts.acked + 6 * at, ready=stats.counts.ready - 6 * at)
    units = replace(stats.units or Counts(), acked=593_204 + 113 * at, ready=306_184 - 113 * at)
    moved = tuple(replace(each, dead=each.dead + at, last=stats.at) for each in stats.classes)
    return replace(
        stats,
        at=stats.at + at / 4,
        counts=counts,
        units=units,
        rate=20 + at / 9,
        units_rate=400 + at / 7,
        classes=moved,
    )


def later(snapshot: Snapshot, at: int) -> Snapshot:
    """The scenario some quarters of a second later, with all of 32 consumers listed and 200 there."""
    consumers = tuple(
        replace(snapshot.consumers[n % 8], name=f"c{n}", units_rate=20.0 + n + at / 11, oldest_age=1.0 + (at + n) / 4)
        for n in range(32)
    )
    return replace(snapshot, consumers=consumers, consumers_total=200)


def test_one_run_costs_less_than_40_kb_a_second(
    running: RunStats, snapshot: Snapshot, past: History, clock: Any
) -> None:
    """A notebook is often read over a slow line, and several runs are watched at once."""
    seconds = 20

    def picture(at: int) -> RunView:
        moved = [None if value is None else value - 113 * (at // 4) for value in past.units_left]
        history = replace(past, units_left=tuple(moved))
        return run_view(busy(running, at), Focus(later(snapshot, at // 4 * 4), history, "def f(): ...\n" * 400))

    widget = LiveWidget(picture(0), on_press=lambda press: None, clock=clock)
    wire = Wire(widget)
    for at in range(1, 4 * seconds + 1):
        clock.now += 0.25
        widget.show(picture(at))
    widget.close()

    assert wire.size / seconds < 40_000
    assert wire.size / seconds < 18_000  # what it is; a part that grows by half is noticed
    sent = [set(message["state"]) for message in wire.messages if message.get("method") == "update"]
    assert len(sent) <= 2 * seconds
    assert all({"bars", "numbers", "failures"} <= state for state in sent), "what is repeated is sent together"
    assert sum("chart" in state for state in sent) == sum("consumers" in state for state in sent) == seconds
    assert sum("code" in state for state in sent) == 0


@pytest.mark.long
def test_a_lab_of_a_hundred_queues_costs_less_than_40_kb_a_second(clock: Any) -> None:
    """All rows move at once."""
    scene, seconds = many_queues(), 10
    history = lab_history(scene)

    def picture(at: int) -> QueuesView:
        queues = tuple(
            replace(queue, counts=replace(queue.counts, ready=queue.counts.ready + at), lag=queue.lag + at / 4)
            for queue in scene.queues
        )
        return lab_view(replace(scene, at=scene.at + at / 4, queues=queues), history, place=Site("papers"))

    widget = LiveWidget(picture(0), on_press=lambda press: None, clock=clock)
    wire = Wire(widget)
    for at in range(1, 4 * seconds + 1):
        clock.now += 0.25
        widget.show(picture(at))
    widget.close()

    assert wire.size / seconds < 40_000


def test_what_is_held_back_is_sent_when_it_is_due(widget: LiveWidget, running: RunStats, clock: Any) -> None:
    """The last change before a run stands still must not be lost."""
    paced = LiveWidget(run_view(running), on_press=lambda press: None, clock=clock)
    changed = run_view(replace(running, rate=30.0))

    clock.now += 0.25
    assert paced.show(changed) is False
    assert paced.numbers["figures"][2]["second"] == "23.9 documents/s"
    clock.now += 0.25
    assert paced.show(changed) is True
    assert paced.numbers["figures"][2]["second"] == "30.0 documents/s"
    paced.close()


def test_another_state_takes_all_parts_along(running: RunStats, clock: Any) -> None:
    """A bar of now under a state of before is a riddle."""
    paced = LiveWidget(run_view(running), on_press=lambda press: None, clock=clock)

    assert paced.show(run_view(replace(running, state=RunState.PAUSED, rate=0.0, eta=None)))

    assert paced.head["chip"] == "Paused"
    assert paced.numbers["figures"][1]["second"] == "after Resume"
    paced.close()


def test_script_is_one_module_without_imports() -> None:
    """Front ends load it as one string."""
    assert not re.search(r"\bimport\b", script())
    assert script().count("export") == 1
    assert re.search(r"export\s*\{\s*\w+ as default\s*\};?\s*$", script())
    assert "innerHTML" not in script()


def test_widget_that_was_not_built_names_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that was installed without the build has Python alone, and an empty output helps nobody."""
    monkeypatch.setattr("dqlab.live.canvases.STATIC", tmp_path)

    with pytest.raises(UsageError, match="make extension") as missing:
        styles()

    assert str(tmp_path / "widget.css") in str(missing.value)


PARTS_IN_THE_BROWSER = Path(__file__).parents[2] / "extension" / "src" / "widget" / "parts.ts"
RECORDS = (Ask, Button, Chart, CodePane, ConsumerRow, Consumers, Example, FailureRow, Figure, HeldRow, Leases, Need)
RECORDS += (Notice, QueueRow, RunLine)


@pytest.mark.skipif(not PARTS_IN_THE_BROWSER.exists(), reason="not a checkout")
def test_parts_have_the_fields_that_the_widget_reads() -> None:
    """A field that is renamed on one side shows as an empty place, and only where somebody looks."""
    source = PARTS_IN_THE_BROWSER.read_text(encoding="utf-8")
    typed = dict(re.findall(r"^export interface (\w+) \{\n(.*?)^\}", source, flags=re.MULTILINE | re.DOTALL))
    (order,) = re.findall(r"FIELDS: readonly.*?= \[(.*?)\];", source, flags=re.DOTALL)

    for record in RECORDS:
        known = re.findall(r"^  (\w+): ", typed[record.__name__], flags=re.MULTILINE)
        assert known == list(record.__annotations__), record.__name__
    assert re.findall(r"'(\w+)'", order) == list(QueueRow._fields)


def test_lab_and_queue_have_widgets_of_their_own_kind(snapshot: Snapshot, past: History) -> None:
    """One class; the front end asks which."""
    lab = LiveWidget(lab_view(snapshot, place=Site("papers")), on_press=lambda press: None)
    queue = LiveWidget(queue_view(snapshot, past, place=Site("pages")), on_press=lambda press: None)

    assert (lab.kind, queue.kind) == ("lab", "queue")
    assert lab.chart is None
    assert queue.chart["values"][-1] == 16_057
    lab.close()
    queue.close()


LAB = SimpleNamespace(user_ns={})
VSCODE = SimpleNamespace(user_ns={"__vsc_ipynb_file__": "/home/ana/papers.ipynb"})


@pytest.fixture
def _no_other_front_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VSCODE_PID", raising=False)
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)


@pytest.mark.usefixtures("_no_other_front_end")
def test_jupyterlab_draws_widgets() -> None:
    assert draws_widgets(LAB)


@pytest.mark.usefixtures("_no_other_front_end")
def test_vscode_gets_html() -> None:
    assert not draws_widgets(VSCODE)
    assert in_vscode(LAB, {"VSCODE_PID": "1"})


@pytest.mark.usefixtures("_no_other_front_end")
def test_colab_gets_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    assert not draws_widgets(LAB)


@pytest.mark.usefixtures("_no_other_front_end")
def test_without_anywidget_there_is_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not draws_widgets(LAB)
