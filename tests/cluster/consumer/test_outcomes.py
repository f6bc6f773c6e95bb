"""Each outcome is recorded for the message that it is of, in whatever order messages end, and however they travel."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cluster.consumer.process.child import Turns
from dqlab.cluster.consumer.process.pipes import LastWords, Record, Records, Say
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin, Work, run_calls
from dqlab.cluster.transport.sealed import seal_value
from dqlab.cluster.transport.wire import pack
from dqlab.errors import FrameCorrupt
from dqlab.failures.failure import Failure
from dqlab.frame import NO_ID, Frame, Kind, Outcome, Piece, Settlement
from dqlab.rules.states import State
from tests.cluster.transport.test_parking import lease as parked_lease
from tests.cluster.transport.test_parking import opened, put
from tests.kit.sampled import examples

TIMEOUT = 60.0


def chunk_of(*sizes: int) -> Chunk:
    """A lease of several frames: ids 1000, 2000 …, ordinals 10,000, 20,000 …"""
    frames = [
        Frame.decode(Frame.encode([b"x"] * n, kind=Kind.VALUE, ordinal=10_000 * (at + 1))) for at, n in enumerate(sizes)
    ]
    return Chunk(Lease(0, 1, 1, TIMEOUT), [1000 * (at + 1) for at in range(len(sizes))], frames)


def told(settlement: bytes | None) -> dict[int, tuple[int, Outcome, bytes, str | None]]:
    """What a settlement says, by id."""
    assert settlement is not None
    opened = Settlement.decode(settlement)
    opened.check_order()
    keys = opened.keys() or [None] * opened.count
    columns = zip(opened.ids(), opened.ordinals(), opened.outcomes, opened.entries(), keys, strict=True)
    return {id: (ordinal, Outcome(outcome), entry, key) for id, ordinal, outcome, entry, key in columns}


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 2**32).map(Random), st.integers(1, 200))
@settings(max_examples=examples(150), deadline=None)
def test_every_message_of_a_lease_is_told_of_once_with_its_own_outcome(
    sizes: list[int], random: Random, most_bytes: int
) -> None:
    """In any order of ends, cancels, give-backs, and settlements that are cut by count and by bytes."""
    chunk = chunk_of(*sizes)
    running: list[int] = []
    expected: dict[int, tuple[int, Outcome, bytes, str | None]] = {}
    said: dict[int, tuple[int, Outcome, bytes, str | None]] = {}
    ids = {index: chunk.id_at(index) for index in range(chunk.count)}
    ordinals = {index: ids[index] + 9000 * (ids[index] // 1000) for index in ids}

    def note(settlement: bytes | None) -> None:
        if settlement is not None:
            found = told(settlement)
            assert not found.keys() & said.keys()
            said.update(found)

    while len(said) < chunk.count:
        act = random.randrange(6)
        if act == 0 and chunk.todo:
            running.append(chunk.todo.popleft())
        elif act == 1 and len(running) > 1:  # a process that died: what it had begun last goes to the next one
            chunk.todo.appendleft(running.pop(0))
        elif act == 2 and running:
            index = running.pop(random.randrange(len(running)))
            outcome = random.choice([Outcome.ACK, Outcome.ACK, Outcome.FAIL, Outcome.RETURN])
            payload = b"%d" % index * random.randrange(40) if outcome is Outcome.ACK else b""
            if outcome is Outcome.FAIL:
                payload = Failure.from_exception(ValueError(index), when=0.0, seconds=0.0).to_bytes()
            key = random.choice([f"{index}.txt", None])
            chunk.done.append((index, outcome, payload, key))
            expected[ids[index]] = ordinals[index], outcome, payload, key
        elif act == 3 and random.random() < 0.3:
            before = list(chunk.todo)
            n = random.randrange(1, 4)
            note(chunk.give_back(n))
            for index in before[len(before) - min(n, len(before)) :]:
                expected[ids[index]] = ordinals[index], Outcome.RETURN, b"", None
        elif act == 4:
            note(cut := chunk.collect(random.randrange(1, 5), most_bytes))
            sizes = [] if cut is None else [len(payload) + len(key or "") for _, _, payload, key in told(cut).values()]
            assert sum(sizes) <= most_bytes or len(sizes) == 1, "a log takes records up to 64 MiB"
            # Until it is confirmed an ack on its way is still held, or its message would be run a second time.
            held = {id for lo, hi in chunk.unsettled() for id in range(lo, hi)}
            assert held >= {id for id, (_, outcome, _, _) in expected.items() if id not in said}
            chunk.confirm()
            held = {id for lo, hi in chunk.unsettled() for id in range(lo, hi)}
            assert held == set(ids.values()) - said.keys()

    assert chunk.finished
    assert {id: (o, a, b, k or None) for id, (o, a, b, k) in said.items()} == expected


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.ACK])
def test_outcome_that_has_not_left_its_process_is_claimed_from_a_recreated_shard(outcome: Outcome) -> None:
    """A failure that met its shard's death was lost, and its document ran once more elsewhere."""
    chunk = chunk_of(3)
    failure = Failure.from_exception(ValueError(1), when=0.0, seconds=0.0).to_bytes()
    chunk.done.append((1, outcome, failure if outcome is Outcome.FAIL else b"", None))

    assert chunk.collect() is not None
    assert chunk.unsettled() == [(1000, 1003)]
    chunk.sending()
    assert chunk.unsettled() == ([(1000, 1001), (1002, 1003)] if outcome is Outcome.FAIL else [(1000, 1003)])
    chunk.confirm()
    assert chunk.unsettled() == [(1000, 1001), (1002, 1003)]


