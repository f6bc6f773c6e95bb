"""What `export` writes: everything that can be read, also of a store that cannot be opened."""

from __future__ import annotations

import json
import shutil
from base64 import b64decode
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dqlab.frame import Frame, Outcome, Settlement
from dqlab.log.writer import LogOptions
from dqlab.rules.states import State
from dqlab.store.directories import shard_directory
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import open_settle, position_of
from dqlab.store.verbs import check, export
from dqlab.testing import FakeClock
from tests.store.workload import OPTIONS, RUNS, Workload, busy_queue, make_queue


def opened(path: Path, load: Workload) -> DurableShard:
    return DurableShard.open(
        path,
        "q",
        load.index,
        OPTIONS,
        log_options=LogOptions(sync="os", reserve_bytes=0),
        clock=load.clock,
        random=Random(0),
    )


def contents(durable: DurableShard) -> dict[str, Any]:
    """Everything that a shard holds: states, payloads, results, troubles, records of runs, functions."""
    ledger = durable.ledger
    found: dict[str, Any] = {"functions": ledger.functions, "states": {}, "payloads": {}, "results": {}, "trouble": {}}
    for run, lane in ledger.shard.lanes.items():
        found["counts", run] = list(lane.counts)
        found["suspects", run] = list(lane.suspects)
        for id, trouble in lane.trouble.items():
            found["trouble"][id] = (trouble.deliveries, trouble.exceptions, trouble.reason, bytes(trouble.failure))
        for batch in lane.batches:
            frame = Frame.decode(durable.journal.body(batch.place))
            for i, value in enumerate(batch.states):
                if not State(value).final:
                    found["states"][batch.first + i] = State(value)
                    found["payloads"][batch.first + i] = bytes(frame.message(i))
    for run, book in ledger.books.items():
        found["record", run] = book.record
        for stretch in book.results:
            settlement = Settlement.decode(open_settle(durable.journal.body(stretch.place))[1])
            for i in range(stretch.piece.n):
                found["results"][stretch.piece.first + i] = bytes(settlement.entry(stretch.at + i))
    return found


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def records_of(load: Workload) -> list[tuple[str, int, tuple[int, ...]]]:
    """Kind, place and ids of every frame and settlement that a shard needs."""
    ledger = load.durable.ledger
    found: dict[tuple[str, int], tuple[int, ...]] = {}
    for lane in ledger.shard.lanes.values():
        for batch in lane.batches:
            ids = [batch.first + i for i, value in enumerate(batch.states) if not State(value).final]
            found["frame", batch.place] = tuple(ids)
    for book in ledger.books.values():
        for stretch in book.results:
            first, _, n = stretch.piece
            found["results", stretch.place] = (*found.get(("results", stretch.place), ()), *range(first, first + n))
    return [(kind, place, ids) for (kind, place), ids in found.items()]


def damage(load: Workload, place: int) -> None:
    segment, offset, size = position_of(place)
    flip(next(load.directory.glob(f"{segment:010d}-*.seg")), offset + size - 1)


def ids_in(ranges: tuple[tuple[int, int], ...]) -> set[int]:
    return {id for lo, hi in ranges for id in range(lo, hi)}


def opened_copy(load: Workload, store: Path) -> DurableShard:
    """Open a copy of a shard, and let go of it."""
    copy = store / f"copy of {load.index}"
    shutil.copytree(load.directory, copy)
    durable = opened(copy, load)
    durable.journal.log.close()
    return durable


def rows_of(store: Path, clock: FakeClock) -> list[dict[str, Any]]:
    return [json.loads(line) for line in export(store, clock)]


def assert_holds(rows: list[dict[str, Any]], expected: dict[str, Any], *, without: set[int] = frozenset()) -> None:
    """Exactly these messages and results are in rows, each once."""
    messages = {row["id"]: b64decode(row["payload"]) for row in rows if row["payload"] is not None}
    results = {row["id"]: b64decode(row["result"]) for row in rows if row["result"] is not None}
    assert messages == {id: p for id, p in expected["payloads"].items() if id not in without}
    assert results == {id: r for id, r in expected["results"].items() if id not in without}
    assert len(rows) == len(messages) + len(results)


@pytest.mark.parametrize("seed", range(5))
def test_messages_states_results_and_failures_are_those_of_the_shard(store: Path, clock: FakeClock, seed: int) -> None:
    loads = busy_queue(store / "old", clock, seed=seed)

    rows = rows_of(store / "old", clock)

    assert {row["queue"] for row in rows} == {"q"}
    for load in loads:
        mine, expected = [row for row in rows if row["shard"] == load.index], contents(opened_copy(load, store))
        assert_holds(mine, expected)
        unsettled = {row["id"]: row for row in mine if row["payload"] is not None}
        assert {id: row["state"] for id, row in unsettled.items()} == {
            id: state.name.lower() for id, state in expected["states"].items()
        }
        for id, (_, _, reason, failure) in expected["trouble"].items():
            if id in unsettled:
                assert (unsettled[id]["reason"], unsettled[id]["failure"]) == (reason, failure.decode())


@pytest.mark.parametrize("kind", ["frame", "results"])
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_record_is_left_out_and_its_ids_are_what_check_names(
    store: Path, clock: FakeClock, seed: int, kind: str
) -> None:
    [load, _] = busy_queue(store, clock, seed=seed)
    load.open()
    load.checkpoint()
    load.checkpoint()
    load.close()
    expected = contents(opened_copy(load, store))
    _, place, ids = Random(seed).choice([row for row in records_of(load) if row[0] == kind])
    damage(load, place)

    assert_holds(rows_of(load.directory, clock), expected, without=set(ids))
    [found] = check(load.directory, clock).shards()
    assert ids_in(found.lost if kind == "frame" else found.lost_results) == set(ids)


def test_messages_of_a_run_whose_opening_is_lost_are_exported(store: Path, clock: FakeClock) -> None:
    load = Workload(shard_directory(make_queue(store, "q", 1), 0), clock)
    load.begin()
    first = load.put(RUNS[0], 3)
    load.close()
    file = min(load.directory.glob("*.seg"))
    flip(file, file.read_bytes().index(b"run-0"))

    rows = rows_of(store, clock)

    assert {row["id"]: b64decode(row["payload"]) for row in rows} == {
        id: load.payloads[id] for id in range(first, first + 3)
    }


def test_results_that_an_earlier_settlement_of_the_message_refused_are_not_exported(
    store: Path, clock: FakeClock
) -> None:
    load = Workload(shard_directory(make_queue(store, "q", 1), 0), clock)
    load.begin()
    load.put(RUNS[0], 4)
    lease = load.lease(4)
    assert lease is not None
    load.settle(lease, [Outcome.ACK, Outcome.FAIL, Outcome.ACK, Outcome.REJECT])
    expected = contents(load.durable)
    load.close()
    flip(next(load.directory.glob("MANIFEST-*")), 40)

    results = {row["id"]: b64decode(row["result"]) for row in rows_of(store, clock) if row["result"] is not None}

    assert results == expected["results"]
    assert len(results) == 2
