"""Where things are shown, and how IPython learns of it."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("IPython", reason="the extra `lab` is not installed")

from IPython.core.formatters import DisplayFormatter

from dqlab.errors import BadOption, DqlabWarning, LabClosed, SchedulerGone
from dqlab.live import display
from dqlab.live.canvases import AWAITED, follow_here
from dqlab.live.display import Mode, conclude, is_watched, mode, register_formatters, set_mode, watch
from dqlab.live.style import TextStyle
from dqlab.numbers import UNKNOWN
from dqlab.stats import Counts, RunStats

pytestmark = pytest.mark.lowest


@pytest.fixture(autouse=True)
def _default_mode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("DQLAB_DISPLAY", raising=False)
    set_mode(None)
    yield
    set_mode(None)


@pytest.fixture
def shell() -> Any:
    """As much of an IPython shell as formatters need."""
    formatter = DisplayFormatter()
    formatter.active_types = ["text/plain", "text/html"]
    shell = SimpleNamespace(display_formatter=formatter)
    register_formatters(shell)
    return shell


def of_type(module: str, name: str, base: type) -> type:
    return type(name, (base,), {"__module__": module})


class Values(Sequence[Any]):
    """A lazy sequence with keys, as results are."""

    def __init__(self, values: list[Any]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: Any) -> Any:
        return self.values[place]

    def keys(self) -> list[str]:
        return [f"doc-{place}" for place in range(len(self))]


@pytest.fixture
def run(source: Any) -> Any:
    """The hand-moved source under the name that the formatters know."""
    kind = of_type("dqlab.runs.run", "Run", type(source))
    return kind(source.answer)


def test_mode_is_live_unless_said_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the setter first, then by the environment."""
    assert mode() is Mode.LIVE
    monkeypatch.setenv("DQLAB_DISPLAY", "static")
    assert mode() is Mode.STATIC
    set_mode("text")
    assert mode() is Mode.TEXT


def test_unknown_mode_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it comes from the environment."""
    with pytest.raises(BadOption, match="'live', 'static' or 'text'"):
        set_mode("colourful")
    monkeypatch.setenv("DQLAB_DISPLAY", "1")
    with pytest.raises(BadOption, match="DQLAB_DISPLAY"):
        mode()


def test_run_shows_itself_as_text_and_html(shell: Any, run: Any) -> None:
    """By dotted name: the class carries no display code and is not imported here."""
    data, _ = shell.display_formatter.format(run)

    assert data["text/plain"].startswith("parse-invoices  running")
    assert "<b>parse-invoices</b>" in data["text/html"]


def test_run_that_cannot_be_asked_still_shows_something(shell: Any, run: Any) -> None:
    """`run` at the end of a cell never raises, and says why there are no numbers."""
    run.answer = SchedulerGone(address="tcp://nowhere", reason="closed")

    data, _ = shell.display_formatter.format(run)

    assert "no answer" in data["text/plain"]
    assert "the scheduler at tcp://nowhere is gone" in data["text/plain"]


def test_failures_and_results_show_themselves(shell: Any) -> None:
    """Sequences print as tables, not as `<object at 0x7f…>`."""
    failure = SimpleNamespace(key="a.pdf", error="KeyError", message="'x'", at="f:1", deliveries=4, version=1)
    failures = of_type("dqlab.runs.failures", "Failures", Values)([failure])
    failures.classes = ()
    results = of_type("dqlab.runs.reading.results", "Results", Values)([41])

    assert "1 dead document" in shell.display_formatter.format(failures)[0]["text/html"]
    assert "doc-0     41" in shell.display_formatter.format(results)[0]["text/plain"]


def test_registering_twice_does_no_harm(shell: Any, run: Any) -> None:
    """`%load_ext` and `%reload_ext`."""
    register_formatters(shell)

    assert shell.display_formatter.format(run)[0]["text/plain"].count("parse-invoices  running") == 1


def test_watch_outside_jupyter_follows_in_the_foreground(run: Any, done: RunStats) -> None:
    """Plain Python, a script, a pipe."""
    run.answer = done
    stream = io.StringIO()

    watch(run, stream=stream)

    (line,) = stream.getvalue().splitlines()
    assert line.startswith("14:33:54 parse-invoices done, 212 dead 100 % left 0 pages")


def test_watch_that_may_not_move_prints_one_screen(run: Any) -> None:
    """The run goes on; the call does not wait for it."""
    set_mode(Mode.STATIC)
    stream = io.StringIO()

    watch(run, stream=stream)

    assert stream.getvalue().startswith("parse-invoices  running")


class Kernel:
    """A notebook's side of `watch`: outputs, and a ticker moved by hand."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []
        self.views: tuple[Any, ...] = ()
        self.woken = 0

    def publish(self, data: dict[str, Any]) -> Any:
        self.outputs.append(data)
        place = len(self.outputs) - 1

        def update(new: dict[str, Any], *, raw: bool) -> None:
            self.outputs[place] = new

        return SimpleNamespace(update=update)

    def add(self, view: Any) -> None:
        self.views += (view,)

    def wake(self) -> None:
        self.woken += 1

    def tick(self) -> None:
        for view in self.views:
            view.look_again()
        self.views = tuple(view for view in self.views if view.tick())


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(display, "in_jupyter", lambda: True)
    monkeypatch.setattr(display, "publish", kernel.publish)
    monkeypatch.setattr(display, "shared", lambda: kernel)
    return kernel


