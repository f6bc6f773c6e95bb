from __future__ import annotations

from dqlab.log.reader import AppendedRecord, Tail
from dqlab.log.records import HEADER_BYTES, Position


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
