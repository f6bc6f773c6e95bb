"""A queue as seen from the scheduler, whose connections open neither answers nor errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.internals import NoSuchActor, Unreachable, call_actor, opened_bytes
from dqlab.cluster.transport.queue_calls import TRANSIENT, QueueCalls
from dqlab.errors import ActorGone, CallTimeout

if TYPE_CHECKING:
    from dqlab.cluster.scheduler.registry import Registry

__all__ = ["SchedulerCalls"]


class SchedulerCalls(QueueCalls):
    """Calls of the registry to an open queue's shards.

    Parameters
    ----------
    registry : Registry
    name : str
        The queue's name.
    """

    def __init__(self, registry: Registry, name: str) -> None:
        self._registry, self.name = registry, name
        self._count = int(registry.queues[name]["shards"])
        self.promise = str(registry.queues[name]["options"].get("store", {}).get("sync", TRANSIENT))

    @property
    def shards(self) -> int:
        """How many shards it has."""
        return self._count

    async def call(self, shard: int, call: str, body: bytes, *, timeout: float) -> bytes:
        """Call one shard with packed arguments; return its packed answer.

        Raises
        ------
        ActorGone
            There is nobody to answer.
        CallTimeout
            No answer in time; the call may still take effect.
        ActorFailed
            The shard refused, and says why.
        """
        name = f"queue/{self.name}/{shard}"
        found = await self._registry.resolve(name)
        if found["gone"] is not None:
            raise ActorGone(name=name, reason=found["gone"])
        if found["address"] is None:  # it is being recreated, and that takes its time
            raise CallTimeout(name=name, call=call, seconds=timeout)
        try:
            async with asyncio.timeout(timeout):
                work = call_actor(self._registry.scheduler.rpc, found["address"], found["key"], call, body)
                return opened_bytes(await work)
        except (TimeoutError, Unreachable):
            raise CallTimeout(name=name, call=call, seconds=timeout) from None
        except NoSuchActor:
            raise ActorGone(name=name, reason="its worker no longer holds it") from None

    async def keep_note(self, run: bytes, facts: dict[str, Any] | None) -> None:
        """Keep facts about a run; see `RunNotes.note`."""
        await self._registry.run_notes.note(self.name, run, facts)
