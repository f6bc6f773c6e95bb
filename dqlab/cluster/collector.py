"""Joins what actors report into one Snapshot, when somebody asks for it.

Reports are absolute totals, so a lost, repeated or late one does no harm. Rates come from
`stats.Meter`. Nothing is computed while nobody looks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.cluster.parking import Bell
from dqlab.stats import (
    ClassStats,
    CodeStats,
    ConsumerStats,
    Counts,
    History,
    Meter,
    QueueStats,
    RunStats,
    Snapshot,
    run_state,
    total_counts,
    total_queue,
)
from dqlab.stats.snapshot import MAX_CLASSES, MAX_CONSUMERS, MAX_QUEUES, MAX_RUNS

__all__ = ["Collector"]


class Collector:
    """Latest report of every shard and consumer, and meters for their rates."""

    def __init__(self, *, where: str = "", clock: Clock | None = None) -> None:
        self.where = where
        self.workers = 0
        self.seq = 0
        self._clock: Clock = clock or SystemClock()
        self._shards: dict[tuple[str, int], dict[str, Any]] = {}
        self._consumers: dict[str, dict[str, Any]] = {}
        self._meters: dict[tuple[str, ...], Meter] = {}
        self._bell = Bell()

    def take(self, report: dict[str, Any]) -> None:
        """Note a report."""
        if report["kind"] == "shard":
            key = report["queue"], report["shard"]
            if key in self._shards and self._shards[key]["epoch"] > report["epoch"]:
                return  # of one that was presumed dead, and replaced
            self._shards[key] = report
            self._feed_shard(report["queue"])
        else:
            self._consumers[report["name"]] = report
            at = self._clock.monotonic()
            self._meter("consumer", report["name"], "done").feed(at, report["done"])
            self._meter("consumer", report["name"], "units").feed(at, report["units"])
            self._meter("consumer", report["name"], "busy").feed(at, report["busy"])
        self.seq += 1
        self._bell.ring()

    def forget(self, consumers: Collection[str]) -> None:
        """Drop consumers that are gone."""
        for name in consumers:
            self._consumers.pop(name, None)
            self._drop_meters("consumer", name)
        self.seq += 1
        self._bell.ring()

    def forget_queue(self, queue: str) -> None:
        """Drop a queue that was closed."""
        for key in [key for key in self._shards if key[0] == queue]:
            del self._shards[key]
        self._drop_meters("queue", queue)
        self._drop_meters("run", queue)
        self.forget([name for name, report in self._consumers.items() if report["queue"] == queue])

    def shards(self, queue: str) -> list[dict[str, Any]]:
        """Return the latest reports of a queue's shards, by index; those that have not reported yet are missing."""
        return self._of(queue)

    def shard(self, queue: str, index: int) -> dict[str, Any] | None:
        """Return the latest report of one shard."""
        return self._shards.get((queue, index))

    def runs_named(self, name: str) -> bool:
        """Return whether a shard has reported a run of that name."""
        return any(lane["name"] == name for report in self._shards.values() for lane in report["lanes"])

    async def change(self, since: int, timeout: float) -> None:
        """Wait up to `timeout` seconds while the newest change is not above number `since`."""
        await self._bell.until(lambda: self.seq > since, timeout)

    def mark(self, text: str, *, cell: int | None = None, queue: str = "", by: str = "") -> None:
        """Note what a person did."""

    def history(self, span: float, queue: str = "", run: str = "") -> History:
        """Return how it was over the last `span` seconds."""
        return History(t0=self._clock.wall() - span, step=1.0, queue=queue, run=run)

    def snapshot(self, queue: str = "", run: str = "") -> Snapshot:
        """Join everything known into a Snapshot."""
        names = sorted({queue for queue, _ in self._shards})
        runs = sorted((run for name in names for run in self._runs(name)), key=lambda run: (run.finished, -run.started))
        consumers = sorted(map(self._consumer, self._consumers.values()), key=lambda c: (c.units_rate or 0.0, c.name))
        queues = tuple(map(self._queue, names))
        return Snapshot(
            at=self._clock.wall(),
            seq=self.seq,
            where=self.where,
            workers=self.workers,
            queues=queues[:MAX_QUEUES],
            totals=total_queue(queues, consumers=len(consumers)),
            runs=tuple(runs[:MAX_RUNS]),
            consumers=tuple(consumers[:MAX_CONSUMERS]),
            queues_total=len(names),
            runs_total=len(runs),
            consumers_total=len(consumers),
        )

    # --- parts ------------------------------------------------------------------------------

    def _meter(self, *key: str) -> Meter:
        return self._meters.setdefault(key, Meter())

    def _drop_meters(self, *prefix: str) -> None:
        for key in [key for key in self._meters if key[: len(prefix)] == prefix]:
            del self._meters[key]

    def _of(self, queue: str) -> list[dict[str, Any]]:
        return [report for (name, _), report in sorted(self._shards.items()) if name == queue]

    def _serving(self, queue: str) -> int:
        return sum(report["queue"] == queue for report in self._consumers.values())

    def _feed_shard(self, queue: str) -> None:
        at = self._clock.monotonic()
        lanes = [lane for report in self._of(queue) for lane in report["lanes"]]
        counts = total_counts(Counts(*lane["counts"]) for lane in lanes)
        self._meter("queue", queue, "in").feed(at, counts.all)
        self._meter("queue", queue, "out").feed(at, counts.settled)
        for run in {lane["run"] for lane in lanes}:
            own = [lane for lane in lanes if lane["run"] == run]
            self._meter("run", queue, run).feed(at, _sum_counts(own).settled)
            self._meter("run", queue, run, "units").feed(at, _sum_units(own).settled)

    def _queue(self, name: str) -> QueueStats:
        reports, at = self._of(name), self._clock.monotonic()
        lanes = [lane for report in reports for lane in report["lanes"]]
        counts = _sum_counts(lanes)
        state = next((report["state"] for report in reports if report["state"] != "running"), "running")
        consumers = self._serving(name)
        if state == "running" and counts.left and not consumers:
            state = "waiting"
        return QueueStats(
            name=name,
            state=state,
            why="no consumer" if state == "waiting" else "",
            counts=counts,
            retrying=sum(lane["retrying"] for lane in lanes),
            nbytes=sum(lane["nbytes"] for lane in lanes),
            maxsize=reports[0]["maxsize"],
            lag=max(report["lag"] for report in reports),
            in_rate=self._meter("queue", name, "in").rate(at),
            out_rate=self._meter("queue", name, "out").rate(at),
            shards=len(reports),
            consumers=consumers,
        )

    def _runs(self, queue: str) -> Iterable[RunStats]:
        by_run: dict[str, list[dict[str, Any]]] = {}
        for report in self._of(queue):
            for lane in report["lanes"]:
                by_run.setdefault(lane["run"], []).append(lane)
        paused = any(report["state"] == "paused" for report in self._of(queue))
        for run, lanes in by_run.items():
            record = next((lane for lane in lanes if lane["name"] is not None), None)
            if record is not None:
                yield self._run(queue, run, lanes, record, queue_paused=paused)

    def _run(
        self, queue: str, run: str, lanes: list[dict[str, Any]], record: dict[str, Any], *, queue_paused: bool
    ) -> RunStats:
        counts, consumers, at = _sum_counts(lanes), self._serving(queue), self._clock.monotonic()
        sealed = all(lane["sealed"] for lane in lanes)
        stopped = any(lane["stopped"] for lane in lanes)
        state = run_state(
            counts,
            sealed=sealed,
            incomplete=record["incomplete"] is not None,
            paused=queue_paused or any(lane["paused"] for lane in lanes),
            stopped=stopped,
            consumers=consumers,
        )
        why = record["incomplete"] or record["why"]
        if state == "waiting":
            why = f"no consumer serves queue {queue}"
        elif stopped:
            why = "no room for more results"
        ends = [lane["ended"] for lane in lanes]
        classes = sorted(_classes(lanes), key=lambda c: (-c.dead, -c.retrying, c.fingerprint))
        return RunStats(
            name=record["name"],
            queue=queue,
            state=state,
            counts=counts,
            units=_sum_units(lanes) if any(lane["units"] for lane in lanes) else None,
            why=why,
            code=CodeStats(
                name=record["code"]["name"],
                short=record["code"]["short"],
                version=record["versions"],
                cell=record["code"]["cell"],
            ),
            total=record["total"] if sealed else None,
            retrying=sum(lane["retrying"] for lane in lanes),
            started=record["started"],
            ended=max(ends) if None not in ends else None,
            idle=max(lane["idle"] for lane in lanes),
            at=self._clock.wall(),
            rate=self._meter("run", queue, run).rate(at),
            units_rate=self._meter("run", queue, run, "units").rate(at),
            consumers=consumers,
            classes=tuple(classes[:MAX_CLASSES]),
            classes_total=max(len(classes), sum(lane["classes_total"] for lane in lanes) if len(lanes) == 1 else 0),
        )

    def _consumer(self, report: dict[str, Any]) -> ConsumerStats:
        at, name = self._clock.monotonic(), report["name"]
        busy = self._meter("consumer", name, "busy").rate(at)
        return ConsumerStats(
            name=name.rsplit("/", 1)[1],
            queue=report["queue"],
            worker=report["host"],
            leased=report["leased"],
            done=report["done"],
            rate=self._meter("consumer", name, "done").rate(at),
            units_rate=self._meter("consumer", name, "units").rate(at),
            busy_share=None if busy is None else min(1.0, busy / max(1, report["slots"])),
            last_error=report["last_error"],
        )


def _sum_counts(lanes: Iterable[dict[str, Any]]) -> Counts:
    return total_counts(Counts(*lane["counts"]) for lane in lanes)


def _sum_units(lanes: Iterable[dict[str, Any]]) -> Counts:
    return total_counts(Counts(*lane["units"]) for lane in lanes if lane["units"])


def _classes(lanes: Iterable[dict[str, Any]]) -> Iterable[ClassStats]:
    merged: dict[str, ClassStats] = {}
    for lane in lanes:
        for entry in lane["classes"]:
            new = ClassStats(**entry)
            old = merged.get(new.fingerprint)
            merged[new.fingerprint] = (
                new
                if old is None
                else ClassStats(
                    fingerprint=new.fingerprint,
                    error=new.error,
                    message=new.message,
                    at=new.at,
                    dead=old.dead + new.dead,
                    retrying=old.retrying + new.retrying,
                    first=min(old.first, new.first),
                    last=max(old.last, new.last),
                    key=old.key or new.key,
                )
            )
    return merged.values()
