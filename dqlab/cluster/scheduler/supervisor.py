"""Recreates shards after their workers are gone, under the same names.

A shard recovers from its log. That of a transient one is on one machine, and waits for a worker there.
A log that has failed is opened again, on the same worker or another, with growing pauses while its disk fails.
"""

from __future__ import annotations

import asyncio
import logging

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.clients import Attachments
from dqlab.cluster.scheduler.state import ClusterState, Entry
from dqlab.cluster.transport.errands import WorkerLost
from dqlab.cluster.transport.parking import Bell
from dqlab.errors import DqlabError
from dqlab.log.errors import LogError, LogGone

logger = logging.getLogger("dqlab.registry")

REPLACEMENT_WAIT = 0.5
"""Seconds that a nanny has to replace a worker before another worker opens its shards."""
ENDS_WITHIN = 60.0
"""Seconds that a worker which has lost its actors may take to end."""
TRY_AGAIN = 0.5
"""Seconds before the next try to make a shard."""
TRIES = 3
"""Most tries to make a shard that fails for an unforeseen reason."""
LOOK_EVERY = 60.0
LONGEST_PAUSE = 60.0
"""Longest pause in seconds between two tries to open a failing log; pauses double from `TRY_AGAIN` on."""
STEADY = 60.0
"""Seconds after which a new failure of an open log, or a worker's death, does not count as a repetition."""
MOST_DEATHS = 20
"""Deaths of workers in a row, each within `STEADY`, after which a shard is given up."""
_DEADLY = (
    "its worker {worker} died, the last of {n} workers in a row that died within {seconds:.0f} s. A document that "
    "kills its process may run beside the queue: run it in a process of its own (executor='process'), or give queues "
    "a worker of their own, by three workers or more"
)


