"""How a wait is drawn in a terminal and in a notebook."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.errors import CallTimeout
from dqlab.live import waits
from dqlab.live.display import ended_in_view, set_mode
from dqlab.live.waits import SentencePicture, ViewPicture, picture_of
from dqlab.stats import RunStats
from tests.live.conftest import HandSource


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Handle:
    def __init__(self, shown: list[dict[str, Any]]) -> None:
        self._shown = shown

    def update(self, data: dict[str, Any], *, raw: bool) -> None:
        assert raw
        self._shown.append(data)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    stream = Terminal()
    # pytest puts its own stream into sys before a test
    monkeypatch.setattr(waits, "sys", SimpleNamespace(stderr=stream))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("DQLAB_DISPLAY", "live")
    set_mode(None)
    return stream


@pytest.fixture
def source(running: RunStats) -> HandSource:
    return HandSource(running)


@pytest.fixture
def notebook(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []

    def publish(data: dict[str, Any]) -> Handle:
        shown.append(data)
        return Handle(shown)

    monkeypatch.setattr(waits, "publish", publish)
    monkeypatch.setattr(waits, "in_jupyter", lambda: True)
    return shown


def test_a_terminal_shows_one_line_of_steps_and_removes_it(terminal: Terminal) -> None:
    """The prompt comes back where it was."""
    picture = picture_of("connecting")
    assert isinstance(picture, SentencePicture)
    picture.draw("starting a scheduler and 3 workers", 2.1)
    picture.draw("starting a scheduler and 3 workers", 2.4)
    picture.draw("checking the store", 3.0)
    picture.end()

    text = terminal.getvalue()
    assert text.count("connecting: starting a scheduler and 3 workers, 2 s") == 1
    assert "connecting: checking the store, 3 s" in text
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_a_notebook_shows_the_steps_in_one_output(notebook: list[dict[str, Any]]) -> None:
    picture = picture_of("connecting <now>")
    assert picture is not None
    picture.draw("starting", 2.0)
    picture.draw("starting", 3.0)
    picture.end()

    assert [data["text/plain"] for data in notebook] == [
        "connecting <now>: starting, 2 s",
        "connecting <now>: starting, 3 s",
        "",
    ]
    assert "&lt;now&gt;" in notebook[0]["text/html"]


def test_a_terminal_shows_the_run_and_then_how_it_ended(terminal: Terminal, source: Any, done: Any) -> None:
    """The view that `watch` draws, while a call waits for it."""
    picture = picture_of(source)
    assert isinstance(picture, ViewPicture)
    picture.draw("", 2.0)
    drawn = terminal.getvalue()
    source.answer = done
    assert not ended_in_view.holds(source)
    picture.end()

    assert ended_in_view.holds(source)  # a magic does not print it once more
    assert "parse-invoices  running" in drawn.replace("\x1b[1m", "").replace("\x1b[0m", "")
    last = terminal.getvalue()[len(drawn) :]
    assert "\x1b[J" in last
    assert "done, 212 dead" in last
    assert last.endswith("\n")


def test_a_notebook_shows_the_run_as_html(notebook: list[dict[str, Any]], source: Any) -> None:
    """A kernel that waits obeys no button, so there is none."""
    picture = picture_of(source)
    assert picture is not None
    picture.draw("", 2.0)

    assert "parse-invoices" in notebook[0]["text/html"]
    assert "application/vnd.jupyter.widget-view+json" not in notebook[0]


@pytest.mark.parametrize("mode", ["static", "text"])
def test_nothing_moves_where_nothing_is_to_move(terminal: Terminal, mode: str) -> None:
    """`DQLAB_DISPLAY` says how runs are shown."""
    set_mode(mode)
    try:
        assert picture_of("x") is None
    finally:
        set_mode(None)


def test_a_terminal_that_cannot_redraw_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")

    assert picture_of("x") is None


def test_a_run_that_is_on_view_already_is_not_shown_twice(
    terminal: Terminal, source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`%dq submit -w -w` has a live widget above."""
    monkeypatch.setattr(waits, "is_on_view", lambda what: what is source)

    assert picture_of(source) is None


def test_a_run_that_does_not_answer_at_the_end_leaves_nothing(terminal: Terminal, source: Any) -> None:
    """The error that ends the wait says more."""
    picture = picture_of(source)
    assert picture is not None
    picture.draw("", 2.0)
    source.answer = CallTimeout(name="parse-invoices", call="stats", seconds=1)
    picture.end()

    assert terminal.getvalue().endswith("\r\x1b[K")
