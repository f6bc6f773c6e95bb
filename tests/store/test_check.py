"""`check` finds what is damaged, and names what that cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from dqlab.cli.command import check_text
from dqlab.frame import NO_ID, Outcome
from dqlab.store.directories import shard_directory
from dqlab.store.journal import position_of
from dqlab.store.verbs import CheckReport, Level, ShardCheck, check
from dqlab.testing import FakeClock
from tests.kit.sampled import mostly_slow
from tests.store.workload import RUNS, Workload, busy_queue, make_queue


@pytest.fixture
def load(store: Path, clock: FakeClock) -> Workload:
    """Three frames of 4 messages: the first one before both checkpoints, the others behind."""
    load = Workload(shard_directory(make_queue(store, "q", 1), 0), clock, segment_bytes=1 << 20)
    load.begin()
    load.put(RUNS[0], 4)
    load.checkpoint()
    load.checkpoint()
    load.put(RUNS[0], 4)
    load.put(NO_ID, 4)
    return load


def frame_of(load: Workload, id: int) -> tuple[Path, int, int]:
    """File, offset and size of the record of the frame that holds a message."""
    for lane in load.durable.ledger.shard.lanes.values():
        found = lane.batches.at(id)
        if found is not None:
            segment, offset, size = position_of(found[0].place)
            return next(load.directory.glob(f"{segment:010d}-*.seg")), offset, size
    raise AssertionError(f"no frame of message {id}")


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def only(found: CheckReport) -> ShardCheck:
    [shard] = found.shards()
    return shard


def test_a_flipped_bit_in_a_frame_before_the_checkpoints_loses_exactly_its_ids(load: Workload, store: Path) -> None:
    file, offset, size = frame_of(load, 1)
    load.close()
    flip(file, offset + size - 1)

    found = check(store, load.clock)

    assert found.level == Level.LOST == 2
    assert only(found).lost == ((0, 4),)
    [finding] = only(found).findings
    assert (finding.file, finding.offset, finding.nbytes) == (file.name, offset, size)
    assert "4 messages, ids 0 to 3" in check_text(found)
    assert json.loads(json.dumps(found.to_dict()))["queues"][0]["shards"][0]["lost"] == [[0, 4]]


def test_damage_behind_the_checkpoint_is_told_by_its_ids(load: Workload, store: Path) -> None:
    file, offset, size = frame_of(load, 5)
    load.close()
    flip(file, offset + size - 1)

    found = check(store, load.clock)

    assert found.level == Level.LOST
    assert only(found).lost == ((4, 8),)


def test_a_run_whose_opening_is_lost_is_told(store: Path, clock: FakeClock) -> None:
    load = Workload(shard_directory(make_queue(store, "q", 1), 0), clock)
    load.begin()
    load.put(RUNS[0], 3)
    load.close()
    file = min(load.directory.glob("*.seg"))
    flip(file, file.read_bytes().index(b"run-0"))

    found = check(store, clock)

    assert found.level == Level.LOST
    assert "1 record of runs that are not known" in check_text(found)


def test_a_damaged_settlement_names_the_results_that_went_with_it(load: Workload, store: Path) -> None:
    lease = load.lease(4)
    assert lease is not None
    load.settle(lease, [Outcome.ACK] * 4)
    load.checkpoint()
    load.checkpoint()
    load.close()
    file = next(f for f in load.directory.glob("*.seg") if b"ACK of 1" in f.read_bytes())
    flip(file, file.read_bytes().index(b"ACK of 1"))

    found = only(check(store, load.clock))

    assert found.level == Level.LOST
    assert (found.lost, found.lost_results) == ((), ((0, 4),))


@pytest.mark.parametrize("which", [0, 1])
def test_one_damaged_checkpoint_loses_nothing(load: Workload, store: Path, which: int) -> None:
    load.close()
    flip(sorted(load.directory.glob("ckpt-*"))[which], 60)

    found = check(store, load.clock)

    assert found.level == Level.DAMAGED
    assert only(found).counts == load.counts()


def test_a_missing_segment_cannot_be_opened(load: Workload, store: Path) -> None:
    file, _, _ = frame_of(load, 5)
    load.close()
    file.unlink()

    found = check(store, load.clock)

    assert found.level == Level.UNREADABLE == 3
    assert "is listed in the manifest" in check_text(found)
    assert "dqlab store export" in check_text(found)


def test_a_shard_that_its_queue_does_not_count_is_told(load: Workload, store: Path) -> None:
    """A flipped bit made "1 shard" "0 shards": nothing was checked, and found clean."""
    (path,) = store.glob("*/queue.json")
    path.write_text(path.read_text().replace('"shards": 1', '"shards": 0').replace('"shards":1', '"shards":0'))

    found = check(store)

    assert found.level is Level.UNREADABLE
    assert "it says 0 shards" in check_text(found)


@pytest.mark.parametrize("what", ["major", "feature"])
def test_a_newer_format_is_refused_in_a_sentence(load: Workload, store: Path, what: str) -> None:
    load.close()
    manifest = next(load.directory.glob("MANIFEST-*"))
    text = manifest.read_bytes().rpartition(b"crc32")[0]
    if what == "major":
        text = text.replace(b'"format": [\n  1,', b'"format": [\n  2,')
    else:
        text = text.replace(b'"incompatible": 1', b'"incompatible": 4')
    manifest.write_bytes(text + b"crc32 %08x\n" % crc32(text))

    found = check(store, load.clock)

    assert found.level == Level.UNREADABLE
    assert "Install a newer dqlab" in check_text(found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_a_whole_store_is_clean_and_stays_as_it_is(
    store: Path, clock: FakeClock, seed: int, fingerprint: Callable[[Path], str]
) -> None:
    loads = busy_queue(store, clock, seed=seed)
    before = fingerprint(store)

    found = check(store, clock)

    assert check_text(found).endswith("2 shards checked: clean. Exit status 0.")
    assert [shard.counts for shard in found.shards()] == [load.counts() for load in loads]
    assert fingerprint(store) == before


@pytest.mark.long
@pytest.mark.parametrize("seed", mostly_slow(range(4), 0, 1))
def test_any_flipped_bit_is_found(store: Path, clock: FakeClock, seed: int) -> None:
    """Every byte of a store has a checksum; one that is wrong costs at most what lies under it."""
    [load, _] = busy_queue(store, clock, seed=seed, steps=60)
    for file in sorted(load.directory.glob("*.seg")):
        whole = file.read_bytes()
        for at in load.random.sample(range(len(whole)), 6):
            flip(file, at)
            found = next(check(load.directory, clock).shards())
            file.write_bytes(whole)
            assert found.level in (Level.DAMAGED, Level.LOST), (file.name, at)


def test_an_open_log_may_be_checked_beside_its_owner(load: Workload, store: Path) -> None:
    load.durable.journal.log.commit()

    found = check(store, load.clock)
    load.close()

    assert found.level == Level.CLEAN


def test_acked_messages_without_results_are_a_loss_with_their_positions(load: Workload, store: Path) -> None:
    """A checkpoint that says so is whole, and wrong."""
    run = RUNS[0]
    load.put(run, 4)
    while (lease := load.lease(4)) is not None:
        load.settle(lease, [Outcome.ACK] * 4)
    book = load.durable.ledger.books[run]
    lost = len(book.results)
    book.lane.journal.forgot(book.results)
    book.results = type(book.results)()
    load.checkpoint()
    load.checkpoint()
    load.close()

    found = check(store, load.clock)

    assert found.level == Level.LOST
    assert f"{lost} documents of run run-0 acked and without a result" in check_text(found)
