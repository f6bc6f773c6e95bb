"""`show` says what the shard itself would say, and leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dqlab.cli.command import show_text
from dqlab.log.errors import CannotOpen
from dqlab.store.directories import shard_directory
from dqlab.store.verbs import readable, show
from dqlab.testing import FakeClock
from tests.store.workload import RUNS, Workload, busy_queue, make_queue


def counts_in(found: dict[str, Any], at: int) -> dict[str, dict[str, int]]:
    return {
        run["run"]: {state: n for state, n in run["counts"].items() if n}
        for run in found["queues"][0]["shards"][at]["runs"]
    }


@pytest.mark.parametrize("seed", range(8))
def test_counts_and_results_are_those_of_the_shard_that_was_online(store: Path, clock: FakeClock, seed: int) -> None:
    loads = busy_queue(store, clock, seed=seed)

    found = show(store, clock)

    for at, load in enumerate(loads):
        shard = found["queues"][0]["shards"][at]
        books, log = load.durable.ledger.books, load.durable.journal.log
        assert shard["error"] is None
        assert counts_in(found, at) == load.counts()
        assert {run["run"]: run["results"] for run in shard["runs"]} == {
            run.hex(): len(book.results) for run, book in books.items()
        }
        assert shard["nbytes"]["needed"] == log.usage().needed
        files = [*load.directory.glob("*.seg"), *load.directory.glob("ckpt-*")]
        assert shard["nbytes"]["total"] == sum(file.stat().st_size for file in files)
    assert sorted(run["name"] for run in found["queues"][0]["shards"][0]["runs"]) == ["plain puts", "run-0", "run-1"]


def test_a_store_a_queue_and_a_shard_may_be_given(store: Path, clock: FakeClock) -> None:
    busy_queue(store, clock, seed=1, steps=10)
    queue = next(store.iterdir())

    of_store, of_queue, of_shard = (show(path, clock) for path in (store, queue, queue / "001"))

    assert of_store["queues"] == of_queue["queues"]
    assert of_shard["queues"][0]["shards"] == of_queue["queues"][0]["shards"][1:]
    assert of_shard["queues"][0]["name"] == "q"


def test_nothing_in_the_directory_changes(store: Path, clock: FakeClock, fingerprint: Callable[[Path], str]) -> None:
    loads = busy_queue(store, clock, seed=3)
    last = max(loads[0].directory.glob("*.seg"))
    last.write_bytes(last.read_bytes() + b"torn")
    (loads[0].directory / "0000009999-0000000001.seg").write_bytes(b"a leftover")
    min(loads[1].directory.glob("ckpt-*")).write_bytes(b"damaged")
    before = fingerprint(store)

    show(store, clock)

    assert fingerprint(store) == before


def test_a_log_that_is_open_is_read_beside_its_owner_who_is_named(store: Path, clock: FakeClock) -> None:
    path = make_queue(store, "q", 1)
    load = Workload(shard_directory(path, 0), clock)
    load.begin()
    load.put(RUNS[0], 7)
    load.durable.journal.log.commit()

    found = show(store, clock)
    load.put(RUNS[0], 1)
    load.close()

    holder = found["queues"][0]["shards"][0]["holder"]
    assert holder["held"] is True
    assert counts_in(found, 0)[RUNS[0].hex()] == {"ready": 7}
    assert f"pid: {holder['pid']:,}\n" in show_text(found)
    assert show(store, clock)["queues"][0]["shards"][0]["holder"]["held"] is False


def test_json_is_one_object_of_schema_3_and_text_has_a_line_for_each_fact(store: Path, clock: FakeClock) -> None:
    busy_queue(store, clock, seed=2, steps=30)
    found = show(store, clock)

    told = json.loads(json.dumps(found))

    assert told["schema"] == 3
    assert "name: plain puts" in show_text(found)


def test_a_shard_that_cannot_be_read_is_told_beside_those_that_can(store: Path, clock: FakeClock) -> None:
    loads = busy_queue(store, clock, seed=4, steps=20)
    next(loads[0].directory.glob("MANIFEST-*")).write_bytes(b"{}")

    found = show(store, clock)

    first, second = found["queues"][0]["shards"]
    assert "Nothing was deleted" in first["error"]
    assert second["error"] is None
    assert not readable(found)


def test_what_is_no_store_is_refused_by_name(store: Path) -> None:
    (store / "notes.txt").write_text("mine")
    with pytest.raises(CannotOpen, match="Give a store"):
        show(store)
    with pytest.raises(CannotOpen, match="Check the path"):
        show(store / "nowhere")
