"""Caps by key: never more at once than they say, others go on, and nothing is held by the dead."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.shard.pages import _key
from dqlab.documents import Document
from dqlab.documents.parts import Inline
from dqlab.errors import BadOption
from dqlab.frame import Outcome
from dqlab.rules.flow import Cap, FlowTerms
from dqlab.rules.leases import Lease
from dqlab.rules.states import State
from dqlab.runs.terms import shared_cap
from tests.rules.conftest import RUN
from tests.rules.invariants import check_shard
from tests.rules.test_halting import Halting


class Capped(Halting):
    """A run of messages whose keys their shell reads when the rules want them."""

    def __init__(self, keys: str, most: int) -> None:
        super().__init__(0, retries=3)
        self.ledger.order("flow", RUN, {"flow": FlowTerms(cap=Cap("host", most)).record()})
        self.put(len(keys))
        self.keys, lane = keys, self.shard.lanes[RUN]
        self.first = next(iter(lane.batches)).first

    def ask(self, consumer: str, n: int) -> Lease | None:
        lane = self.shard.lanes[RUN]
        lease = self.shard.lease(consumer, n, at_least=n)
        assert lane.flow is not None
        assert lane.flow.caps is not None
        for first in list(lane.flow.caps.wanted):
            assert lease is None, "nothing is leased whose key is not known"
            lane.flow.caps.know(first, list(self.keys), lane.batches)
            lease = self.shard.lease(consumer, n, at_least=n)
        return lease

    @property
    def at_once(self) -> Counter[str]:
        return Counter(
            self.keys[id - self.first]
            for lease in self.shard.leases.of_run(RUN)
            for lo, hi in lease.remaining
            for id in range(lo, hi)
        )


@given(
    st.text("ab", min_size=1, max_size=40),
    st.integers(1, 3),
    st.lists(
        st.tuples(st.sampled_from("xyz"), st.integers(1, 6), st.sampled_from(["ack", "fail", "dies", "wait"])),
        max_size=30,
    ),
)
def test_a_key_is_never_above_its_cap_and_every_message_ends(
    keys: str, most: int, steps: list[tuple[str, int, str]]
) -> None:
    """Also for suspects, which are leased alone, and after consumers die or messages fail."""
    desk = Capped(keys, most)
    for consumer, n, then in [*steps, *[("x", 0, "dies"), ("y", 0, "dies"), ("z", 0, "dies")]]:
        lease = desk.ask(consumer, n)
        assert max(desk.at_once.values(), default=0) <= most
        if then == "dies":
            desk.shard.release(consumer)
        elif lease is not None and then != "wait":
            desk.settle(lease, Outcome.ACK if then == "ack" else Outcome.FAIL)
        desk.clock.advance(1.0)
    for _ in range(10 * len(keys)):
        desk.clock.advance(1000.0)
        if (lease := desk.ask("last", 6)) is not None:
            desk.settle(lease, Outcome.ACK)

    lane = desk.shard.lanes[RUN]
    assert lane.counts[State.ACKED] + lane.counts[State.DEAD] == len(keys)
    check_shard(desk.shard)


def test_others_go_on_while_the_first_thousand_wait_for_one_host() -> None:
    desk = Capped("a" * 1000 + "b", 2)

    first, second = desk.ask("c", 2), desk.ask("c", 2)
    assert desk.at_once == {"a": 2, "b": 1}
    assert desk.ask("c", 2) is None
    assert first is not None
    assert second is not None
    assert desk.shard.lanes[RUN].flow.binds(desk.clock.monotonic(), 3) == "the cap by host"  # type: ignore[union-attr]
    desk.settle(first, Outcome.ACK)
    assert desk.ask("c", 5) is not None
    assert desk.at_once == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("value", "by", "key"),
    [
        (Document("a", "", "https://x.org:80/a"), "host", "x.org"),
        (Document("a", "", "/papers/a"), "host", ""),
        ("http://y.org/1", "host", "y.org"),
        ("http://[bad", "host", ""),
        ({"url": "http://z.org/1", "site": 7}, "host", "z.org"),
        ({"url": "http://z.org/1", "site": 7}, "site", "7"),
        (Document("a", "", "", part=Inline(("site",), ("s",))), "site", "s"),
        (None, "host", ""),
    ],
)
def test_the_key_is_the_host_of_a_url_or_the_value_of_a_column(value: Any, by: str, key: str) -> None:
    assert _key(value, by) == key


@pytest.mark.parametrize(
    "cap", ["host=4", {}, {"host": 0}, {"host": "4"}, {"": 4}, {"host": 4, "site": 2}, {"host": 1}]
)
def test_a_cap_that_makes_no_sense_is_refused(cap: Any) -> None:
    with pytest.raises(BadOption, match="cap"):
        shared_cap(cap, 2)
