"""A durable shard behind the methods of a plain one: each call is followed by what the shell around it records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dqlab.frame import Settlement
from dqlab.rules.deliveries import Settled
from dqlab.rules.states import State
from dqlab.store.durable_shard import DurableShard

__all__ = ["RecordedShard"]


class RecordedShard:
    """Everything else is asked of the shard itself."""

    def __init__(self, durable: DurableShard) -> None:
        self._durable = durable
        self._shard, self._journal, self._ledger = durable.ledger.shard, durable.journal, durable.ledger

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._shard, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._journal.admit()
            answer = found(*args, **options)
            self._journal.noted()
            return answer

        return call

    def settle(self, settlement: Settlement) -> Settled:
        return self._ledger.settle(settlement)

    def begin(self, lease_id: int) -> bool:
        return self._ledger.begin(lease_id)

    def release(self, consumer: str) -> int:
        return self._ledger.release(consumer)

    def let_go(self, run: bytes, ids: Iterable[tuple[int, int]], why: str = "") -> int:
        return self._ledger.let_go(run, ids, why)

    def purge(self, run: bytes | None, state: State) -> int:
        return self._order("purge", run, {"state": state.name})

    def open_lane(self, run: bytes) -> None:
        self._order("open", None, {"open": {"run": run}})

    def drop_lane(self, run: bytes) -> None:
        self._order("drop", run, {})

    def retry(self, run: bytes, ids: Iterable[tuple[int, int]], function: bytes | None = None) -> int:
        code = {"function": function, "blob": b"", "code": {"hash": ""}} if function else {}
        return self._order("retry", run, {"ids": list(ids), "ordinals": [], **code})

    def pause(self, run: bytes | None) -> None:
        self._order("pause", run, {})

    def resume(self, run: bytes | None) -> None:
        self._order("resume", run, {})

    def drain(self) -> None:
        self._order("drain", None, {})

    def _order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> int:
        return self._ledger.obey(op, run, meta)
