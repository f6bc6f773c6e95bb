"""What becomes of a durable queue's shard whose worker is gone: it is made anew from its log, under the same name."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dqlab.cluster.errands import WorkerLost
from dqlab.cluster.parking import Bell
from dqlab.errors import DqlabError

if TYPE_CHECKING:
    from dqlab.cluster.registry import Registry

__all__ = ["Entry", "Supervisor"]

logger = logging.getLogger("dqlab.registry")

REPLACEMENT_WAIT = 1.0
"""Seconds that a nanny is given to replace a worker, before its shards move to another one."""
TRY_AGAIN = 0.5
"""Seconds after which a shard that could not be made is tried again, on whatever workers there are then."""
TRIES = 3
"""How often what fails for a reason nobody thought of is tried."""
LOOK_EVERY = 60.0


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
    """The pickled class of what is registered, and what that is made with."""
    gone: str | None = None
    made: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when its start has ended, well or not: nobody closes or calls what is still being made."""

    @property
    def is_shard(self) -> bool:
        """It is a shard of a queue, and not a consumer."""
        return self.name.startswith("queue/")

    @property
    def durable(self) -> bool:
        """It is a shard that can be made anew."""
        return self.is_shard and "store" in self.args[3]


class Supervisor:
    """Makes durable shards anew, each until it succeeds, its log refuses, or its queue is closed.

    Their names stay, and whoever calls one meanwhile waits for it: see `Registry.resolve`.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._changed = Bell()

    def changed(self) -> None:
        """Note that a worker joined or a queue was closed."""
        self._changed.ring()

    def worker_left(self, entry: Entry) -> None:
        """Make a shard anew whose worker is gone, unless that is under way; returns at once."""
        if not entry.made.is_set():
            return
        entry.made.clear()
        entry.epoch += 1
        self._registry.in_background(self._recreate(entry, REPLACEMENT_WAIT))

    async def move(self, entry: Entry) -> None:
        """Bring a shard to another worker, from one that will leave; returns once the old one has let go of its log."""
        if not entry.made.is_set() or entry.gone is not None:
            return
        entry.made.clear()
        entry.epoch += 1
        await self._registry.hand_over(entry)
        self._registry.in_background(self._recreate(entry, 0.0))

    async def _recreate(self, entry: Entry, patience: float) -> None:
        """Make a shard anew; `patience` in seconds is how long a replacement of its worker is waited for."""
        loop = asyncio.get_running_loop()
        began, lost, failed = loop.time(), entry.address, 0
        while (address := await self._place(entry, deadline=began + patience)) is not None:
            try:
                await self._registry.make_again(entry, address)
            except (WorkerLost, OSError) as error:  # it died meanwhile, or is out of reach
                logger.warning("event=shard_failed name=%s worker=%s %r", entry.name, address, error)
                await asyncio.sleep(TRY_AGAIN)
                continue
            except Exception as error:  # noqa: BLE001 - whatever it is, callers are told
                failed += 1
                logger.warning("event=shard_refused name=%s worker=%s %r", entry.name, address, error)
                if isinstance(error, DqlabError) or failed == TRIES:
                    entry.gone = str(error) if isinstance(error, DqlabError) else f"it cannot be made anew: {error!r}"
                    break
                await asyncio.sleep(TRY_AGAIN)
                continue
            if address in self._registry.scheduler.workers:  # else it died once more, before anybody was told
                took = loop.time() - began
                logger.warning("event=shard_moved name=%s from=%s to=%s seconds=%.2f", entry.name, lost, address, took)
                break
        entry.made.set()
        await self._registry.attachments.cut_off(entry.queue)  # of clients that left while it was being made

    async def _place(self, entry: Entry, deadline: float) -> str | None:
        """Return the address of the worker that replaces the lost one, from `deadline` on of another; waits for one.

        None when the shard is wanted no more.
        """
        loop = asyncio.get_running_loop()

        def wanted() -> bool:
            return self._registry.entries.get(entry.name) is entry

        def choice() -> str | None:
            same = self._registry.addresses_of(entry.host)
            others = self._registry.plan().queues if loop.time() >= deadline else ()
            return same[0] if same else others[int(entry.args[1]) % len(others)] if others else None

        while wanted() and choice() is None:
            left = deadline - loop.time()
            await self._changed.until(lambda: not wanted() or choice() is not None, left if left > 0 else LOOK_EVERY)
        return choice() if wanted() else None
