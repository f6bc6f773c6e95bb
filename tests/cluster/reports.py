"""Reports as actors send them, for tests that have none."""

from __future__ import annotations

from typing import Any

from dqlab.stats.eta import Effort

__all__ = ["consumer_report", "failure_class", "lane_report", "shard_report"]


def failure_class(mark: str = "d2c81e07", **more: Any) -> dict[str, Any]:
    """Return one failure class of a lane."""
    entry = {
        "fingerprint": mark,
        "error": "KeyError",
        "message": "'total'",
        "at": "totals:12",
        "dead": 0,
        "retrying": 0,
        "first": 0.0,
        "last": 0.0,
        "key": "a.pdf",
        "failed": 0,
        "codes": ("a41f9c",),
    }
    return entry | more


def lane_report(name: str | None = "parse", **more: Any) -> dict[str, Any]:
    """Return one lane: a run's, or with None that of plain puts."""
    lane = {
        "run": (name or "").encode().hex().ljust(32, "0"),
        "name": name,
        "code": {"name": "parse", "short": "a41f9c", "cell": None} if name else None,
        "codes": [["parse", "a41f9c"]] if name else [],
        "counts": [0] * 7,
        "missing": 0,
        "units": None,
        "retrying": 0,
        "nbytes": 0,
        "paused": False,
        "stopped": False,
        "halted": "",
        "stop_if": None,
        "sealed": True,
        "total": None,
        "incomplete": None,
        "why": "",
        "started": 0.0,
        "ended": None,
        "idle": 0.0,
        "died": [],
        "classes": [],
        "classes_total": len(more.get("classes", ())),
        "failed": sum(entry["failed"] for entry in more.get("classes", ())),
        "failing": [],
        "max_deliveries": 5,
        "effort": Effort().to_list(),
    }
    return lane | more


def shard_report(queue: str = "pages", *lanes: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return what a shard sends."""
    report = {
        "kind": "shard",
        "queue": queue,
        "shard": 0,
        "epoch": 1,
        "next_id": 0,
        "at": 0.0,
        "state": "running",
        "lag": 0.0,
        "maxsize": 100_000,
        "consumers": 0,
        "stored": 0,
        "puts_waiting": 0,
        "failure": "",
        "short": "",
        "trouble": "",
        "storage": None,
        "lanes": list(lanes),
        "held": [],
        "oldest": [],
        "leases_lost": 0,
        "redelivered": 0,
    }
    return report | more


def consumer_report(queue: str = "pages", number: int = 0, **more: Any) -> dict[str, Any]:
    """Return what a consumer sends."""
    report = {
        "kind": "consumer",
        "name": f"consumer/{queue}/{number}",
        "queue": queue,
        "host": f"w-{number // 2}",
        "at": 0.0,
        "slots": 1,
        "leased": 0,
        "done": 0,
        "units": 0,
        "busy": 0.0,
        "oldest": None,
        "chunk": None,
        "rss": 10**8,
        "last_error": None,
    }
    return report | more
