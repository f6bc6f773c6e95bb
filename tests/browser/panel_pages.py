"""Pages of panels as tests see them: a feed that is moved by hand, the scenes it shows, and when charts are drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from dqlab.stats import (
    Attention,
    ClassStats,
    ConsumerStats,
    Counts,
    FailingDocument,
    Failures,
    Held,
    History,
    Mark,
    RunState,
    Severity,
    Snapshot,
    StorageStats,
    Unacked,
)
from tests.live.panels.conftest import HandFeed

__all__ = ["CARDS", "DRAWN", "NAMES", "Feed", "crowded"]

GOLDEN = Path(__file__).parents[1] / "golden"
NAMES = ("depth", "unacked", "throughput", "failures", "runs", "storage")
CARDS = "section.card, .card.needs, .card.figures, .dash .top"
CANVASES = """() => {
  const found = []
  const copy = Object.assign(document.createElement("canvas"), { width: 200, height: 200 })
  const small = copy.getContext("2d", { willReadFrequently: true })
  small.imageSmoothingEnabled = false
  const visit = (root) => root.querySelectorAll("*").forEach((element) => {
    if (element.tagName === "CANVAS" && element.width > 20) {
      small.clearRect(0, 0, 200, 200)
      small.drawImage(element, 0, 0, 200, 200)
      const data = small.getImageData(0, 0, 200, 200).data
      const colours = new Set()
      for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 100) colours.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2])
      found.push(colours.size)
    }
    if (element.shadowRoot) visit(element.shadowRoot)
  })
  visit(document)
  return found
}"""
DRAWN = f"(least) => ({CANVASES})().filter((colours) => colours > 2).length >= least"
"""Script: whether at least so many canvases have more than two colours."""


class Feed(HandFeed):
    """The golden scenario; `seq` grows when a test changes it."""

    def __init__(self) -> None:
        snapshot, history = (
            json.loads((GOLDEN / f"{name}.json").read_text("utf-8")) for name in ("snapshot", "history")
        )
        super().__init__(Snapshot.from_dict(snapshot), History.from_dict(history))


LONG = "a/very/long/place/with/a/name/that/no/panel/has/room/for/ledger-0417-of-the-second-quarter.pdf"


def crowded(feed: Feed) -> None:
    """Let a feed show all queues of a lab that is full of long names, large numbers and trouble."""
    now, past, at = feed.now, feed.past, feed.now.at
    queues = [
        replace(now.queues[0], name=f"queue-of-a-long-name-{n}", counts=Counts(9_876_543, 12_345, 999, 88_888, 10_899))
        for n in range(30)
    ]
    consumers = [
        ConsumerStats(f"c{n}", queues[n % 3].name, f"worker-{n}.cluster.example", 99, 1_000_000, 3.0 * n, 50.5 * n, 0.0)
        for n in range(32)
    ]
    classes = [
        ClassStats(
            f"f{n}", "AVeryLongExceptionClassName" * (1 + n % 2), f"no page {LONG}", f"parse:{n}", 10**n, 9 * n, at, at
        )
        for n in range(8)
    ]
    states = list(RunState)
    base = now.runs[0]
    runs = [
        replace(
            base,
            name=f"run-of-a-long-name-that-says-all-{n}",
            queue=queues[n].name,
            state=states[n % len(states)],
            started=at - 600.0 * (n + 1),
            ended=at - 60.0 * n if states[n % len(states)] in (RunState.DONE, RunState.CANCELLED) else None,
            counts=Counts(acked=10_000_000, dead=n * 1_111_111, ready=12_345),
            owner="somebody-with-a-long-name, the-notebook-of-a-long-name.ipynb",
            why="no consumer serves the queue of this run, and none will while the cluster is full",
        )
        for n in range(20)
    ]
    feed.now = Snapshot(
        at=at,
        seq=feed.seq + 1,
        lab="papers-of-the-whole-institute",
        units="pages",
        workers=64,
        busy_share=0.0,
        attention=tuple(
            Attention(
                Severity.PROBLEM, "failing", f"{n}00,000 dead", LONG, LONG, queue=queues[n].name, run=runs[n].name
            )
            for n in range(5)
        ),
        attention_total=12,
        queues=tuple(queues),
        totals=replace(now.totals, counts=Counts(296_296_290, 370_350, 29_970, 2_666_640, 326_970), consumers=256),
        runs=tuple(runs),
        runs_total=1234,
        consumers=tuple(consumers),
        consumers_total=256,
        median_units_rate=1234.5,
        unacked=Unacked(
            age_bins=tuple(10 ** (n % 6) for n in range(11)),
            total=1_234_567,
            past=252,
            timeout=60.0,
            oldest=tuple(Held(f"c{n}", 86_340.0, 3599.0, 1, LONG, 9999, 99) for n in range(3)),
        ),
        failures=Failures(
            dead=326_970,
            retrying=12,
            per_minute=1021,
            classes_total=31,
            classes=tuple(classes),
            documents=tuple(
                FailingDocument(f"{n}/{LONG}", "AVeryLongExceptionClassName", 9999, 5, 123_456) for n in range(4)
            ),
        ),
        storage=StorageStats(
            live=987_654_321_000,
            garbage=987_654_321_000,
            disk_free=12_345_678_901_234,
            write_rate=98_765_432.0,
            fsync_p99=1.2345,
            compact_above=0.5,
            compactions=now.storage.compactions,
        ),
        queues_total=130,
    )
    marks = tuple(Mark(at - 60.0 * n, "retry, parse v12", 100 + n) for n in range(12))
    feed.past = replace(past, marks=marks, classes={f"f{n}": (10**n,) * 30 for n in range(8)})
    feed.seq += 1
