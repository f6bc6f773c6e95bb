"""What may cross the border of an actor: one `bytes` in, one `bytes` out, from coroutines only.

What is large goes beside it, from where it is.
"""

from __future__ import annotations

import copy
import inspect
import random
import typing
from collections.abc import Callable
from typing import Any

import pytest
from distributed.protocol import dumps, loads
from hypothesis import given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cluster.consumer.actor import ConsumerActor, CustomConsumer
from dqlab.cluster.shard.actor import QueueActor
from dqlab.cluster.transport import internals
from dqlab.cluster.transport.ref import Ref
from dqlab.cluster.transport.wire import LARGE_PART, Apart, Packed, pack, pack_apart, unpack
from dqlab.runs.reading.results import open_settlements

INSIDE = {"news", "report"}
"""Called in the actor's own process."""


def remote_methods(actor: type) -> list[tuple[str, Callable[..., Any]]]:
    return [
        (name, method)
        for name, method in inspect.getmembers(actor, inspect.isfunction)
        if not name.startswith("_") and name not in INSIDE
    ]


ACTORS = [QueueActor, ConsumerActor, CustomConsumer]
METHODS = [
    pytest.param(method, id=f"{actor.__name__}.{name}") for actor in ACTORS for name, method in remote_methods(actor)
]


@pytest.mark.parametrize("method", METHODS)
def test_actor_methods_are_coroutines(method: Callable[..., Any]) -> None:
    """Dask runs plain methods of all actors of a worker in one thread: one that waits stops all others."""
    assert inspect.iscoroutinefunction(method)


@pytest.mark.parametrize("method", METHODS)
def test_actor_methods_take_and_return_bytes_alone(method: Callable[..., Any]) -> None:
    """Dask serialises lists, tuples and dicts element by element: 10,000 messages take 203 ms instead of 3."""
    hints = typing.get_type_hints(method)

    assert list(inspect.signature(method).parameters) == ["self", "body"]
    assert hints.keys() == {"body", "return"}
    assert all(hint in (bytes, Packed) for hint in hints.values())


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.long
@given(st.dictionaries(st.text(), plain, max_size=5), st.lists(st.binary(max_size=200), max_size=4))
def test_packed_call_comes_back_as_it_was(meta: dict[str, Any], parts: list[bytes]) -> None:
    """Everything that queues and consumers say to each other goes through here."""
    found, views = unpack(pack(meta, *parts))

    assert found == meta
    assert [bytes(view) for view in views] == parts


def test_parts_are_views_and_not_copies() -> None:
    """A megabyte of results is not copied for being looked at."""
    blob = pack({}, bytes(1 << 20))

    [view] = unpack(blob)[1]

    assert view.obj is blob


@given(st.lists(st.sampled_from([0, 1, 999, LARGE_PART - 1, LARGE_PART, LARGE_PART + 1, 300_000]), max_size=6))
def test_large_parts_come_back_in_their_places_and_are_not_copied(sizes: list[int]) -> None:
    """A page has large settlements and small ones; one in the place of another has the results of other documents."""
    parts = [bytes([at]) * size for at, size in enumerate(sizes)]
    packed = pack_apart({"n": 1}, *parts)

    meta, views = unpack(packed)

    assert meta == {"n": 1}
    assert [bytes(view) for view in views] == parts
    assert all(view.obj is part for view, part in zip(views, parts, strict=True) if len(part) >= LARGE_PART)
    assert isinstance(packed, Apart) == any(size >= LARGE_PART for size in sizes)


@pytest.mark.parametrize("number", [1, 30])
def test_many_small_parts_travel_beside_a_message_as_a_large_one_does(number: int) -> None:
    """Together they are large; packed into the message itself they are copied at each end."""
    parts = [b"%05d" % at * 1000 for at in range(number)] + [bytes(LARGE_PART)]
    packed = pack_apart({"n": 1}, *parts)

    frames = dumps({"status": "OK", **internals._beside("result", packed)})

    assert sum(len(frame) for frame in frames[:2]) < LARGE_PART  # Dask's own part of the message
    for opened in (
        internals._opened(loads(frames), "key"),
        internals.opened_bytes(internals._opened(loads(frames, deserialize=False), "key")),
    ):
        assert isinstance(opened, Apart)
        meta, views = unpack(opened)
        assert meta == {"n": 1}
        assert [bytes(view) for view in views] == parts


@pytest.mark.parametrize("direct", [True, False], ids=["to the worker", "through the scheduler"])
def test_large_parts_travel_beside_a_call_and_its_answer(queue: dq.QueuePool, *, direct: bool) -> None:
    """Dask's own way copies them twice at each end. A scheduler opens nothing, and passes them on."""
    large, small = random.Random(1).randbytes(3 * LARGE_PART), b"small"
    run = queue.map(lambda n: large if n % 2 else small, range(60)).wait(timeout=60)
    link = copy.copy(queue.handle.link)
    ref = Ref(queue.handle.refs[0].name, link.client, direct=direct)

    many = [small * 1000] * 30
    answer = link.sync(ref.call("page", pack_apart({"run": run.id, "lo": 0, "hi": 60}, large, *many)))
    _, parts = unpack(answer)

    assert isinstance(answer, Apart)
    values = [value for stretch in open_settlements(parts) for value in stretch.values]
    assert len(values) >= 20
    assert values == [large if n % 2 else small for n in range(len(values))]


def test_answers_of_a_live_queue_are_bytes(queue: dq.QueuePool) -> None:
    """The annotation is a promise; this is the fact."""
    link, [ref] = queue.handle.link, queue.handle.refs

    answer = link.sync(ref.call("stats", pack({})))

    assert type(answer) is bytes
