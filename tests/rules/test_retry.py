"""Delays between retries, and what options refuse."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest

from dqlab.errors import BadOption, ProcessDied
from dqlab.failures.failure import Failure, kinds_of, retryable
from dqlab.frame import Outcome
from dqlab.rules.retry import QueueOptions, Retry, as_retry
from dqlab.rules.states import State
from tests.rules.conftest import RUN
from tests.rules.test_halting import Halting


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


class Busy(TimeoutError):
    """A class of the user."""


def raised(error: BaseException) -> tuple[str, bool]:
    """Return what a failure's record says of its classes, and whether its consumer rejects it."""
    return kinds_of(error), not retryable(error)


@pytest.mark.parametrize(
    ("error", "options", "again"),
    [
        (TimeoutError(), {"on": TimeoutError}, True),
        (ValueError(), {"on": TimeoutError}, False),
        (Busy(), {"on": TimeoutError}, True),
        (TimeoutError(), {"on": Busy}, False),
        (Busy(), {"on": "Busy"}, True),
        (Busy(), {"on": "test_retry.Busy"}, True),
        (Busy(), {"on": "other.Busy"}, False),
        (ValueError(), {"never": (ValueError,)}, False),
        (UnicodeError(), {"never": "ValueError"}, False),
        (ValueError(), {"never": "UnicodeError"}, True),
        (Busy(), {"on": Busy, "never": TimeoutError}, True),
        (TimeoutError(), {"on": Busy, "never": TimeoutError}, False),
        (Busy(), {"on": OSError, "never": TimeoutError}, False),
        # Those that are never retried, unless they are named.
        (FileNotFoundError(), {"on": OSError}, False),
        (FileNotFoundError(), {"on": FileNotFoundError}, True),
        (PermissionError(), {"on": OSError}, True),
        (ModuleNotFoundError(), {"on": "ImportError"}, True),
        (FileNotFoundError(), {"never": ValueError}, False),
        (ValueError(), {"never": TimeoutError}, True),
        # A group is worth a retry if one of its members is.
        (ExceptionGroup("", [ValueError(), TimeoutError()]), {"on": TimeoutError}, True),
        (ExceptionGroup("", [ValueError(), NameError()]), {"on": TimeoutError}, False),
        (ExceptionGroup("", [ValueError(), NameError()]), {"never": ValueError}, False),
    ],
)
def test_the_nearest_named_class_of_an_exception_decides(
    error: BaseException, options: dict[str, Any], again: bool
) -> None:
    """Also after the options have been in a log, which has their names."""
    kinds, rejected = raised(error)

    for retry in (Retry(3, **options), Retry(**Retry(3, **options).record())):
        assert retry.allows(kinds, rejected=rejected) is again


def test_what_a_consumer_rejects_for_another_reason_is_not_retried() -> None:
    """A suspect that has ended its own process would end a worker's next."""
    assert Retry(on="ProcessDied").allows(kinds_of(ProcessDied(how="died")))
    assert not Retry(on="ProcessDied").allows(kinds_of(ProcessDied(how="died")), rejected=True)


@pytest.mark.parametrize("wrong", [int, 5, [TimeoutError, 5], "", [""]])
def test_what_is_no_class_of_exceptions_is_refused(wrong: object) -> None:
    """It would match nothing, and everything would be dead at its first exception."""
    with pytest.raises(BadOption, match="class of exceptions"):
        Retry(on=wrong)  # type: ignore[arg-type]


def test_a_class_cannot_be_both_retried_and_not() -> None:
    """Which of the two was meant cannot be known."""
    with pytest.raises(BadOption, match="in on= too"):
        Retry(on=TimeoutError, never=(ValueError, TimeoutError))


def test_a_failure_whose_class_is_not_retried_is_dead_at_once_and_says_why() -> None:
    """The rules compare names; a class that is named is retried even where its consumer rejects it."""
    desk = Halting(4, retries=2, on=("TimeoutError", "FileNotFoundError"))
    lease = desk.lease(4)
    errors = [TimeoutError(), ValueError(), FileNotFoundError(), NameError()]
    outcomes = [Outcome.FAIL if retryable(error) else Outcome.REJECT for error in errors]
    payloads = [Failure.from_exception(error, when=0.0, seconds=0.0).to_bytes() for error in errors]

    desk.ledger.settle(desk.settlement(lease, outcomes, payloads=payloads))

    assert desk.counts() == {State.DELAYED: 2, State.DEAD: 2}
    reasons = [letter.reason for letter in desk.shard.dead_letters(RUN)]
    assert reasons == ["not retried, as on= and never= of its Retry say", "not retried"]


@pytest.mark.parametrize(
    ("given", "meant"), [(5, Retry(5)), (0, Retry(0)), (False, Retry(0)), (True, None), (None, None)]
)
def test_a_number_of_retries_stands_for_a_retry(given: object, meant: Retry | None) -> None:
    """`retry=5` is what people write first."""
    assert as_retry(given) == meant


@pytest.mark.parametrize("wrong", [-1, 2.5, "5", 2**63])
def test_what_is_no_number_of_retries_is_refused(wrong: object) -> None:
    """Nothing is submitted with it."""
    with pytest.raises(BadOption, match="retr"):
        as_retry(wrong)
