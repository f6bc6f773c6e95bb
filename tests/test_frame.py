"""The bytes that cross every boundary: what goes in comes out, and nothing else is ever accepted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.errors import FrameCorrupt
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement

ids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
payloads = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


@st.composite
def frames(draw: st.DrawFn) -> tuple[list[bytes], dict[str, object]]:
    messages = draw(payloads)
    n = len(messages)
    header = {
        "kind": draw(st.sampled_from(Kind)),
        "run": draw(ids),
        "function": draw(ids),
        "producer": draw(ids),
        "sequence": draw(u64),
        "ordinal": draw(u64),
        "weights": draw(st.none() | st.lists(u32, min_size=n, max_size=n)),
    }
    return messages, header


@st.composite
def settlements(draw: st.DrawFn) -> tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, object]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    pieces, first = [], draw(st.integers(0, 2**63))
    for size in sizes:
        pieces.append(Piece(first, draw(u64), size))
        first += size + draw(st.integers(0, 2**40))
    n = sum(sizes)
    outcomes = bytes(draw(st.lists(st.sampled_from(Outcome), min_size=n, max_size=n)))
    entries = draw(st.lists(st.binary(max_size=40), min_size=n, max_size=n))
    keys = draw(st.none() | st.lists(st.text(max_size=10), min_size=n, max_size=n))
    header = {"run": draw(ids), "epoch": draw(u32), "lease": draw(u64), "busy_s": draw(st.floats(0, 1e6)), "keys": keys}
    return (pieces, outcomes, entries), header


def settled(n: int = 3, *, keys: Sequence[str] | None = None) -> bytes:
    entries = [bytes([65 + i]) * i for i in range(n)]
    return Settlement.encode([Piece(10, 0, n)], bytes(n), entries, run=NO_ID, epoch=1, lease=7, busy_s=0.25, keys=keys)


# --- frames of messages ---------------------------------------------------------------------


@given(frames())
def test_frame_comes_back_as_it_was_packed(packed: tuple[list[bytes], dict[str, object]]) -> None:
    """Every field and byte matters: a wrong ordinal puts a result at another document's place."""
    messages, header = packed

    frame = Frame.decode(Frame.encode(messages, **header))  # type: ignore[arg-type]

    assert frame.messages() == messages
    assert [bytes(frame.message(i)) for i in range(frame.count)] == messages
    assert {name: getattr(frame, name) for name in header if name != "weights"} == {
        name: value for name, value in header.items() if name != "weights"
    }
    assert (None if frame.weights is None else list(frame.weights)) == header["weights"]


@given(frames(), st.data())
def test_cut_holds_its_messages_and_their_places(
    packed: tuple[list[bytes], dict[str, object]], data: st.DataObject
) -> None:
    """A lease is cut out of stored frames without encoding a message again."""
    messages, header = packed
    header["ordinal"] = data.draw(st.integers(0, 2**40))
    frame = Frame.decode(Frame.encode(messages, **header))  # type: ignore[arg-type]
    lo = data.draw(st.integers(0, frame.count - 1))
    n = data.draw(st.integers(1, frame.count - lo))

    cut = Frame.decode(frame.cut(lo, n))

    assert cut.messages() == messages[lo : lo + n]
    assert cut.ordinal == frame.ordinal + lo
    assert (cut.kind, cut.run, cut.function, cut.producer) == (frame.kind, frame.run, frame.function, frame.producer)
    if frame.weights is not None:
        assert cut.weights is not None
        assert list(cut.weights) == list(frame.weights[lo : lo + n])


def test_whole_cut_is_the_stored_frame_itself() -> None:
    """The usual delivery copies nothing."""
    frame = Frame.decode(Frame.encode([b"a", b"b"], kind=Kind.ELEMENT))

    assert frame.cut(0, 2) is frame.blob


def test_cut_can_name_another_function() -> None:
    """A retry with new code changes what runs, and nothing in what is stored."""
    frame = Frame.decode(Frame.encode([b"a", b"b"], kind=Kind.ELEMENT, function=b"1" * 16, ordinal=5))

    cut = Frame.decode(frame.cut(0, 2, function=b"2" * 16, ordinal=9))

    assert (cut.function, cut.ordinal, cut.messages()) == (b"2" * 16, 9, [b"a", b"b"])


def test_empty_frame_is_refused() -> None:
    """An empty frame would take a sequence number and say nothing."""
    with pytest.raises(ValueError, match="at least one"):
        Frame.encode([], kind=Kind.VALUE)


@pytest.mark.long
@given(frames(), st.data())
@settings(max_examples=300)
def test_flipped_byte_of_a_frame_raises_frame_corrupt_or_changes_a_value(
    packed: tuple[list[bytes], dict[str, object]], data: st.DataObject
) -> None:
    """Nothing but FrameCorrupt may come out: a queue that dies of bad bytes takes all its messages with it."""
    messages, header = packed
    blob = bytearray(Frame.encode(messages, **header))  # type: ignore[arg-type]
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))

    try:
        frame = Frame.decode(bytes(blob))
    except FrameCorrupt:
        return
    assert sum(map(len, frame.messages())) == len(frame.payload)


@given(frames(), st.data())
def test_truncated_frame_raises_frame_corrupt(
    packed: tuple[list[bytes], dict[str, object]], data: st.DataObject
) -> None:
    """A connection that broke must not turn into fewer messages."""
    messages, header = packed
    blob = Frame.encode(messages, **header)  # type: ignore[arg-type]

    with pytest.raises(FrameCorrupt):
        Frame.decode(blob[: data.draw(st.integers(0, len(blob) - 1))])


