"""Ten million messages through one durable shard: what it takes up at the end is what it took up at the beginning."""

from __future__ import annotations

import gc
import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from dqlab.frame import NO_ID, Frame, Kind, Piece, Settlement
from dqlab.log import LogOptions
from dqlab.rules.leases import Lease
from dqlab.rules.options import QueueOptions
from dqlab.rules.states import Verdict
from dqlab.store.compaction import MOSTLY, compaction, run_through
from dqlab.store.durable_shard import DurableShard
from dqlab.testing import FakeClock
from tests.kit.descriptors import LISTED, count_files

MESSAGES = 10_000_000
MILLION = 1_000_000
SIZE = 32
FRAME = 1000
OF_A_RUN = 100_000
"""Messages of one run; its results are kept until all are there, then it is dropped, as its user would."""
DEPTH = 10 * FRAME
"""Messages that wait, always."""
STRAGGLERS, LATE = 7, 20
"""Messages that a slow consumer takes with each twentieth frame, and how many of its leases it holds at a time."""

OPTIONS = QueueOptions(maxsize=None, max_bytes=None, visibility_timeout=1e6)
LOG = LogOptions(sync="os", segment_bytes=2 << 20, checkpoint_bytes=4 << 20, reserve_bytes=1 << 20)

EVERYTHING = b"".join(ordinal.to_bytes(SIZE, "little") for ordinal in range(OF_A_RUN))
"""The payloads of a run, one after another."""


class Taken(NamedTuple):
    """What the process and its directory take up; the last two in bytes."""

    files: int
    descriptors: int
    disk: int
    resident: int


@dataclass
class Acks:
    """One run's messages: which were put, which were acked."""

    frames: int = 0
    count: int = 0
    acked: bytearray = field(default_factory=lambda: bytearray(OF_A_RUN))