class Supervisor:
    """Recreates shards, retrying until the shard is made, its log refuses, or its queue is closed."""

    # Clear a shard's `made` to begin, with no await since the check that it was set, and set it at the end. So only one
    # task at a time recreates a shard, even if its worker dies and its log fails meanwhile. Callers wait for `made`.

    def __init__(self, state: ClusterState, actors: Actors, attachments: Attachments) -> None:
        self._state = state
        self._actors = actors
        self._attachments = attachments
        self._changed = Bell()
        self._ending: set[str] = set()
        """Workers that have lost their actors and are still connected."""

    def changed(self) -> None:
        """Wake all waits after a worker joined or a queue was closed."""
        self._changed.ring()

    async def place_comes(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for a worker that can host shards."""
        await self._changed.until(lambda: bool(self._state.plan().queues), timeout)

    def worker_left(self, worker: str) -> None:
        """Begin to recreate the shards of a worker that is gone or has lost its actors."""
        # A worker that is still listed is about to end: make nothing before that. Note it here instead of looking it up
        # later: another worker may have its address by then.
        if worker in self._state.scheduler.workers:
            self._ending.add(worker)
        elif worker in self._ending:
            self._ending.discard(worker)
            self._changed.ring()
        for entry in self._state.entries.values():
            if not entry.is_shard or entry.address != worker or entry.gone is not None or not entry.made.is_set():
                continue
            now = asyncio.get_running_loop().time()
            entry.deaths = entry.deaths + 1 if now - entry.stood <= STEADY else 1
            if entry.deaths >= MOST_DEATHS:
                entry.gone = _DEADLY.format(worker=worker, n=entry.deaths, seconds=STEADY)
                logger.error("event=shard_given_up name=%s worker=%s deaths=%d", entry.name, worker, entry.deaths)
                continue
            entry.made.clear()
            entry.epoch += 1
            entry.last, entry.left = worker, now
            self._state.in_background(self._replace(entry))

    async def _replace(self, entry: Entry) -> None:
        """Recreate a shard once its worker has ended, on the replacement if it comes soon."""
        await self._changed.until(lambda: entry.last not in self._ending or not self._wanted(entry), ENDS_WITHIN)
        await self._recreate(entry, REPLACEMENT_WAIT)

    def store_failed(self, entry: Entry, epoch: int, failure: str) -> None:
        """Begin to open a shard's failed log again, for each epoch once."""
        # Reports repeat a failure, and a late report of an earlier epoch must not end the log that is open now.
        if not entry.made.is_set() or entry.gone is not None or epoch <= entry.failed_epoch:
            return
        self._note_failure(entry, failure)
        entry.failed_epoch, entry.last = epoch, entry.address
        entry.made.clear()
        entry.epoch += 1
        self._state.in_background(self._reopen(entry))

    def _note_failure(self, entry: Entry, failure: str) -> None:
        """Record why a log fails."""
        now = asyncio.get_running_loop().time()
        # `left` is when the failing began: 30 s later, callers get the reason (`Actors.hopeless`). Keep it while the
        # log fails, and also if the log was open for less than a minute in between.
        if not entry.failure and (not entry.failures or now - entry.stood > STEADY):
            entry.failures, entry.left = 0, now
        entry.failure = failure

    async def _reopen(self, entry: Entry) -> None:
        logger.warning("event=store_failed name=%s worker=%s %s", entry.name, entry.address, entry.failure)
        await self._actors.hand_over(entry)  # else it would keep its lock
        await self._pause(entry)
        await self._recreate(entry, 0.0)

    async def _pause(self, entry: Entry) -> None:
        """Wait before opening a failed log, longer each time, while the shard is wanted."""
        pause = min(TRY_AGAIN * 2**entry.failures, LONGEST_PAUSE) if entry.failures else 0.0
        entry.failures += 1
        await self._changed.until(lambda: not self._wanted(entry), pause)

    def _wanted(self, entry: Entry) -> bool:
        return self._state.entries.get(entry.name) is entry and entry.queue in self._state.queues

    async def move(self, entry: Entry) -> None:
        """Begin to move a shard to another worker, and return once the old worker has released its log."""
        if not entry.made.is_set() or entry.gone is not None:
            return
        entry.made.clear()
        entry.epoch += 1
        entry.host = ""  # never back to the same worker
        await self._actors.hand_over(entry)
        self._state.in_background(self._recreate(entry, 0.0))

    def come_home(self) -> None:
        """Move shards from other workers back to the workers reserved for queues."""
        for entry in self._state.entries.values():
            if self._is_away(entry):
                self._state.in_background(self.move(entry))

    def _is_away(self, entry: Entry) -> bool:
        hosts = self._state.plan().queues
        here = entry.is_shard and entry.gone is None and entry.address not in hosts
        return here and not set(hosts).isdisjoint(self._state.hosts_for(entry))

    async def _recreate(self, entry: Entry, patience: float) -> None:
        """Recreate a shard, on its worker's replacement if one comes within `patience` seconds."""
        loop = asyncio.get_running_loop()
        began, lost, failed = loop.time(), entry.address, 0
        if not entry.failure and began - entry.stood > STEADY:
            entry.failures = 0  # the log has been in order since
        while (address := await self._place(entry, deadline=began + patience)) is not None:
            try:
                await self._actors.make_again(entry, address)
            except (WorkerLost, OSError) as error:  # its worker has died, or is unreachable
                logger.warning("event=shard_failed name=%s worker=%s %r", entry.name, address, error)
                await asyncio.sleep(TRY_AGAIN)
                continue
            except Exception as error:  # noqa: BLE001 - callers get any error as the reason
                logger.warning("event=shard_refused name=%s worker=%s %r", entry.name, address, error)
                if isinstance(error, LogError) and error.passing:
                    self._note_failure(entry, str(error))
                    entry.host = ""  # on any worker: the disk of that machine may have failed
                    entry.epoch += 1
                    await self._pause(entry)
                    continue
                failed += 1
                if isinstance(error, DqlabError) or failed == TRIES:
                    entry.gone = str(error) if isinstance(error, DqlabError) else f"it cannot be recreated: {error!r}"
                    entry.without_files = isinstance(error, LogGone)
                    break
                await asyncio.sleep(TRY_AGAIN)
                continue
            if address in self._state.scheduler.workers:  # else the new worker died too: try the next one
                took = loop.time() - began
                logger.warning("event=shard_moved name=%s from=%s to=%s seconds=%.2f", entry.name, lost, address, took)
                break
        if address is None:
            entry.gone = "its queue was closed while it was being recreated"
        entry.stood = loop.time()
        if entry.gone is None:
            entry.failure = ""
        entry.made.set()
        if address is not None and self._is_away(entry):
            # Its host has come back, and `come_home` passed over a shard that was being made.
            self._state.in_background(self.move(entry))
        if address is not None:
            await self._attachments.cut_off(entry.queue)  # for clients that left while it was being made

    async def _place(self, entry: Entry, deadline: float) -> str | None:
        """Wait for the lost worker's replacement, after `deadline` for any host, and return its address."""
        loop = asyncio.get_running_loop()

        def wanted() -> bool:
            return self._wanted(entry)

        def choice() -> str | None:
            same = self._state.addresses_of(entry.host)
            others = self._state.hosts_for(entry) if loop.time() >= deadline else ()
            return same[0] if same else others[int(entry.args[1]) % len(others)] if others else None

        while wanted() and choice() is None:
            left = deadline - loop.time()
            await self._changed.until(lambda: not wanted() or choice() is not None, left if left > 0 else LOOK_EVERY)
        return choice() if wanted() else None
