"""Calls an actor by its name, wherever it lives.

A reference gets the actor's place from the scheduler's registry, and asks again when the actor has moved. Calls are raw
RPC with a time limit, never Dask's Actor proxy, which waits forever when the key is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import ActorGone, CallTimeout, SchedulerGone
from dqlab.log.errors import Fenced, LogClosed, LogFailed

LATE = 1.0
"""Most seconds that a timer may be late. Later than that, this process was stopped."""
MORE = 10.0
"""Most seconds that a wait is then extended by."""


class Limit:
    """A limit in seconds that calls `then` when it is over, extended if the event loop stood still at its end."""

    # Make and use it on the event loop only.

    def __init__(self, seconds: float, then: Callable[[], object] = lambda: None) -> None:
        self.over = False
        self._loop, self._then = asyncio.get_running_loop(), then
        self._more = min(seconds, MORE)
        self._begin(seconds)

    def __enter__(self) -> Limit:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _begin(self, seconds: float) -> None:
        self._due = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._due, self._ring)

    def _ring(self) -> None:
        if self._loop.time() - self._due > LATE:
            self._begin(self._more)
        else:
            self.over = True
            self._then()


@asynccontextmanager
async def limited(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError when a block takes longer than a `Limit`, like `asyncio.timeout`."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as within:
        with Limit(seconds, lambda: within.reschedule(loop.time())):
            yield


RPC_TIMEOUT = 30.0
NEWS_WAIT = 2.0
"""Seconds in which the scheduler should notice that a worker has died."""
NEWS_EVERY = 0.1
CONNECT_FOR = 0.5
"""Seconds to try to connect before asking the registry whether the actor is still there."""
REACH_FOR = 5.0
"""Seconds without a connection after which an actor counts as out of reach, though the registry still has it there."""
RESOLVE_WAIT = 10.0
"""Seconds that the registry waits for an actor that is being recreated before it answers."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an actor lives."""

    address: str
    key: str
    """Unique: an earlier or later actor of the same name has another key."""
    epoch: int


class Ref:
    """Calls an actor by its registered name, "queue/NAME/SHARD" or "consumer/QUEUE/NUMBER"."""

    # Calls use the connections of `owner`, or without `direct` those of the scheduler, where workers cannot be reached.
    # `introduce` packs the arguments of "reclaim", the first call that a recreated actor must get. With `opening`, the
    # queue counts as gone once it was closed, even if another one was opened under its name.

    def __init__(
        self,
        name: str,
        owner: Client | Worker,
        *,
        direct: bool = True,
        opening: str = "",
        introduce: Callable[[], bytes] | None = None,
    ) -> None:
        self.name = name
        self._introduce = introduce
        self._known: str | None = None
        """Key of the actor that got our introduction."""
        self._introducing = asyncio.Lock()
        self._direct = direct
        self._opening = opening
        self._owner = owner
        self._place: Place | None = None

    def __repr__(self) -> str:
        return f"Ref({self.name!r})"

    async def place(self) -> Place:
        """Return where the actor lives, or raise ActorGone, CallTimeout or SchedulerGone."""
        self._check_open()
        if self._place is None:
            try:
                async with limited(RPC_TIMEOUT):
                    found: dict[str, Any] = await scheduler_rpc(self._owner).dq_resolve(
                        name=self.name, opening=self._opening
                    )
            except (OSError, TimeoutError) as error:
                raise SchedulerGone(
                    address=_scheduler_address(self._owner), reason=str(error) or "no answer"
                ) from error
            if found["gone"] is not None:
                why = {"name": self.name, "reason": found["gone"], "without_files": found["without_files"]}
                if found["failed"]:
                    raise ActorGone(how="cannot be opened", left=ActorGone.FAILED, **why)
                raise ActorGone(how="is lost", left=ActorGone.LOST, **why) if found["lost"] else ActorGone(**why)
            if found["address"] is None:  # it is still being recreated
                raise CallTimeout(name=self.name, call="resolve", seconds=RESOLVE_WAIT)
            self._place = Place(found["address"], found["key"], found["epoch"])
        return self._place

    async def call(
        self,
        function: str,
        body: Packed | Callable[[], Packed],
        *,
        timeout: float = RPC_TIMEOUT,
    ) -> Packed:
        """Call one async method with packed arguments and return its packed answer, or raise the method's error.

        Raise CallTimeout (the call may still take effect), ActorGone or SchedulerGone.
        """
        # A callable `body` packs the arguments once there is a connection, and again each time that the call is
        # repeated at the actor's new place.
        loop, found = asyncio.get_running_loop(), None
        while True:
            place = await self.place()
            if place != found:
                found, since = place, loop.time()
            try:
                async with limited(timeout):
                    await self._become_known(place)
                    return await self._send(place, function, body)
            except TimeoutError:
                self._place = None
                raise CallTimeout(name=self.name, call=function, seconds=timeout) from None
            except (NoSuchActor, Fenced, LogClosed, LogFailed) as error:  # another actor has its place, or soon will
                if not await self._moved(place):
                    gone = ActorGone(name=self.name, reason="its worker no longer holds it")
                    raise gone if isinstance(error, NoSuchActor) else error from None
            except RuntimeError:  # Dask's pool raises it when this process is closing
                self._check_open()
                raise
            except NotConnected:  # nothing was sent, so to repeat is safe
                self._place = None
                if await self.place() == place:
                    if loop.time() - since > REACH_FOR:
                        raise CallTimeout(name=self.name, call=function, seconds=REACH_FOR) from None
                    await asyncio.sleep(NEWS_EVERY)
            except Unreachable:  # the call may have taken effect; repeated only at another place
                if not await self._moved(place):
                    raise CallTimeout(name=self.name, call=function, seconds=NEWS_WAIT) from None

    def _check_open(self) -> None:
        """Raise SchedulerGone if this process has closed its connections for good."""
        if is_shut(self._owner):
            raise SchedulerGone(address=_scheduler_address(self._owner), reason="this process closes its connections")

    async def _moved(self, place: Place) -> bool:
        """Wait up to `NEWS_WAIT` for the registry to name another place, and return whether it did."""
        deadline = asyncio.get_running_loop().time() + NEWS_WAIT
        while True:
            self._place = None
            if await self.place() != place:
                return True
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(NEWS_EVERY)

    async def _become_known(self, place: Place) -> None:
        if self._introduce is None or place.key == self._known:
            return
        async with self._introducing:
            if self._known not in (None, place.key):  # the first actor has lost nothing, so nothing to reclaim
                await self._send(place, "reclaim", self._introduce())
            self._known = place.key

    async def _send(self, place: Place, function: str, body: Packed | Callable[[], Packed]) -> Packed:
        if self._direct:
            pool = self._owner.rpc
            return await call_actor(pool, place.address, place.key, function, body, connecting=CONNECT_FOR)
        packed = body() if callable(body) else body
        return await call_actor_proxied(scheduler_rpc(self._owner), place.address, place.key, function, packed)


def _scheduler_address(owner: Client | Worker) -> str:
    return str(getattr(owner.scheduler, "address", "?"))
