"""Makes a golden store: ``python -m tests.golden.make_store DIRECTORY``, once for each version of the format.

It is committed as it is and never made again: later versions must read what this one wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dqlab.frame import NO_ID, Outcome
from dqlab.rules.states import State
from dqlab.store.directories import shard_directory
from dqlab.testing import FakeClock
from tests.store.workload import RUNS, Workload, make_queue

__all__ = ["describe", "make"]

WALL = 1_700_000_000.0


def make(store: Path) -> dict[str, Any]:
    """Make a store of one queue with two shards; return what is in it."""
    clock = FakeClock(wall=WALL)
    path = make_queue(store, "golden", 2)
    shards = []
    for index in range(2):
        load = Workload(shard_directory(path, index), clock, seed=index, index=index, segment_bytes=1500)
        _live(load)
        load.close(clean=index == 0)
        (load.directory / "LOCK").write_text(json.dumps({"host": "nowhere", "pid": 1, "boot": "", "owner": "golden"}))
        shards.append(describe(load))
    return {"queue": "golden", "wall": clock.wall(), "shards": shards}


def describe(load: Workload) -> dict[str, Any]:
    """Return what a shard must be found to hold."""
    ledger = load.durable.ledger
    lanes = ledger.shard.lanes
    batches = [batch for lane in lanes.values() for batch in lane.batches]
    waiting = [b.first + i for b in batches for i, state in enumerate(b.states) if not State(state).final]
    return {
        "counts": load.counts(),
        "payloads": {str(id): load.payloads[id].hex() for id in sorted(waiting)},
        "results": {
            run.hex(): {
                str(s.piece.first + i): load.results[s.piece.first + i].decode()
                for s in book.results
                for i in range(s.piece.n)
            }
            for run, book in ledger.books.items()
        },
        "dead": [
            [letter.id, letter.ordinal, letter.reason, bytes(letter.failure).decode(), letter.deliveries]
            for run in lanes
            for letter in ledger.shard.dead_letters(run)
        ],
        "names": {run.hex(): book.record.name for run, book in ledger.books.items() if book.record is not None},
        "functions": {hash.hex(): blob.hex() for hash, blob in ledger.functions.items()},
    }


def _live(load: Workload) -> None:
    """Leave one of everything: results, dead letters, delays, a cancelled run's rest, an early ack, a torn session."""
    load.begin()
    for _ in range(6):
        for run in (NO_ID, *RUNS):
            load.put(run, 4, size=20)
    for n in range(9):
        lease = load.lease(4)
        assert lease is not None
        load.settle(lease, [Outcome.ACK, Outcome.REJECT, Outcome.FAIL, Outcome.NACK] if n % 3 else [Outcome.ACK] * 4)
    load.checkpoint()
    load.compact()
    load.reopen(clean=False)
    load.put(RUNS[0], 3, size=20)
    load.work(4)
    load.shard.cancel(RUNS[1], [(0, load.put(RUNS[1], 3, size=20))])
    load.order("retry", RUNS[0], {"ids": [(0, 1 << 44)], "ordinals": []})
    load.begin_early()
    load.reopen(clean=False)
    load.put(NO_ID, 2, size=20)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if target.exists():
        sys.exit(f"{target} exists, and a golden store is never made again")
    target.mkdir(parents=True)
    target.with_suffix(".json").write_text(json.dumps(make(target), indent=1) + "\n")
