"""Calls to actors end: with an answer, or with an error that says who is gone."""

from __future__ import annotations

import asyncio
import gc
import platform
import resource
import time
from collections.abc import Callable
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.transport.internals import KEEPER, NoSuchActor, NotConnected
from dqlab.cluster.transport.ref import Place, Ref
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.cluster.worker.plugin import DqlabWorkerPlugin
from dqlab.errors import ActorGone, CallTimeout
from tests.kit.testers import FROZEN

pytestmark = pytest.mark.lowest


def same(x: int) -> int:
    return x


def test_unknown_actor_is_gone_and_not_waited_for(client: Client, queue: dq.QueuePool) -> None:
    """Dask's own proxy would hang here for ever."""
    began = time.monotonic()

    with pytest.raises(ActorGone, match="queue/no-such-queue/0"):
        queue.handle.link.sync(Ref("queue/no-such-queue/0", client).call("stats", pack({})))

    assert time.monotonic() - began < 5


def test_call_to_where_the_actor_was_finds_it_where_it_is(client: Client, queue: dq.QueuePool) -> None:
    """Dask tries to connect to a dead worker for 30 s; we ask the registry after half a second."""
    stale = Ref(queue.handle.refs[0].name, client)
    stale._place = Place("tcp://127.0.0.1:1", "dq-somewhere", 1)
    began = time.monotonic()

    answer = queue.handle.link.sync(stale.call("stats", pack({}), timeout=20))

    assert unpack(answer)[0]["queue"] == queue.name
    assert time.monotonic() - began < 5.5


def test_installing_twice_is_idempotent(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Every client that connects installs the plugins; the queues must not notice."""
    queue.put_many([1, 2, 3]).ids  # noqa: B018 - waits until they are in
    token = lab.session.token

    lab.client.register_plugin(Registry())
    lab.client.register_plugin(DqlabWorkerPlugin("", ""))

    def look(dask_scheduler: Any) -> tuple[str, int]:
        return dask_scheduler.plugins["dqlab"].token, len(dask_scheduler.plugins["dqlab"].state.queues)

    found, queues = lab.client.run_on_scheduler(look)
    assert found == token
    assert queues >= 1
    assert sum(queue.counts().values()) == 3
    assert list(queue.map(same, range(5)).results(timeout=20)) == list(range(5))


def test_queues_live_where_no_user_code_runs(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """C code that holds the GIL stalls its whole process; it must not be the queue's."""
    [worker] = [
        address
        for address, keys in lab.client.run(lambda dask_worker: list(dask_worker.state.actors)).items()
        if any(f"dq-queue/{queue.name}/" in str(key) for key in keys)
    ]
    queue.map(same, range(5)).wait(timeout=20)
    consumers = [
        address
        for address, keys in lab.client.run(lambda dask_worker: list(dask_worker.state.actors)).items()
        if any(f"dq-consumer/{queue.name}/" in str(key) for key in keys)
    ]

    assert len(consumers) == 2
    assert worker not in consumers


def test_workers_do_not_search_again_and_again_what_they_have_imported(
    lab: dq.Lab, pytestconfig: pytest.Config
) -> None:
    """Where many small messages come and go a tenth of the time went there."""
    imported = lab.client.run(gc.get_freeze_count)

    assert min(imported.values()) > 20_000
    assert gc.get_freeze_count() <= pytestconfig.stash[FROZEN]  # a notebook's own process is left alone


def faults_of_results(x: int) -> float:
    """Return the page faults of making and freeing the results of a chunk, each of a kilobyte."""

    def chunk() -> None:
        made = [bytes(1000) + b"." for _ in range(8192)]
        assert len(made) == 8192

    for _ in range(3):
        chunk()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        chunk()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="of glibc alone")
def test_memory_of_results_is_not_asked_of_the_system_again_for_each_chunk(queue: dq.QueuePool) -> None:
    """It was given back 8 MB at a time: 2,100 faults a chunk."""
    run = queue.map(faults_of_results, range(4)).wait(timeout=30)

    assert max(run.results()) < 500


