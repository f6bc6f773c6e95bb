"""The golden scenario behind a feed that is moved by hand, and pages that draw it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from dqlab.stats import ConsumerStats, Counts, History, Snapshot

GOLDEN = Path(__file__).parents[2] / "golden"


class HandFeed:
    """Says what it was given, and counts how often it was asked."""

    def __init__(self, snapshot: Snapshot, history: History) -> None:
        self.seq = snapshot.seq
        self.now, self.past = snapshot, history
        self.snapshots: list[tuple[str, str]] = []
        self.histories: list[tuple[float, str, str]] = []
        self.error: Exception | None = None

    def snapshot(self, queue: str = "", run: str = "") -> Snapshot:
        self.snapshots.append((queue, run))
        if self.error is not None:
            raise self.error
        return self.now

    def history(self, span: float, queue: str = "", run: str = "") -> History:
        self.histories.append((span, queue, run))
        return self.past

    def change(self, **fields: Any) -> None:
        """Say something else from now on."""
        self.seq += 1
        self.now = replace(self.now, seq=self.seq, **fields)


@pytest.fixture
def history() -> History:
    return History.from_dict(json.loads((GOLDEN / "history.json").read_text(encoding="utf-8")))


@pytest.fixture
def feed(snapshot: Snapshot, history: History) -> HandFeed:
    return HandFeed(snapshot, history)


@pytest.fixture
def open_page(feed: HandFeed, clock: Any) -> Callable[..., Any]:
    """Return what opens a page on the feed: its document, and all that was sent to the browser since."""
    from bokeh.document import Document

    from dqlab.live.panels.page import PANELS, Page
    from dqlab.live.panels.scene import Readings, Request

    readings = Readings(feed, clock)

    def opened(*names: str, **asked: Any) -> Any:
        page: Any = Page(Document(), readings, Request(**asked), names or list(PANELS))
        page.sent = []
        page.doc.on_change(page.sent.append)
        return page

    return opened


def words(page: Any) -> str:
    """All the HTML of a page."""
    from bokeh.models import Div

    return "\n".join(model.text for model in page.doc.select({"type": Div}))


def titles(page: Any) -> dict[str, str]:
    """The answers of a page's panels by their titles."""
    found = re.findall(r'<div class="hd"><h2>(.*?)</h2><span>(.*?)</span>', words(page))
    return {unescape(title): unescape(answer) for title, answer in found}


def cells(page: Any, table: str) -> list[list[str]]:
    """The rows of a table by its name."""
    model = page.doc.get_model_by_name(table)
    columns = [model.source.data[f"t{at}"] for at in range(len(model.columns))]
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.fixture
def crowd(snapshot: Snapshot, history: History) -> HandFeed:
    """A hundred queues and two hundred consumers, each second of five minutes different."""
    queues = tuple(replace(snapshot.queues[0], name=f"q{at}") for at in range(100))
    consumers = tuple(ConsumerStats(f"c{at}", "q0", f"w{at // 4}", 9, 100, 3.0, 50.0 + at, 0.9) for at in range(32))
    points = tuple(float(at % 17) for at in range(300))
    past = replace(
        history,
        step=1.0,
        ready=points,
        delayed=points,
        leased=points,
        dead=points,
        live=points,
        garbage=points,
        consumers={f"w{at}": points for at in range(32)},
        idle={f"w{at}": points for at in range(32)},
    )
    now = replace(
        snapshot,
        of_queue="",
        of_run="",
        queues=queues,
        consumers=consumers,
        queues_total=100,
        consumers_total=200,
        totals=replace(snapshot.totals, consumers=200, counts=Counts(ready=90_000, leased=900)),
    )
    return HandFeed(now, past)