def test_what_is_known_of_results_counts_when_a_settlement_is_cut_by_bytes() -> None:
    """Four thousand versions of a kilobyte each are four megabytes, beside results of a few bytes."""
    frame = Frame.decode(Frame.encode([b"x"] * 4, kind=Kind.ELEMENT, run=b"r" * 16))
    chunk = Chunk(Lease(0, 1, 1, TIMEOUT), [0], [frame])
    for done in [(index, Outcome.ACK, bytes(10), None) for index in range(4)]:
        chunk.done.append(done)
    chunk.versions |= {0: "v" * 20, 1: "v" * 80, 2: "v" * 7}

    found = [len(told(chunk.collect(4096, 100))) for _ in range(3)]

    assert found == [1, 1, 2]
    assert chunk.collect() is None


def test_large_results_are_let_go_of_when_they_have_arrived() -> None:
    """60 results of 8 MB in one lease need not stay in their consumer until its last message has ended."""
    chunk = chunk_of(3)
    for done in [(index, Outcome.ACK, bytes(1 << 20), None) for index in (1, 0)]:
        chunk.done.append(done)
    chunk.collect(4096, 1 << 23)
    chunk.confirm()

    assert sum(len(payload) for _, _, payload, _ in chunk.done) == 0
    assert chunk.unsettled() == [(1002, 1003)]


def test_message_that_ended_twice_is_refused() -> None:
    """Else one of its outcomes would be recorded for its neighbour."""
    chunk = chunk_of(4)
    for done in [(index, Outcome.ACK, b"", None) for index in (0, 1, 1, 3)]:
        chunk.done.append(done)

    with pytest.raises(FrameCorrupt, match="position 1 stands behind 1"):
        chunk.collect(100, 1 << 20)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(), dq.Later(5.0)], ids=["error", "exit", "later"])
def test_when_a_message_ended_is_known_before_its_outcome_is_there(error: BaseException) -> None:
    """A settlement may be packed in between: the next message seemed to have run since the machine was started."""

    class Seen(list[bytes]):
        def append(self, payload: bytes, /) -> None:
            ends.append(chunk.ended[chunk.done.positions[-1]])
            super().append(payload)

    def fails(value: object) -> object:
        if value == 1:
            raise error
        return (each for each in ()) if value == 2 else value

    ends: list[float] = []
    frame = Frame.decode(Frame.encode([seal_value(at) for at in range(4)], kind=Kind.ELEMENT, ordinal=0))
    chunk = Chunk(Lease(0, 1, 1, TIMEOUT), [0], [frame])
    chunk.done.payloads = Seen()

    run_calls(chunk, Work(fails), Origin("c", "w", 1 << 20))

    assert ends == chunk.ended
    assert all(ends)


