"""The bytes that cross every boundary: what goes in comes out, and nothing else is ever accepted."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.datasets.lineage import Lineage
from dqlab.errors import FrameCorrupt
from dqlab.frame import NO_ID, Frame, Kind, Made, Making, Numbered, Outcome, Piece, Settlement
from tests.kit.sampled import examples

T = TypeVar("T")

ids = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
seconds = st.just(0.0) | st.floats(1e-30, 1e30)
payloads = st.lists(st.binary(max_size=40), min_size=1, max_size=20)
numbered = st.builds(
    Numbered, st.binary(max_size=9), st.binary(max_size=9), st.integers(0, 2**32 - 21), st.integers(1, 20)
)
columned = st.builds(
    lambda one, parts: replace(one, count=len(parts), column=b"".join(parts), sizes=list(map(len, parts))),
    numbered,
    payloads,
)
Messages: TypeAlias = list[bytes] | Numbered


@st.composite
def frames(draw: st.DrawFn) -> tuple[Messages, dict[str, object]]:
    messages = draw(payloads | numbered | columned)
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
    return (pieces, outcomes, entries), header | {"made": draw(st.none() | makings(n)), "riders": draw(riders(n))}


def riders(n: int) -> st.SearchStrategy[dict[str, dict[int, bytes]]]:
    """Side columns of `n` messages: none, of a few messages, and of all."""
    entries = st.dictionaries(st.integers(0, n - 1), st.binary(max_size=9))
    dense = st.lists(st.binary(max_size=9), min_size=n, max_size=n).map(lambda each: dict(enumerate(each)))
    return st.dictionaries(st.text(max_size=5), entries | dense, max_size=2)


@given(settlements())
@settings(max_examples=examples(200))
def test_side_columns_are_read_by_name_and_position(
    packed: tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, Any]],
) -> None:
    """And the rest of the settlement is as without them, so that results are read as ever."""
    columns, header = packed
    found, bare = (
        Settlement.decode(Settlement.encode(*columns, **(header | {"riders": riders})))
        for riders in (header["riders"], None)
    )

    n = found.count
    read = {
        name: {at: bytes(entry) for at in range(n) if (entry := rider.get(at)) is not None}
        for name, rider in found.riders.items()
    }
    assert read == header["riders"]
    keys = found.keys()
    assert (found.entries(), keys) == (bare.entries(), bare.keys())
    for key in {*(keys or ())} - {""}:
        assert found.place_of(key) == (keys or []).index(key)
    assert found.place_of("no key") is None
    first = found.pieces[0]
    assert found.cut(first, 0) == bare.cut(first, 0)


@st.composite
def makings(draw: st.DrawFn, n: int) -> Making:
    """How `n` results were made: with neighbours that are alike, and all different ones."""

    def column(of: st.SearchStrategy[T]) -> st.SearchStrategy[list[T]]:
        return st.lists(of, min_size=n, max_size=n)

    return Making(
        draw(st.text(max_size=10)),
        draw(st.text(max_size=10)),
        draw(st.floats(0, 4e9)),
        draw(column(seconds)),
        draw(st.none() | column(seconds)),
        draw(st.none() | column(st.integers(1, 3) | u32)),
        draw(st.none() | column(st.sampled_from(["", "v1", "12-3456"]) | st.text(max_size=10))),
    )


def told(made: Made | None, start: int, stop: int) -> list[tuple[Any, ...]] | None:
    """Return what is known of how some results were made, a tuple for each."""
    if made is None:
        return None
    versions = [version for version, n in made.versions(start, stop) for _ in range(n)]
    attempts = [attempt for attempt, n in made.attempts(start, stop) for _ in range(n)]
    ages = made.ages(start, stop) or [0.0] * (stop - start)
    columns = zip(made.seconds(start, stop), ages, attempts, versions, strict=True)
    return [(made.consumer, made.code, made.at, *row) for row in columns]


def settled(n: int = 3, *, keys: Sequence[str] | None = None) -> bytes:
    entries = [bytes([65 + i]) * i for i in range(n)]
    return Settlement.encode([Piece(10, 0, n)], bytes(n), entries, run=NO_ID, epoch=1, lease=7, busy_s=0.25, keys=keys)


# --- frames of messages ---------------------------------------------------------------------


@given(frames())
def test_frame_comes_back_as_it_was_packed(packed: tuple[Messages, dict[str, object]]) -> None:
    """Every field and byte matters: a wrong ordinal puts a result at another document's place."""
    messages, header = packed

    frame = Frame.decode(Frame.encode(messages, **header))  # type: ignore[arg-type]

    assert frame.messages() == list(messages)
    assert [bytes(frame.message(i)) for i in range(frame.count)] == list(messages)
    assert {name: getattr(frame, name) for name in header if name != "weights"} == {
        name: value for name, value in header.items() if name != "weights"
    }
    assert (None if frame.weights is None else list(frame.weights)) == header["weights"]


