"""Scenes that tests draw: a lab of a hundred queues, and how queues were over half an hour."""

from __future__ import annotations

import math

from dqlab.stats import (
    Attention,
    ConsumerStats,
    Counts,
    History,
    QueueState,
    QueueStats,
    Severity,
    Snapshot,
    StorageStats,
    Unacked,
    total_queue,
)
from dqlab.stats.queues import Held
from tests.golden.make_snapshot import NOW

TROUBLES = (
    ("ocr-07", "waiting", "paused itself: 31 % failing", Counts(8804, 96, 0, 6000, 2731), None, None, 840.0),
    ("parse-03", "waiting", "no consumers", Counts(12_090, acked=400), 8.1, None, 1320.0),
    ("embed-01", "running", "in is 1.6 times out", Counts(41_200, 3, 32, 9000), 18.2, 11.4, 2280.0),
    ("crawl-04", "running", "100,000 messages: put waits", Counts(100_000, 812, 64, 70_000, 19), 7.6, 7.6, 13_150.0),
    ("ner-02", "running", "lease ends in 9 s, not renewed", Counts(310, 0, 8, 900), 2.2, 1.1, 240.0),
    ("ship-00", "running", "48 min behind", Counts(2210, 0, 4, 80, 1), 0.7, 0.8, 2880.0),
)
STAGES = ("crawl", "dedupe", "parse", "embed", "index", "ocr", "ner")


def many_queues() -> Snapshot:
    """A lab of 100 queues and 256 consumers, six of the queues in trouble."""
    queues = [
        QueueStats(
            name,
            QueueState(state),
            counts,
            why=why,
            in_rate=ins,
            out_rate=outs,
            lag=lag,
            consumers=8,
            disk=44_000_000,
            never_empty=bool(ins and ins >= (outs or 0)),
        )
        for name, state, why, counts, ins, outs, lag in TROUBLES
    ]
    for n in range(38):
        counts = Counts(1400 - 36 * n, n % 7, 1 + n % 9, 10_000, 2 if n % 9 == 2 else 0)
        name = f"{STAGES[n % len(STAGES)]}-{20 + n}"
        queues.append(
            QueueStats(
                name,
                "running",
                counts,
                in_rate=12.0,
                out_rate=20.0,
                lag=60.0,
                consumers=4,
                empty_in=180.0,
                disk=4 * 10**6,
            )
        )
    queues += [QueueStats(f"held-{n}", "paused", Counts(500 * n), why="by ana, 13:34", disk=10**6) for n in range(3)]
    queues += [QueueStats(f"rest-{n:02}", "empty", Counts(acked=9), disk=0) for n in range(53)]
    attention = (
        Attention(
            Severity.PROBLEM, "stopped", "ocr-07", "paused itself: 31 % failing", "", "retry", "ocr-07", "ocr", "f1"
        ),
        Attention(Severity.WARNING, "no-consumer", "parse-03", "no consumers", "", "scale", "parse-03"),
    )
    consumers = tuple(
        ConsumerStats(f"c{n}", "ocr-07", f"w-{n // 8}", 8, 100, 3.0 + n, 40.0 + n, 0.9, None, 5.0, "a.pdf", 4 * 10**8)
        for n in range(32)
    )
    return Snapshot(
        at=NOW,
        seq=1,
        lab="papers-cluster",
        store="$SCRATCH/runs",
        workers=32,
        busy_share=0.81,
        attention=attention,
        attention_total=6,
        queues=tuple(queues),
        totals=total_queue(queues, consumers=256),
        queues_by_state={
            "running": 42,
            "paused": 3,
            "empty": 53,
            "waiting": 2,
        },
        consumers=consumers,
        unacked=Unacked(total=1904, oldest=(Held("c9", 543.0, 20.0),)),
        storage=StorageStats(live=10_400_000_000, garbage=8_000_000_000),
        queues_total=100,
        consumers_total=256,
    )


def lab_history(snapshot: Snapshot) -> History:
    """Half an hour of all queues, one point a minute."""
    depths = {}
    for salt, queue in enumerate(snapshot.queues):
        depth = queue.counts.waiting
        slope = 0.6 if queue.empty_in else -0.7 if queue.never_empty else 0.0
        depths[queue.name] = tuple(
            max(0, round(depth * (1 + slope * (29 - x) / 29) + 0.1 * depth * math.sin(x * 2.1 + salt) * (slope != 0)))
            for x in range(30)
        )
    return History(t0=NOW - 29 * 60.0, step=60.0, depths=depths)