def test_run_in_jupyter_is_live_until_done(kernel: Kernel, shell: Any, run: Any, done: RunStats) -> None:
    """`run` at the end of a cell: a widget, and at the end what can be saved."""
    assert shell.display_formatter.format(run) == ({}, {})
    assert "application/vnd.jupyter.widget-view+json" in kernel.outputs[0]

    run.answer = done
    kernel.tick()

    assert set(kernel.outputs[0]) == {"text/plain", "text/html"}
    assert kernel.views == ()


def test_finished_run_in_jupyter_makes_no_widget(kernel: Kernel, run: Any, done: RunStats) -> None:
    """Nothing will move, and nobody is there to press: a notebook that a program plays."""
    run.answer = done

    watch(run)

    assert [set(data) for data in kernel.outputs] == [{"text/plain", "text/html"}]
    assert kernel.views == ()


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front end with somebody who can be asked, and can press."""
    monkeypatch.setattr(display, "has_a_reader", lambda shell: True)


@pytest.mark.usefixtures("person")
def test_finished_run_with_failures_has_buttons_for_who_reads_it(
    kernel: Kernel, run: Any, done: RunStats, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart of the kernel it was a table: the retry that it called for had to be typed."""
    monkeypatch.setattr("dqlab.live.canvases.SystemClock", lambda: clock)
    run.answer = done

    watch(run)

    (shown,) = kernel.outputs
    assert {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"} == set(shown)
    (view,) = kernel.views
    assert view._canvas.widget.head["chip"] == "Done, 212 dead"

    view._canvas.widget._receive(None, {"command": "keep"}, [])
    clock.now += 60
    kernel.tick()
    assert kernel.views == (view,)


@pytest.mark.usefixtures("person")
def test_finished_run_is_a_table_where_no_front_end_keeps_its_buttons(
    kernel: Kernel, run: Any, done: RunStats, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved there needs no kernel."""
    monkeypatch.setattr("dqlab.live.canvases.SystemClock", lambda: clock)
    run.answer = done
    watch(run)

    clock.now += AWAITED + 1
    kernel.tick()

    assert [set(data) for data in kernel.outputs] == [{"text/plain", "text/html"}]
    assert kernel.views == ()


@pytest.mark.usefixtures("person")
def test_finished_run_without_failures_makes_no_widget(kernel: Kernel, run: Any, done: RunStats) -> None:
    """There is nothing to press."""
    run.answer = replace(done, counts=Counts(acked=48_210), units=Counts(acked=914_306))

    watch(run)

    assert [set(data) for data in kernel.outputs] == [{"text/plain", "text/html"}]
    assert kernel.views == ()


def test_without_anywidget_html_is_refreshed_in_place(
    kernel: Kernel, run: Any, done: RunStats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is optional; the view is not."""
    monkeypatch.setattr(display, "draws_widgets", lambda shell: False)
    watch(run)
    assert set(kernel.outputs[0]) == {"text/plain", "text/html"}

    run.answer = done
    kernel.tick()

    assert "done, 212 dead" in kernel.outputs[0]["text/html"]


def test_without_the_built_widget_html_is_refreshed_after_one_warning(
    kernel: Kernel, run: Any, done: RunStats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view raised instead, below a line that had already acted."""
    monkeypatch.setattr("dqlab.live.canvases.STATIC", tmp_path)
    with pytest.warns(DqlabWarning, match="the live widget has not been built.*make extension"):
        watch(run)
    watch(run)  # a second warning would be an error
    assert [set(data) for data in kernel.outputs] == [{"text/plain", "text/html"}] * 2

    run.answer = done
    kernel.tick()

    assert "done, 212 dead" in kernel.outputs[1]["text/html"]


def test_front_end_without_widgets_is_not_told_of_the_build(
    kernel: Kernel, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The built widget would change nothing there."""
    monkeypatch.setattr("dqlab.live.canvases.STATIC", tmp_path)
    monkeypatch.setattr(display, "draws_widgets", lambda shell: False)
    watch(run)
    assert set(kernel.outputs[0]) == {"text/plain", "text/html"}


def test_run_has_one_live_view_and_it_is_the_newest(kernel: Kernel, run: Any, done: RunStats) -> None:
    """Two panels of one run say the same twice; running the same cell all day must not leave a hundred."""
    for _ in range(3):
        watch(run)
        kernel.tick()
    assert len(kernel.views) == 1
    assert ["later cell" in data["text/plain"] for data in kernel.outputs] == [True, True, False]

    run.answer = done
    kernel.tick()
    assert "done, 212 dead" in kernel.outputs[-1]["text/plain"]


def test_run_is_watched_while_it_is_live_and_when_its_end_is_on_view(
    kernel: Kernel, run: Any, running: RunStats, done: RunStats
) -> None:
    """Then who waits for it needs a line, not a second panel; a retry is another end."""
    assert not is_watched(run)
    watch(run)
    assert is_watched(run)

    run.answer = done
    kernel.tick()
    assert kernel.views == ()
    assert is_watched(run)

    run.answer = running
    assert not is_watched(run)
    run.answer = replace(done, ended=done.at + 60)
    assert not is_watched(run)


def test_run_that_cannot_be_asked_is_not_watched(kernel: Kernel, run: Any) -> None:
    """The error belongs to the wait that follows."""
    run.answer = SchedulerGone(address="tcp://nowhere", reason="closed")

    assert not is_watched(run)


def test_concluded_run_shows_itself_no_second_time_in_its_cell(
    kernel: Kernel, shell: Any, run: Any, done: RunStats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`%dq wait` under a panel says one line; the run at the end of a later cell is shown in full."""
    cell = [4]
    monkeypatch.setattr(display, "running_cell", lambda: cell[0])
    run.answer = done

    end = "48,210 documents, 914,306 pages in 35 min 14 s: 433 pages/s, 22.8 documents/s"
    assert conclude(run) == f"parse-invoices  done, 212 dead  {end}"
    assert shell.display_formatter.format(run) == ({}, {})
    assert kernel.outputs == []

    cell[0] = 5
    shell.display_formatter.format(run)
    assert len(kernel.outputs) == 1


@pytest.mark.cluster
def test_importing_views_loads_no_display_library() -> None:
    """A worker, a script and the command line do not pay for Jupyter."""
    code = (
        "import sys, dqlab.live.display, dqlab.live.follow, dqlab.live.ticker\n"
        "assert not {'IPython', 'ipywidgets', 'anywidget', 'traitlets', 'bokeh', 'pandas'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_module_names_are_those_of_the_classes() -> None:
    """Formatters find classes by name; a class that moves would silently lose its picture."""
    for module, name in display._BUNDLES:
        found = pytest.importorskip(module, reason=f"{module} is not there yet")
        assert isinstance(found, ModuleType)
        assert getattr(found, name).__module__ == module


@pytest.mark.parametrize("kind", ["lab", "pool"])
def test_labs_and_queues_show_themselves(shell: Any, kernel: Kernel, hand_lab: Any, hand_pool: Any, kind: str) -> None:
    """`lab` or `pool` at the end of a cell: a widget, with a table for what can show none."""
    module, name, source = {
        "lab": ("dqlab.lab", "Lab", hand_lab),
        "pool": ("dqlab.runs.pool", "QueuePool", hand_pool),
    }[kind]
    source.__class__ = of_type(module, name, type(source))

    assert shell.display_formatter.format(source) == ({}, {})
    assert "application/vnd.jupyter.widget-view+json" in kernel.outputs[0]
    assert "15,846" in kernel.outputs[0]["text/html"]
    assert len(kernel.views) == 1

    watch(source)
    kernel.tick()
    assert len(kernel.views) == 1
    assert "later cell" in kernel.outputs[0]["text/plain"]


@pytest.mark.parametrize("wanted", ["static", "text"])
def test_lab_shows_one_picture_where_nothing_may_move(shell: Any, kernel: Kernel, hand_lab: Any, wanted: str) -> None:
    """For notebooks that are executed without anybody looking."""
    hand_lab.__class__ = of_type("dqlab.lab", "Lab", type(hand_lab))
    set_mode(wanted)
    data, _ = shell.display_formatter.format(hand_lab)

    assert set(data) == ({"text/plain", "text/html"} if wanted == "static" else {"text/plain"})
    assert "60,191" in data["text/plain"]
    assert kernel.views == ()


def test_closed_lab_is_its_own_line(shell: Any, hand_lab: Any) -> None:
    """`repr` says what to do."""
    hand_lab.__class__ = of_type("dqlab.lab", "Lab", type(hand_lab))
    hand_lab.closed = True

    data, _ = shell.display_formatter.format(hand_lab)

    assert data["text/plain"].startswith("<dqlab.lab.Lab at 0x")
    assert set(data) == {"text/plain"}


def test_lab_in_a_terminal_is_followed_until_it_is_closed(hand_lab: Any, clock: Any) -> None:
    """A line into a pipe, and one at the end."""
    stream = io.StringIO()

    def pause(_: float) -> None:
        hand_lab.picture = LabClosed(lab="papers", what="it", left="")
        clock.now += 60

    follow_here(hand_lab, stream, TextStyle(), clock=clock, pause=pause)

    first, last = stream.getvalue().splitlines()
    assert "14:22:07 papers waiting 60,191 messages unacked 104 messages out 51.9 messages/s" in first
    assert f"out {UNKNOWN} messages/s" in last, "no speed is known any more"
    assert last.endswith("lab 'papers' was closed, so it can no longer be used.")