@given(frames(), st.data())
def test_cut_holds_its_messages_and_their_places(
    packed: tuple[Messages, dict[str, object]], data: st.DataObject
) -> None:
    """A lease is cut out of stored frames without encoding a message again."""
    messages, header = packed
    header["ordinal"] = data.draw(st.integers(0, 2**40))
    frame = Frame.decode(Frame.encode(messages, **header))  # type: ignore[arg-type]
    lo = data.draw(st.integers(0, frame.count - 1))
    n = data.draw(st.integers(1, frame.count - lo))

    cut = Frame.decode(frame.cut(lo, n))

    assert cut.messages() == list(messages)[lo : lo + n]
    assert cut.ordinal == frame.ordinal + lo
    assert (cut.kind, cut.run, cut.function, cut.producer) == (frame.kind, frame.run, frame.function, frame.producer)
    if frame.weights is not None:
        assert cut.weights is not None
        assert list(cut.weights) == list(frame.weights[lo : lo + n])


@given(numbered)
def test_messages_that_differ_in_a_number_take_room_for_one(messages: Numbered) -> None:
    """A million rows of a table are some kilobytes of log."""
    one, all_of_them = (Frame.encode(each, kind=Kind.ELEMENT) for each in (messages.cut(0, 1), messages))

    assert len(all_of_them) == len(one)
    assert [int.from_bytes(each[len(messages.prefix) :][:4], "little") for each in messages] == list(
        range(messages.first, messages.first + len(messages))
    )


def test_whole_cut_is_the_stored_frame_itself() -> None:
    """The usual delivery copies nothing."""
    frame = Frame.decode(Frame.encode([b"a", b"b"], kind=Kind.ELEMENT))

    assert frame.cut(0, 2) is frame.blob


def test_cut_can_name_another_function() -> None:
    """A retry with new code changes what runs, and nothing in what is stored."""
    frame = Frame.decode(Frame.encode([b"a", b"b"], kind=Kind.ELEMENT, function=b"1" * 16, ordinal=5))

    cut = Frame.decode(frame.cut(0, 2, function=b"2" * 16, ordinal=9))

    assert (cut.function, cut.ordinal, cut.messages()) == (b"2" * 16, 9, [b"a", b"b"])


