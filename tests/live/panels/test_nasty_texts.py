"""Whatever texts reports bring along, what is drawn of them is valid, short and harmless."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import prometheus_client
import pytest

pytest.importorskip("bokeh", reason="bokeh is in the extra lab")

from bokeh.models import Div

from dqlab.cluster.statistics.collector import Collector
from dqlab.cluster.transport.reports import ConsumerReport, ShardReport, unpacked
from dqlab.cluster.transport.wire import pack_report
from dqlab.live.display import text_of
from dqlab.live.lab_picture import Site, lab_view, queue_view
from dqlab.live.layout import ended_line
from dqlab.live.panels import metrics
from dqlab.live.run_picture import Focus, run_view
from dqlab.stats import History, Snapshot
from dqlab.texts import shown
from tests.cluster.reports import consumer_report, failure_class, lane_report, shard_report
from tests.kit.nasty import NASTY_TEXTS
from tests.kit.sampled import mostly_slow
from tests.live.drawn import html_of, screen_of

SHORT = [text for text in NASTY_TEXTS if len(text) < 1_000]

FIXED = {"kind", "queue", "run", "state", "fingerprint"}
"""What reports are joined by."""


def spoiled(report: Any, text: str) -> Any:
    """Return a report in which every text that is not fixed is another one."""
    if isinstance(report, dict):
        return {key: value if key in FIXED else spoiled(value, text) for key, value in report.items()}
    if isinstance(report, list | tuple):
        return [spoiled(each, text) for each in report]
    return text if isinstance(report, str) else report


def reports() -> Iterator[ShardReport | ConsumerReport]:
    """Yield one of each kind, with something in every field."""
    counts = [3, 0, 1, 4, 2, 0, 0]
    lane = lane_report(
        counts=counts,
        why="paused by ana",
        incomplete="the input ended early",
        classes=[failure_class(dead=2, failed=2)],
        failing=[["a.pdf", "KeyError", 3, None]],
    )
    plain = lane_report(None, counts=counts, classes=[failure_class("0badcafe", retrying=1, failed=1)])
    yield shard_report("pages", lane, plain, failure="the disk is full", oldest=[["c", 9.0, 50.0, 1, 0, 1]])
    yield consumer_report(leased=1, oldest=["a.pdf", 4.0], last_error="KeyError")


class Hall:
    """A collector as the feed of panels, and as what metrics ask."""

    def __init__(self, text: str) -> None:
        self.collector = Collector(where=shown(text))
        for report in reports():
            self.collector.take(unpacked(pack_report(spoiled(report.to_wire(), text))))
        self.collector.mark(shown(text), cell=3, queue="pages", by=shown(text))

    @property
    def seq(self) -> int:
        return self.collector.seq

    def snapshot(self, queue: str = "", run: str = "") -> Snapshot:
        return self.collector.snapshot(queue, run)

    def history(self, span: float, queue: str = "", run: str = "") -> History:
        return self.collector.history(span, queue, run)

    def collect(self) -> Iterator[Any]:
        return metrics.metrics(self.snapshot())


def drawn(hall: Hall) -> Iterator[str]:
    """Yield everything that is made of what the collector knows."""
    snapshot, history = hall.snapshot("pages"), hall.history(600, "pages")
    place = Site("lab", "")
    for run in snapshot.runs:
        view = run_view(run, Focus(snapshot, history, "def f(): pass"))
        yield json.dumps(view.parts(), ensure_ascii=False)
        yield from (html_of(view), screen_of(view), ended_line(view))
    for queues in (lab_view(snapshot, history, place=place), queue_view(snapshot, history, place=place)):
        yield json.dumps(queues.parts(), ensure_ascii=False)
    yield text_of(snapshot)


@pytest.mark.parametrize("text", NASTY_TEXTS, ids=range(len(NASTY_TEXTS)))
def test_every_field_of_every_report_may_hold_anything(text: str, clock: Any) -> None:
    """Keys, classes and reasons come from documents, functions and machines of anybody."""
    hall = Hall(text)
    registry = prometheus_client.CollectorRegistry()
    registry.register(hall)  # type: ignore[arg-type]

    for kind, said in ((Snapshot, hall.snapshot()), (Snapshot, hall.snapshot("pages")), (History, hall.history(600))):
        data = json.dumps(said.to_dict(), ensure_ascii=False).encode()
        assert kind.from_dict(json.loads(data)).to_dict() == said.to_dict()
    prometheus_client.generate_latest(registry).decode()
    for said in drawn(hall):
        said.encode()
        assert "\x1b" not in said
    assert not any("<b onload" in html_of(run_view(run)) for run in hall.snapshot().runs)


@pytest.mark.long
@pytest.mark.parametrize("text", mostly_slow(SHORT, *SHORT[::4]), ids=repr)
def test_panels_draw_any_text(text: str, clock: Any) -> None:
    """They are one page for all queues: what one of them brings along must not cost the others their picture."""
    from bokeh.core.json_encoder import serialize_json
    from bokeh.document import Document

    from dqlab.live.panels.page import PANELS, Page
    from dqlab.live.panels.scene import Readings, Request

    page = Page(Document(), Readings(Hall(text), clock), Request(queue="pages"), list(PANELS))

    serialize_json(page.doc.to_json()).encode()
    assert not any("<b onload" in div.text for div in page.doc.select({"type": Div}))