def test_a_chunk_holds_the_bytes_of_its_messages_once() -> None:
    """Its function, what reads ahead, and what decides of a refused document look at the same ones."""
    chunk = chunk_of(3, 2)

    assert chunk.messages() is chunk.messages()
    assert [id(each) for each in chunk.upcoming(5)] == [id(each) for each in chunk.messages()]


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pieces",
    [
        [Piece(10, 0, 2), Piece(5, 2, 1)],
        [Piece(10, 0, 2), Piece(11, 2, 1)],
        [Piece(10, 0, 2), Piece(10, 0, 1)],
        [Piece(10, 0, 3), Piece(20, 3, 0)],
        [Piece(10, 0, 2)],
        [Piece(10, 0, 4)],
        [],
    ],
    ids=["descend", "overlap", "twice", "empty", "too few", "too many", "none"],
)
def test_pieces_that_cannot_be_of_these_outcomes_are_refused(pieces: list[Piece]) -> None:
    """Columns bear no ids of their own: what is out of order is recorded for another message, and remains unseen."""
    with pytest.raises(FrameCorrupt, match="settlement"):
        Settlement.encode(pieces, bytes(3), [b""] * 3, run=NO_ID, epoch=1, lease=1)


@pytest.mark.parametrize(("payloads", "keys"), [(2, None), (4, None), (3, 2), (3, 4)])
def test_columns_of_different_lengths_are_refused(payloads: int, keys: int | None) -> None:
    with pytest.raises(FrameCorrupt, match="different lengths"):
        Settlement.encode(
            [Piece(10, 0, 3)],
            bytes(3),
            [b""] * payloads,
            run=NO_ID,
            epoch=1,
            lease=1,
            keys=None if keys is None else ["k"] * keys,
        )


def test_shard_refuses_a_settlement_out_of_order_before_it_changes_anything() -> None:
    """One of another version of dqlab, or of one with a defect, is an error of its consumer and no wrong result."""

    blob = bytearray(
        Settlement.encode([Piece(0, 0, 1), Piece(1, 1, 1)], bytes(2), [b"a", b"b"], run=NO_ID, epoch=1, lease=1)
    )
    swapped = blob.index(b"DS") + 48
    blob[swapped : swapped + 48] = blob[swapped + 24 : swapped + 48] + blob[swapped : swapped + 24]

    async def scenario() -> list[int]:
        actor = await opened()
        await put(actor, 2)
        await parked_lease(actor, "c#0")
        with pytest.raises(FrameCorrupt, match="stand behind"):
            await actor.settle(pack({"consumer": "c#0"}, bytes(blob)))
        counts = list(actor.shard.lanes[NO_ID].counts)
        await actor.hand_over(pack({}))
        return counts

    counts = asyncio.run(scenario())

    assert (counts[State.LEASED], counts[State.ACKED]) == (2, 0)


def test_what_is_in_a_sink_is_not_written_again_when_its_settlement_is_cut() -> None:
    """Tracebacks of many failures fill a settlement: the rest of its references comes with the next one."""
    frame = Frame.decode(Frame.encode([b"x"] * 500, kind=Kind.ELEMENT, ordinal=0))
    chunk = Chunk(Lease(0, 1, 1, TIMEOUT, sink=True), [1], [frame])
    failed = Failure.from_exception(
        ValueError("x" * 30_000), key=None, code="c", consumer="c", worker="w", when=0.0, seconds=0.0
    ).to_bytes()
    assert chunk.collect() is None
    for at in range(500):
        chunk.done.append((at, Outcome.FAIL if at % 2 else Outcome.ACK, failed if at % 2 else b"result", None))
    taken = chunk.pending()
    chunk.done.append((0, Outcome.RETURN, b"", None))  # as if one had come meanwhile
    payloads = zip(taken.outcomes, taken.payloads, strict=True)
    chunk.refer(
        taken._replace(payloads=[b"ref" if outcome is Outcome.ACK else payload for outcome, payload in payloads])
    )

    settled: dict[int, bytes] = {}
    while (settlement := chunk.collect(most_bytes=1 << 20)) is not None:
        settled |= {id: payload for id, (_, outcome, payload, _) in told(settlement).items() if not outcome}
        assert len(chunk.pending().payloads) == 1

    assert set(settled.values()) == {b"ref"}
    assert len(settled) == 250


