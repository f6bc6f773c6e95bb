"""Moves actors away from workers that leave, and answers how many workers there should be (`Elasticity`).

A worker leaves when it is retired, when its job ends (`Deadlines`), or when it hangs and is killed (`Beat`).

Workers report the end of their jobs: see `dqlab.cluster.transport.protocol`. Only workers that host queues and run no
functions are watched for hanging: native code in users' functions may hold the GIL for seconds, and silence a worker
that is well. Others are given up when their connection closes or their leases expire.

Dask does not see our messages, and would close every worker: adaptive clusters (`cluster.adapt` of Dask, jobqueue,
Kubernetes and others) ask the scheduler how many there should be. With dqlab, the answer counts messages too.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from distributed.scheduler import WorkerState

from dqlab.clock import SystemClock
from dqlab.cluster.scheduler.actors import Supervisor
from dqlab.cluster.scheduler.consumer_sets import ConsumerSets
from dqlab.cluster.scheduler.state import WORKERS_PER_HOST, ClusterState, Entry
from dqlab.cluster.transport.internals import has_tasks, kill_worker, take_over
from dqlab.cluster.transport.protocol import JobEnd

STAGGER = 0.1
"""Workers begin to leave up to this share of their time earlier or later, so that not all go at once."""
MOST = 0.5
"""Share of its life that a worker may spend on leaving. Functions that take longer than a job are not waited for."""
FINAL = 10.0
"""Seconds before the end of a job at which its worker closes, even if functions still run there."""


@dataclass(frozen=True, slots=True)
class _Life:
    ends: float
    drain: float
    had: float
    """Seconds that were left when the worker reported them."""
    stagger: float
    """From -STAGGER to STAGGER."""

    def leaves(self, longest: float) -> float:
        margin = (self.drain + longest) * (1 + self.stagger)
        return self.ends - min(max(margin, FINAL), MOST * self.had)


class Deadlines:
    """Keeps when the jobs of workers end, in monotonic seconds of one clock."""

    def __init__(self) -> None:
        self._lives: dict[str, _Life] = {}
        self.longest = 0.0
        """Seconds in which 95 of 100 documents are done. A worker leaves early enough to finish what it has begun."""

    def __len__(self) -> int:
        return len(self._lives)

    def note(self, worker: str, name: str, end: JobEnd, now: float) -> None:
        """Record a worker's report about its job."""
        # A hash of the name, not a random number: each report replaces the last, and must not move the time.
        number = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big")
        stagger = STAGGER * (2 * number / 0xFFFFFFFF - 1)
        self._lives[worker] = _Life(now + end.left, end.drain, max(0.0, end.left), stagger)

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone."""
        self._lives.pop(worker, None)

    def due(self, now: float, leaving: Collection[str] = ()) -> list[str]:
        """Return the workers that must begin to leave, except those that already do."""
        return [
            worker for worker, life in self._lives.items() if worker not in leaving and now >= life.leaves(self.longest)
        ]

    def patience(self, worker: str, now: float) -> float:
        """Return the seconds that functions on a worker may still take."""
        life = self._lives.get(worker)
        return 0.0 if life is None else max(0.0, life.ends - FINAL - now)

    def soon(self, now: float, within: float) -> tuple[int, float]:
        """Return how many workers leave within `within` seconds or already do, and when the first one leaves."""
        times = [life.leaves(self.longest) - now for life in self._lives.values()]
        near = [seconds for seconds in times if seconds <= within]
        return len(near), max(0.0, min(near, default=0.0))


LOOK_EVERY = 0.2
"""Seconds between two checks for silent workers."""
LATE = 0.2
"""Seconds that a check may be late. A later check proves no silence: this process read no messages meanwhile."""
SILENCE = 1.2
"""Least seconds of silence after which a worker hangs: two beats are missing, and the third is due."""
OPENING_SILENCE = 15.0
"""The same for a worker that opens a shard: unpacking a long checkpoint holds the GIL for long pieces."""
PAUSES = 3
"""A worker hangs after a silence of this many times its longest recent pause between two beats. On an overloaded
machine all pauses are long, and to kill a slow worker does not help."""
FORGET = 0.98
"""Factor by which each beat shortens the longest recent pause: half of it is left after 14 s."""
NEW = 10
"""Beats for which a worker is new: it imports, and opens logs."""
NEW_SILENCE = 6.0
"""Seconds of silence allowed to a new worker."""


@dataclass(slots=True)
class _Pulse:
    """The beats of one worker."""

    last: float
    """When the last beat came, monotonic seconds."""
    beats: int = 0
    longest: float = 0.0
    """Longest recent pause in seconds."""

    def silence(self, least: float) -> float:
        """Return the seconds of silence allowed to the worker."""
        return max(least, PAUSES * self.longest, NEW_SILENCE if self.beats < NEW else 0.0)


class Beat:
    """Keeps when the beats of each worker came, in monotonic seconds."""

    def __init__(self) -> None:
        self._pulses: dict[str, _Pulse] = {}
        self._looked: float | None = None

    def note(self, worker: str, now: float) -> None:
        """Record the beat of a worker if it is watched."""
        pulse = self._pulses.get(worker)
        if pulse is not None:
            pulse.longest = max(FORGET * pulse.longest, now - pulse.last)
            pulse.beats += 1
            pulse.last = now

    def silent(self, watched: Mapping[str, float], now: float) -> dict[str, float]:
        """Return the watched workers that hang with their seconds of silence, by the least silence allowed to each."""
        late = self._looked is not None and now - self._looked > LOOK_EVERY + LATE
        self._looked = now
        # Workers no longer watched are forgotten. A new one starts as if a beat came now.
        self._pulses = {worker: self._pulses.get(worker) or _Pulse(now) for worker in watched}
        if late:
            for pulse in self._pulses.values():
                pulse.last = now
        return {
            worker: now - pulse.last
            for worker, pulse in self._pulses.items()
            if now - pulse.last > pulse.silence(watched[worker])
        }


def patience(hosts: Iterable[str], opening: Iterable[str] = ()) -> dict[str, float]:
    """Return the least silence allowed to each worker that hosts shards or opens one, by address."""
    return dict.fromkeys(hosts, SILENCE) | dict.fromkeys(opening, OPENING_SILENCE)


logger = logging.getLogger("dqlab.registry")

KILL_TIMEOUT = 2.0
LEAVING_S = 60.0
"""Seconds after which a worker that was to be retired, and still runs, is used again."""


class Departures:
    """Watches for workers that hang or whose jobs end, and empties workers before Dask retires them."""

    def __init__(self, state: ClusterState, consumer_sets: ConsumerSets, supervisor: Supervisor) -> None:
        self._state = state
        self._consumer_sets = consumer_sets
        self._supervisor = supervisor
        self._beat = Beat()
        self.retired: set[str] = set()
        """Names of workers that were retired for good."""
        self.deadlines = Deadlines()
        self._soon = 0
        """Workers that were about to leave at the last look."""
        self._to_try_again: set[str] = set()
        """Workers that leave because their jobs end, and could not."""

    def start(self) -> None:
        """Begin to watch, and take over every way that Dask has to retire a worker."""
        scheduler = self._state.scheduler
        take_over(scheduler, "retire_workers", self.retire)
        scheduler.stream_handlers["dq-beat"] = self.note_beat
        scheduler.stream_handlers["dq-deadline"] = self.note_deadline
        self._state.in_background(self._watch())
        self._state.collector.known.leaving = self.leave_soon

    # --- workers that are retired -----------------------------------------------------------

    async def retire(
        self, workers: Collection[Any] | None = None, names: Collection[Any] | None = None, **options: Any
    ) -> Any:
        """Retire workers as Dask does, after moving their shards and consumers elsewhere."""
        # Dask's own clusters pass names in `workers`. Dask ignores those names, and the cluster closes the workers
        # itself: so match addresses and names in both arguments, and pass the arguments on unchanged.
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
        self._leave(workers)  # first: else replacements are placed on these workers
        shards = [entry for entry in self._state.entries.values() if entry.is_shard and entry.address in workers]
        # A worker keeps all its actors with a shard whose log no other worker can open: it is the last of its machine.
        # Dask refuses to retire a worker with a pinned actor.
        stuck = [entry for entry in shards if not entry.durable and not self._can_move(entry)]
        kept = {entry.address for entry in stuck if entry.gone is None}
        for address in kept:
            logger.info("event=worker_kept worker=%s reason=transient_shard", address)
        self._state.leaving -= kept
        await self._consumer_sets.leave(set(workers) - kept)
        await asyncio.gather(*(self._supervisor.move(entry) for entry in shards if entry.address not in kept))

    def _can_move(self, shard: Entry) -> bool:
        """Return whether a worker that stays can open a shard's log."""
        return any(address != shard.address for address in self._state.hosts_for(shard))

    def restarting(self) -> None:
        """Make no more actors on the current workers, which Dask replaces."""
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

    def note_deadline(self, worker: str, left: float, drain: float) -> None:
        """Record when a worker's job ends, as a stream handler."""
        state = self._state.scheduler.workers.get(worker)
        name = worker if state is None else str(state.name)
        self.deadlines.note(worker, name, JobEnd(left, drain), asyncio.get_running_loop().time())

    def leave_soon(self, within: float) -> tuple[int, float]:
        """Return how many workers leave within `within` seconds because their jobs end, and when the first leaves."""
        return self.deadlines.soon(asyncio.get_running_loop().time(), within)

    def _look_at_deadlines(self, now: float) -> None:
        """Make workers leave whose jobs end, and have views drawn again when more or fewer are about to."""
        collector, before = self._state.collector, self._soon
        if not len(self.deadlines) and not before:
            return
        # First: figures that cannot be had must keep no worker from leaving.
        for worker in self.deadlines.due(now, self._state.leaving - self._to_try_again):
            self._state.leaving.add(worker)
            self._to_try_again.discard(worker)
            self._state.in_background(self._leave_or_try_again(worker))
        self.deadlines.longest = collector.known.longest()
        self._soon, _ = self.leave_soon(collector.known.thresholds.leaving)
        if self._soon != before:
            collector.touch()

    async def _leave_or_try_again(self, worker: str) -> None:
        try:
            await self._leave_in_time(worker)
        except Exception:  # it still leases; its job would end in the middle of what it runs
            logger.exception("event=leave_failed worker=%s", worker)
            self._to_try_again.add(worker)  # it stays in `leaving`: nothing new may be placed there meanwhile

    async def _leave_in_time(self, worker: str) -> None:
        """Wind down a worker's consumers, move its shards, and end it."""
        state, loop = self._state, asyncio.get_running_loop()
        left = self.deadlines.patience(worker, loop.time())
        logger.warning("event=job_ends worker=%s patience=%.0f", worker, left)
        self._supervisor.changed()
        # A shard that no other worker can host stays as long as possible.
        shards = [entry for entry in state.entries.values() if entry.is_shard and entry.address == worker]
        await asyncio.gather(*(self._supervisor.move(entry) for entry in shards if self._can_move(entry)))
        await self._consumer_sets.wind_down(worker, left)
        await self._supervisor.place_comes(self.deadlines.patience(worker, loop.time()))
        if worker in state.scheduler.workers:
            await self.retire(workers=[worker], close_workers=True, remove=True)

    # --- workers that hang ------------------------------------------------------------------

    def note_beat(self, worker: str) -> None:
        """Record a worker's beat, as a stream handler."""
        self._beat.note(worker, asyncio.get_running_loop().time())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            for look in (self._look_at_deadlines, self._look_at_figures):
                try:
                    look(loop.time())
                except Exception:  # the next looks are needed: workers that hang are killed, and others leave in time
                    logger.exception("event=look_failed look=%s", look.__name__)
            for worker, silence in self.look(loop.time()).items():
                logger.warning("event=worker_hung worker=%s silent=%.1f", worker, silence)
                try:
                    await self._end(worker)
                except Exception:  # any error: the other workers are still watched
                    logger.exception("event=end_failed worker=%s", worker)

    def _look_at_figures(self, _: float) -> None:
        """Tell the collector that it is awake, and the seconds since each worker's last heartbeat to Dask."""
        workers, now = self._state.scheduler.workers.values(), SystemClock().wall()
        rare = 3 * len(workers) / 100  # Dask asks for fewer heartbeats the more workers there are
        self._state.collector.look()
        self._state.collector.hear({str(worker.name): now - worker.last_seen - rare for worker in workers})

    def look(self, now: float) -> dict[str, float]:
        """Return the workers that hang with their seconds of silence, by a monotonic `now`."""
        return self._beat.silent(self._watched(), now)

    def _watched(self) -> dict[str, float]:
        """Return the least silence of each worker that hosts or opens a shard and runs no functions."""
        entries = [entry for entry in self._state.entries.values() if entry.gone is None]
        stand = [entry for entry in entries if entry.made.is_set()]
        busy = {entry.address for entry in stand if not entry.is_shard}
        return patience(
            (one.address for one in stand if one.is_shard and one.address not in busy),
            (one.address for one in entries if one.is_shard and one.asked and one.address not in busy),
        )

    async def _end(self, worker: str) -> None:
        """Kill a worker that hangs and remove it from the scheduler."""
        # A nanny replaces the worker. Without a nanny it may wake up later: its shards are fenced by then.
        state: WorkerState | None = self._state.scheduler.workers.get(worker)
        if state is None:
            return
        try:
            await asyncio.wait_for(kill_worker(self._state.scheduler, state), KILL_TIMEOUT)
        except Exception as error:  # noqa: BLE001 - a nanny's errors come as they are
            logger.warning("event=kill_failed worker=%s %r", worker, error)
        if self._state.scheduler.workers.get(worker) is state:  # else its replacement has the address already
            await self._state.scheduler.remove_worker(worker, stimulus_id="dqlab-hung", close=True)


