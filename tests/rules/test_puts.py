"""Putting: order, duplicates, limits and ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dqlab.errors import BadOption, RunNotFound
from dqlab.rules.ranges import first_id, next_sequence
from dqlab.rules.states import Verdict

RUN = b"run-of-the-tests"
PRODUCER = b"one-producer-id."


def test_ids_name_their_shard_and_stay_below_2_to_the_53(make_desk: Callable[..., Any]) -> None:
    """A browser reads integers as doubles."""
    desk = make_desk(index=255, first_sequence=(1 << 45) - 1)

    assert desk.put().first == (1 << 53) - 1


def test_a_new_epoch_starts_above_every_id_of_the_old_one() -> None:
    """A put that was confirmed but not logged must not share its ids with another."""
    assert next_sequence(None) == 0
    assert next_sequence(0) == 1 << 24
    assert next_sequence(first_id(7, (1 << 24) + 5)) == 2 << 24


def test_a_shard_outside_8_bits_is_refused(make_desk: Callable[..., Any]) -> None:
    """Its ids would be another shard's."""
    with pytest.raises(BadOption):
        make_desk(index=256)


def test_an_old_duplicate_is_recognised_but_its_id_forgotten(desk: Any) -> None:
    """Sixteen first ids per producer are enough for every put in flight."""
    for sequence in range(20):
        desk.put(producer=PRODUCER, sequence=sequence)

    assert desk.put(producer=PRODUCER, sequence=3).first is None
    assert desk.put(producer=PRODUCER, sequence=4).first == 4


def test_frames_without_a_producer_are_all_new(desk: Any) -> None:
    """They have no numbers."""
    desk.put(sequence=0)

    assert desk.put(sequence=0).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(("options", "n"), [({"maxsize": 10}, 6), ({"max_bytes": 100}, 6)])
def test_a_full_lane_takes_the_same_frame_later(make_desk: Callable[..., Any], options: dict[str, int], n: int) -> None:
    """A refused put changes nothing, not even what number is expected next."""
    desk = make_desk(**options)
    desk.put(n, producer=PRODUCER, sequence=0)
    assert desk.put(n, producer=PRODUCER, sequence=1).verdict is Verdict.FULL
    desk.ack(desk.lease())

    assert desk.put(n, producer=PRODUCER, sequence=1).verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("options", [{"maxsize": 3}, {"max_bytes": 10}])
def test_a_frame_that_would_never_fit_goes_into_an_empty_lane(
    make_desk: Callable[..., Any], options: dict[str, int]
) -> None:
    """A frame is never divided: for room that cannot come its sender would wait for ever."""
    desk = make_desk(**options)
    desk.put()
    assert desk.put(6).verdict is Verdict.FULL
    desk.ack(desk.lease())

    assert desk.put(6).verdict is Verdict.ACCEPTED
    assert desk.put().verdict is Verdict.FULL


def test_a_lane_may_have_limits_of_its_own(desk: Any) -> None:
    """None means no limit, left out means the queue's."""
    small = desk.shard.open_lane(b"a" * 16, maxsize=1)
    free = desk.shard.open_lane(b"b" * 16, maxsize=None)

    assert (small.maxsize, free.maxsize, free.max_bytes) == (1, None, desk.shard.options.max_bytes)
    desk.put(run=b"a" * 16)
    assert desk.put(run=b"a" * 16).verdict is Verdict.FULL


def test_opening_a_lane_twice_gives_the_same_lane(desk: Any) -> None:
    """The first frame of a run may arrive twice."""
    assert desk.shard.open_lane(RUN, maxsize=1) is desk.shard.lanes[RUN]
    assert desk.shard.lanes[RUN].maxsize == desk.shard.options.maxsize


def test_a_sealed_lane_takes_duplicates_only(desk: Any) -> None:
    """The last frame may be sent again after the seal; a new one is a mistake."""
    desk.put(producer=PRODUCER, sequence=0)
    desk.shard.seal_lane(RUN, 1)

    assert desk.put(producer=PRODUCER, sequence=0).verdict is Verdict.DUPLICATE
    assert desk.put(producer=PRODUCER, sequence=1).verdict is Verdict.SEALED


def test_a_put_into_a_run_that_was_never_opened_says_where_runs_are_listed(desk: Any) -> None:
    """Ids of ninety other runs are of no use."""
    with pytest.raises(RunNotFound, match=r"dropped.*lab\.all_runs\(\)") as caught:
        desk.put(run=b"?" * 16)

    assert RUN.hex() not in str(caught.value)