NOW = [1000.0]
"""What the clock of these tests shows; functions and what is late move it."""


def takes(seconds: float) -> float:
    """A function that takes so long, and fails or is put off where that is odd."""
    NOW[0] += seconds
    if seconds % 2:
        raise dq.Later(1) if seconds > 10 else ValueError(seconds)
    return seconds


@pytest.mark.parametrize("most", [1, 3, 4096])
def test_a_message_has_taken_its_own_seconds_whatever_ran_before_it(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that failed, was put off or cancelled: none of that is its time."""
    monkeypatch.setattr(time, "perf_counter", lambda: NOW[0])
    each = [2, 5, 4, 6, 11, 8, 10, 0]
    frames = [
        Frame.decode(Frame.encode([seal_value(n) for n in part], kind=Kind.ELEMENT, run=b"r" * 16))
        for part in (each[:3], each[3:])
    ]
    chunk = Chunk(Lease(0, 1, 1, TIMEOUT), [0, 100], frames)
    chunk.cancelled = {2, 6}
    run_calls(chunk, Work(takes), Origin("c", "w", 1000))

    found: dict[int, tuple[int, float]] = {}
    while (blob := chunk.collect(most)) is not None:
        settlement = Settlement.decode(blob)
        made = settlement.made
        if made is not None:
            seconds = made.seconds(0, settlement.count)
            found |= dict(zip(settlement.ids(), zip(settlement.outcomes, seconds, strict=True), strict=True))
    assert {id: took for id, (outcome, took) in found.items() if outcome == Outcome.ACK} == {
        0: 2,
        100: 6,
        102: 8,
        104: 0,
    }


class Late(Turns):
    """Messages of a process, where taking each of them waits for a minute."""

    def __init__(self, each: list[float]) -> None:
        self.coming, self.said = [Record(Say.MESSAGE, n, seal_value(n), 0, None) for n in each], list[Record]()
        super().__init__(0, 0, 0, 0, cast(LastWords, None))

    def _position(self) -> int:
        return 0

    def _next_message(self) -> Record:
        NOW[0] += 60
        if not self.coming:
            raise IndexError
        return self.coming.pop(0)

    def _say(self, said: bytes) -> None:
        records = Records()
        records.feed(said)
        self.said += records.take()


def test_a_message_in_a_process_has_not_taken_the_time_that_it_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing came for a night: the first message of the morning has not taken nine hours."""
    monkeypatch.setattr(time, "perf_counter", lambda: NOW[0])
    turns = Late([2, 5, 4, 6])
    run_calls(turns, Work(takes), Origin("c", "w", 1000))

    assert [said.seconds for said in turns.said if said.outcome == Outcome.ACK] == [2, 4, 6]
    failed = next(said for said in turns.said if said.outcome != Outcome.ACK)
    assert Failure.from_bytes(failed.body).seconds == 5


def test_seconds_that_no_function_takes_do_not_keep_a_settlement_back() -> None:
    """A process reports them, and its functions may write to its pipes: the settlement would come again for ever."""
    frame = Frame.decode(Frame.encode([b"x"] * 3, kind=Kind.ELEMENT, run=b"r" * 16))
    chunk = Chunk(Lease(0, 1, 1, TIMEOUT, consumer="c"), [0], [frame])
    for index, seconds in enumerate((1e300, float("inf"), 2.0)):
        chunk.took[index] = seconds
        chunk.done.append((index, Outcome.ACK, b"", None))

    made = Settlement.decode(chunk.collect() or b"").made

    assert made is not None
    assert made.seconds(0, 3)[2] == 2
