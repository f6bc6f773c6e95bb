"""Failures, returns, suspects and dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dqlab.frame import Outcome
from dqlab.rules.deliveries import MOST_UNCOUNTED, Settled
from dqlab.rules.retry import Retry
from dqlab.rules.states import State
from tests.rules.invariants import check_shard

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


def test_a_dead_consumers_messages_return_uncounted_as_suspects(desk: Any) -> None:
    """One of them killed it, and it is not known which: each is tried alone, none is blamed."""
    desk.put(3)
    desk.lease(3)
    assert desk.shard.release("c") == 3

    lane = desk.shard.lanes[RUN]
    assert (list(lane.suspects), lane.retrying, len(lane.trouble)) == ([(0, 3)], 0, 0)
    assert [(lease.suspect, desk.ids(lease)) for lease in [desk.lease(3)]] == [(True, [0])]


def test_a_consumer_holds_one_suspect_per_slot(desk: Any) -> None:
    """A second suspect in the same process would blur who crashed it; normal messages go on."""
    desk.put(3)
    desk.lease(3)
    desk.shard.release("c")
    desk.put(2)

    leased = [desk.ids(desk.lease(9, slots=2)) for _ in range(3)]
    assert leased == [[0], [1], [3, 4]]
    assert desk.shard.lease("c", 9, slots=2) is None
    assert desk.ids(desk.lease(9, "other")) == [2]


def test_a_suspect_that_raises_is_cleared(desk: Any) -> None:
    """It raised, so it did not kill; its retry may travel with others."""
    desk.put(2)
    desk.lease(2)
    desk.shard.release("c")
    desk.settle(desk.lease(9), FAIL)
    desk.clock.advance(1)
    desk.shard.tick()

    assert list(desk.shard.lanes[RUN].ready) == [(0, 1)]


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
def test_what_is_lost_counts_only_against_a_suspect_in_the_process_of_its_consumer(desk: Any, end: str) -> None:
    """One in a process of its own would have ended that one, and what else its consumer ran is not known."""
    desk.put()
    counted = []
    for isolated in (False, False, True, False, True):
        lease = desk.lease(1)
        if isolated:
            assert desk.shard.isolate(lease.id)
        if end == "expiry":
            desk.clock.advance(60)
            desk.shard.tick()
        else:
            desk.shard.release("c")
        check_shard(desk.shard)
        trouble = desk.shard.lanes[RUN].trouble.get(0)
        counted.append(0 if trouble is None else trouble.deliveries)

    assert counted == [0, 0, 1, 1, 2]
    assert desk.shard.lanes[RUN].retrying == 1


def test_a_lease_that_has_ended_is_not_isolated_and_its_message_must_not_run(desk: Any) -> None:
    """Its end would count although it never began."""
    desk.put()
    lease = desk.lease(1)
    desk.clock.advance(60)

    assert not desk.shard.isolate(lease.id)
    desk.shard.tick()
    assert not desk.shard.isolate(lease.id)
    assert len(desk.shard.lanes[RUN].trouble) == 0


def test_a_suspect_that_is_lost_again_and_again_is_dead_though_nobody_knows_of_what(
    make_desk: Callable[..., Any],
) -> None:
    """It may end the whole machine from a process of its own: it must not be delivered for ever."""
    desk = make_desk(max_deliveries=2)
    desk.put()
    desk.shard.end(desk.lease(1))
    lost = 0
    while not list(desk.shard.dead_letters(RUN)):
        desk.lease(1)
        desk.shard.release("c")
        check_shard(desk.shard)
        lost += 1

    assert lost == MOST_UNCOUNTED + 2
    assert only_letter(desk).reason == "its consumer died 2 times"
    assert not desk.shard.lanes[RUN].lost_suspects


@pytest.mark.parametrize("end", ["ack", "fail", "cancel"])
def test_losses_of_a_suspect_are_forgotten_with_its_outcome(desk: Any, end: str) -> None:
    desk.put()
    for _ in range(3):
        desk.lease(1)
        desk.shard.release("c")
    assert desk.shard.lanes[RUN].lost_suspects == {0: 2}
    lease = desk.lease(1)
    if end == "cancel":
        desk.shard.cancel(RUN)
    else:
        desk.settle(lease, ACK if end == "ack" else FAIL)

    assert not desk.shard.lanes[RUN].lost_suspects


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


def test_an_early_acked_message_that_never_ran_goes_back(desk: Any) -> None:
    """The consumer says so; it alone can know."""
    desk.put()
    lease = desk.lease()
    desk.shard.begin(lease.id)
    desk.settle(lease, RETURN)

    assert desk.counts() == {State.READY: 1}


def test_begin_after_expiry_forbids_to_run(desk: Any) -> None:
    """The messages may be leased to another already."""
    desk.put()
    lease = desk.lease()
    desk.clock.advance(61)

    assert not desk.shard.begin(lease.id)


def test_dead_letters_are_read_in_pages_by_id(desk: Any) -> None:
    """A million failures must fit the reader."""
    desk.put(5)
    desk.settle(desk.lease(), REJECT, ACK, REJECT, REJECT, REJECT)

    assert [letter.id for letter in desk.shard.dead_letters(RUN, limit=2)] == [0, 2]
    assert [letter.id for letter in desk.shard.dead_letters(RUN, after=2)] == [3, 4]
    assert desk.shard.dead_letters(RUN, after=4) == []


def test_retrying_counts_living_messages_that_failed(desk: Any) -> None:
    """The dashboard tells first attempts from repeats."""
    lane = desk.shard.lanes[RUN]
    desk.put(3)
    desk.settle(desk.lease(), FAIL, FAIL, ACK)
    assert lane.retrying == 2
    desk.clock.advance(1)
    desk.settle(desk.lease(), ACK, REJECT)

    assert lane.retrying == 0


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


def test_a_suspect_that_has_run_holds_back_no_other_and_its_loss_does_not_count(desk: Any) -> None:
    """Its outcome comes later, as that of a row that waits for others of its part."""
    desk.put(2)
    desk.lease(2)
    desk.shard.release("c")
    first = desk.shard.lease("c", 1)
    assert desk.shard.isolate(first.id)
    assert desk.shard.lease("c", 1) is None

    desk.shard.note_run(first.id)
    second = desk.shard.lease("c", 1)
    assert second is not None
    assert desk.shard.isolate(second.id)
    desk.shard.release("c")
    check_shard(desk.shard)

    trouble = desk.shard.lanes[RUN].trouble
    assert {id: entry.deliveries for id, entry in trouble.items()} == {1: 1}
