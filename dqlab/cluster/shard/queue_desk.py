"""What every part of a queue actor stands on: the shard, its frames, its books, and what follows each change."""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from distributed import get_worker

from dqlab.clock import SystemClock
from dqlab.cluster.shard.durable import open_durable
from dqlab.cluster.shard.memory import MemoryStore, Store
from dqlab.cluster.shard.recalls import Recalls
from dqlab.cluster.shard.upkeep import Upkeep
from dqlab.cluster.transport.parking import Bell, ParkingLot
from dqlab.cluster.transport.reporter import Reporter
from dqlab.cluster.transport.wire import pack
from dqlab.errors import DqlabError
from dqlab.log import DiskFull, NoDescriptors
from dqlab.rules.book import Book
from dqlab.rules.holding_views import holding
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.past import Past, recall
from dqlab.rules.retry import Retry
from dqlab.rules.shard import Shard
from dqlab.store.compaction import Compacted

__all__ = ["SWITCH_S", "QueueDesk"]

SWITCH_S = 0.0005
"""How long another thread may hold the interpreter while messages wait: checkpoints and compaction are packed there."""
RETURN_S = 1.0
"""How long a shard that was made anew waits for consumers; one may be in a function that holds its interpreter."""
CHUNK_S = 0.075
"""Seconds of work in one lease: long enough to hide the network, short enough to share out fairly."""