class Soak:
    """A shard, its producers and its consumers, in one thread."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = FakeClock()
        self.shard = self.opened()
        self.runs: dict[bytes, Acks] = {}
        self.acked = self.checkpoints = self.compactions = 0
        self._late: deque[Lease] = deque()

    def opened(self) -> DurableShard:
        return DurableShard.open(
            self.directory, "soak", 0, OPTIONS, log_options=LOG, clock=self.clock, random=Random(0)
        )

    # --- traffic ----------------------------------------------------------------------------

    def order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        self.shard.ledger.obey(op, run, meta)

    def put(self, number: int) -> None:
        """Put a frame; each fiftieth is sent twice."""
        run = (1 + number * FRAME // OF_A_RUN).to_bytes(16, "little")
        if run not in self.runs:
            self.runs[run] = Acks()
            self.order("open", None, {"open": {"run": run}})
        first = self.runs[run].frames * FRAME
        payloads = [EVERYTHING[SIZE * at : SIZE * (at + 1)] for at in range(first, first + FRAME)]
        sequence = self.runs[run].frames
        blob = Frame.encode(payloads, kind=Kind.VALUE, run=run, producer=run, sequence=sequence, ordinal=first)
        assert self.shard.ledger.shard.put(Frame.decode(blob)).verdict is Verdict.ACCEPTED
        if number % 50 == 0:
            assert self.shard.ledger.shard.put(Frame.decode(blob)).verdict is Verdict.DUPLICATE
        self.runs[run].frames += 1
        if first + FRAME == OF_A_RUN:
            self.order("seal", None, {"seal": {"run": run, "here": OF_A_RUN, "total": OF_A_RUN}})

    def lease(self, n: int) -> Lease | None:
        """Lease up to `n` messages, and look at their bytes."""
        rules = self.shard.ledger.shard
        lease = rules.lease("consumer", n)
        if lease is None:
            return None
        batches = rules.lanes[lease.run].batches
        for piece in lease.pieces:
            frame = Frame.decode(self.shard.journal.body(batches[piece.frame].place))
            sent = Frame.decode(frame.cut(piece.lo, piece.n))
            assert sent.payload == EVERYTHING[SIZE * piece.ordinal : SIZE * (piece.ordinal + piece.n)]
        return lease

    def ack(self, lease: Lease) -> None:
        """Ack a lease, with empty results; drop its run when that was the last of it."""
        run, rules = lease.run, self.shard.ledger.shard
        pieces = [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]
        n = sum(piece.n for piece in pieces)
        blob = Settlement.encode(pieces, bytes(n), [b""] * n, run=run, epoch=rules.epoch, lease=lease.id)
        settlement = Settlement.decode(blob)
        settled = self.shard.ledger.settle(settlement)
        assert sum(piece.n for piece, _ in settled.results) == n
        assert (settled.duplicates, settled.stale, settled.failed) == (0, 0, ())
        acks = self.runs[run]
        for _, ordinal, count in pieces:
            assert not any(acks.acked[ordinal : ordinal + count]), "delivered twice"
            acks.acked[ordinal : ordinal + count] = b"\1" * count
        acks.count += n
        self.acked += n
        if acks.count == OF_A_RUN:
            self.drop(run)

    def drop(self, run: bytes) -> None:
        """Forget a run that is done, with its results."""
        assert self.shard.ledger.shard.lanes[run].done
        assert len(self.shard.ledger.books[run].results) == OF_A_RUN
        assert self.runs.pop(run).acked.count(1) == OF_A_RUN
        self.order("drop", run, {})

    def step(self, number: int) -> None:
        """Put a frame, ack about as many messages, and do what is due."""
        self.put(number)
        if number % 20 == 0 and (late := self.lease(STRAGGLERS)) is not None:
            self._late.append(late)
        if len(self._late) > LATE:
            self.ack(self._late.popleft())
        self.work_off(DEPTH)
        self.shard.journal.noted()
        self.shard.journal.log.commit()
        self.clock.advance(0.01)
        self.upkeep()

    def work_off(self, depth: int) -> None:
        """Lease and ack until no more messages wait than that."""
        while sum(lane.ready.size for lane in self.shard.ledger.shard.lanes.values()) > depth:
            lease = self.lease(FRAME // 2)
            assert lease is not None
            self.ack(lease)

    def finish(self) -> None:
        """Ack everything that is left, and give back the space."""
        self.work_off(0)
        while self._late:
            self.ack(self._late.popleft())
        run_through(compaction(self.shard, below=MOSTLY))

    # --- upkeep, as a shell does it ---------------------------------------------------------

    def upkeep(self) -> None:
        log = self.shard.journal.log
        if not log.checkpoint_due:
            return
        self.shard.checkpoint()()
        self.checkpoints += 1
        if log.garbage() > 1 - LOG.compact_below and log.victims():
            run_through(compaction(self.shard))
            self.compactions += 1

    def taken(self) -> Taken:
        """What is taken up now, behind a checkpoint and without what Python has yet to collect."""
        self.shard.checkpoint()()
        gc.collect()
        sizes = [path.stat().st_size for path in self.directory.rglob("*") if path.is_file()]
        descriptors = count_files(self.directory)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return Taken(len(sizes), descriptors, sum(sizes), pages * os.sysconf("SC_PAGE_SIZE"))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not LISTED.is_dir(), reason="descriptors can be listed on Linux only")
def test_ten_million_messages_leave_nothing_behind(tmp_path: Path) -> None:
    """Files, disk, descriptors and memory are flat at a constant depth, and each message is acked exactly once."""
    soak = Soak(tmp_path / "log")
    taken = []
    for number in range(MESSAGES // FRAME):
        soak.step(number)
        if (number + 1) * FRAME % MILLION == 0:
            taken.append(soak.taken())
    soak.finish()

    first, last = taken[0], taken[-1]
    assert len(taken) == MESSAGES // MILLION
    assert last.files <= first.files + 3
    assert last.descriptors <= first.descriptors + 3
    assert last.disk <= first.disk + LOG.segment_bytes  # whose end is not always equally near
    assert last.resident <= first.resident + 4_000_000
    assert soak.acked == MESSAGES
    assert soak.checkpoints > 20
    assert soak.compactions > 20
    _is_empty(soak)


def _is_empty(soak: Soak) -> None:
    """Nothing is left, neither here nor for who opens it next; the reserve is all that takes up space."""
    assert not soak.runs
    left = soak.taken()
    assert left.disk < LOG.reserve_bytes + 20_000
    assert left.files < 10
    soak.shard.journal.log.close()
    shard = soak.opened()
    assert list(shard.ledger.shard.lanes) == [NO_ID]
    assert shard.ledger.shard.lanes[NO_ID].alive == 0
    assert not len(shard.ledger.books[NO_ID].results)
    shard.journal.log.close()
