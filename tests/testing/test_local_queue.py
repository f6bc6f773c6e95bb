"""The queue that users test with: the same rules, in this process, without waiting."""

from __future__ import annotations

import threading

import pytest

import dqlab as dq
from dqlab.errors import BadOption, MessageNotFound, MessageTooLarge, NotPicklable, QueueFull
from dqlab.testing import FakeClock, local_queue


def double(x: int) -> int:
    return 2 * x


def divide(a: int, b: int = 1) -> float:
    return a / b


class FailsTwice:
    """Counts in this process, since a local queue opens what it sealed."""

    calls = 0

    def __call__(self, x: int) -> int:
        FailsTwice.calls += 1
        if FailsTwice.calls <= 2:
            raise OSError("not yet")
        return x


def test_calls_run_inline_and_give_results() -> None:
    """The shortest test a user writes."""
    queue = local_queue()
    first, second = queue.submit(double, 4), queue.submit(divide, 9, b=3)

    assert queue.run_all() == 2

    assert queue.result(first) == 8
    assert queue.results() == {first: 8, second: 3.0}


def test_expired_lease_returns_message_to_the_front(clock: FakeClock) -> None:
    """A dead consumer costs its message one lease of delay, not its place in line."""
    queue = local_queue(clock=clock, visibility_timeout=30)
    queue.put_many(["a", "b"])
    queue.lease()  # takes "a"; its consumer then dies

    queue.advance(30.1)

    assert [queue.lease()[0].value for _ in range(2)] == ["a", "b"]


def test_late_ack_of_a_waiting_message_counts(clock: FakeClock) -> None:
    """Work that was done is not done again for having been slow."""
    queue = local_queue(clock=clock, visibility_timeout=30)
    queue.put("a")
    [delivery] = queue.lease()
    queue.advance(31)

    settled = queue.ack(delivery, "done")

    assert len(settled.results) == 1
    assert queue.results() == {delivery.id: "done"}


def test_ack_of_what_another_consumer_holds_is_stale(clock: FakeClock) -> None:
    """Recorded once: of two consumers with the same message one is believed."""
    queue = local_queue(clock=clock, visibility_timeout=30)
    queue.put("a")
    [slow] = queue.lease(consumer="slow")
    queue.advance(31)
    [fast] = queue.lease(consumer="fast")

    assert queue.ack(slow, "late").stale == 1

    assert len(queue.ack(fast, "first").results) == 1
    assert list(queue.results().values()) == ["first"]


def test_second_ack_is_a_duplicate() -> None:
    """An answer that was lost on its way makes a consumer settle again."""
    queue = local_queue()
    queue.put("a")
    [delivery] = queue.lease()
    queue.ack(delivery, 1)

    assert queue.ack(delivery, 2).duplicates == 1
    assert queue.result(delivery.id) == 1


def test_retries_move_the_clock_and_not_the_test() -> None:
    """A backoff of minutes costs a test nothing."""
    FailsTwice.calls = 0
    queue = local_queue(retry=dq.Retry(3, backoff="2m", jitter=False))
    began = queue.clock.monotonic()
    id = queue.submit(FailsTwice(), 5)

    assert queue.run_all() == 3

    assert queue.result(id) == 5
    assert queue.clock.monotonic() - began == pytest.approx(120 + 240)


def test_failure_becomes_a_dead_letter_with_its_traceback() -> None:
    """What users test for is the reason, not the fact."""
    queue = local_queue(retry=dq.Retry(1, backoff=0))
    id = queue.submit(divide, 1, b=0)

    queue.run_all()

    [letter] = queue.dead()
    assert (letter.id, letter.error, letter.deliveries, letter.reason) == (
        id,
        "ZeroDivisionError",
        2,
        "1 retry used up",
    )
    assert "return a / b" in letter.traceback
    assert letter.argument == ((1,), {"b": 0})
    with pytest.raises(MessageNotFound):
        queue.result(id)


def test_fail_by_hand_is_retried_and_reject_is_not() -> None:
    """The same judgement as on a consumer."""
    queue = local_queue(retry=dq.Retry(3, backoff="1s", jitter=False))
    queue.put_many(["again", "never"])
    again, never = queue.lease(2)

    queue.fail(again, OSError("busy"))
    queue.fail(never, dq.Reject("empty"))

    assert (queue.counts()["delayed"], queue.counts()["dead"]) == (1, 1)
    queue.advance(1.1)
    assert [delivery.value for delivery in queue.lease(2)] == ["again"]


def test_given_back_message_keeps_its_place_and_its_count() -> None:
    """A consumer that stops costs its messages nothing."""
    queue = local_queue()
    queue.put_many(["a", "b"])
    [delivery] = queue.lease()

    queue.give_back(delivery)

    assert [d.value for d in queue.lease(2)] == ["a", "b"]


def test_values_go_to_process_item() -> None:
    """Tests of a consumer class of one's own."""
    queue = local_queue()
    ids = queue.put_many([1, 2, 3])

    queue.run_all(process_item=double)

    assert queue.results() == dict(zip(ids, [2, 4, 6], strict=True))


def test_values_without_process_item_are_dead_letters() -> None:
    """As with automatic consumers: kept, and explained."""
    queue = local_queue()
    queue.put(1)

    queue.run_all()

    assert [letter.error for letter in queue.dead()] == ["NotACall"]


def test_full_queue_refuses_at_once() -> None:
    """Nobody makes room while the test's own thread puts."""
    queue = local_queue(maxsize=2)
    queue.put_many([1, 2])

    with pytest.raises(QueueFull, match="2 of 2 messages"):
        queue.put(3)

    queue.run_all(process_item=double)
    queue.put(3)
    assert len(queue) == 1


def test_bad_input_is_refused_as_by_a_real_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that passes here must not hide what a cluster would refuse."""
    queue = local_queue()

    with pytest.raises(NotPicklable, match="value 1"):
        queue.put_many([1, threading.Lock()])
    with pytest.raises(MessageTooLarge):
        queue.put(bytes(2 << 20))
    with pytest.raises(BadOption, match="max_deliveries"):
        local_queue(max_deliveries=0)
    assert len(queue) == 0