_SELECTING = {"memory_ratio", "n", "key", "minimum", "target", "attribute"}


UNKNOWN_S = 0.5
"""Seconds that a message is assumed to take while none has been settled."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work that waits in one queue."""

    messages: int
    """Ready and leased messages."""
    seconds: float
    """Seconds in functions that they need."""
    consumers: int | None = None
    """Most consumers that the queue may have; None: one on each worker."""


def workers_for(backlogs: Iterable[Backlog], *, threads: int, duration: float, hosts: int) -> int:
    """Return how many workers finish the backlog in `duration` seconds, including those that host queues."""
    # `threads`: of one worker. `hosts`: workers on which shards live now, which must stay.
    serving = 0
    for backlog in backlogs:
        slots = min(backlog.messages, math.ceil(backlog.seconds / duration))
        workers = math.ceil(slots / threads)
        serving += workers if backlog.consumers is None else min(workers, backlog.consumers)
    if serving <= 1:
        return max(serving, hosts)  # one worker can do both
    # One worker in `WORKERS_PER_HOST` hosts queues (see `placement.plan`), and the others serve.
    return serving + max(hosts, -(-serving // (WORKERS_PER_HOST - 1)))


class Elasticity:
    """Answers how many workers there should be, and which are not needed."""

    def __init__(self, state: ClusterState, consumer_sets: ConsumerSets) -> None:
        self._state = state
        self._consumer_sets = consumer_sets

    def start(self) -> None:
        """Begin to answer Dask's question for the number of workers."""
        take_over(self._state.scheduler, "adaptive_target", self.target)

    async def target(self, target_duration: Any = None) -> int:
        """Return the number of workers that Dask's tasks or our messages need, plus one for each that is leaving."""
        # Without tasks, do not ask for Dask's own target: for our actors alone, it keeps workers that nobody needs.
        state, scheduler = self._state, self._state.scheduler
        wanted = scheduler.adaptive_target(target_duration=target_duration) if has_tasks(scheduler) else 0
        workers = scheduler.workers
        threads = max(1, round(sum(worker.nthreads for worker in workers.values()) / len(workers))) if workers else 1
        shards = {entry.address for entry in state.entries.values() if entry.is_shard and entry.gone is None}
        ours = workers_for(
            (self._backlog(name) for name in state.queues),
            threads=threads,
            duration=max(1.0, float(target_duration or 5.0)),
            hosts=len(shards),
        )
        return max(wanted, ours) + len(state.leaving & set(workers))

    def idle(self, workers: Iterable[WorkerState]) -> list[WorkerState]:
        """Return the workers that may be closed, which are idle and host no queue."""
        consumers = self._state.collector.known.consumers
        busy = {name for name, consumer in consumers.items() if consumer.report.leased}
        kept = {entry.address for entry in self._state.entries.values() if entry.is_shard or entry.name in busy}
        return [worker for worker in workers if worker.address not in kept]

    def _backlog(self, queue: str) -> Backlog:
        messages, seconds = self._state.collector.backlog(queue, UNKNOWN_S)
        return Backlog(messages, seconds, self._consumer_sets.most_of(queue))
