"""Leasing: order, size, pieces, renewal, and time."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.frame import NO_ID, Outcome
from dqlab.rules.picking import serves
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.rules.states import State
from dqlab.testing import FakeClock
from tests.rules.conftest import RUN, Desk
from tests.rules.invariants import check_shard
from tests.rules.memory_journal import MemoryJournal


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


AMOUNTS = st.dictionaries(st.sampled_from(["gpus", "GPU", "licence"]), st.sampled_from([0.25, 0.5, 1.0, 2.0]))


@given(
    needs=st.lists(AMOUNTS, min_size=1, max_size=4),
    slots=st.lists(AMOUNTS, min_size=1, max_size=4),
    sizes=st.lists(st.integers(1, 5), min_size=4, max_size=4),
    wants=st.integers(1, 4),
)
def test_each_message_goes_to_a_slot_that_can_run_it_or_waits(
    needs: list[dict[str, float]], slots: list[dict[str, float]], sizes: list[int], wants: int
) -> None:
    """Whoever asks, and in which order: nothing is leased in vain, and nothing waits that somebody could run."""
    clock, journal = FakeClock(), MemoryJournal()
    shard = Shard("q", 0, epoch=1, options=QueueOptions(), clock=clock, random=Random(0), journal=journal)
    desk = Desk(shard, clock)
    runs = [bytes([at]) * 16 for at in range(1, len(needs) + 1)]
    for run, each, n in zip(runs, needs, sizes, strict=False):
        desk.shard.open_lane(run).needs = each
        desk.put(n, run=run)

    leased: Counter[bytes] = Counter()
    idle: set[int] = set()
    while len(idle) < len(slots):
        for at, has in enumerate(slots):
            lease = desk.shard.lease(f"c{at}", wants, has=has)
            if lease is None:
                idle.add(at)
                continue
            assert serves(has, needs[runs.index(lease.run)])
            leased[lease.run] += lease.remaining.size

    can = [any(serves(has, each) for has in slots) for each in needs]
    assert leased == Counter({run: n for run, n, one in zip(runs, sizes, can, strict=False) if one})


def test_a_slot_stays_with_its_run_while_that_has_messages(desk: Any) -> None:
    """What it has loaded for the run is gone once it turns to another one."""
    other = b"another-run-----"
    desk.shard.open_lane(other)
    for run in (RUN, other):
        desk.put(40, run=run)

    leased = [desk.lease(8, stays=other) for _ in range(6)]
    assert [lease.run for lease in leased] == [other] * 5 + [RUN]
    for lease in leased[:5]:
        desk.settle(lease, *[Outcome.ACK] * 8, busy_s=6.0)
    desk.put(40, run=other)
    assert {desk.lease(8).run for _ in range(4)} == {RUN}  # the others have their share then


def test_a_run_without_needs_goes_to_everybody(desk: Any) -> None:
    desk.put(3)
    assert desk.ids(desk.lease(1)) == [0]
    assert desk.ids(desk.lease(1, has={"gpus": 2.0})) == [1]
