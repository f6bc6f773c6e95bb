from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from dqlab.log.errors import CannotOpen
from dqlab.log.files import Files
from dqlab.log.records import (
    SEGMENT_BYTES,
    Header,
    Record,
    Scan,
    check_segment_header,
    pack_header,
    pack_segment_header,
    seed_of,
)

UUID = bytes(range(16))
SEED = seed_of(UUID, 1)


def record(number: int, body: bytes, *, type: int = 16, epoch: int = 1, seed: int = SEED) -> bytes:
    return pack_header(Header(type, 0, 1, len(body), number, 0, number, epoch, crc32(body)), seed) + body


def scan(path: Path, data: bytes, *, start: int = SEGMENT_BYTES) -> tuple[list[Record], Scan]:
    path.write_bytes(bytes(SEGMENT_BYTES) + data)
    files = Files()
    descriptor = files.open(path)
    found = Scan(files, descriptor, segment=1, epoch=1, seed=SEED, start=start, limit=files.size(descriptor))
    records = list(found)
    files.close(descriptor)
    return records, found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "segment"


def test_records_come_back_in_order_with_their_positions(path: Path) -> None:
    bodies = [b"a" * n for n in (0, 1, 100, 300_000, 5)]  # one is larger than what is read at once
    data = [record(n, body) for n, body in enumerate(bodies)]
    records, found = scan(path, b"".join(data))
    assert [bytes(r.body) for r in records] == bodies
    assert [r.position.offset for r in records] == [64 + len(b"".join(data[:n])) for n in range(5)]
    assert found.gaps == []
    assert found.end == 64 + sum(map(len, data))


def test_a_segment_header_belongs_to_one_file() -> None:
    header = pack_segment_header(UUID, 3, 4, 1.5)
    assert len(header) == SEGMENT_BYTES
    assert check_segment_header(header, UUID, 3, 4, "file")
    assert not check_segment_header(header, UUID, 3, 5, "file")
    assert not check_segment_header(header, bytes(16), 3, 4, "file")
    assert not check_segment_header(header[:63], UUID, 3, 4, "file")


def test_a_segment_of_a_later_version_is_refused_by_name() -> None:
    header = bytearray(pack_segment_header(UUID, 3, 4, 0.0))
    header[8] = 2
    header[60:] = crc32(header[:60]).to_bytes(4, "little")
    with pytest.raises(CannotOpen, match=r"file has format 2\.0"):
        check_segment_header(bytes(header), UUID, 3, 4, "file")
