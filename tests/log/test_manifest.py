from __future__ import annotations

from zlib import crc32

import pytest

from dqlab.log.errors import CannotOpen
from dqlab.log.manifest import Manifest, SegmentEntry

MANIFEST = Manifest(
    uuid="00112233445566778899aabbccddeeff",
    epoch=2,
    next_seq=8,
    segments=(
        SegmentEntry(7, 2, length=500),
        SegmentEntry(1, 1, length=1000),
        SegmentEntry(2, 1, length=1000),
        SegmentEntry(3, 1, length=1000),
        SegmentEntry(4, 2),
    ),
    checkpoints=("ckpt-0000000001-0000000001",),
)


def test_a_manifest_comes_back_as_it_was() -> None:
    assert Manifest.decode(MANIFEST.encode(), "file") == MANIFEST


def rewritten(old: bytes, new: bytes) -> bytes:
    text = MANIFEST.encode().rpartition(b"crc32")[0].replace(old, new)
    return text + b"crc32 %08x\n" % crc32(text)


@pytest.mark.parametrize("change", [(b"[\n  1,\n  0\n ]", b"[2, 0]"), (b'"incompatible": 1', b'"incompatible": 4')])
def test_a_manifest_of_a_later_version_is_refused(change: tuple[bytes, bytes]) -> None:
    with pytest.raises(CannotOpen):
        Manifest.decode(rewritten(*change), "file")


def test_an_unknown_compatible_feature_is_no_obstacle() -> None:
    assert Manifest.decode(rewritten(b'"compatible": 0', b'"compatible": 1'), "file") == MANIFEST


def test_segments_are_replayed_in_the_order_of_the_list_from_one_on() -> None:
    assert [entry.seq for entry in MANIFEST.without({1, 3}).replayed(None)] == [7, 2, 4]
    assert [entry.seq for entry in MANIFEST.replayed(2)] == [2, 3, 4]


def test_a_sealed_length_never_changes() -> None:
    assert MANIFEST.sealed(2, 5).listed()[2].length == 1000
    assert MANIFEST.sealed(4, 5).listed()[4].length == 5
