"""Reports as actors send them, for tests that have none."""

from __future__ import annotations

from typing import Any

from dqlab.cluster.transport.reports import ConsumerReport, Running, ShardReport, StorageReport
from dqlab.failures.classes import FailureClass
from dqlab.rules.reports import CodeName, Failing, HeldFor, HeldLease, LaneReport
from dqlab.stats.eta import Effort

__all__ = ["consumer_report", "failure_class", "lane_report", "shard_report"]


def failure_class(mark: str = "d2c81e07", **more: Any) -> FailureClass:
    """Return one failure class of a lane."""
    entry = FailureClass(mark, "KeyError", "'total'", "totals:12", 0, 0, 0.0, 0.0, "a.pdf", 0, ("a41f9c",))
    return entry._replace(**more)


def lane_report(name: str | None = "parse", **more: Any) -> LaneReport:
    """Return one lane: a run's, or with None that of plain puts."""
    named: dict[str, Any] = {"code": CodeName("parse", "a41f9c"), "codes": [("parse", "a41f9c")]} if name else {}
    classes = more.get("classes", ())
    lane: dict[str, Any] = {
        "run": (name or "").encode().hex().ljust(32, "0"),
        "name": name,
        "counts": [0] * 7,
        "sealed": True,
        "classes_total": len(classes),
        "failed": sum(entry.failed for entry in classes),
        "max_deliveries": 5,
        "effort": Effort(),
    }
    lane |= named | more
    effort = lane["effort"]
    lane["effort"] = effort if isinstance(effort, Effort) else Effort.of(effort)
    lane["failing"] = [Failing(*each) for each in lane.get("failing", ())]
    return LaneReport(**lane)


def shard_report(queue: str = "pages", *lanes: LaneReport, **more: Any) -> ShardReport:
    """Return what a shard sends."""
    report: dict[str, Any] = {"queue": queue, "shard": 0, "epoch": 1, "maxsize": 100_000, "lanes": list(lanes)}
    report |= more
    report["held"] = [HeldFor(*each) for each in report.get("held", ())]
    report["oldest"] = [HeldLease(*each) for each in report.get("oldest", ())]
    storage = report.get("storage")
    report["storage"] = StorageReport(**storage) if isinstance(storage, dict) else storage
    return ShardReport(**report)


def consumer_report(queue: str = "pages", number: int = 0, **more: Any) -> ConsumerReport:
    """Return what a consumer sends."""
    report = {"name": f"consumer/{queue}/{number}", "queue": queue, "host": f"w-{number // 2}", "rss": 10**8}
    oldest = more.get("oldest")
    return ConsumerReport(**report | more | {"oldest": None if oldest is None else Running(*oldest)})
