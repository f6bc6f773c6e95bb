"""A stable handle on an actor: its name, and where it was last seen.

Calls go over raw RPC with a time limit, never through Dask's Actor proxy, which waits forever
when the key is gone. A handle gets its actor's place from the scheduler's registry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed import Client, Worker

from dqlab.cluster.transport.internals import (
    NoSuchActor,
    NotConnected,
    Unreachable,
    call_actor,
    call_actor_proxied,
    is_shut,
    scheduler_rpc,
)
from dqlab.cluster.transport.limits import limited
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, CallTimeout, SchedulerGone, StoreFailed
from dqlab.log import Fenced, LogClosed, LogFailed

__all__ = ["Place", "Ref", "Replaced"]

RPC_TIMEOUT = 30.0
NEWS_WAIT = 2.0
"""Seconds the scheduler is given to notice that a worker has died."""
NEWS_EVERY = 0.1
CONNECT_FOR = 0.5
"""Seconds to try to connect before the registry is asked whether the actor is still there."""
REACH_FOR = 5.0
"""Seconds after which an actor counts as out of reach that is still there by what the registry knows."""
RESOLVE_WAIT = 10.0
"""Seconds that the registry keeps a question for what is being recreated."""


class Replaced(Exception):
    """Another actor has the name of the one that was meant."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor lives. No other actor has its key, not even one that had its name before."""

    address: str
    key: str
    epoch: int


class Ref:
    """Call an actor by name.

    Parameters
    ----------
    name : str
        As registered: "queue/NAME/SHARD" or "consumer/QUEUE/NUMBER".
    owner : Client or Worker
        Whose connections are used.
    direct : bool, default True
        False: call through the scheduler, when the workers cannot be reached from here.
    introduce : callable, optional
        Packs what a recreated actor gets before anything else, as its call "reclaim".
    """

    def __init__(
        self,
        name: str,
        owner: Client | Worker,
        *,
        direct: bool = True,
        introduce: Callable[[], bytes] | None = None,
    ) -> None:
        self.name = name
        self._introduce = introduce
        self._known: str | None = None
        """Dask key of the actor that knows us."""
        self._introducing = asyncio.Lock()
        self._direct = direct
        self._owner = owner
        self._place: Place | None = None

    def __repr__(self) -> str:
        return f"Ref({self.name!r})"

    async def place(self) -> Place:
        """Return where the actor lives, asking the registry when that is not known.

        Raises
        ------
        ActorGone
            No actor of that name is registered, or its worker died. `StoreFailed`: its log cannot be opened.
        CallTimeout
            It is being recreated, and is not yet there after 10 s.
        SchedulerGone
            The registry does not answer.
        """
        self._check_open()
        if self._place is None:
            try:
                async with limited(RPC_TIMEOUT):
                    found: dict[str, Any] = await scheduler_rpc(self._owner).dq_resolve(name=self.name)
            except (OSError, TimeoutError) as error:
                raise SchedulerGone(
                    address=_scheduler_address(self._owner), reason=str(error) or "no answer"
                ) from error
            if found["gone"] is not None:
                raise (StoreFailed if found.get("failed") else ActorGone)(name=self.name, reason=found["gone"])
            if found["address"] is None:  # it is being recreated, and that takes its time
                raise CallTimeout(name=self.name, call="resolve", seconds=RESOLVE_WAIT)
            self._place = Place(found["address"], found["key"], found["epoch"])
        return self._place

    async def call(
        self,
        function: str,
        body: Packed | Callable[[], Packed],
        *,
        timeout: float = RPC_TIMEOUT,
        key: str | None = None,
    ) -> Packed:
        """Call one async method with packed arguments; return its packed answer.

        Parameters
        ----------
        body : bytes, Apart or callable
            The arguments, or what packs them: called when there is a connection, and again when the call is repeated
            where the actor is now.
        timeout : float, default 30
            Seconds for the answer.
        key : str, optional
            Of the one actor that is meant, also when another one has its name now.

        Raises
        ------
        CallTimeout
            No answer within `timeout` seconds; the call may still take effect.
        ActorGone, SchedulerGone
            The actor, or the scheduler, is gone.
        Replaced
            There is another actor than the one that was meant.
        DqlabError
            What the method itself raised.
        """
        loop, found = asyncio.get_running_loop(), None
        while True:
            place = await self._meant(key)
            if place != found:
                found, since = place, loop.time()
            try:
                async with limited(timeout):
                    return await self._called(place, function, body)
            except TimeoutError:
                self._place = None
                raise CallTimeout(name=self.name, call=function, seconds=timeout) from None
            except (NoSuchActor, Fenced, LogClosed, LogFailed) as error:  # another actor took its place, or will
                if not await self._moved(place):
                    gone = ActorGone(name=self.name, reason="its worker no longer holds it")
                    raise gone if isinstance(error, NoSuchActor) else error from None
            except RuntimeError:
                self._check_open()
                raise
            except NotConnected:
                self._place = None
                if await self.place() == place:
                    if loop.time() - since > REACH_FOR:
                        raise CallTimeout(name=self.name, call=function, seconds=REACH_FOR) from None
                    await asyncio.sleep(NEWS_EVERY)
            except Unreachable:
                if not await self._moved(place):
                    raise CallTimeout(name=self.name, call=function, seconds=NEWS_WAIT) from None

    async def _meant(self, key: str | None) -> Place:
        """Return where the actor lives, if it is the one that is meant."""
        place = await self.place()
        if key not in (None, place.key):
            raise Replaced(self.name)
        return place

    def _check_open(self) -> None:
        """Raise `SchedulerGone` when this process has closed its connections for good."""
        if is_shut(self._owner):
            raise SchedulerGone(address=_scheduler_address(self._owner), reason="this process closes its connections")

    async def _moved(self, place: Place) -> bool:
        """Wait a little for the registry to learn what became of an actor whose worker does not answer.

        Raises
        ------
        ActorGone
            Its worker died.
        """
        deadline = asyncio.get_running_loop().time() + NEWS_WAIT
        while True:
            self._place = None
            if await self.place() != place:
                return True
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(NEWS_EVERY)

    async def _become_known(self, place: Place, introduce: Callable[[], bytes]) -> None:
        async with self._introducing:
            if self._known not in (None, place.key):  # the first one has nothing to learn
                await self._send(place, "reclaim", introduce())
            self._known = place.key

    async def _called(self, place: Place, function: str, body: Packed | Callable[[], Packed]) -> Packed:
        if self._introduce is not None and place.key != self._known:
            await self._become_known(place, self._introduce)
        return await self._send(place, function, body)

    async def _send(self, place: Place, function: str, body: Packed | Callable[[], Packed]) -> Packed:
        if self._direct:
            pool = self._owner.rpc
            return await call_actor(pool, place.address, place.key, function, body, connecting=CONNECT_FOR)
        packed = body() if callable(body) else body
        return await call_actor_proxied(scheduler_rpc(self._owner), place.address, place.key, function, packed)


def _scheduler_address(owner: Client | Worker) -> str:
    return str(getattr(owner.scheduler, "address", "?"))
