"""Writes `snapshot.json` and `history.json`: one scenario, lab `papers` at 14:22:07, for every test that draws; and
`every_field.json`, the names of all fields that can be sent.

Run it again when fields are added: ``python -m tests.golden.make_snapshot``.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from dqlab.stats import (
    Attention,
    ClassStats,
    CodeStats,
    Compaction,
    ConsumerStats,
    Counts,
    Eta,
    FailingDocument,
    Failures,
    Held,
    History,
    Mark,
    QueueStats,
    RunState,
    RunStats,
    Severity,
    Snapshot,
    StorageStats,
    Unacked,
    total_counts,
)
from dqlab.stats.snapshot import Figures

HERE = Path(__file__).parent
NOW = 1_795_270_927.0
STEP, POINTS = 5.0, 360
GB, MB = 10**9, 10**6


def at(clock: str) -> float:
    """Return a time of that day."""
    hours, minutes = clock.split(":")
    return NOW - (14 * 3600 + 22 * 60 + 7) + int(hours) * 3600 + int(minutes) * 60


MARKS = (
    Mark(at("13:58"), "submit", 12, "pages"),
    Mark(at("14:02"), "scale 8", 13, "pages"),
    Mark(at("14:06"), "retry, parse v4", 15, "pages"),
)
CLASSES = (
    ClassStats("d2c81e07", "PdfError", "invalid xref table", "parse:31", 128, 140, at("13:59"), NOW - 8, None, 268),
    ClassStats("7b0f44a1", "KeyError", "'total'", "totals:12", 61, 58, at("14:03"), NOW - 5, None, 119),
    ClassStats("c19e55b2", "TimeoutError", "over 90 s", "parse:40", 17, 9, at("14:00"), NOW - 31, None, 26),
    ClassStats("0a77d3f4", "WorkerKilled", "out of memory, SIGKILL", "", 6, 4, at("14:09"), NOW - 240, None, 10),
)


def queue(name: str, state: str, counts: Counts, **more: object) -> QueueStats:
    return QueueStats(name, state, counts, **more)  # type: ignore[arg-type]


QUEUES = (
    queue(
        "pages", "running", Counts(15846, 211, 64, 31877, 212), why="KeyError spreading", retrying=211,
        nbytes=1_200_000_000, maxsize=100_000, lag=1407.0, in_rate=0.4, out_rate=23.9, units_rate=451.0,
        consumers=8, empty_in=713.0, disk=1_800_000_000, last_used=NOW,
    ),
    queue(
        "ocr", "running", Counts(2904, 12, 32, 9120, 3), retrying=12, nbytes=210 * MB, lag=850.0, in_rate=0.1,
        out_rate=4.2, units_rate=12.0, consumers=4, empty_in=713.0, disk=310 * MB, last_used=NOW,
    ),
    queue(
        "embed", "paused", Counts(41200), why="by ana, 13:34", nbytes=80 * MB, lag=2885.0, disk=96 * MB,
        last_used=at("13:34"),
    ),
    queue(
        "index", "keeping up", Counts(18, 0, 8, 41007), nbytes=9 * MB, lag=0.7, in_rate=23.7, out_rate=23.8,
        consumers=2, disk=12 * MB, last_used=NOW,
    ),
    queue("thumbs", "empty", Counts(acked=48210), disk=1_100_000, last_used=at("14:05")),
    queue("default", "empty", Counts(), disk=0),
)  # fmt: skip

RUNS = (
    RunStats(
        "parse-invoices", "pages", RunState.RUNNING, QUEUES[0].counts,
        units=Counts(306184, 6318, 3392, 593204, 5208),
        code=CodeStats("parse", "a41f9c", 4, 15, did=(0, 0, 3212, 28665)), total=48210,
        retrying=211, started=NOW - 1407, at=NOW, rate=23.9, units_rate=451.0, consumers=8, classes=CLASSES,
        classes_total=4, eta=Eta(at("14:32"), at("14:34"), at("14:38")),
    ),
    RunStats(
        "ocr-scans", "ocr", RunState.RUNNING, QUEUES[1].counts, units=Counts(8200, 40, 160, 11560, 40),
        code=CodeStats("ocr", "11d0fa", 1, 9), total=12071, retrying=12, started=at("14:07"), at=NOW, rate=4.2,
        units_rate=12.0, consumers=4, classes_total=1, eta=Eta(at("14:31"), at("14:34"), at("14:41")),
    ),
    RunStats(
        "index-build", "index", RunState.SUBMITTING, QUEUES[3].counts, why="follows parse-invoices",
        code=CodeStats("index", "5c2e11", 1, 10), started=at("13:58"), at=NOW, rate=23.8, consumers=2,
    ),
    RunStats(
        "embed-pages", "embed", RunState.PAUSED, Counts(41200, acked=5618), why="by ana, 13:34",
        code=CodeStats("embed", "90ab77", 2, 11), total=46818, started=at("13:30"), at=NOW,
    ),
    RunStats(
        "thumbs", "thumbs", RunState.DONE, Counts(acked=48210), code=CodeStats("thumb", "e3b0c4", 1, 8), total=48210,
        started=at("13:55"), ended=at("13:55") + 591, at=NOW,
    ),
)  # fmt: skip

ROWS = (
    ("c5", "w-3", 3, 421, 0.7, 14.0, 1.0, None, 252.0, "acme/2019/ledger-0417.pdf", 1_900 * MB, True),
    ("c7", "w-4", 8, 3790, 2.7, 50.0, 0.91, "PdfError", 6.0, "nordic/scan-90233.pdf", 410 * MB, False),
    ("c6", "w-4", 8, 4012, 3.0, 55.0, 0.94, None, 5.0, "acme/2020/inv-11802.pdf", 402 * MB, False),
    ("c4", "w-3", 9, 4460, 3.3, 63.0, 0.97, "KeyError", 3.0, "lux/contract-90.pdf", 390 * MB, False),
    ("c3", "w-2", 9, 4520, 3.4, 64.0, 0.96, None, 2.0, "acme/2021/inv-30412.pdf", 421 * MB, False),
    ("c2", "w-2", 9, 4700, 3.5, 66.0, 0.98, "PdfError", 4.0, "acme/2021/inv-30655.pdf", 405 * MB, False),
    ("c1", "w-1", 9, 4810, 3.6, 68.0, 0.97, None, 2.0, "lux/contract-12.pdf", 398 * MB, False),
    ("c0", "w-1", 9, 4902, 3.7, 71.0, 0.98, None, 3.0, "nordic/scan-90240.pdf", 412 * MB, False),
)
CONSUMERS = tuple(
    ConsumerStats(name, "pages", worker, leased, done, rate, units, busy, error, oldest, document, rss, slow=slow)
    for name, worker, leased, done, rate, units, busy, error, oldest, document, rss, slow in ROWS
)

UNACKED = Unacked(
    age_bins=(6, 17, 22, 12, 4, 2, 0, 0, 0, 1, 0),
    total=64,
    past=1,
    timeout=60.0,
    oldest=(
        Held("c5", 252.0, 38.0, 1, "acme/2019/ledger-0417.pdf", 12, 3, 252.0),
        Held("c7", 22.0, 57.0, 1, "nordic/scan-90233.pdf", 1, 1, 22.0),
        Held("c6", 19.0, 44.0, 1, "acme/2020/inv-11802.pdf", running=19.0),
    ),
    redelivered_10m=37,
    leases_lost_10m=4,
)
FAILURES = Failures(
    dead=212,
    retrying=211,
    per_minute=9,
    classes_total=4,
    classes=CLASSES,
    documents=(
        FailingDocument("acme/2019/ledger-0417.pdf", "TimeoutError", 3, 5, 1370, "parse-invoices"),
        FailingDocument("nordic/scan-88120.pdf", "WorkerKilled", 5, 5, 912, "parse-invoices"),
        FailingDocument("acme/2021/inv-30991.pdf", "PdfError", 4, 5, 3, "parse-invoices"),
        FailingDocument("lux/contract-7.pdf", "KeyError", 4, 5, 12, "parse-invoices"),
    ),
)
STORAGE = StorageStats(
    live=860 * MB,
    garbage=1340 * MB,
    disk_free=48 * GB,
    write_rate=3.1 * MB,
    fsync_p99=0.0041,
    compact_above=0.5,
    compactions=(Compaction(at("13:40"), 2_300 * MB, 1.9), Compaction(at("14:02"), 900 * MB, 0.8)),
)
ATTENTION = (
    Attention(
        Severity.PROBLEM, "failing", "61 dead", "KeyError 'total'", "totals:12, parse v4 · first 14:03, last 14:22",
        "retry", "pages", "parse-invoices", "7b0f44a1", 61,
    ),
    Attention(
        Severity.WARNING, "held", "c5", "held one document for 4 min 12 s", "acme/2019/ledger-0417.pdf", "show",
        "pages", "parse-invoices", "c5",
    ),
    Attention(
        Severity.PROBLEM, "failing", "128 dead", "PdfError invalid xref table", "parse:31 · 140 waiting to retry",
        "retry", "pages", "parse-invoices", "d2c81e07", 128,
    ),
)  # fmt: skip

SNAPSHOT = Snapshot(
    at=NOW,
    seq=8412,
    lab="papers",
    store="runs/",
    workers=4,
    of_queue="pages",
    of_run="parse-invoices",
    units="pages",
    busy_share=0.93,
    attention=ATTENTION,
    attention_total=3,
    marks=MARKS,
    queues=QUEUES,
    totals=queue(
        "total",
        "",
        total_counts(each.counts for each in QUEUES),
        retrying=223,
        nbytes=sum(each.nbytes for each in QUEUES),
        lag=2885.0,
        in_rate=24.2,
        out_rate=51.9,
        consumers=14,
        disk=2_219_100_000,
    ),
    queues_by_state={"running": 2, "paused": 1, "keeping up": 1, "empty": 2},
    runs=RUNS,
    consumers=CONSUMERS,
    median_units_rate=63.5,
    unacked=UNACKED,
    failures=FAILURES,
    storage=STORAGE,
    queues_total=6,
    runs_total=5,
    consumers_total=14,
)


def _wave(point: int, height: float, salt: float) -> float:
    return round(height * (1 + 0.06 * math.sin(point * 1.3 + salt) + 0.04 * math.sin(point * 0.41 + 2 * salt)), 2)


def history() -> History:
    """Return half an hour of queue `pages`, in steps of five seconds."""
    start = round((at("13:58") - NOW) / STEP) + POINTS - 1
    after = range(POINTS - start)
    last = len(after) - 1

    def since(values: list[float]) -> tuple[float | None, ...]:
        return (None,) * start + tuple(values)

    ready = [round(15846 + (48000 - 15846) * (1 - x / last)) if x > 12 else 4000.0 * x for x in after]
    consumers, idle = {}, {}
    for row, stats in enumerate(CONSUMERS):
        born = 40 if stats.name in ("c4", "c5", "c6", "c7") else 0
        full = stats.units_rate or 0.0
        speeds = [_wave(x, 64.0 if stats.slow and x < last - 30 else full, row) for x in after[born:]]
        consumers[stats.name] = (None,) * (start + born) + tuple(speeds)
        idle[stats.name] = (None,) * (start + born) + (stats.idle_share,) * len(speeds)
    made = History(
        t0=NOW - STEP * (POINTS - 1),
        step=STEP,
        queue="pages",
        run="parse-invoices",
        ready=since(ready),
        delayed=since([round(200 + 340 * math.exp(-(((x - 80) / 14) ** 2))) for x in after[:-1]] + [211]),
        leased=since([min(64, 4 * x) + (x % 3) - 1 for x in after[:-1]] + [64]),
        dead=since([min(60, x // 2) if x < 96 else 10 + (x - 96) * 202 // (last - 96) for x in after]),
        in_rate=since([800.0 if x <= 12 else 0.4 for x in after]),
        out_rate=since([_wave(x, 23.9, 0.0) for x in after]),
        failure_rate=since([0.4 if 60 < x < 80 else 0.15 for x in after]),
        units_left=since([round(315_894 * (value / 15_846)) for value in ready]),
        live=since([round((0.3 + 0.56 * x / last) * GB) for x in after]),
        garbage=since([round((0.2 + 1.14 * x / last) * GB) for x in after]),
        consumers=consumers,
        idle=idle,
        classes={
            "d2c81e07": tuple((5, 8, 3, 9, 7, 4)[minute % 6] if minute > 6 else 0 for minute in range(30)),
            "7b0f44a1": tuple({12: 15, 13: 18}.get(minute, 3 if minute > 14 else 0) for minute in range(30)),
            "c19e55b2": tuple(1 if minute > 7 and minute % 4 else 0 for minute in range(30)),
            "0a77d3f4": tuple(1 if minute in (18, 21, 24, 25, 29) else 0 for minute in range(30)),
        },
        marks=MARKS,
    )
    waiting = [None if one is None else one + other for one, other in zip(made.ready, made.delayed, strict=True)]  # type: ignore[operator]
    series = (waiting, made.leased, made.in_rate, made.out_rate, made.failure_rate)
    largest = (max(value for value in values if value is not None) for values in series)
    return replace(made, now=Figures(*(values[-1] for values in series)), most=Figures(*largest))


def sample(kind: Any) -> Any:
    """Return plain data of a type in which no field is left out, and no list is empty."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return sample(next(each for each in arguments if each is not NoneType))
    if origin is tuple:
        return [sample(arguments[0])]
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return {each.name: sample(hints[each.name]) for each in fields(kind)}
    return {} if origin is not None else None


def every_field() -> dict[str, Any]:
    """Return a Snapshot and a History with all their fields."""
    return {"snapshot": sample(Snapshot), "history": sample(History)}


if __name__ == "__main__":
    for name, data in (
        ("snapshot", SNAPSHOT.to_dict()),
        ("history", history().to_dict()),
        ("every_field", every_field()),
    ):
        (HERE / f"{name}.json").write_text(json.dumps(data, indent=None if name == "history" else 1) + "\n")
