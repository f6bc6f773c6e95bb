"""Random histories of a durable shard, closed, killed and checkpointed between any two steps.

The histories and the model are those of the rules; what the rules promise must hold over restarts too. A
database that was told the same says what must lie in the log: states, payloads, results.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from dqlab.log import LogOptions
from dqlab.queue.batches import share
from dqlab.queue.states import State, stretches
from dqlab.store.compaction import compaction, run_through
from dqlab.store.places import position_of
from dqlab.store.shard import DurableShard
from tests.queue.model import Held
from tests.queue.test_model import OPTIONS, RUNS, ShardMachine
from tests.store.recorded import RecordedShard
from tests.store.sqlite_journal import SqliteJournal, differences, new_database


class DurableMachine(ShardMachine):
    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="dqlab-model-"))
        self.database = new_database()
        self.former: list[Held] = []
        self.patience = 0.0
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
    @rule(data=st.data(), part=st.sampled_from([1, 2, 100]))
    def reclaim(self, data: st.DataObject, part: int) -> None:
        """A consumer that outlived its shard's process says what it has in hand."""
        held = data.draw(st.sampled_from(self.former))
        held = replace(held, ids=held.ids[:part])
        self.shard.tick()
        self.model.pass_time(self.now())
        known = held.id in self.model.leases
        claim = held.run, [(id, id + 1) for id in held.ids]
        others = self.shard.reclaim(held.consumer, held.id, *claim, early=held.early)
        told = [id for lo, hi in others for id in range(lo, hi)]
        assert told == ([] if known else self.model.reclaim(held, held.consumer, self.now()))
        if held.id in self.model.leases:
            self.granted.append(self.model.leases[held.id])

    @rule()
    def checkpoint(self) -> None:
        self.durable.checkpoint()()

    @rule()
    def compact(self) -> None:
        run_through(compaction(self.durable, below=1.0))
        assert differences(self.database, self.durable.ledger, self.durable.journal) == []

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
        self.database.close()


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