@given(frames(), st.binary(min_size=1, max_size=8))
def test_frame_with_bytes_behind_it_raises_frame_corrupt(
    packed: tuple[list[bytes], dict[str, object]], more: bytes
) -> None:
    """Lengths must add up exactly, or two frames run together would pass as one."""
    messages, header = packed

    with pytest.raises(FrameCorrupt):
        Frame.decode(Frame.encode(messages, **header) + more)  # type: ignore[arg-type]


@given(st.binary(max_size=300))
def test_random_bytes_are_never_a_frame_nor_a_settlement(noise: bytes) -> None:
    """Whatever arrives at a queue, the answer is a typed error."""
    for prefix, decode in ((b"DQ\x01", Frame.decode), (b"DS\x01", Settlement.decode)):
        for blob in (noise, prefix + noise):
            with suppress(FrameCorrupt):
                assert decode(blob).nbytes == len(blob)


# --- settlements ----------------------------------------------------------------------------


@given(settlements())
def test_settlement_comes_back_as_it_was_packed(
    packed: tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, object]],
) -> None:
    """Outcome, result and key of a message stand in three columns, which must not slip against each other."""
    (pieces, outcomes, entries), header = packed

    settlement = Settlement.decode(Settlement.encode(pieces, outcomes, entries, **header))  # type: ignore[arg-type]

    assert list(settlement.pieces) == pieces
    assert settlement.outcomes == outcomes
    assert settlement.entries() == entries
    assert [bytes(settlement.entry(i)) for i in range(settlement.count)] == entries
    keys = header["keys"]
    assert [settlement.key(i) for i in range(settlement.count)] == (keys or [None] * len(entries))
    assert (settlement.run, settlement.epoch, settlement.lease) == (header["run"], header["epoch"], header["lease"])
    assert settlement.busy_s == pytest.approx(header["busy_s"], abs=1e-6)


@given(settlements())
def test_cut_of_a_settlement_holds_one_piece(
    packed: tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, object]],
) -> None:
    """Results recorded once are cut out of settlements that were accepted in part."""
    (pieces, outcomes, entries), header = packed
    settlement = Settlement.decode(Settlement.encode(pieces, outcomes, entries, **header))  # type: ignore[arg-type]
    at = 0
    for piece in pieces:
        cut = Settlement.decode(settlement.cut(piece, at))

        assert list(cut.pieces) == [piece]
        assert cut.entries() == entries[at : at + piece.n]
        assert cut.outcomes == outcomes[at : at + piece.n]
        assert [cut.key(i) for i in range(piece.n)] == [settlement.key(at + i) for i in range(piece.n)]
        at += piece.n


@pytest.mark.long
@given(settlements(), st.data())
@settings(max_examples=300)
def test_flipped_byte_of_a_settlement_raises_frame_corrupt_or_changes_a_value(
    packed: tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, object]], data: st.DataObject
) -> None:
    """A settle that cannot be read is refused whole; the lease ends by itself."""
    (pieces, outcomes, entries), header = packed
    blob = bytearray(Settlement.encode(pieces, outcomes, entries, **header))  # type: ignore[arg-type]
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))

    try:
        settlement = Settlement.decode(bytes(blob))
    except FrameCorrupt:
        return
    assert sum(map(len, settlement.entries())) == len(settlement.payload)
    assert len(list(settlement.ids())) == len(settlement.outcomes)


@given(settlements(), st.data())
def test_truncated_settlement_raises_frame_corrupt(
    packed: tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, object]], data: st.DataObject
) -> None:
    """Half a settlement acks nothing."""
    (pieces, outcomes, entries), header = packed
    blob = Settlement.encode(pieces, outcomes, entries, **header)  # type: ignore[arg-type]

    with pytest.raises(FrameCorrupt):
        Settlement.decode(blob[: data.draw(st.integers(0, len(blob) - 1))])


def test_key_that_is_no_unicode_survives() -> None:
    """File names are bytes; what is no UTF-8 arrives as lone surrogates and must leave as such."""
    settlement = Settlement.decode(settled(1, keys=["caf\udce9.txt"]))

    assert settlement.key(0) == "caf\udce9.txt"


def test_later_version_is_refused_by_name() -> None:
    """A newer dqlab on the other side is a sentence about versions, not garbage."""
    blob = bytearray(settled())
    blob[2] = 9

    with pytest.raises(FrameCorrupt, match="version 9"):
        Settlement.decode(bytes(blob))


def test_equal_messages_and_plain_acks_take_no_columns() -> None:
    """What a million of them cost on the disk and on the way."""
    frame = Frame.encode([b"123"] * 1000, kind=Kind.VALUE)
    acks = Settlement.encode([Piece(0, 0, 1000)], bytes(1000), [b""] * 1000, run=NO_ID, epoch=1, lease=1)

    assert len(frame) == 72 + 4 + 3000
    assert len(acks) == 48 + 24 + 4
    assert Frame.decode(frame).messages() == [b"123"] * 1000
    assert Settlement.decode(acks).entries() == [b""] * 1000


def test_settlement_of_nothing_is_one() -> None:
    """It renews a consumer's credit."""
    settlement = Settlement.decode(Settlement.encode([], b"", [], run=NO_ID, epoch=1, lease=1))
    assert (settlement.count, settlement.pieces, settlement.entries()) == (0, (), [])