class QueueDesk:
    """State of one shard of one queue, and what follows every change of it.

    Parameters
    ----------
    name : str
        The queue's name.
    index : int
        Which shard, from 0.
    epoch : int
        Grows with each re-creation of the shard.
    options : dict
        Fields of `QueueOptions`; `results_memory`, `results_maxsize` in bytes; and `store`, for a durable
        queue: see `open_durable`.
    clients : collection of str
        Those that are alive: what others were submitting was cut off.
    past : Past, optional
        What is known of the epochs before this one, which were in memory.
    consumers : collection of str
        Those that served the epoch before and live: nothing is leased until they have said what they have in hand,
        for at most a second.

    Attributes
    ----------
    closed : bool
        It answers nothing any more.
    """

    def __init__(
        self,
        name: str,
        index: int,
        epoch: int,
        options: dict[str, Any],
        clients: Collection[str] = (),
        past: Past | None = None,
        consumers: Collection[str] = (),
    ) -> None:
        self._identity = name, index, epoch
        self._past = past
        self._clients = clients
        self._returning = set(consumers)
        self._options = options
        self._clock = SystemClock()
        self._lot = ParkingLot()
        self._recalls = Recalls()
        self._changed = Bell()
        self._timer: asyncio.TimerHandle | None = None
        self._compacting: asyncio.Task[Compacted] | None = None
        self._puts_waiting = 0
        self._reports, self._whole = 0, True
        self._reported: set[bytes] = set()
        """Runs that the scheduler knows of."""
        self.closed = False
        self._born = self._begin = 0
        """Epoch, and first id, of a shard that knows nothing of the epochs before; of a durable one, 0."""

    async def start(self, body: bytes) -> bytes:
        """Open what was stored, and bind to this worker's event loop; the constructor ran in a thread."""
        await self._open()
        try:
            sys.setswitchinterval(min(sys.getswitchinterval(), SWITCH_S))
            self._worker = get_worker()
            self._reporter = Reporter(self._worker, self.news)
            self._reporter.touch()
            self._cut_off(self._clients)
            self._dispatch()
        except BaseException:
            await self._store.close()  # nobody will ever ask for that
            raise
        return pack({"epoch": self.shard.epoch})

    async def _open(self) -> None:
        name, index, epoch = self._identity
        options = dict(self._options)
        memory, maxsize = options.pop("results_memory"), options.pop("results_maxsize")
        store = options.pop("store", None)
        rules = QueueOptions(**options | {"retry": Retry(**options["retry"])})
        self._store: Store
        self._upkeep: Upkeep | None = None
        if store is None:
            self._store = kept = MemoryStore(memory, maxsize)
            shard = Shard(
                name, index, epoch=epoch, options=rules, clock=self._clock, random=random.Random(), journal=kept
            )
            self.ledger = Ledger(shard)
            if self._past is not None:
                recall(self.ledger, self._past)
            self._born, self._begin = epoch, shard.next_id
        else:
            patience = RETURN_S if self._returning else 0.0
            durable, self._store = await open_durable(name, index, rules, store, self._clock, patience)
            self.ledger, self._upkeep = durable.ledger, Upkeep(durable)
            self._store.recorded, self._store.turned = self._upkeep.recorded, self._store_turned
        self.shard = self.ledger.shard
        if self._returning:
            asyncio.get_running_loop().call_later(RETURN_S, self._wait_no_longer)

    def _cut_off(self, alive: Collection[str], given_up: bytes | None = None) -> int:
        """Seal what clients were submitting that are not alive, and one run that its own client gave up."""
        seals = self.ledger.cut_off(alive, given_up)
        for seal in seals:
            self.ledger.obey("seal", None, {"seal": seal})
        if seals:
            self._dispatch()
        return len(seals)

    @property
    def books(self) -> dict[bytes, Book]:
        """The books by run."""
        return self.ledger.books

    def report(self) -> dict[str, Any]:
        """Return absolute totals of this shard, with all its lanes."""
        return self._totals(self.books)

    def news(self) -> dict[str, Any]:
        """Return absolute totals of this shard for the scheduler, with the lanes that changed since the last time.

        ``number`` counts these reports from 1. The first is ``whole``: it has all lanes; so is the next one after a
        call of `resend`, by which the scheduler asks when a number is missing. ``dropped`` are runs that are gone.
        """
        self.ledger.note_functions()
        changed, self.ledger.news = self.ledger.news, {}
        whole, self._whole = self._whole, False
        runs = self.books if whole else [run for run in changed if run in self.books]
        self._reports += 1
        self._reported.update(runs)
        dropped: list[str] = []
        if len(self._reported) > len(self.books):
            gone = [run for run in self._reported if run not in self.books]
            self._reported.difference_update(gone)
            dropped = [run.hex() for run in gone]
        return self._totals(runs) | {"number": self._reports, "whole": whole, "dropped": dropped}

    async def resend(self, body: bytes) -> bytes:
        """Let the next report have all lanes: the scheduler has missed one."""
        self._whole = True
        self._reporter.touch()
        return pack({})

    def _totals(self, runs: Iterable[bytes]) -> dict[str, Any]:
        shard = self.shard
        return {
            "kind": "shard",
            "queue": shard.name,
            "shard": shard.index,
            "epoch": shard.epoch,
            "next_id": shard.next_id,
            "at": self._clock.wall(),
            "state": "draining" if shard.draining else "paused" if shard.paused else "running",
            "lag": shard.lag(),
            "maxsize": shard.options.maxsize,
            "consumers": len(self._lot.known),
            "stored": self._store.nbytes,
            "puts_waiting": self._puts_waiting,
            "failure": "" if self._store.failure is None else str(self._store.failure),
            "short": "" if self._store.short is None else str(self._store.short),
            "trouble": self._store.trouble,
            "storage": self._upkeep.report() if self._upkeep is not None else None,
            "lanes": [self.books[run].report(run) for run in runs],
            **holding(shard),
        }

    def _store_turned(self) -> None:
        """Go on when there is room again; when the store has failed, raise that in all who wait here, now and later."""
        if self._store.failure is not None:
            self._changed.give_up(self._store.failure)
            self._reporter.touch()
        else:
            self._dispatch()

    async def _until(self, condition: Callable[[], bool], wait: float) -> bool:
        """Wait until a condition holds; return whether it does after `wait` seconds.

        Raises
        ------
        LogFailed, Fenced
            What is in memory may be ahead of the log, and stays there.
        """
        holds = await self._changed.until(condition, wait)
        if self._store.failure is not None:
            raise self._store.failure
        return holds

    async def _is_safe(self, wait: float) -> bool:
        """Return whether what was kept so far is as safe as the store promises; wait for that, 0.25 s at least.

        A disk without room makes everybody wait; it is no reason to give up.
        """
        try:
            async with asyncio.timeout(max(wait, 0.25)):
                await self._store.durable()
        except (TimeoutError, DiskFull, NoDescriptors):
            return False
        return True

    def _wait_no_longer(self) -> None:
        self._returning.clear()
        self._dispatch()

    # --- after every change -----------------------------------------------------------------

    def _dispatch(self) -> None:
        """Do what the rules ask for, hand out messages, wake who waits, set the alarm.

        While the disk is full nothing is handed out: outcomes that cannot be written would fill the memory.
        """
        if self.closed or self._store.failure is not None:
            return
        self.shard.tick()
        self._halt_failing()
        self._apply_effects()
        for call in self._lot.hungry() if not self._returning and self._store.short is None else ():
            _, want, at_least = call.credit
            lease = self.shard.lease(call.consumer, want, budget=CHUNK_S, at_least=at_least)
            if lease is not None:
                self._lot.serve(call, lease)
            elif not any(lane.suspects for lane in self.shard.activity.alive()):
                break  # with suspects it depends on who asks; else there is nothing for the others either
        again = self._recalls.consider(self.shard, self._lot)
        self.ledger.note_ends()
        self._store.noted()
        self._changed.ring()
        self._reporter.touch()
        self._set_alarm(again)

    def _halt_failing(self) -> None:
        """Pause what fails throughout; while the log takes nothing, the next change asks again."""
        if self._store.short is None:
            with suppress(DqlabError):
                for run in self.ledger.halt_failing():
                    self._give_back_untouched(run)

    def _give_back_untouched(self, run: bytes | None) -> None:
        for lease in list(self.shard.leases.values()):
            if run in (None, lease.run):
                self._lot.order(lease.consumer, op="give_back", lease=lease.id, n=1 << 30)

    def _apply_effects(self) -> None:
        effects = self.shard.effects
        while effects:
            revoked = effects.popleft()
            self._lot.order(revoked.consumer, op="cancel", lease=revoked.lease_id, ids=list(revoked.ranges))

    def _set_alarm(self, again: float | None) -> None:
        """Dispatch once more when time brings something, at the latest in `again` seconds."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.shard.next_deadline()
        if due is not None or again is not None:
            now = self._clock.monotonic()
            delay = max(0.0, min(due if due is not None else math.inf, now + (again or math.inf)) - now)
            self._timer = asyncio.get_running_loop().call_later(delay, self._dispatch)
