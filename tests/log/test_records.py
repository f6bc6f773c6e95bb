from __future__ import annotations

from dqlab.log.records import HEADER_BYTES, Header, pack_header, parse_header, seed_of

UUID = bytes(range(16))
HEADER = Header(
    type=16, flags=3, messages=7, length=100, base=1 << 52, aux=1 << 60, number=9, epoch=2, body_crc=0xDEADBEEF
)


def test_a_header_comes_back_as_it_was() -> None:
    seed = seed_of(UUID, 5)
    packed = pack_header(HEADER, seed)
    assert len(packed) == HEADER_BYTES
    assert parse_header(packed, 0, seed) == HEADER


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    seed = seed_of(UUID, 5)
    packed = pack_header(HEADER, seed)
    for bit in range(8 * HEADER_BYTES):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        assert parse_header(bytes(flipped), 0, seed) is None


def test_a_body_above_the_limit_is_none_however_right_its_checksum() -> None:
    seed = seed_of(UUID, 5)
    assert parse_header(pack_header(HEADER._replace(length=(64 << 20) + 1), seed), 0, seed) is None
