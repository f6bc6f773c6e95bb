from __future__ import annotations

import threading
from pathlib import Path

import pytest

from dqlab.log.errors import RecordCorrupt
from dqlab.log.files import Files
from dqlab.log.log import Log
from dqlab.log.reader import AppendedRecord, Tail
from dqlab.log.records import HEADER_BYTES, Position
from dqlab.log.writer import LogOptions


class Counting(Files):
    reads = 0

    def read(self, descriptor: int, n: int, offset: int) -> bytes:
        self.reads += 1
        return super().read(descriptor, n, offset)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def fill(path: Path, n: int, size: int) -> list[Position]:
    with Log.open(path, options=LogOptions(segment_bytes=1 << 20)) as log:
        positions = [log.append(16, [k.to_bytes(4, "little") * (size // 4)]) for k in range(n)]
        log.commit()
    return positions


def test_just_written_records_need_no_io(path: Path) -> None:
    files = Counting()
    with Log.open(path, files=files) as log:
        positions = [log.append(16, [bytes(1000)]) for _ in range(100)]
        log.commit()
        before = files.reads
        assert all(log.read(position) == bytes(1000) for position in positions)
        assert files.reads == before


def test_one_read_fetches_the_neighbours(path: Path) -> None:
    positions = fill(path, 400, 1000)
    files = Counting()
    with Log.open(path, files=files) as log:
        before = files.reads
        assert log.cached(positions[0]) is None
        for k, position in enumerate(positions):
            assert log.read(position) == k.to_bytes(4, "little") * 250
        assert files.reads - before <= 3
        assert log.cached(positions[399]) is not None


def test_records_beyond_the_memory_are_read_from_disk_while_others_are_written(path: Path) -> None:
    with Log.open(path, options=LogOptions(sync="os")) as log:
        positions = []
        for k in range(200):
            positions.append(log.append(16, [bytes([k]) * 100_000]))
            log.commit()
        assert log.cached(positions[0]) is None
        assert [log.read(position)[:1] for position in positions] == [bytes([k]) for k in range(200)]


def test_damage_is_an_error_that_names_the_place_and_spares_the_others(path: Path) -> None:
    positions = fill(path, 3, 1000)
    file = next(path.glob("*.seg"))
    data = bytearray(file.read_bytes())
    data[positions[1].offset + 500] ^= 1
    file.write_bytes(data)
    with Log.open(path) as log:
        with pytest.raises(RecordCorrupt) as caught:
            log.read(positions[1])
        assert caught.value.position == positions[1]
        assert caught.value.offset == positions[1].offset
        assert log.read(positions[0])[:4] == bytes(4)
        assert log.read(positions[2])[:4] == (2).to_bytes(4, "little")


@pytest.mark.parametrize("change", [(0, 8, 0), (0, 0, -8), (0, 0, 1 << 30), (50, 0, 0)])
def test_a_position_of_nothing_is_an_error(path: Path, change: tuple[int, int, int]) -> None:
    good = fill(path, 3, 1000)[1]
    with Log.open(path) as log, pytest.raises(RecordCorrupt):
        log.read(Position(good.segment + change[0], good.offset + change[1], good.size + change[2]))


def test_who_reads_from_a_collected_segment_may_finish(path: Path) -> None:
    positions = fill(path, 1500, 1000)
    reading, collected = threading.Event(), threading.Event()

    class Waiting(Files):
        def read(self, descriptor: int, n: int, offset: int) -> bytes:
            if threading.current_thread().name == "reader":
                reading.set()
                assert collected.wait(30)
            return super().read(descriptor, n, offset)

    with Log.open(path, files=Waiting()) as log:
        assert len(list(log.replay())) == 1500
        log.needs({})
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(log.read(positions[0])), name="reader")
        thread.start()
        assert reading.wait(30)
        for _ in range(2):
            log.checkpoint(log.mark(), b"all acked")
        assert not list(path.glob("0000000001-*"))
        collected.set()
        thread.join()
        assert found == [bytes(1000)]
        with pytest.raises(RecordCorrupt, match="collected"):
            log.read(positions[1100]._replace(segment=1, offset=1))


def entry(n: int, size: int = 10, segment: int = 1) -> AppendedRecord:
    return AppendedRecord(Position(segment, n, HEADER_BYTES + size), bytes(HEADER_BYTES), bytes(size))


def test_one_write_takes_neighbours_of_one_segment() -> None:
    tail = Tail()
    for n, segment in enumerate([1, 1, 2]):
        tail.append(entry(n, segment=segment))
    entries, size = tail.next_write(10)
    assert [e.position.segment for e in entries] == [1, 1]
    assert size == 2 * (HEADER_BYTES + 10)
    tail.written(entries, size)
    assert [e.position.segment for e in tail.next_write(10)[0]] == [2]


def test_what_is_not_synced_is_never_forgotten() -> None:
    tail = Tail()
    entries = [entry(n, size=1 << 20) for n in range(20)]
    for one in entries:
        tail.append(one)
    tail.written(*tail.next_write(100))
    assert all(tail.body(one.position) is not None for one in entries)
    tail.synced()
    kept = [one for one in entries if tail.body(one.position) is not None]
    assert kept == entries[-len(kept) :]
    assert 6 <= len(kept) <= 8