def test_keys_of_closed_queues_are_released(lab: dq.Lab, queue_name: str) -> None:
    """A pin that is forgotten keeps an actor for the life of the cluster."""
    pool = lab.queue(queue_name)
    pool.map(same, range(5)).wait(timeout=20)
    pool.close()

    def left(dask_scheduler: Any) -> list[str]:
        keeper = dask_scheduler.clients.get(KEEPER)
        return [str(task.key) for task in keeper.wants_what] if keeper is not None else []

    assert not [key for key in lab.client.run_on_scheduler(left) if queue_name in key]


def test_call_that_follows_its_actor_packs_its_arguments_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that waits at a shard that moves has other wishes by then than when it first said so."""
    ref = Ref("queue/q/0", client)
    places, bodies = iter([Place("a", "k", 1), Place("b", "k", 2)]), iter([b"first", b"second"])
    sent: list[tuple[str, bytes]] = []

    async def place(self: Ref) -> Place:
        if self._place is None:
            self._place = next(places)
        return self._place

    async def called(self: Ref, place: Place, function: str, body: Callable[[], bytes]) -> bytes:
        sent.append((place.address, body()))
        if place.address == "a":
            raise NoSuchActor("k")
        return b"answer"

    monkeypatch.setattr(Ref, "place", place)
    monkeypatch.setattr(Ref, "_send", called)

    assert asyncio.run(ref.call("lease", lambda: next(bodies))) == b"answer"
    assert sent == [("a", b"first"), ("b", b"second")]


class Dead(Ref):
    """An actor of whose worker nothing is left but what the registry says."""

    def __init__(self, owner: Client, *places: Place) -> None:
        super().__init__("queue/q/0", owner)
        self.places, self.tried = list(places), 0

    async def place(self) -> Place:
        self._place = self._place or (self.places.pop(0) if len(self.places) > 1 else self.places[0])
        return self._place

    async def _send(self, place: Place, function: str, body: bytes) -> bytes:
        self.tried += 1
        if place.address == "dead":
            raise NotConnected("refused")
        return b"answer"


def test_arguments_are_packed_after_the_introduction_and_once_there_is_a_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is packed counts as sent: a recreated shard may have recorded it, and its consumer does not claim it."""
    events: list[str] = []
    places = [Place("dead", "k1", 1), Place("alive", "k2", 2)]

    class Introduced(Dead):
        _send = Ref._send

    async def call_actor(pool: Any, address: str, key: str, call: str, body: Any, *, connecting: float) -> bytes:
        events.append(f"connect to {address} for {call}")
        if address == "dead":
            raise NotConnected("refused")
        return bytes(body() if callable(body) else body)

    def settlement() -> bytes:
        events.append("packed")
        return b"settlement"

    monkeypatch.setattr("dqlab.cluster.transport.ref.call_actor", call_actor)
    ref = Introduced(client, *places)
    ref._introduce, ref._known = lambda: b"held", "k1"

    assert asyncio.run(ref.call("settle", settlement)) == b"settlement"
    assert events == [
        "connect to dead for settle",
        "connect to alive for reclaim",
        "connect to alive for settle",
        "packed",
    ]


def test_call_to_a_worker_that_is_dead_asks_again_where_its_actor_is(client: Client) -> None:
    """Dask goes on trying to connect to what refuses it; the shard is somewhere else long before."""
    old, new = Place("dead", "k", 1), Place("alive", "k", 2)
    ref = Dead(client, old, old, old, new)

    assert asyncio.run(ref.call("put", b"")) == b"answer"
    assert ref.tried == 4


def test_call_to_a_worker_out_of_reach_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.cluster.transport.ref.REACH_FOR", 0.05)

    with pytest.raises(CallTimeout, match=r"queue/q/0"):
        asyncio.run(Dead(client, Place("dead", "k", 1)).call("put", b""))


def test_time_at_one_place_is_not_counted_at_the_next(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that was parked for long, and whose worker dies, is only beginning to look."""
    monkeypatch.setattr("dqlab.cluster.transport.ref.REACH_FOR", 0.3)

    class Parked(Dead):
        async def _send(self, place: Place, function: str, body: bytes) -> bytes:
            if not self.tried:
                await asyncio.sleep(0.4)
            return await super()._send(place, function, body)

    places = [Place("dead", "k", 1), Place("dead", "k", 2), Place("dead", "k", 2), Place("alive", "k", 3)]

    assert asyncio.run(Parked(client, *places).call("lease", b"")) == b"answer"
