"""A store's queues, seen from their files without touching them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dqlab.log import LogOptions
from dqlab.rules.options import QueueOptions
from dqlab.store.directories import shard_directory
from dqlab.store.durable_shard import DurableShard
from dqlab.store.offline import survey
from dqlab.testing import FakeClock
from tests.store.workload import busy_queue


def test_closed_queue_is_whole(store: Path, clock: FakeClock, fingerprint: Callable[[Path], str]) -> None:
    busy_queue(store, clock, seed=1, steps=20, name="pages")
    before = fingerprint(store)

    shards = survey(store)

    assert [(shard.queue, shard.index, shard.error) for shard in shards] == [("pages", 0, ""), ("pages", 1, "")]
    assert not any(shard.holder is not None and shard.holder.held for shard in shards)
    assert fingerprint(store) == before


def test_who_has_it_open_is_named(store: Path, clock: FakeClock) -> None:
    busy_queue(store, clock, seed=1, steps=5, name="pages")
    path = next(store.glob("pages-*"))
    shard = DurableShard.open(
        shard_directory(path, 0), "pages", 0, QueueOptions(), log_options=LogOptions(), owner="somebody"
    )

    opened, _ = survey(store)
    shard.journal.log.close()

    assert opened.holder is not None
    assert (opened.holder.pid, opened.holder.owner, opened.holder.held) == (os.getpid(), "somebody", True)


def test_what_is_missing_or_cannot_be_read_is_named(store: Path, clock: FakeClock) -> None:
    busy_queue(store, clock, seed=1, steps=20, name="pages")
    segment = next(store.glob("pages-*/000/*.seg"))
    segment.unlink()
    next(store.glob("pages-*/001/MANIFEST-*")).write_bytes(b"{}")
    (store / "pages-odd").mkdir()
    (store / "pages-odd" / "queue.json").write_text("{")

    first, second, odd = survey(store)

    assert first.error == f"it lacks 1 file: {segment.name}"
    assert "damaged" in second.error
    assert "queue.json cannot be read" in odd.error


def test_directory_without_queues_has_none(store: Path) -> None:
    assert survey(store) == ()
    assert survey(store / "none") == ()
