"""Following a run in the foreground."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from typing import Any

from dqlab.live.canvases import ScreenCanvas, follow_here
from dqlab.live.run_picture import run_view
from dqlab.live.style import TextStyle
from dqlab.stats import RunStats

MOVES = TextStyle(moves=True)


class Screen:
    """What a terminal would show: understands cursor up, carriage return, line feed, and what clears to the end."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def feed(self, text: str) -> Screen:
        for up, clears, character in re.findall(r"\x1b\[(\d+)A|\x1b\[([KJ])|(.|\n)", text):
            if up:
                self.row -= int(up)
            elif clears:
                del self.lines[self.row][self.column :]
                if clears == "J":
                    del self.lines[self.row + 1 :]
            elif character == "\n":
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.lines):
                    self.lines.append([])
            elif character == "\r":
                self.column = 0
            else:
                line = self.lines[self.row]
                line[self.column : self.column + 1] = [character]
                self.column += 1
        return self

    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip()


def test_redraw_leaves_nothing_of_the_screen_before(running: RunStats, done: RunStats) -> None:
    """Longer lines and more of them, drawn over by fewer and shorter ones."""
    stream, fresh = io.StringIO(), io.StringIO()
    canvas = ScreenCanvas(stream, MOVES)
    last = run_view(replace(done, classes=(), classes_total=0))
    for view in (run_view(running), run_view(replace(running, why="paused " * 8)), run_view(done), last):
        canvas.draw(view)
    ScreenCanvas(fresh, MOVES).draw(last)

    assert Screen().feed(stream.getvalue()).text() == Screen().feed(fresh.getvalue()).text()


def test_screen_is_redrawn_until_the_run_rests(source: Any, clock: Any, running: RunStats, done: RunStats) -> None:
    """Then the call returns, with the last screen left standing."""
    answers = [running, replace(running, at=running.at + 1), done]

    def pause(seconds: float) -> None:
        clock.now += seconds
        source.answer = answers.pop(0)

    stream = io.StringIO()
    follow_here(source, stream, MOVES, clock=clock, pause=pause)

    assert Screen().feed(stream.getvalue()).text().startswith("parse-invoices  done, 212 dead")


def test_pipe_gets_a_line_every_30_s_and_one_at_the_end(
    source: Any, clock: Any, running: RunStats, done: RunStats
) -> None:
    """A log of an hour has 120 lines, not 7,200."""

    def pause(seconds: float) -> None:
        clock.now += seconds
        passed = clock.now - 1000.0
        source.answer = replace(running, at=running.at + passed) if passed < 60 else done

    stream = io.StringIO()
    follow_here(source, stream, TextStyle(), clock=clock, pause=pause)

    lines = stream.getvalue().splitlines()
    assert [line[:8] for line in lines] == ["14:22:07", "14:22:37", "14:33:54"]
    assert lines[-1].startswith("14:33:54 parse-invoices done, 212 dead 100 % left 0 pages ended at 14:33:54")


def test_interrupt_stops_looking_and_nothing_else(source: Any, clock: Any) -> None:
    """Ctrl-C must never cost the work of a night."""

    def pause(seconds: float) -> None:
        raise KeyboardInterrupt

    stream = io.StringIO()
    follow_here(source, stream, MOVES, clock=clock, pause=pause)

    assert source.done == []
    assert stream.getvalue().endswith("no longer watching parse-invoices; it goes on\n")
