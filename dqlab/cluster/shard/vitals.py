"""Collects one shard's facts for the doctor, without changing anything."""

from __future__ import annotations

from typing import Any

from dqlab.cluster.shard.durable import LogStore
from dqlab.rules.ledger import Ledger

__all__ = ["open_functions", "shard_vitals"]

MAX_RUNS = 20
"""Most open runs whose functions are examined, the newest first."""


def shard_vitals(ledger: Ledger, store: LogStore, consumers: int) -> dict[str, Any]:
    """Return the state of one shard that knows `consumers` slots."""
    shard = ledger.shard
    now = shard.clock.monotonic()
    oldest = min(shard.leases.values(), key=lambda lease: lease.since, default=None)
    return {
        "queue": shard.name,
        "shard": shard.index,
        "epoch": shard.epoch,
        "consumers": consumers,
        "lag": shard.lag(),
        "leases": len(shard.leases),
        "oldest": None
        if oldest is None
        else {
            "consumer": oldest.consumer,
            "messages": oldest.remaining.size,
            "held": now - oldest.since,
            "left": oldest.deadline - now,
            "timeout": oldest.timeout,
        },
        "failure": "" if store.failure is None else str(store.failure),
        "results_full": store.full,
        "log": _log(store),
    }


def _log(store: LogStore) -> dict[str, Any]:
    log, recovery = store.log, store.log.recovery
    return {
        "directory": str(log.directory),
        "lock": recovery.lock,
        "corrupt": len(recovery.corrupt),
        "checkpoint_lost": recovery.checkpoint_lost,
        "quarantine": log.usage().quarantine,
        "room": store.no_room(0) is None,
    }


def open_functions(ledger: Ledger) -> list[tuple[bytes, str]]:
    """Return pickle and source of the newest function of each open run that a shard knows."""
    records = [book.record for book in ledger.books.values() if book.record is not None and not book.lane.done]
    newest = sorted(records, key=lambda record: record.started)[-MAX_RUNS:]
    return [
        (ledger.functions.get(record.code.get("blob", b""), b""), record.code.get("source") or "") for record in newest
    ]
