"""A run's budget: never exceeded, paused when it is spent, and counted again from what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.errors import BadOption, ProcessDied
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome, Piece, Settlement
from dqlab.rules.budget import SPENT, Budget, Purse
from dqlab.rules.flow import FlowTerms
from dqlab.rules.states import State
from dqlab.stats.counts import StopReason
from tests.rules.conftest import RUN
from tests.rules.test_halting import Halting

ACK, FAIL = Outcome.ACK, Outcome.FAIL


class Paying(Halting):
    """A run whose calls say what they have cost."""

    def __init__(self, n: int, budget: Budget) -> None:
        super().__init__(0, retries=3)
        self.ledger.order("flow", RUN, {"flow": FlowTerms(budget=budget).record()})
        self.put(n)

    def call(self, n: int, *costs: float, outcome: Outcome = ACK) -> int:
        """Lease up to `n` messages, and settle them with these costs in turn; return how many there were."""
        lease = self.shard.lease("c", n)
        if lease is None:
            return 0
        ids = self.ids(lease)
        spent = {at: msgpack.packb({"eur": costs[at % len(costs)]}) for at in range(len(ids))}
        blob = Settlement.encode(
            [Piece(id, 0, 1) for id in ids],
            bytes([outcome] * len(ids)),
            [b""] * len(ids),
            run=RUN,
            epoch=self.shard.epoch,
            lease=lease.id,
            riders={SPENT: spent},
        )
        self.ledger.settle(Settlement.decode(blob))
        return len(ids)

    @property
    def spent(self) -> float:
        return self.ledger.book(RUN).spent.get("eur", 0.0)


@given(
    st.floats(0.1, 50),
    st.floats(0.01, 5),
    st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1), st.sampled_from([ACK, FAIL])), max_size=40),
)
def test_a_budget_with_a_reserve_is_never_exceeded(
    amount: float, reserve: float, calls: list[tuple[int, float, Outcome]]
) -> None:
    """However many consumers ask, whatever a call costs up to its reserve, and failed calls cost as well."""
    desk = Paying(500, Budget(amount, "eur", reserve))
    for n, share, outcome in calls:
        desk.call(n, share * reserve, outcome=outcome)
        desk.clock.advance(1000.0)

        assert desk.spent <= amount * (1 + 1e-9)


def test_without_a_reserve_the_first_call_runs_alone_and_says_what_others_may_cost() -> None:
    """A hundred calls of unknown cost in flight may be any multiple of the budget."""
    desk = Paying(500, Budget(10, "eur"))

    assert desk.call(100, 1.0) == 1
    assert desk.call(100, 1.0) == 9
    assert desk.spent == 10


def test_what_a_dead_consumer_was_to_spend_is_free_again() -> None:
    """Reserved is the sum over live leases: nothing leaks, and nothing is called spent that was not."""
    desk = Paying(500, Budget(10, "eur", reserve=1))
    desk.lease(10, consumer="dies")
    assert desk.shard.lease("c", 10) is None
    assert desk.ledger.halt_failing() == []
    desk.shard.release("dies")

    assert sum(desk.call(1, 1.0) for _ in range(20)) == 10


def _dies(desk: Paying) -> None:
    desk.shard.release("dies")


def _is_cancelled(desk: Paying) -> None:
    desk.shard.cancel(RUN)


def _loses_its_process(desk: Paying) -> None:
    for lease in desk.shard.leases.of_consumer("dies"):
        ids = desk.ids(lease)
        died = Failure.from_exception(ProcessDied(how="was killed"), when=1.7e9, seconds=0.5).to_bytes()
        blob = Settlement.encode(
            [Piece(id, 0, 1) for id in ids],
            bytes([FAIL] * len(ids)),
            [died] * len(ids),
            run=RUN,
            epoch=1,
            lease=lease.id,
        )
        desk.ledger.settle(Settlement.decode(blob))


@pytest.mark.parametrize("end", [_dies, _is_cancelled, _loses_its_process])
def test_calls_that_could_not_say_their_cost_may_have_cost_what_was_put_aside(end: Callable[[Paying], None]) -> None:
    """Up to that much is unknown, nothing of it is called spent, and a larger budget forgets none of it."""
    desk = Paying(500, Budget(10, "eur", reserve=0.1))
    desk.call(3, 0.1)
    desk.lease(4, consumer="dies")
    held = desk.ledger.book(RUN).spending(0.0)
    end(desk)
    desk.ledger.order("flow", RUN, {"flow": FlowTerms(budget=Budget(20, "eur", reserve=0.1)).record()})
    left = desk.ledger.book(RUN).spending(0.0)

    assert held is not None
    assert left is not None
    assert (held.spent["eur"], held.reserved, held.unknown) == pytest.approx((0.3, 0.4, 0.0))
    assert (left.spent["eur"], left.reserved, left.unknown) == pytest.approx((0.3, 0.0, 0.4))


def test_a_hundred_calls_in_flight_cost_no_more_than_was_reserved_for_them() -> None:
    """All of them are called before the first one says what it cost."""
    desk = Paying(500, Budget(10, "eur", reserve=0.1))
    leases = [lease for _ in range(20) if (lease := desk.shard.lease("c", 20)) is not None]

    assert sum(len(desk.ids(lease)) for lease in leases) == 100
    assert desk.shard.lease("c", 1) is None
    assert desk.ledger.book(RUN).spending(0.0).binds == "the budget"  # type: ignore[union-attr]


def test_a_run_that_has_spent_its_budget_pauses_itself_and_goes_on_with_a_larger_one() -> None:
    """What is in flight ends first, and nothing is to blame."""
    desk = Paying(30, Budget(5, "eur", reserve=1))
    desk.call(5, 1.0)

    assert desk.ledger.halt_failing() == [RUN]
    assert "5 of 5 eur spent" in desk.halted
    assert desk.ledger.book(RUN).report(RUN, 0.0).halt is StopReason.BUDGET
    desk.ledger.order("resume", RUN, {})
    assert desk.ledger.halt_failing() == [RUN], "there is no more money than before"
    desk.ledger.order("flow", RUN, {"flow": FlowTerms(budget=Budget(8, "eur", reserve=1)).record()})
    desk.ledger.order("resume", RUN, {})
    assert desk.call(30, 1.0) == 3
    assert desk.counts() == {State.READY: 22, State.ACKED: 8}


def test_calls_that_cost_nothing_are_not_held_back() -> None:
    """As answers from a cache."""
    purse = Purse(Budget(1, "eur"))
    purse.pay(0.0)

    assert purse.room() is None


@pytest.mark.parametrize(
    "wrong",
    [
        *({"amount": amount} for amount in (0, -1, "20", float("nan"))),
        *({"unit": unit} for unit in ("a b", 3)),
        *({"reserve": reserve} for reserve in (0, True)),
    ],
)
def test_a_budget_is_a_number_above_zero_of_a_unit(wrong: dict[str, Any]) -> None:
    """It is checked where it is written."""
    with pytest.raises(BadOption, match=r"above zero|must be a name"):
        Budget(**{"amount": 1.0, "unit": "eur", **wrong})
