"""Random histories of a durable shard, closed, killed and checkpointed between any two steps.

The histories and the model are those of the rules; what the rules promise must hold over restarts too. A
database that was told the same says what must lie in the log: states, payloads, results.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from dqlab.frame import Frame, Kind, Outcome, Piece, Settlement
from dqlab.log.errors import DiskFull, Fenced, LogFailed, RecordTooLarge
from dqlab.log.log import Log
from dqlab.log.records import Position, RecordType
from dqlab.log.writer import LogOptions
from dqlab.rules import result_index
from dqlab.rules.batches import share
from dqlab.rules.states import State, stretches
from dqlab.store.checkpoint import freeze
from dqlab.store.durable_shard import DurableShard, compaction, run_through
from dqlab.store.journal import position_of, unpack_plain
from tests.rules.model import TIMEOUT, Held
from tests.rules.test_model import OPTIONS, RUNS, ShardMachine
from tests.store.recorded import RecordedShard
from tests.store.sqlite_journal import SqliteJournal, differences, new_database

REFUSALS = [
    RecordTooLarge(size=2, limit=1),
    LogFailed(directory="d", reason="the disk"),
    Fenced(directory="d", epoch=1),
    DiskFull(directory="d", needed=1, free=0),
    OSError("anything else"),
]

REFUSED = [
    "settle",
    "begin",
    "release",
    "put",
    "retry",
    "purge",
    "cancel",
    "let go",
    "give up",
    "drop",
    "pause",
    "function",
    "open",
    "time",
]


class Gate:
    """Stands before a log: refuses when it is told to, and lets nothing in that did not ask before."""

    def __init__(self, log: Log) -> None:
        self.refuses: Exception | None = None
        self.admitted = -1
        self._admit, self._append = log.admit, log.append
        log.admit, log.append = self.admit, self.append  # type: ignore[method-assign]

    def admit(self, nbytes: int = 0) -> None:
        if self.refuses is not None:
            raise self.refuses
        self._admit(nbytes)
        self.admitted = nbytes

    def append(self, type: int, parts: Sequence[Any], **options: Any) -> Position:
        if self.refuses is not None:
            assert not options.get("admitted"), "it was refused, and happened all the same"
            raise self.refuses
        if options.get("admitted"):
            assert self.admitted >= 0, "nobody asked"
            if type in (RecordType.SETTLE, RecordType.RUN):
                assert sum(map(len, parts)) <= self.admitted, "it is larger than what was asked for"
        return self._append(type, parts, **options)


class DurableMachine(ShardMachine):
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="dqlab-model-"))
        self.database = new_database()
        self.former: list[Held] = []
        self.patience = 0.0
        self.block, result_index.BLOCK = result_index.BLOCK, 2  # so that some are full
        super().__init__()
        self.model.epoch = self.shard.epoch

    def make_shard(self) -> Any:
        self.durable = DurableShard.open(
            self.directory / "0",
            "q",
            0,
            OPTIONS,
            log_options=LogOptions(sync="os", segment_bytes=2000, reserve_bytes=0),
            clock=self.clock,
            random=Random(0),
            patience=self.patience,
            journal=partial(SqliteJournal, database=self.database),
        )
        assert differences(self.database, self.durable.ledger, self.durable.journal) == []
        self.gate = Gate(self.durable.journal.log)
        return RecordedShard(self.durable)

    @rule(clean=st.booleans(), checkpoint=st.booleans(), damaged=st.booleans(), patience=st.sampled_from([0.0, 3.0]))
    def reopen(self, clean: bool, checkpoint: bool, damaged: bool, patience: float) -> None:
        if checkpoint:
            self.durable.checkpoint()()
        log = self.durable.journal.log
        log.commit()
        log.close(clean=clean)
        checkpoints = sorted((self.directory / "0").glob("ckpt-*"))
        if damaged and len(checkpoints) == 2:  # one of them may be lost
            checkpoints[1].write_bytes(b"not a checkpoint")
        self.patience = patience
        self.shard = self.make_shard()
        orphans = {lease.run: lease.id for lease in self.shard.leases.values()}
        assert patience or not orphans
        self.model.reopen(self.shard.epoch, orphans, self.now() + patience)
        self.next_id = self.shard.next_id
        self.former = [*self.former, *self.granted][-6:]
        self.granted.clear()

    @precondition(lambda self: self.former)
    @rule(data=st.data(), part=st.sampled_from([1, 2, 100]), step=st.sampled_from([1, 1, 2]))
    def reclaim(self, data: st.DataObject, part: int, step: int) -> None:
        """A consumer that outlived its shard's process says what it has in hand, perhaps after it gave some back."""
        held = data.draw(st.sampled_from(self.former))
        held = replace(held, ids=held.ids[:part:step])
        self.shard.tick()
        self.model.pass_time(self.now())
        known = held.id in self.model.leases
        claim = held.run, [(id, id + 1) for id in held.ids]
        others = self.shard.reclaim(held.consumer, held.id, *claim, early=held.early)
        told = [id for lo, hi in others for id in range(lo, hi)]
        assert told == ([] if known else self.model.reclaim(held, held.consumer, self.now()))
        if held.id in self.model.leases:
            self.granted.append(self.model.leases[held.id])

    # --- a log that refuses -----------------------------------------------------------------

    @rule(
        data=st.data(),
        error=st.sampled_from(REFUSALS),
        run=st.sampled_from(RUNS),
        late=st.sampled_from([0, 0, TIMEOUT + 1]),
        what=st.sampled_from(REFUSED),
    )
    def refuse(self, data: st.DataObject, error: Exception, run: bytes, late: int, what: str) -> None:
        """Whatever the log refuses has not happened: neither now nor after a restart, which later steps look at."""
        self.clock.advance(late)
        before = self.what_is_known()
        self.gate.refuses = error
        try:
            self._try(data, what, run)
            assert self.what_is_known() == before  # there was nothing to be done
        except type(error):
            pass
        finally:
            self.gate.refuses = None
        assert self.what_is_known() == before
        assert not self.durable.journal._moves
        self.shard.tick()
        self.model.pass_time(self.now())

    def _try(self, data: st.DataObject, what: str, run: bytes) -> None:
        ledger, held = self.durable.ledger, None
        if self.granted and what in ("settle", "begin", "release"):
            held = data.draw(st.sampled_from(self.granted))
        if what == "settle" and held is not None:
            results = bytes(data.draw(st.sampled_from([*Outcome])) for _ in held.ids)
            pieces = [Piece(id, 0, 1) for id in held.ids]
            payloads = [b"2" if result == Outcome.NACK else b"?" for result in results]
            blob = Settlement.encode(pieces, results, payloads, run=held.run, epoch=held.epoch, lease=held.id)
            ledger.settle(Settlement.decode(blob))
        elif what == "begin" and held is not None:
            ledger.begin(held.id)
        elif what == "release" and held is not None:
            ledger.release(held.consumer)
        elif what == "put":
            ledger.shard.put(Frame.decode(Frame.encode([b"x"], kind=Kind.ELEMENT, run=run, function=b"f" * 16)))
        elif what == "retry":
            code = {"function": b"n" * 16, "blob": b"new", "code": {"hash": ""}}
            ledger.obey("retry", run, {"ids": [(0, 1000)], "ordinals": [], **code})
        elif what == "purge":
            ledger.obey("purge", None, {"state": data.draw(st.sampled_from(["READY", "DELAYED", "DEAD"]))})
        elif what in ("cancel", "drop", "pause"):
            ledger.obey(what, run, {})
        elif what in ("let go", "give up"):
            ledger.let_go(run, [(0, 1000)], "" if what == "let go" else "given up")
        elif what == "function":
            ledger.keep_function(run, b"h" * 16, b"blob")
        elif what == "open":
            ledger.obey("open", None, {"open": {"run": b"a-run-never-seen"}})
        else:
            ledger.shard.tick()

    def what_is_known(self) -> Any:
        """All that a checkpoint would keep, and who holds what; time's own doing, that delays end, is done first."""
        for lane in self.durable.ledger.shard.lanes.values():
            lane.wake(self.now())
        state = unpack_plain(freeze(self.durable.ledger)())
        leases = {
            lease.id: (lease.consumer, list(lease.remaining), lease.early, lease.deadline)
            for lease in self.shard.leases.values()
        }
        return {name: value for name, value in state.items() if name != "at"}, leases

    @rule()
    def checkpoint(self) -> None:
        self.durable.checkpoint()()

    @rule()
    def compact(self) -> None:
        run_through(compaction(self.durable, below=1.0))
        assert differences(self.database, self.durable.ledger, self.durable.journal) == []

    @invariant()
    def what_a_checkpoint_reuses_is_what_it_would_copy(self) -> None:
        """Lanes at rest are copied once; whatever changes one of them must make that void."""
        kept, copied = (self.lanes_of_checkpoint(reuse=reuse) for reuse in (True, False))
        assert kept == copied

    def lanes_of_checkpoint(self, *, reuse: bool) -> tuple[dict[bytes, Any], list[Any]]:
        state = unpack_plain(freeze(self.durable.ledger, reuse=reuse)())
        return {lane["run"]: lane for lane in state["lanes"]}, sorted(state["producers"])

    def check_frames(self, expected: set[int]) -> None:
        """What the log is told to keep is what the model still needs, to the byte."""
        lanes = [self.shard.lanes[run] for run in RUNS]
        assert {batch.first for lane in lanes for batch in lane.batches} == expected
        needed = sum(
            share(position_of(batch.place).size, len(batch.states), a, b)
            for lane in lanes
            for batch in lane.batches
            for a, b, state in stretches(batch.states, 0, len(batch.states))
            if not State(state).final
        )
        places = {stretch.place for book in self.durable.ledger.books.values() for stretch in book.results}
        needed += sum(position_of(place).size for place in places)
        assert self.durable.journal.log.usage().needed == needed

    def teardown(self) -> None:
        self.durable.journal.log.close(clean=False)
        shutil.rmtree(self.directory)
        result_index.BLOCK = self.block
        self.database.close()


@pytest.mark.long
class TestDurableShardAgainstModel(DurableMachine.TestCase):
    """Whatever happened before it was closed or killed, a shard comes back as the model says."""

    settings = settings(max_examples=12, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@pytest.mark.timeout(1200)
class TestDurableShardAgainstModelInDepth(DurableMachine.TestCase):
    """The same, with many more and longer histories."""

    settings = settings(
        max_examples=400, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
    )
