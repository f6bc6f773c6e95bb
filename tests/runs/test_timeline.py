"""How a queue was, as rows and a table."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.live.layout import timeline_parts
from dqlab.live.render import blocks, render_text
from dqlab.live.style import TextStyle
from dqlab.runs.queue_rows import Timeline
from dqlab.stats import History

GOLDEN = Path(__file__).parents[1] / "golden" / "history.json"


@pytest.fixture
def timeline() -> Timeline:
    return Timeline(History.from_dict(json.loads(GOLDEN.read_text())))


def test_rows_are_evenly_spaced_and_the_last_is_the_newest(timeline: Timeline) -> None:
    steps = {(later.at - earlier.at).total_seconds() for earlier, later in pairwise(timeline)}

    assert steps == {5.0}
    assert timeline[-1].depth == 15846 + 211
    assert timeline[0].depth is None
    assert len(timeline) == len(list(timeline)) == 360


def test_rows_say_which_cells_ran(timeline: Timeline) -> None:
    cells = [moment.cells for moment in timeline if moment.cells]

    assert cells == ["[12] submit", "[13] scale 8", "[15] retry, parse v4"]


def test_frame_has_a_row_for_each_moment(timeline: Timeline) -> None:
    frame = timeline.to_frame()

    assert list(frame.columns) == ["depth", "unacked", "dead", "in_rate", "out_rate", "failure_rate", "cells"]
    assert len(frame) == 360


def test_text_draws_a_line_for_each_series(timeline: Timeline) -> None:
    text = render_text(timeline_parts(timeline.history), TextStyle(unicode=True, width=80))

    assert text.startswith("queue pages, last 24 min")
    assert "now 16,057, most 48," in text
    assert "^ [12] submit" in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_blocks_leave_a_space_where_nothing_is_known() -> None:
    assert blocks([None, 0, 4, 8], 4) == " ▁▅█"
    assert blocks([0, 0], 2) == "▁▁"
    assert blocks([], 3) == "   "


def test_history_of_a_queue_that_works_is_what_it_did(queue: dq.QueuePool) -> None:
    run = queue.map(abs, range(500)).wait(timeout=30)
    queue.pause()
    assert run.done

    while queue.stats().state not in ("paused", "empty"):  # told in the background
        time.sleep(0.005)
    timeline = queue.history("1m")
    while [mark.text for mark in timeline.marks] != ["submit", "pause"] or timeline[-1].depth:
        timeline = queue.history("1m")

    total = sum((moment.out_rate or 0) * timeline.history.step for moment in queue.history("1m"))
    assert total <= 500
