"""Delays between retries, and what options refuse."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest

from dqlab.errors import BadOption
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.rules.options import QueueOptions
from dqlab.rules.retry import Retry
from dqlab.rules.states import State


def test_delay_doubles_up_to_its_limit() -> None:
    """A service that is down is asked less and less often, but never given up on for hours."""
    retry = Retry(9, backoff="1s", max_backoff="10s", jitter=False)

    assert [retry.delay(n, Random(0)) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]
    assert retry.delay(100_000, Random(0)) == 10


def test_jitter_spreads_delays_over_the_whole_bound() -> None:
    """Documents that failed together must not come back together."""
    retry, random = Retry(backoff=8.0), Random(0)
    delays = [retry.delay(1, random) for _ in range(1000)]

    assert 0 <= min(delays) < 0.5
    assert 7.5 < max(delays) <= 8


def test_retry_takes_words_for_durations() -> None:
    """People write "500ms"; everything behind reads seconds."""
    assert Retry(backoff="500ms").backoff == 0.5
    assert pickle.loads(pickle.dumps(Retry(2))) == Retry(2)


@pytest.mark.parametrize(
    "options", [{"retries": -1}, {"retries": 1.5}, {"retries": True}, {"retries": 2**63}, {"backoff": "soon"}]
)
def test_retry_refuses_nonsense_when_it_is_written(options: dict[str, Any]) -> None:
    """An error in the cell is cheaper than one in the queue, hours later."""
    with pytest.raises(BadOption):
        Retry(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"visibility_timeout": 0},
        {"visibility_timeout": "1m"},
        {"max_deliveries": 0},
        {"maxsize": 0},
        {"max_bytes": -1},
        {"retry": 3},
    ],
)
def test_queue_options_are_checked_when_they_are_made(options: dict[str, Any]) -> None:
    """A queue with a limit of nothing would only ever say that it is full."""
    with pytest.raises(BadOption):
        QueueOptions(**options)


def test_a_failure_is_delivered_again_no_earlier_than_its_server_asks(make_desk: Any) -> None:
    """A server that is busy says for how long; to come back earlier keeps it busy, and uses up the retries."""
    desk = make_desk(retry=Retry(2, backoff=8.0, jitter=False))
    said = 'a text with ,"after":999.0 in it'
    record = Failure("ServerBusy", said, "", "", "00c0ffee", None, "", "c", "w", 0.0, 0.1, after=60.0).to_bytes()
    desk.put()
    for wait in (60.0 + 8.0, 60.0 + 16.0):
        desk.settle(desk.lease(1), Outcome.FAIL, payloads=[record])
        desk.clock.advance(wait - 1.0)
        assert desk.shard.lease("c", 1) is None
        desk.clock.advance(1.0)

    desk.settle(desk.lease(1), Outcome.FAIL, payloads=[record])
    assert desk.counts() == {State.DEAD: 1}, "it counts as any other failure"
