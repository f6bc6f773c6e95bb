"""The specification is complete: a reader written from it alone sees what dqlab sees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dqlab.rules.states import State
from dqlab.testing import FakeClock
from tests.store.second_reader import SecondReader
from tests.store.workload import Workload, busy_queue


def agree(load: Workload, directory: Path, now: float) -> None:
    """Compare a reading with the ledger that wrote it, and with what was put and acked."""
    read = SecondReader(directory, now)
    ledger = load.durable.ledger
    names = {
        run.hex(): {State(state).name.lower(): n for state, n in counts.items()}
        for run, counts in read.counts().items()
    }
    assert names == load.counts()
    unsettled = {
        batch.first + i
        for lane in ledger.shard.lanes.values()
        for batch in lane.batches
        for i, state in enumerate(batch.states)
        if not State(state).final
    }
    assert read.payloads() == {id: load.payloads[id] for id in unsettled}
    for run, results in read.results().items():
        kept = {stretch.piece.first + i for stretch in ledger.books[run].results for i in range(stretch.piece.n)}
        assert results == {id: load.results[id] for id in kept}
    assert read.functions == ledger.functions


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_a_reader_written_from_the_specification_agrees_with_the_ledger(
    store: Path, clock: FakeClock, seed: int
) -> None:
    for load in busy_queue(store, clock, seed=seed):
        agree(load, load.directory, clock.wall())


def test_it_agrees_on_a_log_without_checkpoints_too(store: Path, clock: FakeClock) -> None:
    load = Workload(store / "000", clock, seed=5)
    load.begin()
    for _ in range(30):
        load.put(load.random.choice(sorted(load.sequences)), 4)
        load.work()
    load.reopen()
    load.close()

    agree(load, store / "000", clock.wall())


def test_it_knows_nothing_of_dqlab_and_is_short() -> None:
    """What it took over from the code would prove nothing."""
    text = (Path(__file__).parent / "second_reader.py").read_text()
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [getattr(node, "module", "")])
        if isinstance(node, ast.Import | ast.ImportFrom)
    }

    assert imported <= {
        "__future__",
        "collections",
        "dataclasses",
        "itertools",
        "json",
        "msgpack",
        "pathlib",
        "struct",
        "typing",
        "zlib",
    }
    assert len(text.splitlines()) <= 280
