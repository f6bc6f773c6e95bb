"""Leasing: order, size, pieces, renewal, and time."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from dqlab.frame import NO_ID
from dqlab.rules.states import State
from tests.rules.invariants import check_shard

RUN = b"run-of-the-tests"


def test_nothing_to_lease_is_none(desk: Any) -> None:
    """The consumer's call stays parked."""
    assert desk.shard.lease("c", 10) is None
    desk.put()
    assert desk.shard.lease("c", 0) is None


def test_renewals_hold_while_the_journal_accepts_nothing(desk: Any) -> None:
    """The lease of a dead consumer cannot end then, and refused all others their time: they ran twice afterwards."""
    desk.put(3)
    desk.lease(1, "dead")
    desk.clock.advance(30)
    early, late = desk.lease(1, "alive"), desk.lease(1, "late")
    refuses = pytest.MonkeyPatch()
    refuses.setattr(desk.shard.journal, "admit", _refuse)
    for _ in range(4):
        desk.clock.advance(20)
        with suppress(_Refused):
            desk.shard.extend([early.id])
    with pytest.raises(_Refused):
        desk.shard.extend([late.id])  # its time is over, and it has not ended
    refuses.undo()

    assert desk.shard.extend([early.id, late.id]) == []
    assert desk.counts() == {State.READY: 1, State.LEASED: 2}
    check_shard(desk.shard)


class _Refused(Exception):
    """What a log raises whose disk is full."""


def _refuse(*_: object) -> None:
    raise _Refused


def test_lag_is_the_age_of_the_oldest_ready_message(desk: Any) -> None:
    """Leased messages are another slot's work already."""
    desk.put()
    desk.clock.advance(5)
    desk.put(run=NO_ID)
    desk.clock.advance(2)
    assert desk.shard.lag() == 7
    desk.lease(1)
    desk.lease(1)

    assert desk.shard.lag() == 0.0


def test_an_expired_lease_returns_its_messages_to_the_front(desk: Any) -> None:
    """A dead consumer costs its messages one lease of delay, not their place in line."""
    desk.put(2)
    desk.lease(2)
    desk.put(2)
    desk.clock.advance(60)

    assert [desk.ids(desk.lease(9, "d", slots=9)) for _ in range(3)] == [[0], [1], [2, 3]]
    check_shard(desk.shard)