@pytest.mark.long
@given(frames(), st.data())
@settings(max_examples=examples(300))
def test_flipped_byte_of_a_frame_raises_frame_corrupt_or_changes_a_value(
    packed: tuple[Messages, dict[str, object]], data: st.DataObject
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
    same = len(frame.messages()[0]) - frame.lengths[0]  # more than 0 where lengths are those of a column's parts
    assert list(map(len, frame.messages())) == [same + length for length in frame.lengths]


@given(frames(), st.data())
def test_truncated_frame_raises_frame_corrupt(packed: tuple[Messages, dict[str, object]], data: st.DataObject) -> None:
    """A connection that broke must not turn into fewer messages."""
    messages, header = packed
    blob = Frame.encode(messages, **header)  # type: ignore[arg-type]

    with pytest.raises(FrameCorrupt):
        Frame.decode(blob[: data.draw(st.integers(0, len(blob) - 1))])


@given(frames(), st.binary(min_size=1, max_size=8))
def test_frame_with_bytes_behind_it_raises_frame_corrupt(
    packed: tuple[Messages, dict[str, object]], more: bytes
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
    made: Any = header["made"]
    if made is None:
        assert settlement.made is None
    else:
        n, near = len(entries), partial(pytest.approx, rel=1e-4)
        assert told(settlement.made, 0, n) == [
            (made.consumer, made.code, made.at, near(took), near(age), attempt, version)
            for took, age, attempt, version in zip(
                made.seconds, made.ages or [0.0] * n, made.attempts or [1] * n, made.versions or [""] * n, strict=True
            )
        ]
    assert settlement.keys() == header["keys"]
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
        keys = settlement.keys()
        assert cut.keys() == (None if keys is None else keys[at : at + piece.n])
        assert told(cut.made, 0, piece.n) == told(settlement.made, at, at + piece.n)
        at += piece.n


@given(settlements(), st.data())
def test_any_part_of_how_results_were_made_is_that_of_these_results(
    packed: tuple[tuple[list[Piece], bytes, list[bytes]], dict[str, object]], data: st.DataObject
) -> None:
    """A page begins and ends anywhere; the seconds of a neighbour would not look wrong."""
    (pieces, outcomes, entries), header = packed
    settlement = Settlement.decode(Settlement.encode(pieces, outcomes, entries, **header))  # type: ignore[arg-type]
    start = data.draw(st.integers(0, len(entries)))
    stop = data.draw(st.integers(start, len(entries)))
    whole = told(settlement.made, 0, len(entries))

    assert told(settlement.made, start, stop) == (None if whole is None else whole[start:stop])


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), makings(n))), st.data())
def test_runs_of_any_part_are_those_of_its_values(packed: tuple[int, Making], data: st.DataObject) -> None:
    """They are looked up by bisection; one run too far is the version of another document."""
    n, making = packed
    made = Made.decode(memoryview(making.encode()), n)
    attempts, versions = making.attempts or [1] * n, making.versions or [""] * n
    start = data.draw(st.integers(0, n - 1))
    stop = data.draw(st.integers(start + 1, n))

    for opened, lo, hi in (
        (made, start, stop),
        (Made.decode(memoryview(made.cut(start, stop)), stop - start), 0, stop - start),
    ):
        assert opened.attempts(lo, hi) == slow_runs(attempts[start:stop])
        assert opened.versions(lo, hi) == slow_runs(versions[start:stop])
        assert opened.seconds(lo, hi) == made.seconds(0, n)[start:stop]


def slow_runs(values: Sequence[T]) -> list[tuple[T, int]]:
    return [(value, len(list(alike))) for value, alike in groupby(values)]


def test_cutting_a_settlement_into_pieces_costs_in_proportion_to_them() -> None:
    """Where every second document fails, the shard cuts each result out, on the loop that serves everybody."""

    def cost(n: int) -> float:
        pieces = [Piece(2 * at, 2 * at, 1) for at in range(n)]
        versions, attempts = [f"v{at}" for at in range(n)], [1 + at % 3 for at in range(n)]
        made = Making("c", "k", 1.7e9, [0.5] * n, [0.5] * n, attempts, versions)
        blob = Settlement.encode(
            pieces, bytes(n), [b"x"] * n, run=NO_ID, epoch=1, lease=1, made=made, keys=[f"k{at}" for at in range(n)]
        )
        best = math.inf
        for _ in range(5):
            settlement, begin = Settlement.decode(blob), time.thread_time()
            for at, piece in enumerate(pieces):
                settlement.cut(piece, at)
            best = min(best, time.thread_time() - begin)
        return best

    assert cost(4_000) < 8 * cost(1_000)  # in proportion: 4; each cut through all before it: 16


def test_how_results_were_made_does_not_keep_the_results() -> None:
    """A reader keeps it beside the values, and the page they came in is up to 64 MiB."""

    class Page(bytearray):
        """Bytes that a weak reference can watch."""

    page = Page(settled_with(Making("c", "k", 1.7e9, [0.5] * 3, versions=["v"] * 3)))
    kept = weakref.ref(page)

    made = Settlement.decode(memoryview(page)).made
    del page

    assert kept() is None
    assert made is not None
    assert made.versions(0, 3) == [("v", 3)]


def settled_with(made: Making) -> bytes | memoryview:
    n = len(made.seconds)
    return Settlement.encode([Piece(0, 0, n)], bytes(n), [b"A"] * n, run=NO_ID, epoch=1, lease=1, made=made)


