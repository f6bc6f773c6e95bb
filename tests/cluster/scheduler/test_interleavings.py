"""Opening, closing, serving and dying at the same time: the registry beside a cluster whose answers wait their turn.

Each seed is one order of those answers. What is asked of workers is the only thing that is played; all else is real.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status

from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.scheduler.state import Entry, NoWorkers
from dqlab.cluster.transport.internals import NoSuchActor, Unreachable, WorkerLost
from dqlab.cluster.transport.sealed import seal_value
from dqlab.errors import DqlabError
from dqlab.log.errors import OwnerStillAlive

QUIET = 5
"""Looks that find no question, after which there will be none."""
STORE = {"store": {"directory": "/store/q", "sync": "always"}}
SEALED = seal_value(object)


class World:
    """Workers that do what the registry asks, each step when `play` picks it.

    Attributes
    ----------
    living : dict of str to (str, str)
        Actors by key: their name, and their worker.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.living: dict[str, tuple[str, str]] = {}
        self.pinned: set[str] = set()
        self.registry = Registry()
        self._steps: list[asyncio.Future[None]] = []
        self._born = self._epoch = 0

    async def begin(self, patch: pytest.MonkeyPatch) -> None:
        self.scheduler: Any = SimpleNamespace(id="s", workers={}, clients={}, handlers={}, stream_handlers={}, rpc=None)
        self.scheduler.http_application = None
        self.scheduler.get_events = lambda topic: ()
        module = "dqlab.cluster.scheduler.actors"
        patch.setattr("dqlab.cluster.scheduler.queues.ask_worker", self.ask)
        patch.setattr(f"{module}.ask_worker", self.ask)
        patch.setattr(f"{module}.call_actor", self.call)
        patch.setattr(f"{module}.pin", lambda scheduler, keys: self.pinned.update(keys))
        patch.setattr(f"{module}.unpin", self.unpin)
        for wait in ("actors.REPLACEMENT_WAIT", "actors.TRY_AGAIN"):
            patch.setattr(f"dqlab.cluster.scheduler.{wait}", 0.0)
        patch.setattr("dqlab.cluster.scheduler.consumer_sets.REPLACEMENT_WAIT", 0.0)
        await self.registry.start(self.scheduler)
        for _ in range(3):
            self.join()

    # --- the cluster -------------------------------------------------------------------------

    def join(self) -> None:
        self._born += 1
        address = f"tcp://w{self._born}"
        state = SimpleNamespace(address=address, name=address, nthreads=1, resources={}, status=Status.running)
        state.host = "here"
        state.memory_limit, state.nanny = 0, "tcp://nanny"
        self.scheduler.workers[address] = state
        self.registry.add_worker(self.scheduler, address)

    def die(self) -> None:
        address = self.random.choice(list(self.scheduler.workers))
        del self.scheduler.workers[address]
        self.living = {key: at for key, at in self.living.items() if at[1] != address}
        self.registry.remove_worker(self.scheduler, address, stimulus_id="test")
        self.join()

    def fail(self) -> None:
        """Have a shard report that its log has failed."""
        shards = [(key, *at) for key, at in self.living.items() if at[0].startswith("queue/")]
        if shards:
            _, name, address = self.random.choice(shards)
            self._epoch += 1
            entry = self.registry.state.entries.get(name)
            if entry is not None and entry.address == address:
                self.registry.supervisor.store_failed(entry, self._epoch, "the cable")

    async def step(self) -> None:
        """Wait to be picked."""
        step = asyncio.get_running_loop().create_future()
        self._steps.append(step)
        await step

    async def ask(self, scheduler: Any, address: str, call: str, **asked: Any) -> Any:
        await self.step()
        if address not in self.scheduler.workers:
            raise WorkerLost(worker=address, call=call, reason="it died")
        if call == "dq_keep":
            return {"shards": asked["shards"], "options": asked["options"]}
        if call == "dq_delete":
            return True
        assert call == "dq_spawn"
        key = asked["key"]
        name = key.removeprefix("dq-").rpartition("-")[0]
        if any(at[0] == name for at in self.living.values()):
            raise OwnerStillAlive(directory=name, pid=1, host="here")
        self.living[key] = name, address
        if not await self.registry.actors.pin(key):
            del self.living[key]
            raise WorkerLost(worker=address, call=call, reason="nobody wants it")
        try:
            await self.step()
        except asyncio.CancelledError:
            self.living.pop(key, None)  # the worker lets go of what is not wanted
            raise
        if key not in self.living:
            raise WorkerLost(worker=address, call=call, reason="it died")
        return {}

    async def call(self, rpc: Any, address: str, key: str, call: str, body: bytes) -> bytes:
        await self.step()
        if address not in self.scheduler.workers:
            raise Unreachable(address)
        if key not in self.living:
            raise NoSuchActor(key)
        if call in ("close", "hand_over"):
            await self.step()
            self.living.pop(key, None)
        return b""

    def unpin(self, scheduler: Any, keys: list[str]) -> None:
        self.pinned.difference_update(keys)

    # --- the order ---------------------------------------------------------------------------

    async def play(self, acts: list[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Begin acts and answer questions in the order of the seed, until nothing is left to do."""
        tasks: list[asyncio.Task[Any]] = []
        quiet = 0
        while acts or self._steps or quiet < QUIET or not all(task.done() for task in tasks):
            for _ in range(20):
                await asyncio.sleep(0)
            self._steps = [step for step in self._steps if not step.done()]
            quiet = quiet + 1 if not self._steps else 0
            if acts and (not self._steps or self.random.random() < 0.3):
                tasks.append(asyncio.create_task(acts.pop(0)))
            elif self._steps:
                self._steps.pop(self.random.randrange(len(self._steps))).set_result(None)
            else:
                await asyncio.sleep(0.001)  # a pause of the registry's own
        return await asyncio.gather(*tasks, return_exceptions=True)

    def wrong(self, holding: set[str]) -> list[str]:
        """Return what is amiss now that all is quiet; `holding` are the clients that have the queue open."""
        entries: list[Entry] = list(self.registry.state.entries.values())
        registered = {entry.key: entry.name for entry in entries if entry.gone is None}
        found = [f"{at[0]} lives, and is not registered" for key, at in self.living.items() if key not in registered]
        found += [
            f"{name} is registered, and does not live" for key, name in registered.items() if key not in self.living
        ]
        found += [f"{key} is kept, and not registered" for key in self.pinned if key not in registered]
        found += [f"{entry.name} is of no queue" for entry in entries if entry.queue not in self.registry.state.queues]
        for queue, made in self.registry.state.queues.items():
            shards = {f"queue/{queue}/{index}" for index in range(made.shards)}
            found += [f"{name} of an open queue is missing" for name in shards - self.registry.state.entries.keys()]
        if holding and "q" not in self.registry.state.queues:
            found.append(f"{holding} have opened it, and it is closed")
        return found


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
@pytest.mark.parametrize(
    "seeds", [range(25), pytest.param(range(25, 400), marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_no_queue_is_lost_and_no_actor_left_while_clients_open_close_serve_and_die(
    durable: bool, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An actor that no process knows holds a log's lock until its process ends; a queue taken away loses messages."""

    async def life(seed: int) -> list[str]:
        with monkeypatch.context() as patch:
            world = World(seed)
            await world.begin(patch)
            registry, holding = world.registry, set[str]()
            options = dict(STORE) if durable else {}

            async def client(name: str) -> None:
                for _ in range(world.random.randint(2, 3)):
                    await registry.queues.open("q", 2, options, SEALED, name)
                    holding.add(name)
                    await world.step()
                    if world.random.random() < 0.4:
                        await registry.consumer_sets.serve("q", SEALED, {})
                    await world.step()
                    if world.random.random() < 0.8:
                        holding.discard(name)
                        if await registry.queues.leave("q", name, force=False):
                            registry.attachments._clients["q"].discard(name)

            async def death() -> None:
                await world.step()
                world.fail() if durable and world.random.random() < 0.5 else world.die()

            acts: list[Coroutine[Any, Any, Any]] = [client("ana"), client("ben"), client("cleo")]
            acts += [death() for _ in range(world.random.randint(0, 2))]
            world.random.shuffle(acts)
            outcomes = await asyncio.wait_for(world.play(acts), 20)
            errors = [error for error in outcomes if isinstance(error, BaseException)]
            found = world.wrong(holding if not errors else set())
            found += [f"{error!r}" for error in errors if not isinstance(error, DqlabError)]
            await registry.close()
            return found

    violations = {seed: found for seed in seeds if (found := asyncio.run(life(seed)))}
    assert not violations, f"{len(violations)} of {len(seeds)}: {dict(list(violations.items())[:3])}"


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])
def test_who_opens_a_queue_while_its_last_client_closes_it_gets_a_whole_one(
    durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new shards met the lock of the old ones, or were closed in their place."""

    async def life(seed: int) -> list[str]:
        with monkeypatch.context() as patch:
            world = World(seed)
            await world.begin(patch)
            queues, options = world.registry.queues, dict(STORE) if durable else {}
            await world.play([queues.open("q", 2, options, SEALED, "ana")])
            outcomes = await asyncio.wait_for(
                world.play([queues.leave("q", "ana", force=False), queues.open("q", 2, options, SEALED, "ben")]), 20
            )
            found = [f"{error!r}" for error in outcomes if isinstance(error, BaseException)]
            found += world.wrong({"ben"})
            await world.registry.close()
            return found

    violations = {seed: found for seed in range(10) if (found := asyncio.run(life(seed)))}
    assert not violations


@pytest.mark.parametrize("back", [True, False])
def test_queue_that_is_opened_while_all_workers_restart_waits_for_the_first_of_them(
    monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    """It was refused, "the cluster has no worker", a second before one came."""
    monkeypatch.setattr("dqlab.cluster.scheduler.queues.RESTARTED_IN", 30.0 if back else 0.05)

    async def at_once() -> None:
        """Pick each step as it comes."""

    async def scenario() -> dict[str, Any]:
        world = World(1)
        monkeypatch.setattr(world, "step", at_once)
        await world.begin(monkeypatch)
        for address in list(world.scheduler.workers):
            del world.scheduler.workers[address]
            world.registry.remove_worker(world.scheduler, address, stimulus_id="test")
        opening = asyncio.ensure_future(world.registry.queues.open("q", 1, {}, b"", "client"))
        await asyncio.sleep(0)
        assert not opening.done()
        if back:
            world.join()
        try:
            return await asyncio.wait_for(opening, 10)
        finally:
            await world.registry.close()

    if back:
        assert asyncio.run(scenario())["created"]
    else:
        with pytest.raises(NoWorkers):
            asyncio.run(scenario())
