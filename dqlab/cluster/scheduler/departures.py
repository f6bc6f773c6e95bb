"""Workers that leave: what they hold moves elsewhere first; workers that hang are ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from distributed.scheduler import WorkerState

from dqlab.cluster.scheduler.beat import LOOK_EVERY, Beat, patience
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.deadlines import Deadlines
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.scheduler.supervisor import Supervisor
from dqlab.cluster.transport.internals import kill_worker, take_over_retiring
from dqlab.cluster.worker.walltime import JobEnd

__all__ = ["Departures"]

logger = logging.getLogger("dqlab.registry")

KILL_TIMEOUT = 2.0
LOOK_AT_DEADLINES = 1.0
LEAVING_S = 60.0
"""Seconds after which a worker that was to be retired and is still there is used again."""


class Departures:
    """Watches for workers that hang or whose jobs end, and acts before workers are retired.

    Attributes
    ----------
    retired : set of str
        Names of workers that were retired for good.
    deadlines : Deadlines
        When the jobs of workers end.
    """

    def __init__(self, state: ClusterState, consumer_sets: ConsumerSets, supervisor: Supervisor) -> None:
        self._state = state
        self._consumer_sets = consumer_sets
        self._supervisor = supervisor
        self._beat = Beat()
        self.retired: set[str] = set()
        self.deadlines = Deadlines()

    def start(self) -> None:
        """Begin; every way to retire a worker goes through here from now on."""
        scheduler = self._state.scheduler
        take_over_retiring(scheduler, self.retire)
        scheduler.stream_handlers["dq-beat"] = self.heard
        scheduler.stream_handlers["dq-deadline"] = self.told_deadline
        self._state.in_background(self._watch())
        self._state.in_background(self._watch_deadlines())
        self._state.collector.known.leaving = self.leave_soon

    # --- workers that are retired -----------------------------------------------------------

    async def retire(
        self, workers: Collection[Any] | None = None, names: Collection[Any] | None = None, **options: Any
    ) -> Any:
        """Retire workers as Dask does, after their shards and consumers have moved elsewhere.

        A worker with a transient shard, which cannot be moved, keeps everything: Dask refuses to retire it. In
        `workers`, Dask's own clusters pass names, which Dask ignores, and close those workers themselves.
        """
        scheduler = self._state.scheduler
        if workers is None and names is None:
            chosen = {key: options.pop(key) for key in _SELECTING & options.keys()}
            workers = scheduler.workers_to_close(**chosen)
        meant = {str(one) for one in (workers if workers is not None else names) or ()}
        chosen_ones = {at: state for at, state in scheduler.workers.items() if at in meant or str(state.name) in meant}
        if options.get("close_workers"):
            self.retired |= {str(state.name) for state in chosen_ones.values()}
        await self._empty(chosen_ones)
        known: dict[str, Any] = {"workers": list(workers)} if workers is not None else {"names": list(names or ())}
        return await scheduler.retire_workers(**known, **options)

    async def _empty(self, workers: Collection[str]) -> None:
        entries = list(self._state.entries.values())
        kept = {entry.address for entry in entries if entry.is_shard and not entry.durable and entry.gone is None}
        going = {address for address in workers if address not in kept}
        for address in set(workers) - going:
            logger.info("event=worker_kept worker=%s reason=transient_shard", address)
        self._leave(going)
        await self._consumer_sets.leave(going)
        shards = [entry for entry in entries if entry.durable and entry.address in going]
        await asyncio.gather(*(self._supervisor.move(entry) for entry in shards))

    def restarting(self) -> None:
        """Make nothing more on the workers of today: Dask replaces them."""
        self._leave(self._state.scheduler.workers)

    def _leave(self, workers: Collection[str]) -> None:
        self._state.leaving |= set(workers)
        asyncio.get_running_loop().call_later(LEAVING_S, self._stays_after_all, frozenset(workers))

    def _stays_after_all(self, workers: Collection[str]) -> None:
        if self._state.leaving & set(workers):
            self._state.leaving -= set(workers)
            self._consumer_sets.worker_came()
            self._supervisor.changed()

    def left(self, worker: str) -> None:
        """Forget a worker that is gone."""
        self._state.leaving.discard(worker)
        self.deadlines.forget(worker)

    # --- workers whose jobs end ---------------------------------------------------------------

    def told_deadline(self, worker: str, left: float, drain: float) -> None:
        """Record when a worker's job ends; a stream handler."""
        state = self._state.scheduler.workers.get(worker)
        name = worker if state is None else str(state.name)
        self.deadlines.told(worker, name, JobEnd(left, drain), asyncio.get_running_loop().time())

    def leave_soon(self, within: float) -> tuple[int, float]:
        """Return how many workers leave within `within` seconds because their jobs end, and when the first one does."""
        return self.deadlines.soon(asyncio.get_running_loop().time(), within)

    async def _watch_deadlines(self) -> None:
        loop, collector, told = asyncio.get_running_loop(), self._state.collector, 0
        while True:
            await asyncio.sleep(LOOK_AT_DEADLINES)
            if len(self.deadlines) or told:
                self.deadlines.longest = collector.known.longest()
                before, (told, _) = told, self.leave_soon(collector.known.thresholds.leaving)
                if told != before:
                    collector.touch()
                for worker in self.deadlines.due(loop.time(), self._state.leaving):
                    self._state.leaving.add(worker)
                    self._state.in_background(self._leave_in_time(worker))

    async def _leave_in_time(self, worker: str) -> None:
        """Wind down a worker's consumers, move its shards, and end it."""
        state, loop = self._state, asyncio.get_running_loop()
        patience = self.deadlines.patience(worker, loop.time())
        logger.warning("event=job_ends worker=%s patience=%.0f", worker, patience)
        self._supervisor.changed()
        if state.plan().queues:  # else the shards stay as long as possible
            entries = [entry for entry in state.entries.values() if entry.durable and entry.address == worker]
            await asyncio.gather(*(self._supervisor.move(entry) for entry in entries))
        await self._consumer_sets.wind_down(worker, patience)
        await self._supervisor.place_comes(self.deadlines.patience(worker, loop.time()))
        if worker in state.scheduler.workers:
            await self.retire(workers=[worker], close_workers=True, remove=True)

    # --- workers that hang ------------------------------------------------------------------

    def heard(self, worker: str) -> None:
        """Record a worker's beat; a stream handler."""
        self._beat.heard(worker, asyncio.get_running_loop().time())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                self._state.collector.look()
            except Exception:  # a figure may be wrong; hanging workers are looked for anyway
                logger.exception("event=collector_look_failed")
            for worker, silence in self.look(loop.time()).items():
                logger.warning("event=worker_hung worker=%s silent=%.1f", worker, silence)
                try:
                    await self._end(worker)
                except Exception:  # whatever it was, the other workers are still watched
                    logger.exception("event=end_failed worker=%s", worker)

    def look(self, now: float) -> dict[str, float]:
        """Return the workers that hang, and for how many seconds they have been silent; `now` is monotonic."""
        return self._beat.silent(self._watched(), now)

    def _watched(self) -> dict[str, float]:
        """Return workers that host shards, or are opening one, and run no functions."""
        entries = [entry for entry in self._state.entries.values() if entry.gone is None]
        stand = [entry for entry in entries if entry.made.is_set()]
        busy = {entry.address for entry in stand if not entry.is_shard}
        return patience(
            ((one.address, one.durable) for one in stand if one.is_shard and one.address not in busy),
            (one.address for one in entries if one.is_shard and one.asked and one.address not in busy),
        )

    async def _end(self, worker: str) -> None:
        """End a worker that hangs; its nanny replaces it. Without a nanny it may wake up, and is fenced then."""
        state: WorkerState | None = self._state.scheduler.workers.get(worker)
        if state is None:
            return
        try:
            await asyncio.wait_for(kill_worker(self._state.scheduler, state), KILL_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - a nanny's errors come as they are
            logger.warning("event=kill_failed worker=%s %r", worker, error)
        if self._state.scheduler.workers.get(worker) is state:
            await self._state.scheduler.remove_worker(worker, stimulus_id="dqlab-hung", close=True)


_SELECTING = {"memory_ratio", "n", "key", "minimum", "target", "attribute"}
