"""Failures, returns, suspects and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dqlab.frame import Outcome
from dqlab.rules.deliveries import Settled
from dqlab.rules.retry import Retry
from dqlab.rules.states import State

RUN = b"run-of-the-tests"
ACK, FAIL, REJECT, NACK, RETURN, REFUSED = Outcome


def only_letter(desk: Any) -> Any:
    (letter,) = desk.shard.dead_letters(RUN)
    return letter


def test_a_message_is_dead_after_its_last_retry(desk: Any) -> None:
    """Three retries are four deliveries that raised."""
    desk.put(ordinal=5)
    dead = [desk.fail_alone(FAIL, b"record %d" % n).failed[0].dead for n in range(4)]

    letter = only_letter(desk)
    assert dead == [False, False, False, True]
    assert (letter.id, letter.ordinal, letter.reason, letter.failure) == (0, 5, "3 retries used up", b"record 3")
    assert (letter.deliveries, letter.exceptions, letter.history) == (4, 4, ())


def test_retries_after_exceptions_are_not_cut_by_the_limit_for_deaths(make_desk: Callable[..., Any]) -> None:
    """Somebody who asks for eight retries of a server that is often busy gets eight."""
    desk = make_desk(max_deliveries=5, retry=Retry(8))
    desk.put()
    dead = [desk.fail_alone().failed[0].dead for _ in range(9)]

    assert dead == [False] * 8 + [True]
    assert only_letter(desk).reason == "8 retries used up"


def test_a_failure_of_what_is_never_retried_says_so(make_desk: Callable[..., Any]) -> None:
    """ "0 retries used up" sounded as if something had been tried."""
    desk = make_desk(retry=Retry(0))
    desk.put()

    assert [each.dead for each in desk.fail_alone().failed] == [True]
    assert only_letter(desk).reason == "not retried, because retries=0"


def test_exceptions_do_not_count_towards_the_limit_for_deaths(make_desk: Callable[..., Any]) -> None:
    """A document that failed four times and was then on a machine that died is not the one that kills."""
    desk = make_desk(max_deliveries=2, retry=Retry(8))
    desk.put()
    for _ in range(4):
        desk.fail_alone()
        desk.clock.advance(1000)
    desk.shard.end(desk.lease_isolated())
    assert list(desk.shard.dead_letters(RUN)) == []
    desk.shard.end(desk.lease_isolated())

    assert only_letter(desk).reason == "its consumer died or its lease ended 2 times"


def test_a_rejected_message_is_dead_at_once(desk: Any) -> None:
    """A NameError is not mended by waiting."""
    desk.put()
    desk.settle(desk.lease(), REJECT, payloads=[b"NameError"])

    assert (only_letter(desk).reason, only_letter(desk).failure) == ("not retried", b"NameError")


@pytest.mark.parametrize(("payload", "delay"), [(b"2.5", 2.5), (b"", 0), (b"soon", 0), (b"-3", 0), (b"nan", 0)])
def test_a_nack_waits_as_long_as_it_says(desk: Any, payload: bytes, delay: float) -> None:
    """A delay that cannot be read is none; the function meant to give the message back, so it goes back."""
    desk.put()
    desk.settle(desk.lease(), NACK, payloads=[payload])

    expected = {State.DELAYED: 1} if delay else {State.READY: 1}
    assert desk.counts() == expected
    desk.clock.advance(delay)
    assert desk.ids(desk.lease()) == [0]


@pytest.mark.parametrize("payload", [b"inf", b"1e308", b"9" * 400])
def test_an_endless_nack_does_not_break_the_clock(desk: Any, payload: bytes) -> None:
    """A consumer may send any number."""
    desk.put()
    desk.settle(desk.lease(), NACK, payloads=[payload])

    assert desk.shard.next_deadline() is None or desk.shard.next_deadline() > desk.clock.monotonic()


def test_a_message_that_its_function_gives_back_is_never_dead_by_that(desk: Any) -> None:
    """A service that is busy for an hour answers a hundred times that it is; no document failed."""
    desk.put()
    for _ in range(100):
        desk.settle(desk.lease(), NACK, payloads=[b"30"])
        assert (desk.counts(), desk.shard.lanes[RUN].retrying) == ({State.DELAYED: 1}, 0)
        desk.clock.advance(30)
    for _ in range(3):
        assert not desk.fail_alone().failed[0].dead
        desk.clock.advance(1000)

    assert desk.fail_alone().failed[0].dead


def test_one_message_that_kills_every_consumer_becomes_one_dead_letter(desk: Any) -> None:
    """One segfaulting document among many: 1 dead letter that names the crash, all others have results."""
    killer, n = 37, 100
    desk.put(n)
    for death in range(1000):
        lease = desk.shard.lease(f"consumer-{death}", 50)
        if lease is None:
            break
        if killer in desk.ids(lease):
            if lease.suspect:
                desk.shard.isolate(lease.id)
            desk.shard.release(f"consumer-{death}")
        else:
            desk.ack(lease)

    letter = only_letter(desk)
    assert desk.counts() == {State.ACKED: n - 1, State.DEAD: 1}
    assert (letter.id, letter.deliveries) == (killer, 5)
    assert letter.reason == "its consumer died 5 times"


@pytest.mark.parametrize("end", ["expiry", "death"])
def test_an_early_acked_message_is_never_delivered_again(desk: Any, end: str) -> None:
    """At most once: its side effects may have happened."""
    desk.put(2)
    lease = desk.lease()
    assert desk.shard.begin(lease.id)
    if end == "expiry":
        desk.clock.advance(61)
    else:
        desk.shard.release("c")

    assert desk.shard.lease("d", 9) is None
    assert {letter.reason for letter in desk.shard.dead_letters(RUN)} == {"lost after early ack"}
    assert desk.ack(lease) == Settled(duplicates=2)


def test_dead_letters_are_read_in_pages_by_id(desk: Any) -> None:
    """A million failures must fit the reader."""
    desk.put(5)
    desk.settle(desk.lease(), REJECT, ACK, REJECT, REJECT, REJECT)

    assert [letter.id for letter in desk.shard.dead_letters(RUN, limit=2)] == [0, 2]
    assert [letter.id for letter in desk.shard.dead_letters(RUN, after=2)] == [3, 4]
    assert desk.shard.dead_letters(RUN, after=4) == []


def test_dead_letter_of_a_consumer_says_what_that_died_of(desk: Any) -> None:
    """Memory that ran out is mended otherwise than a crash."""
    why = "its worker was killed when it had taken 3.9 GB of 4.0 GB of memory"
    desk.put()
    for _ in range(5):
        desk.lease_isolated()
        desk.shard.release("c", why)

    [letter] = desk.shard.dead_letters(RUN)
    assert letter.reason == f"its consumer died 5 times; {why}"


@pytest.mark.parametrize(
    ("deaths", "expiries", "reason"),
    [
        (0, 5, "its lease ended 5 times"),
        (4, 1, "its consumer died 4 times and its lease ended once"),
        (2, 2, "its consumer died or its lease ended 5 times"),
    ],
)
def test_dead_letter_without_an_answer_says_which_way_it_had_none_where_that_is_known(
    make_desk: Callable[..., Any], deaths: int, expiries: int, reason: str
) -> None:
    """A crash is looked for elsewhere than a function that takes too long."""
    desk = make_desk(max_deliveries=5)
    desk.put()
    for _ in range(5 - deaths - expiries):
        desk.shard.end(desk.lease_isolated())  # as after a restart, which does not know
    for _ in range(deaths):
        desk.lease_isolated()
        desk.shard.release("c")
    for _ in range(expiries):
        desk.lease_isolated()
        desk.clock.advance(1000)
        desk.shard.tick()

    assert only_letter(desk).reason == reason


def test_causes_before_a_retry_by_hand_are_not_counted(make_desk: Callable[..., Any]) -> None:
    desk = make_desk(max_deliveries=2)
    desk.put()
    for _ in range(2):
        desk.lease_isolated()
        desk.shard.release("c")
    desk.shard.lanes[RUN].trouble[0].restart(1)
    trouble = desk.shard.lanes[RUN].trouble[0]

    assert (trouble.deaths, trouble.expiries, trouble.history[0].reason) == (0, 0, "its consumer died 2 times")
