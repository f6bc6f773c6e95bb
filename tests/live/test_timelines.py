"""The history of a queue, as text and as a picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest

from dqlab.live.layout import timeline_parts
from dqlab.live.render import render_html, render_text
from dqlab.live.style import TextStyle, columns
from dqlab.stats import History, Mark
from dqlab.stats.snapshot import Figures
from tests.live.conftest import HISTORY


@pytest.fixture
def history() -> History:
    kept = History.from_dict(json.loads(HISTORY.read_text(encoding="utf-8")))
    marks = tuple(
        Mark(kept.t0 + share * (kept.end - kept.t0), text, cell)
        for share, text, cell in ((0.01, "submit", 3), (0.6, "retry, parse v4 " * 4, 12), (1.0, "<pause>", None))
    )
    return replace(kept, marks=marks, ready=tuple(1000 * (value or 0) for value in kept.ready))


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("unicode", [True, False])
def test_history_fits_a_terminal(history: History, width: int, unicode: bool) -> None:
    """Every row wrapped at 80 columns, and the picture was gone."""
    lines = render_text(timeline_parts(history), TextStyle(unicode=unicode, width=width)).split("\n")

    assert max(map(columns, lines)) <= width
    assert lines[2].startswith("waiting")
    assert all("^" in line for line in lines[-3:])


def test_a_mark_stands_where_its_cell_ran(history: History) -> None:
    """What people did explains what the lines do."""
    lines = render_text(timeline_parts(history), TextStyle()).split("\n")

    places = [line.index("^") for line in lines[-3:]]
    assert places == sorted(places)
    assert "[3] submit" in lines[-3]


def test_history_in_html_is_readable_where_drawings_are_stripped(history: History) -> None:
    """Code hosts remove them; words and figures stay."""
    root = ElementTree.fromstring(render_html(timeline_parts(history)))
    said = "".join(root.itertext())

    for part in ("waiting", "now ", "messages/s", "[3] submit", "<pause>"):
        assert part in said


def test_history_of_a_young_queue_fills_the_picture(history: History) -> None:
    """Of half an hour ten seconds are known: there was a single mark at the right end."""
    points = len(history.ready)
    known = {"ready": (None,) * (points - 1) + (489.0,), "delayed": (None,) * (points - 1) + (0.0,), "marks": ()}
    young = replace(history, **known)

    assert render_text(timeline_parts(young), TextStyle()).split("\n")[2].startswith("waiting    ████")


def test_history_of_nothing_is_drawn_without_lines() -> None:
    """A queue that was made just now."""
    assert render_html(timeline_parts(History(t0=0.0, step=1.0)))
    assert render_text(timeline_parts(History(t0=0.0, step=1.0)), TextStyle())


def test_rates_beside_a_history_are_called_what_they_are(history: History) -> None:
    """ "now 8.51 messages/s" and "now 41 failures" stood there when nothing had moved for 38 s: a minute's mean."""
    still = replace(history, now=Figures(waiting=5, unacked=0, in_rate=0.0, out_rate=8.51, failure_rate=0.7))
    lines = {line.split()[0]: line for line in render_text(timeline_parts(still), TextStyle()).split("\n") if line}

    assert "now 5, most" in lines["waiting"]
    assert "last 60 s 8.51, most" in lines["out"]
    assert "last 60 s 42, most" in lines["failures"], "a count has no decimals"
    assert not any("now" in lines[name] for name in ("in", "out", "failures"))
