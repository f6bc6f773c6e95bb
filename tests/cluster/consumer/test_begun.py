"""What a slot runs: the message that has run longest is named, whichever chunk it belongs to."""

from __future__ import annotations

from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.slot import SAY_AFTER, SAY_EVERY, Begun
from dqlab.frame import Frame, Kind


def chunk_at(ordinal: int) -> Chunk:
    frame = Frame.decode(Frame.encode([b"x"] * 4, kind=Kind.ELEMENT, ordinal=ordinal))
    return Chunk(Lease(0, 1, 0, 60.0), [ordinal], [frame])


def test_the_oldest_of_several_chunks_is_named_however_they_are_looked_at() -> None:
    """Coroutines of several chunks run together, and each chunk is looked at by itself."""
    begun, first, second = Begun(), chunk_at(100), chunk_at(200)
    first.running = 2
    begun.look(first, 10.0)
    for at in range(1, 50):
        second.running = at % 4
        begun.look(second, 10.0 + at)
        begun.look(first, 10.0 + at)

    oldest = begun.oldest(60.0)
    assert oldest is not None
    assert (oldest.document, oldest.seconds) == ("#102", 50.0)

    first.running = None
    begun.look(first, 60.0)
    now = begun.oldest(60.0)
    assert now is not None
    assert now.document == "#201"
    second.running = None
    assert begun.oldest(60.0) is None


def test_a_long_message_is_reported_after_a_second_and_then_now_and_then() -> None:
    begun, chunk = Begun(), chunk_at(0)
    chunk.running = 1
    reported = [
        at for at in (0.0, SAY_AFTER - 0.1, SAY_AFTER, 2.0, SAY_EVERY, SAY_AFTER + SAY_EVERY) if begun.look(chunk, at)
    ]
    assert reported == [SAY_AFTER, SAY_AFTER + SAY_EVERY]


def test_nothing_is_kept_of_a_chunk_that_is_forgotten() -> None:
    begun, chunk = Begun(), chunk_at(0)
    chunk.running = 1
    begun.look(chunk, 0.0)
    begun.forget(chunk)
    assert begun.message(1.0) is None
    assert not begun._seen
