"""A durable shard that lives through everything: puts, results, failures, retries, orders, early acks, compaction.

Names what must be found again; used by the tests of everything that reads a store from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dqlab.frame import NO_ID, Frame, Kind, Making, Outcome, Piece, Settlement
from dqlab.log.writer import LogOptions
from dqlab.rules.leases import Lease
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.states import State
from dqlab.store.directories import StoredQueue, keep_queue, queue_directory, shard_directory
from dqlab.store.durable_shard import DurableShard, compaction, run_through
from dqlab.testing import FakeClock
from tests.store.recorded import RecordedShard

RUNS = [b"first-run-of-all", b"second-run-later"]
FUNCTION = b"the-function-v1-"
OPTIONS = QueueOptions(maxsize=None, retry=Retry(2, backoff=5.0, jitter=False))
PLAIN = {
    "visibility_timeout": 60.0,
    "max_deliveries": 5,
    "retry": {"retries": 2, "backoff": 5.0, "max_backoff": 300.0, "jitter": False},
    "maxsize": None,
    "max_bytes": 1 << 30,
    "results_memory": 1,
    "results_maxsize": 1,
}


@dataclass
class Workload:
    """One shard at work; `payloads` and `results` are what was put and acked, by id."""

    directory: Path
    clock: FakeClock
    seed: int = 0
    index: int = 0
    segment_bytes: int = 4000
    payloads: dict[int, bytes] = field(default_factory=dict)
    results: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.sequences = dict.fromkeys([NO_ID, *RUNS], 0)
        self.puts = 0
        self.open()

    def open(self) -> None:
        self.durable = DurableShard.open(
            self.directory,
            "q",
            self.index,
            OPTIONS,
            log_options=LogOptions(sync="os", segment_bytes=self.segment_bytes, reserve_bytes=0),
            clock=self.clock,
            random=Random(self.seed),
        )
        self.shard: Any = RecordedShard(self.durable)

    def begin(self) -> None:
        """Open the runs and give them a function."""
        for at, run in enumerate(RUNS):
            code = {"name": "f", "hash": "v1", "short": "v1", "source": "", "cell": None, "blob": FUNCTION}
            record = {"name": f"run-{at}", "codes": [code], "keyed": True, "started": 1.0}
            record |= {"unit": "bytes"} if at == 0 else {}
            self.order("open", None, {"open": {"run": run, "record": record}})
        self.durable.ledger.keep_function(RUNS[0], FUNCTION, b"a pickled function")

    def order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        self.shard._order(op, run, meta)

    def put(self, run: bytes, n: int, size: int = 40) -> int:
        """Put a frame of `n` messages with payloads of their own; return the first id."""
        self.puts += 1
        messages = [b"%d/%d " % (self.puts, i) + self.random.randbytes(self.random.randint(0, size)) for i in range(n)]
        blob = Frame.encode(
            messages,
            kind=Kind.ELEMENT,
            run=run,
            function=FUNCTION,
            producer=bytes(reversed(run[:15])) + b"p",
            sequence=self.sequences[run],
            ordinal=1000 * self.sequences[run],
            weights=[1] * n if n % 2 else None,
        )
        first: int = self.shard.put(Frame.decode(blob)).first
        self.sequences[run] += 1
        self.payloads |= {first + i: message for i, message in enumerate(messages)}
        return first

    def lease(self, n: int) -> Lease | None:
        lease: Lease | None = self.shard.lease("c", n)
        return lease

    def settle(self, lease: Lease, outcomes: list[Outcome]) -> None:
        """Settle a lease's first messages; each result is its own."""
        held = [(p.frame + p.lo + i, p.ordinal + i) for p in lease.pieces for i in range(p.n)][: len(outcomes)]
        ids = [id for id, _ in held]
        payloads = [
            b"2" if outcome is Outcome.NACK else b"%s of %d" % (outcome.name.encode(), id)
            for id, outcome in zip(ids, outcomes, strict=False)
        ]
        blob = Settlement.encode(
            [Piece(id, ordinal, 1) for id, ordinal in held],
            bytes(outcomes[: len(ids)]),
            payloads,
            run=lease.run,
            epoch=self.shard.epoch,
            lease=lease.id,
            keys=[f"doc-{id}" for id in ids] if lease.run != NO_ID else None,
            made=Making("c", "k", 1.7e9, [id / 1000 for id in ids]) if lease.run != NO_ID and lease.id % 2 else None,
        )
        settled = self.shard.settle(Settlement.decode(blob))
        for piece, at in settled.results:
            self.results |= {piece.first + i: payloads[at + i] for i in range(piece.n)}

    def steps(self, n: int) -> None:
        """Take random steps."""
        for _ in range(n):
            self._step(self.random.choices(range(8), [30, 40, 4, 3, 4, 3, 2, 8])[0])

    def _step(self, which: int) -> None:
        run = self.random.choice([NO_ID, *RUNS])
        if which == 0:
            self.put(run, self.random.randint(1, 8))
        elif which == 1:
            self.work()
        elif which == 2:
            self.order("retry", run, {"ids": [(0, 1 << 53)], "ordinals": []})
        elif which == 3:
            self.checkpoint()
        elif which == 4:
            self.compact()
        elif which == 5:
            self.shard.cancel(run, [(first, first + 2) for first in self.random.sample(sorted(self.payloads), 1)])
        elif which == 6:
            self.begin_early()
        else:
            self.clock.advance(self.random.choice([1, 4, 10, 70]))
            self.shard.tick()
        self.durable.journal.log.commit()

    def work(self, n: int = 6) -> None:
        """Lease and settle with mixed outcomes."""
        lease = self.lease(n)
        if lease is not None:
            outcomes = self.random.choices([*Outcome, Outcome.ACK, Outcome.ACK, Outcome.ACK], k=n)
            self.settle(lease, outcomes[: self.random.randint(1, n)])

    def begin_early(self) -> None:
        lease = self.lease(2)
        if lease is not None:
            self.shard.begin(lease.id)

    def checkpoint(self) -> None:
        self.durable.checkpoint()()

    def compact(self) -> None:
        run_through(compaction(self.durable, below=1.0))

    def close(self, *, clean: bool = True) -> None:
        log = self.durable.journal.log
        log.commit()
        log.close(clean=clean)

    def reopen(self, *, clean: bool = True) -> None:
        self.close(clean=clean)
        self.open()

    def counts(self) -> dict[str, dict[str, int]]:
        """What is not zero, by run and state, now."""
        self.durable.ledger.shard.tick()
        return {
            run.hex(): {state.name.lower(): lane.counts[state] for state in State if lane.counts[state]}
            for run, lane in self.durable.ledger.shard.lanes.items()
        }


def make_queue(store: Path, name: str, shards: int) -> Path:
    """Make a queue's directory; return it."""
    path = queue_directory(store, name)
    keep_queue(path, StoredQueue(name, shards, PLAIN))
    return path


def busy_queue(store: Path, clock: FakeClock, *, seed: int, steps: int = 80, name: str = "q") -> list[Workload]:
    """Make a queue of two shards with a history, closed; return the shards' loads."""
    path = make_queue(store, name, 2)
    loads = []
    for index in range(2):
        load = Workload(shard_directory(path, index), clock, seed=2 * seed + index, index=index)
        load.begin()
        load.put(RUNS[0], 5)
        load.steps(steps // 2)
        load.reopen(clean=bool(seed % 2))
        load.steps(steps // 2)
        load.reopen()  # leases and what else a shard forgets at its end are settled
        load.close(clean=bool(seed % 3))
        loads.append(load)
    return loads
