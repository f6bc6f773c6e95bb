"""What crosses a border arrives as it was sent, and names a method that answers it."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, fields, is_dataclass, make_dataclass
from hashlib import blake2b
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.consumer.actor import ConsumerActor
from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.calls import Call
from dqlab.cluster.transport.parking import Credit, Do, SlotOrder
from dqlab.cluster.transport.protocol import PROTOCOL
from dqlab.cluster.transport.wire import PlainData
from dqlab.rules.reports import HeldLease
from dqlab.store.values import Compacted

KINDS: list[Any] = [each for each in vars(calls).values() if is_dataclass(each) and issubclass(each, PlainData)]
CALLS = [each for each in KINDS if issubclass(each, Call)]
INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)
"""Those that msgpack packs."""
TO_CONSUMERS = {calls.CloseCall, calls.ConsumerStatsCall, calls.PrintedCall, calls.RunningNowCall}
WITHOUT_ARGUMENTS = {"start", "report_due"}
"""Called where the actor lives."""


def of(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a field's type; lists where there may be tuples, as msgpack opens them."""
    text = str(hint)
    if hint in (calls.Fullness, calls.Delivery, SlotOrder, calls.HeldBySlot):
        return st.builds(hint, **{each.name: of(get_type_hints(hint)[each.name]) for each in fields(hint)})
    if text.endswith("| None"):
        return st.none() | of(hint.__args__[0])
    if hint in (calls.DeadRow, calls.SlowRow, HeldLease, Credit) or text.endswith("RunningMessage'>"):
        return st.tuples(*map(of, get_type_hints(hint).values())).map(lambda row: hint(*row))
    if hint is Compacted:
        return st.builds(Compacted)
    if hint is Do:
        return st.sampled_from(Do)
    if "tuple[" in text:
        return st.lists(st.lists(st.integers(0, 9), min_size=2, max_size=2), max_size=3)
    if text.startswith("list["):
        return st.lists(of(hint.__args__[0]), max_size=3)
    if text.startswith("dict["):
        return st.dictionaries(st.text(max_size=3), INTEGERS | st.text(max_size=3) | st.none(), max_size=3)
    return INTEGERS if hint is int else st.from_type(hint).filter(lambda value: value == value)  # not NaN


@given(kind=st.sampled_from(KINDS), data=st.data())
def test_a_message_arrives_as_it_was_sent(kind: Any, data: st.DataObject) -> None:
    hints = get_type_hints(kind)
    sent = data.draw(st.builds(kind, **{each.name: of(hints[each.name]) for each in fields(kind)}))

    arrived, parts = kind.unpack(sent.pack(b"a", b""))

    assert arrived == sent
    assert [bytes(part) for part in parts] == [b"a", b""]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_has_its_default_is_not_sent(kind: Any) -> None:
    """Most answers have few of their fields."""
    given = {each.name: None for each in fields(kind) if each.default is MISSING}
    if kind is not calls.ControlCall:
        assert set(kind(**given).to_wire()) == set(given)


def test_a_field_of_a_newer_version_is_passed_over() -> None:
    newer = make_dataclass("Newer", [("lease", int), ("color", str)], bases=(PlainData,), frozen=True)
    assert calls.RanCall.unpack(newer(1, "red").pack())[0] == calls.RanCall(1)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_every_call_names_a_method_of_its_actor(call: Any) -> None:
    actor = ConsumerActor if call in TO_CONSUMERS else QueueActor
    assert inspect.iscoroutinefunction(getattr(actor, call.method))


def test_every_method_that_is_called_from_elsewhere_has_a_call() -> None:
    """A name in a string would be found wrong by a cluster alone."""
    for actor, known in ((QueueActor, set(CALLS) - TO_CONSUMERS), (ConsumerActor, TO_CONSUMERS)):
        methods = {name for name, _ in inspect.getmembers(actor, inspect.iscoroutinefunction) if name[0] != "_"}
        assert methods - WITHOUT_ARGUMENTS == {call.method for call in known}


def test_calls_that_change_raise_the_protocol() -> None:
    """A client of the version before would read the answers wrongly, and wait for ever, or fail with a KeyError."""

    def field(each: Field[Any]) -> tuple[Any, ...]:
        return each.name, each.type, each.default is MISSING or repr(each.default)

    kinds = sorted([*KINDS, SlotOrder], key=lambda kind: kind.__name__)
    shapes = [(kind.__name__, getattr(kind, "method", ""), *map(field, fields(kind))) for kind in kinds]
    digest = blake2b(repr(shapes).encode(), digest_size=8).hexdigest()
    assert (PROTOCOL, digest) == (14, "ea4422d094085162"), (
        "raise PROTOCOL if an older side would fail; put the digest here"
    )
