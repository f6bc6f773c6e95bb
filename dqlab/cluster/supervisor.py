"""What becomes of a durable queue's shard whose worker is gone: it is made anew from its log, under the same name."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dqlab.errors import DqlabError

if TYPE_CHECKING:
    from dqlab.cluster.registry import Registry

__all__ = ["Entry", "Supervisor"]

logger = logging.getLogger("dqlab.registry")

REPLACEMENT_WAIT = 1.0
"""Seconds that a nanny is given to replace a worker, before its shards move to another one."""
TRY_AGAIN = 0.5
"""Seconds after which a shard that could not be made is tried again, on whatever workers there are then."""


@dataclass
class Entry:
    """One registered actor. `gone` says why it no longer answers, and never will."""

    name: str
    queue: str
    address: str
    key: str
    epoch: int
    host: str = ""
    """Name of its worker."""
    sealed: bytes = b""
    args: tuple[Any, ...] = ()
    """What it is made of, see `Registry.spawn`."""
    gone: str | None = None
    made: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its start has ended, well or not: nobody closes or calls what is still being made."""

    @property
    def durable(self) -> bool:
        """It is a shard that can be made anew."""
        return self.name.startswith("queue/") and "store" in self.args[3]


class Supervisor:
    """Makes durable shards anew, each until it succeeds, its log refuses, or its queue is closed.

    Their names stay, and whoever calls one meanwhile waits for it: see `Registry.resolve`.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._joined = asyncio.Event()

    def worker_came(self) -> None:
        """Note that a worker joined."""
        self._joined.set()

    def worker_left(self, entry: Entry) -> None:
        """Make a shard anew whose worker is gone, unless that is under way; returns at once."""
        if not entry.made.is_set():
            return
        entry.made.clear()
        entry.epoch += 1
        self._registry.in_background(self._recreate(entry))

    async def _recreate(self, entry: Entry) -> None:
        loop = asyncio.get_running_loop()
        began, lost = loop.time(), entry.address
        while self._registry.entries.get(entry.name) is entry:
            address = await self._place(entry, deadline=began + REPLACEMENT_WAIT)
            try:
                await self._registry.make_again(entry, address)
            except DqlabError as error:
                entry.gone = str(error)
                logger.warning("event=shard_refused name=%s worker=%s %s", entry.name, address, error)
                break
            except Exception as error:  # noqa: BLE001 - the worker may have died meanwhile
                logger.warning("event=shard_failed name=%s worker=%s %r", entry.name, address, error)
                await asyncio.sleep(TRY_AGAIN)
                continue
            took = loop.time() - began
            logger.warning("event=shard_moved name=%s from=%s to=%s seconds=%.2f", entry.name, lost, address, took)
            break
        entry.made.set()

    async def _place(self, entry: Entry, deadline: float) -> str:
        """Return the address of the worker that replaces the lost one, after some time of another; waits for one."""
        loop = asyncio.get_running_loop()
        while True:
            self._joined.clear()
            same = [ws.address for ws in self._registry.scheduler.workers.values() if str(ws.name) == entry.host]
            others = self._registry.plan().queues
            if same:
                return same[0]
            if others and loop.time() >= deadline:
                return others[int(entry.args[1]) % len(others)]
            try:
                await asyncio.wait_for(self._joined.wait(), max(0.0, deadline - loop.time()) or None)
            except TimeoutError:
                continue
