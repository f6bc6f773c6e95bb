"""Stores of every released format open and hold what they held; those of a later format are refused untouched."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from dqlab.frame import Frame, Settlement
from dqlab.log.errors import CannotOpen
from dqlab.log.log import Log
from dqlab.log.writer import LogOptions
from dqlab.rules.journal import Op
from dqlab.rules.states import State
from dqlab.store.directories import read_queue, shard_directory
from dqlab.store.durable_shard import DurableShard
from dqlab.store.journal import open_settle, pack_plain
from dqlab.store.verbs import check
from dqlab.testing import FakeClock
from tests.store.second_reader import SecondReader
from tests.store.workload import OPTIONS

GOLDEN = Path(__file__).parent.parent / "golden"
LISTED = sorted(GOLDEN.glob("store-v*.json"))


@pytest.fixture
def copy(store: Path) -> Path:
    """The queue of a copy of the newest golden store."""
    shutil.copytree(LISTED[-1].with_suffix(""), store / "copy")
    [queue] = [path.parent for path in (store / "copy").glob("**/queue.json")]
    return queue


def held_by(durable: DurableShard) -> dict[str, Any]:
    """What an opened shard holds, in the words of the list."""
    ledger = durable.ledger
    payloads = {}
    for lane in ledger.shard.lanes.values():
        for batch in lane.batches:
            frame = Frame.decode(durable.journal.body(batch.place))
            for i, state in enumerate(batch.states):
                if not State(state).final:
                    payloads[str(batch.first + i)] = bytes(frame.message(i)).hex()
    results: dict[str, dict[str, str]] = {}
    for run, book in ledger.books.items():
        results[run.hex()] = found = {}
        for stretch in book.results:
            settlement = Settlement.decode(open_settle(durable.journal.body(stretch.place))[1])
            for i in range(stretch.piece.n):
                found[str(stretch.piece.first + i)] = bytes(settlement.entry(stretch.at + i)).decode()
    return {
        "counts": {
            run.hex(): {state.name.lower(): lane.counts[state] for state in State if lane.counts[state]}
            for run, lane in ledger.shard.lanes.items()
        },
        "payloads": dict(sorted(payloads.items(), key=lambda row: int(row[0]))),
        "results": results,
        "dead": [
            [letter.id, letter.ordinal, letter.reason, bytes(letter.failure).decode(), letter.deliveries]
            for run in ledger.shard.lanes
            for letter in ledger.shard.dead_letters(run)
        ],
        "names": {run.hex(): book.record.name for run, book in ledger.books.items() if book.record is not None},
        "functions": {hash.hex(): blob.hex() for hash, blob in ledger.functions.items()},
    }


@pytest.mark.parametrize("listed", LISTED, ids=lambda path: path.stem)
def test_a_store_of_an_earlier_version_opens_and_holds_exactly_what_is_listed(listed: Path, store: Path) -> None:
    told = json.loads(listed.read_text())
    shutil.copytree(listed.with_suffix(""), store / "copy")
    [path] = [path.parent for path in (store / "copy").glob("**/queue.json")]
    queue = read_queue(path)
    assert queue is not None
    assert (queue.name, queue.shards) == (told["queue"], len(told["shards"]))
    assert check(path, FakeClock(wall=told["wall"])).level == 0

    for index, expected in enumerate(told["shards"]):
        durable = DurableShard.open(
            shard_directory(path, index),
            queue.name,
            index,
            OPTIONS,
            log_options=LogOptions(reserve_bytes=0),
            clock=FakeClock(wall=told["wall"]),
        )
        assert held_by(durable) == expected
        durable.journal.log.close()


def test_the_second_reader_finds_the_same(copy: Path) -> None:
    told = json.loads(LISTED[-1].read_text())

    for index, expected in enumerate(told["shards"]):
        read = SecondReader(shard_directory(copy, index), told["wall"])
        assert {str(id): payload.hex() for id, payload in sorted(read.payloads().items())} == expected["payloads"]


def manifest(text: bytes, old: bytes, new: bytes) -> bytes:
    body = text.rpartition(b"crc32")[0].replace(old, new)
    return body + b"crc32 %08x\n" % crc32(body)


def segment(data: bytes, at: int, value: int) -> bytes:
    header = data[:at] + bytes([value]) + data[at + 1 : 60]
    return header + crc32(header).to_bytes(4, "little") + data[64:]


def checkpoint(data: bytes) -> bytes:
    body = data[:8] + b"\2" + data[9:-4]
    return body + crc32(body).to_bytes(4, "little")


LATER: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "major": ("MANIFEST-*", lambda data: manifest(data, b'"format": [\n  1,', b'"format": [\n  2,')),
    "feature": ("MANIFEST-*", lambda data: manifest(data, b'"incompatible": 0', b'"incompatible": 2')),
    "segment": ("*-*.seg", lambda data: segment(data, 8, 2)),
    "segment feature": ("*-*.seg", lambda data: segment(data, 12, 1)),
    "checksum algorithm": ("*-*.seg", lambda data: segment(data, 16, 1)),
    "checkpoint": ("ckpt-*", checkpoint),
}


@pytest.mark.parametrize("what", LATER)
def test_a_later_format_is_refused_by_name_and_nothing_of_it_changes(copy: Path, what: str) -> None:
    """But for the lock and the new epoch's empty file, which come before the look at the files."""
    pattern, change = LATER[what]
    log = copy / "000"
    file = max(log.glob(pattern))
    file.write_bytes(change(file.read_bytes()))
    before = {path.name: path.read_bytes() for path in log.iterdir()}

    with pytest.raises(CannotOpen, match="Install a newer dqlab"):
        Log.open(log)

    assert {path.name: path.read_bytes() for path in log.iterdir() if path.name in before and path.name != "LOCK"} == {
        name: data for name, data in before.items() if name != "LOCK"
    }
    assert all(path.name in before or path.name.startswith("EPOCH-") for path in log.iterdir())
    assert check(log).level == 3


def test_a_later_queue_is_refused_by_name(copy: Path) -> None:
    kept = copy / "queue.json"
    kept.write_text(kept.read_text().replace('"format": 1', '"format": 2'))

    with pytest.raises(CannotOpen, match="Install a newer dqlab"):
        read_queue(copy)


def test_a_higher_minor_version_and_unknown_compatible_features_are_read(copy: Path) -> None:
    """Their writer promises that a reader that does not know them reads the rest as before."""
    file = next((copy / "000").glob("MANIFEST-*"))
    data = manifest(file.read_bytes(), b'"format": [\n  1,\n  0', b'"format": [\n  1,\n  7')
    file.write_bytes(manifest(data, b'"compatible": 0', b'"compatible": 2'))
    before = check(copy / "001").level

    assert check(copy / "000").level == before == 0


def test_orders_lie_in_logs_under_names_that_stay() -> None:
    """An older log that has another name of an order could not be opened."""
    names = [
        *("open", "seal", "pause", "resume", "drain", "cancel", "purge", "retry", "adopt", "retries", "reopen"),
        *("drop", "forget", "halt", "why", "submitted", "flow", "judge", "unique"),
    ]

    assert [each.value for each in Op] == names
    assert all(pack_plain([each, None, {}]) == pack_plain([each.value, None, {}]) for each in Op)
