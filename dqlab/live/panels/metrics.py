"""Add ``dqlab_*`` to the scheduler's ``/metrics``, for Prometheus.

Dask serves the process's one registry of metrics for each of its schedulers. This does the same: one collector for the
process, which reports the scheduler that Dask's own collectors report.

"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from dqlab.live.panels.scene import Feed
from dqlab.stats import Counts, QueueStats, RunStats, Snapshot

Labels = tuple[str, ...]
Values = Mapping[Labels, float | None]


class _Collector:
    """The collector that prometheus_client calls at each scrape."""

    def __init__(self) -> None:
        self.feeds: dict[Any, Feed] = {}

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering reads no feed."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the scheduler that is scraped."""
        feed = self.feeds.get(_asked())
        if feed is not None:
            yield from metrics(feed.snapshot())


_collector = _Collector()


def install(scheduler: Any, feed: Feed) -> Callable[[], None]:
    """Add a scheduler's metrics to its ``/metrics``, and return what removes them."""
    if not _collector.feeds:
        prometheus_client.REGISTRY.register(_collector)
    _collector.feeds[scheduler] = feed

    def undo() -> None:
        if _collector.feeds.pop(scheduler, None) is not None and not _collector.feeds:
            prometheus_client.REGISTRY.unregister(_collector)

    return undo


def _asked() -> Any:
    """Return the scheduler whose ``/metrics`` is scraped, as far as Dask reveals it."""
    from distributed.http.scheduler.prometheus.core import PrometheusHandler

    collectors = getattr(PrometheusHandler, "_collectors", None) or ()
    return next((getattr(collector, "server", None) for collector in collectors), None)


def metrics(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the metrics of a snapshot."""
    # Queues and runs that the snapshot does not list are in the totals only.
    yield _counts("dqlab_messages", "Messages over all queues.", {(): snapshot.totals.counts}, ())
    unacked, failures, storage = snapshot.unacked, snapshot.failures, snapshot.storage
    single: list[tuple[str, str, float | None]] = [
        ("queues", "Queues.", snapshot.queues_total),
        ("runs", "Runs.", snapshot.runs_total),
        ("consumers", "Consumers.", snapshot.consumers_total),
        ("consumers_slow", "Consumers under a third of the median speed.", snapshot.slow_consumers),
        ("consumers_busy_ratio", "Share of consumers' time spent in functions.", snapshot.working_share),
        ("needs_attention", "Things that need attention.", snapshot.attention_total),
        ("unacked_oldest_seconds", "Age of the delivery held longest.", unacked.oldest_delivery or 0.0),
        ("unacked_past_timeout", "Messages held for longer than the visibility timeout.", unacked.past),
        ("failures_dead", "Dead messages.", failures.dead),
        ("failures_retrying", "Failed messages that wait for another delivery.", failures.retrying),
        ("failures_classes", "Kinds of failures.", failures.classes_total),
        ("storage_disk_free_bytes", "Room on the disk.", storage.disk_free),
        ("storage_fsync_p99_seconds", "Of the last thousand syncs.", storage.fsync_p99),
    ]
    for name, text, value in single:
        yield _labelled(f"dqlab_{name}", text, (), {(): value})
    kinds: Values = {("live",): storage.live, ("garbage",): storage.garbage}
    yield _labelled("dqlab_storage_bytes", "Bytes of durable queues.", ("kind",), kinds)
    yield from _queues(snapshot.queues)
    yield from _runs(snapshot.runs)


def _labelled(name: str, text: str, labels: Labels, values: Values) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    # No sample instead of 0: Prometheus would draw and alert on the zero.
    for key, value in values.items():
        if value is not None:
            family.add_metric(list(key), value)
    return family


def _counts(name: str, text: str, counts: Mapping[Labels, Counts], labels: Labels) -> Metric:
    spread = {(*key, state): amount for key, each in counts.items() for state, amount in asdict(each).items()}
    return _labelled(name, text, (*labels, "state"), spread)


def _queues(queues: tuple[QueueStats, ...]) -> Iterator[Metric]:
    def of(field: str) -> dict[Labels, float | None]:
        return {(queue.name,): getattr(queue, field) for queue in queues}

    label = ("queue",)
    yield _counts("dqlab_queue_messages", "Messages.", {(queue.name,): queue.counts for queue in queues}, label)
    yield _labelled("dqlab_queue_lag_seconds", "Age of the oldest ready message.", label, of("lag"))
    yield _labelled("dqlab_queue_payload_bytes", "Payload bytes of messages that are not settled.", label, of("nbytes"))
    yield _labelled("dqlab_queue_disk_bytes", "Bytes of its files.", label, of("disk"))
    yield _labelled("dqlab_queue_consumers", "Consumers that serve it.", label, of("consumers"))
    yield _labelled("dqlab_queue_waiting_puts", "Puts that wait for room.", label, of("put_waiting"))
    states: Values = {(queue.name, str(queue.state)): 1.0 for queue in queues}
    yield _labelled("dqlab_queue_state", "1 for what it does now.", ("queue", "state"), states)


def _runs(runs: tuple[RunStats, ...]) -> Iterator[Metric]:
    def of(value: Callable[[RunStats], float | None]) -> dict[Labels, float | None]:
        return {(run.queue, run.name): value(run) for run in runs}

    labels = ("queue", "run")
    documents: dict[Labels, Counts] = {(run.queue, run.name): run.counts for run in runs}

    def weights(unit: str) -> dict[Labels, Counts]:
        return {(run.queue, run.name): run.units for run in runs if run.units is not None and run.unit == unit}

    yield _counts("dqlab_run_documents", "Documents.", documents, labels)
    yield _counts("dqlab_run_pages", "Pages, where they are known.", weights("pages"), labels)
    yield _counts("dqlab_run_bytes", "Bytes, where pages are unknown and sizes known.", weights("bytes"), labels)
    started, done = of(lambda run: run.started or None), of(lambda run: run.eta.p50 if run.eta is not None else None)
    yield _labelled("dqlab_run_start_timestamp_seconds", "When it began.", labels, started)
    yield _labelled("dqlab_run_eta_timestamp_seconds", "When it will probably be done.", labels, done)
    spends = {(run.queue, run.name): run.spend for run in runs if run.spend is not None}
    level: Values = {run: spend.level for run, spend in spends.items()}
    spent: Values = {(*run, unit): amount for run, spend in spends.items() for unit, amount in spend.spent.items()}
    budget: Values = {(*run, each.budget[1]): each.budget[0] for run, each in spends.items() if each.budget}
    yield _labelled("dqlab_run_level", "Calls at once, where they are found out.", labels, level)
    yield _labelled("dqlab_run_spent", "What its calls have spent.", (*labels, "unit"), spent)
    yield _labelled("dqlab_run_budget", "What its calls may spend.", (*labels, "unit"), budget)
    states: Values = {(run.queue, run.name, str(run.state)): 1.0 for run in runs}
    yield _labelled("dqlab_run_state", "1 for what it does now.", (*labels, "state"), states)
