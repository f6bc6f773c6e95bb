"""What a wait makes of a queue in which nothing moves: the error when nobody serves it, and one warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.errors import DqlabWarning
from dqlab.runs import waiting
from dqlab.testing import FakeClock
from tests.kit.sampled import examples

LOOKS = st.tuples(st.floats(0.1, 4.0), st.booleans(), st.sampled_from(["", " It is paused."]), st.booleans())

Look = tuple[float, bool, str]


def _since(seen: list[Look], holds: Callable[[Look], bool]) -> float:
    """For how many seconds something has held at every look."""
    first = now = seen[-1][0] if seen else 0.0
    for look in reversed(seen):
        if not holds(look):
            break
        first = look[0]
    return now - first


@given(st.lists(LOOKS, max_size=20), st.sampled_from([None, 60.0]))
@settings(max_examples=examples(200), deadline=None)
def test_a_wait_ends_after_as_long_without_consumers_and_warns_once_of_what_stands_still(
    looks: list[tuple[float, bool, str, bool]], limit: float | None
) -> None:
    """Each look is later than the one before, and says whether anybody serves the queue, and what stops it."""
    clock = FakeClock()
    with mock.patch.object(waiting, "time", clock), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        standstill, seen = waiting.Standstill("run 'a'", limit), list[Look]()
        for later, alone, why, silent in looks:
            clock.advance(later)
            if silent:  # no shard answers, which says nothing of either
                standstill.unanswered("q")
                continue
            lonely = standstill.look(why, alone=alone)
            seen.append((clock.monotonic(), alone, why))
            since = _since(seen, lambda look: bool(look[1]))
            assert lonely == (since if since >= waiting.STALLED_AFTER else 0.0)
            assert standstill.begun or not alone

    late = any(_since(seen[:n], lambda look: bool(look[2])) >= waiting.LATE for n in range(len(seen) + 1))
    of_pauses = [one for one in said if issubclass(one.category, DqlabWarning) and "paused" in str(one.message)]
    assert len(said) <= (limit is None)
    if not any(silent for *_, silent in looks):
        assert len(of_pauses) == (late and limit is None)
