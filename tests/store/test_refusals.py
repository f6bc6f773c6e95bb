"""What a log refuses has not happened: not in memory, and not after a restart."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from dqlab.errors import PutError
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.errors import LogFailed, RecordTooLarge
from dqlab.log.writer import LogOptions
from dqlab.rules.leases import Lease
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import State
from dqlab.store.checkpoint import freeze
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import unpack_plain
from dqlab.testing import FakeClock

OPTIONS = QueueOptions(max_deliveries=1)
LARGE = 20_000
"""Bytes of a record that is too large here."""


class Store:
    """One shard that is opened again whenever it is asked for what it has on disk."""

    def __init__(self, directory: Path, clock: FakeClock) -> None:
        self.directory, self.clock = directory, clock
        self.shard = self.open()
        self.ledger, self.rules = self.shard.ledger, self.shard.ledger.shard

    def open(self) -> DurableShard:
        options = LogOptions(sync="os", reserve_bytes=0)
        return DurableShard.open(
            self.directory, "q", 0, OPTIONS, log_options=options, clock=self.clock, random=Random(0)
        )

    def put(self, n: int) -> None:
        blob = Frame.encode([b"x"] * n, kind=Kind.VALUE, producer=b"p" * 16)
        self.rules.put(Frame.decode(blob))

    def settlement(self, lease: Lease, outcome: Outcome, payload: bytes = b"") -> Settlement:
        pieces = [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]
        n = sum(piece.n for piece in pieces)
        blob = Settlement.encode(
            pieces, bytes([outcome]) * n, [payload] * n, run=NO_ID, epoch=self.rules.epoch, lease=lease.id
        )
        return Settlement.decode(blob)

    def fail(self, n: int) -> None:
        """Let so many messages die, one by one, with one between them that does not."""
        for _ in range(n):
            for outcome in (Outcome.REJECT, Outcome.ACK):
                lease = self.rules.lease("c", 1)
                assert lease is not None
                self.ledger.settle(self.settlement(lease, outcome))

    def known(self) -> tuple[Any, Any]:
        state = unpack_plain(freeze(self.ledger)())
        leases = {lease.id: (list(lease.remaining), lease.early) for lease in self.rules.leases.values()}
        return state | {"at": 0}, leases

    def counts(self) -> list[int]:
        return list(self.rules.lanes[NO_ID].counts)

    def counts_on_disk(self) -> list[int]:
        """Counts as the next one to open it will find them; what is leased is ready there."""
        log = self.shard.journal.log
        if log.refusal is None:
            log.commit()
        log.close(clean=False)
        shard = self.open()
        counts = list(shard.ledger.shard.lanes[NO_ID].counts)
        shard.journal.log.close()
        return counts


@pytest.fixture
def store(in_memory: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A shard whose records may have 10,000 bytes."""
    monkeypatch.setattr("dqlab.log.writer.MAX_BODY", 10_000)
    monkeypatch.setattr("dqlab.store.journal.MAX_FUNCTION", 5_000)
    return Store(in_memory / "q", clock)


def leased(store: Store, n: int) -> Lease:
    store.put(n)
    lease = store.rules.lease("c", n)
    assert lease is not None
    return lease


def test_settlement_that_fits_no_record_is_refused_and_settles_nothing(store: Store) -> None:
    """Sixty documents of 8 MB were acked, and most of their results thrown away."""
    lease = leased(store, 4)
    before = store.known()

    with pytest.raises(RecordTooLarge):
        store.ledger.settle(store.settlement(lease, Outcome.ACK, b"r" * LARGE))

    assert store.known() == before
    assert store.ledger.settle(store.settlement(lease, Outcome.ACK, b"small")).results
    assert store.counts_on_disk()[State.ACKED] == 4


def test_purge_of_more_dead_letters_than_fit_one_record_holds_after_a_restart(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million scattered ones came back."""
    monkeypatch.setattr("dqlab.store.journal.MOVES", 20)
    store.put(400)
    store.fail(200)

    assert store.ledger.obey("purge", None, {"state": "DEAD"}) == 200

    assert store.counts()[State.CANCELLED] == 200
    assert store.counts_on_disk()[State.CANCELLED] == 200


def test_function_that_fits_no_record_is_refused_every_time(store: Store) -> None:
    """The second time it was taken without a word, and was gone after a restart."""
    for _ in range(2):
        with pytest.raises(PutError, match="20,000 bytes"):
            store.ledger.keep_function(NO_ID, b"h" * 16, b"f" * LARGE)
    assert store.ledger.functions == {}


def test_known_function_is_refused_by_a_log_that_takes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane named it although the put that would have recorded that was refused, and checkpoints kept it."""
    store.put(1)
    for name in (b"old", b"new"):
        store.ledger.keep_function(NO_ID, name.ljust(16), b"f")
    before = store.known()
    refusal = LogFailed(directory="d", reason="it does")

    def refuse(nbytes: int = 0) -> None:
        raise refusal

    monkeypatch.setattr(store.shard.journal.log, "admit", refuse)
    with pytest.raises(LogFailed):
        store.ledger.keep_function(NO_ID, b"old".ljust(16), b"f")

    assert store.known() == before


def test_retry_with_a_function_that_fits_no_record_revives_nothing(store: Store) -> None:
    """What it revived was dead again after a restart, and its function unknown."""
    store.put(2)
    store.fail(1)
    before = store.known()
    meta = {"ids": [(0, 1 << 50)], "ordinals": [], "function": b"h" * 16, "blob": b"f" * LARGE, "code": {"hash": ""}}

    with pytest.raises(PutError):
        store.ledger.obey("retry", NO_ID, meta)

    assert store.known() == before
    assert store.counts_on_disk()[State.DEAD] == 1
