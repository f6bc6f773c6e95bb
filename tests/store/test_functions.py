"""A function is kept as long as something here may run it, in memory, in checkpoints and behind a restart."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.writer import LogOptions
from dqlab.rules.frame_notes import LATEST, FrameFunctions
from dqlab.rules.ledger import Ledger
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.states import State, Verdict
from dqlab.store.checkpoint import freeze
from dqlab.store.durable_shard import DurableShard
from dqlab.testing import FakeClock

OPTIONS = QueueOptions(retry=Retry(0))
BIG = 10_000


def function(number: int) -> bytes:
    return number.to_bytes(16, "little")


class Desk:
    """A durable shard with what its actor does about functions."""

    def __init__(self, directory: Path, index: int = 0) -> None:
        self.directory, self.index, self.clock = directory, index, FakeClock()
        self.sequences: dict[bytes, int] = {}
        self.open()

    def open(self) -> None:
        self.durable = DurableShard.open(
            self.directory,
            "q",
            self.index,
            OPTIONS,
            log_options=LogOptions(sync="os", reserve_bytes=0),
            clock=self.clock,
            random=Random(0),
        )

    def reopen(self, *, checkpoint: bool) -> None:
        if checkpoint:
            self.durable.checkpoint()()
        self.durable.journal.log.commit()
        self.durable.journal.log.close()
        self.open()

    @property
    def ledger(self) -> Ledger:
        return self.durable.ledger

    def order(self, op: str, run: bytes | None, meta: dict[str, Any]) -> None:
        self.durable.journal.ordered(op, run, meta)
        self.ledger.order(op, run, meta)

    def start(self, run: bytes, code: int) -> None:
        version = {"name": "f", "hash": str(code), "short": "", "source": "", "cell": None, "blob": function(code)}
        self.order("open", None, {"open": {"run": run, "record": {"name": run.hex(), "codes": [version]}}})

    def put(self, run: bytes, code: int, n: int = 2) -> None:
        hash, sequence = function(code), self.sequences.get(run, 0)
        if hash not in self.ledger.functions:
            self.ledger.keep_function(run, hash, bytes(BIG))
        blob = Frame.encode(
            [b"x"] * n,
            kind=Kind.ELEMENT,
            run=run,
            function=hash,
            producer=run + b"" if run != NO_ID else b"p" * 16,
            sequence=sequence,
            ordinal=n * sequence,
        )
        assert self.ledger.shard.put(Frame.decode(blob)).verdict is Verdict.ACCEPTED
        self.sequences[run] = sequence + 1

    def seal(self, run: bytes) -> None:
        here = sum(self.ledger.shard.lanes[run].counts)
        self.order("seal", None, {"seal": {"run": run, "here": here, "total": here}})

    def work(self, outcome: Outcome = Outcome.ACK, n: int = 100) -> None:
        shard = self.ledger.shard
        while (lease := shard.lease("c", n)) is not None:
            for piece in lease.pieces:
                blob = Settlement.encode(
                    [Piece(piece.frame + piece.lo, piece.ordinal, piece.n)],
                    bytes([outcome] * piece.n),
                    [b""] * piece.n,
                    run=lease.run,
                    epoch=shard.epoch,
                    lease=lease.id,
                )
                settlement = Settlement.decode(blob)
                settled = shard.settle(settlement)
                self.ledger.record(settlement, settled, self.durable.journal.settled(settlement, settled))
        self.durable.journal.noted()
        self.ledger.note_ends()

    def kept(self) -> set[int]:
        self.ledger.note_functions()
        named = {hash for book in self.ledger.books.values() for hash in book.named_functions()}
        assert set(self.ledger.functions) <= named, "kept for nobody"
        return {int.from_bytes(hash, "little") for hash in self.ledger.functions}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "log")


def run_of(number: int) -> bytes:
    return b"run " + number.to_bytes(12, "big")


@pytest.mark.parametrize("checkpoint", [True, False])
def test_functions_of_runs_that_are_over_leave_memory_checkpoints_and_the_reopened_store(
    desk: Desk, checkpoint: bool
) -> None:
    """Each edit of a cell is a new function, with all that it captured: 40 of 1 MB stood in every checkpoint."""
    for number in range(1, 41):
        desk.start(run_of(number), number)
        desk.put(run_of(number), number)
        desk.seal(run_of(number))
        desk.work()
        if number % 2:
            desk.order("drop", run_of(number), {})

    assert desk.kept() == set()
    assert len(freeze(desk.ledger)()) < 3 * BIG
    desk.reopen(checkpoint=checkpoint)
    assert desk.kept() == set()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_a_function_stays_while_dead_messages_an_override_or_an_open_run_may_run_it(
    desk: Desk, checkpoint: bool
) -> None:
    """What may run again must find its function, also after a restart."""
    run = run_of(1)
    desk.start(run, 1)
    desk.put(run, 1)
    assert desk.kept() == {1}
    desk.seal(run)
    desk.work(Outcome.FAIL)
    desk.reopen(checkpoint=checkpoint)
    assert desk.kept() == {1}
    newer = {"name": "f", "hash": "2", "short": "", "source": "", "cell": None, "blob": function(2)}
    ids = list(desk.ledger.shard.lanes[run].dead)
    first = [(ids[0][0], ids[0][0] + 1)]
    desk.order("retry", run, {"ids": first, "ordinals": [], "function": function(2), "blob": bytes(BIG), "code": newer})
    assert desk.kept() == {1, 2}
    desk.reopen(checkpoint=checkpoint)
    assert desk.kept() == {1, 2}
    desk.work()
    assert desk.kept() == {1, 2}, "one is dead still, and a retry would give it the newest code"
    desk.order("retry", run, {"ids": ids, "ordinals": []})
    desk.work()
    assert desk.ledger.shard.lanes[run].counts[State.ACKED] == 2
    assert desk.kept() == set()


@pytest.mark.parametrize("checkpoint", [True, False])
def test_adopted_code_runs_in_place_of_older_code_and_not_of_newer(desk: Desk, checkpoint: bool) -> None:
    """An input that was cut off goes on with the newest code; it ran what had been adopted before that."""
    run = run_of(1)
    desk.start(run, 1)
    desk.put(run, 1)
    version = {"name": "f", "hash": "2", "short": "", "source": "", "cell": None, "blob": function(2)}
    desk.order("adopt", run, {"function": function(2), "blob": bytes(BIG), "code": version})
    newer = version | {"hash": "3", "blob": function(3)}
    desk.order("retry", run, {"ids": [], "ordinals": [], "function": function(3), "blob": bytes(BIG), "code": newer})
    desk.reopen(checkpoint=checkpoint)

    desk.put(run, 1)  # by a submitter that knows the first code alone
    desk.put(run, 3)
    desk.reopen(checkpoint=checkpoint)

    lease = desk.ledger.shard.lease("c", 100)
    assert lease is not None
    ran = [piece.function for piece in lease.pieces for _ in range(piece.n)]
    assert ran == [function(2)] * 4 + [None] * 2


@pytest.mark.parametrize("checkpoint", [True, False])
def test_what_each_function_has_acked_is_known_after_a_restart(desk: Desk, checkpoint: bool) -> None:
    """A run that was retried credits each version of its code with what that did."""
    run = run_of(1)
    desk.start(run, 1)
    desk.put(run, 1)
    desk.seal(run)
    desk.work(Outcome.REJECT)
    desk.put(NO_ID, 1)
    desk.work()
    version = {"name": "f", "hash": "2", "short": "", "source": "", "cell": None, "blob": function(2)}
    ids = [[id, id + 1] for id, _ in desk.ledger.shard.lanes[run].dead_ids(-1)]
    newer = {"ids": ids[:1], "ordinals": [], "function": function(2), "blob": bytes(BIG), "code": version}
    desk.order("retry", run, newer)
    desk.work()
    desk.reopen(checkpoint=checkpoint)

    assert desk.ledger.shard.lanes[run].acked_by == {function(2): 1}
    desk.order("retry", run, {"ids": ids[1:], "ordinals": [], "function": None})
    desk.work()
    desk.reopen(checkpoint=checkpoint)

    assert desk.ledger.shard.lanes[run].acked_by == {function(2): 1, function(1): len(ids) - 1}
    assert desk.ledger.shard.lanes[run].acked_at[function(1)].size == len(ids) - 1
    assert desk.ledger.shard.lanes[NO_ID].acked_by == {}


def test_a_function_that_a_refused_put_brought_is_there_for_the_next_one_after_a_restart(desk: Desk) -> None:
    """The log has the function, but not that the put named it: what came in between took it away when read back."""
    run = run_of(1)
    desk.ledger.keep_function(NO_ID, function(1), bytes(BIG))  # its frame had no room
    desk.start(run, 1)
    desk.put(run, 1)
    desk.seal(run)
    version = {"name": "f", "hash": "2", "short": "", "source": "", "cell": None, "blob": function(2)}
    newer = {"ids": [], "ordinals": [], "function": function(2), "blob": bytes(BIG), "code": version}
    desk.order("retry", run, newer)  # has all lanes looked at
    desk.work()
    desk.order("drop", run, {})
    desk.put(NO_ID, 1)  # there is room now; the function is here, so it need not come along

    desk.reopen(checkpoint=False)

    assert desk.ledger.shard.lanes[NO_ID].counts[State.READY] == 2
    assert desk.kept() == {1}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_a_lane_names_what_its_frames_and_nothing_else_name(seed: int) -> None:
    """Frames are freed in any order; a function must be neither lost while one names it, nor kept after."""
    random, known, functions = Random(seed), dict[int, bytes](), FrameFunctions()
    first = 0
    for _ in range(300):
        if random.random() < 0.55 or not known:
            first += random.randrange(1, 5)
            code = function(random.randrange(1, 5))
            functions.put(first, code)
            known[first] = code
        else:
            gone = random.choice(list(known)) if random.random() < 0.5 else min(known)
            del known[gone]
            if known:
                functions.freed(gone)
            else:
                functions.emptied()
        if random.random() < 0.1:
            again = FrameFunctions()
            again.restore(functions.to_list())
            functions = again
        assert set(functions) == set(known.values())
        assert len(functions.latest) <= LATEST


def test_frames_in_another_order_than_that_of_their_ids_lose_no_function() -> None:
    """A log that was compacted, and lost both checkpoints, is read so: more may be kept then, never less."""
    for seed in range(50):
        random, functions = Random(seed), FrameFunctions()
        known = {first: function(random.randrange(1, 4)) for first in random.sample(range(100), 20)}
        for first, code in known.items():
            functions.put(first, code)
        for gone in random.sample(list(known), 19):
            del known[gone]
            functions.freed(gone)
            assert set(functions) >= set(known.values())
        functions.emptied()
        assert not set(functions)