@pytest.mark.long
@given(settlements(), st.data())
@settings(max_examples=examples(300))
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
    known = told(settlement.made, 0, settlement.count)
    assert known is None or len(known) == settlement.count
    if settlement.made is not None:
        rows = Lineage(settlement.made, 0, settlement.count)
        assert len(rows.moments()) == len(rows.seconds()) == settlement.count


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

    assert settlement.keys() == ["caf\udce9.txt"]


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


def test_how_plain_results_were_made_takes_three_bytes_each() -> None:
    """As many as the results themselves, for a million numbers, would be half of a log."""
    made = Making("pages/c-0", "3f2a91", 1.7e9, [1e-6] * 4096, None, None, None)
    pieces, outcomes, entries = [Piece(0, 0, 4096)], bytes(4096), [b"12345"] * 4096

    without, beside = (
        Settlement.encode(pieces, outcomes, entries, run=b"r" * 16, epoch=1, lease=1, made=each)
        for each in (None, made)
    )

    assert len(beside) - len(without) == 3 * 4096 + 20 + len("pages/c-0") + len("3f2a91")


def test_columns_of_how_results_were_made_are_as_long_as_the_others() -> None:
    made = Making("c", "k", 1.7e9, [0.5] * 2)

    with pytest.raises(FrameCorrupt, match="columns of different lengths"):
        Settlement.encode([Piece(0, 0, 3)], bytes(3), [b""] * 3, run=NO_ID, epoch=1, lease=1, made=made)


@pytest.mark.parametrize("took", [0.0, 1e-7, 1e-3, 1.0, 86_400.0, 1e9])
def test_seconds_keep_four_digits_however_long_a_function_takes(took: float) -> None:
    """A microsecond and a week stand in one settlement; a float of two bytes ends at 18 hours."""
    blob = Settlement.encode(
        [Piece(0, 0, 2)], bytes(2), [b""] * 2, run=b"r" * 16, epoch=1, lease=1, made=Making("c", "k", 0.0, [took, 3.0])
    )

    made = Settlement.decode(blob).made
    assert made is not None
    assert made.seconds(0, 2).tolist() == pytest.approx([took, 3.0], rel=1e-4)


@pytest.mark.parametrize("beside", [1e300, -1e300, 3.0])
def test_seconds_that_are_not_known_stay_so_beside_any_others(beside: float) -> None:
    """One that no float of four bytes holds made of it a measurement: minus as many as there can be."""
    making = Making("c", "k", 1.7e9, [math.nan, beside, math.inf], [beside, math.nan, 2.0])

    made = Made.decode(memoryview(making.encode()), 3)

    assert [math.isnan(each) for each in made.seconds(0, 3)] == [True, False, False]
    assert made.seconds(0, 3)[2] == math.inf
    assert [math.isnan(each) for each in made.ages(0, 3) or ()] == [False, True, False]
    largest = max(-3e38, min(beside, 3e38))
    assert made.seconds(0, 3)[1] == pytest.approx(largest, rel=1e-2)


@pytest.mark.parametrize("at", [-3.0, 1e300, float("inf"), float("nan")])
def test_a_clock_that_is_wrong_costs_no_result(at: float) -> None:
    """A machine whose clock is not set yet is in 1970; a settlement that is refused comes again for ever."""
    made = Making("c", "k", at, [0.5])
    blob = Settlement.encode([Piece(0, 0, 1)], bytes(1), [b"A"], run=b"r" * 16, epoch=1, lease=1, made=made)

    assert Settlement.decode(blob).entries() == [b"A"]


def test_settlement_without_what_is_known_of_its_results_is_as_it_was() -> None:
    """Logs of earlier versions have such ones."""
    before = bytes.fromhex("445301c0020000000700000000000000a08601000000000072727272727272727272727272727272")
    before += bytes.fromhex("01000000010000000a000000000000000000000000000000020000000000000001000000") + b"AB"

    settlement = Settlement.decode(before)

    assert (settlement.entries(), settlement.made, settlement.lease) == ([b"A", b"B"], None, 7)
    assert before == Settlement.encode(
        [Piece(10, 0, 2)], bytes(2), [b"A", b"B"], run=b"r" * 16, epoch=1, lease=7, busy_s=0.1
    )
