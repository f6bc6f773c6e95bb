"""What people order from a page that has no client of its own: one action on a queue, or on a run of it.

Each does what the methods of that name do in Python, `QueuePool.pause` and `Run.pause` and so on, with the same calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from dqlab.cluster.scheduler.action import Action
from dqlab.cluster.scheduler.scheduler_calls import SchedulerCalls
from dqlab.cluster.transport import run_orders
from dqlab.cluster.transport.orders import Drain, Pause, Purge, Resume
from dqlab.cluster.transport.queue_calls import TRANSIENT, QueueCalls
from dqlab.errors import DqlabError, QueueNotFound, RunNotFound
from dqlab.numbers import many, minute

if TYPE_CHECKING:
    from dqlab.cluster.scheduler.registry import Registry

__all__ = ["Actions", "NothingToScale"]

BY = "JupyterLab"


class NothingToScale(DqlabError):
    """A queue has no consumers of its own whose number could be changed."""

    text = (
        "queue {queue!r} has no consumers of its own: they are those of a ConsumerPool, or none were ever asked for. "
        "Nothing was changed. Call scale() of that pool, or map something on the queue."
    )


class Actions:
    """Carries out actions on the queues of one scheduler.

    Parameters
    ----------
    registry : Registry
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def queue(self, name: str) -> QueueCalls:
        """Return calls to an open queue.

        Raises
        ------
        QueueNotFound
            None of that name is open.
        """
        if name not in self._registry.queues:
            raise QueueNotFound(queue=name, **_named(name, self._registry.queues))
        return SchedulerCalls(self._registry, name)

    async def run(self, queue: QueueCalls, name: str) -> bytes:
        """Return the id of a queue's run.

        Raises
        ------
        RunNotFound
            There is none of that name.
        """
        runs = await run_orders.runs_of(queue)
        if name not in runs:
            raise RunNotFound(run=name, **_named(name, runs))
        return runs[name]

    async def carry_out(self, action: Action) -> dict[str, Any]:
        """Do what is asked; return {count, text, snapshot}, the snapshot being that of the queue afterwards.

        Raises
        ------
        QueueNotFound, RunNotFound, NothingToScale, CodeGone
            Nothing was done.
        """
        queue = self.queue(action.queue)
        run = await self.run(queue, action.run) if action.run else None
        kinds: dict[str, Callable[[QueueCalls, bytes | None, Action], Awaitable[tuple[int | None, str]]]] = {
            "pause": self._pause,
            "resume": self._resume,
            "drain": self._drain,
            "scale": self._scale,
            "purge": self._purge,
            "compact": self._compact,
            "cancel": self._cancel,
            "retry": self._retry,
        }
        count, text = await kinds[action.action](queue, run, action)
        await self.look(queue)
        return {"count": count, "text": text, "snapshot": self._registry.collector.snapshot().to_dict()}

    async def look(self, queue: QueueCalls) -> None:
        """Have the collector know at once what the shards of a queue are like, which reports say 250 ms later."""
        for report in await queue.ask_all("stats", {}):
            self._registry.collector.take(report)

    # --- the actions ------------------------------------------------------------------------

    async def _pause(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        await queue.order(Pause(run))
        self._mark("pause", queue, stops=True)
        return None, f"{_subject(action)} is paused: what runs now ends, nothing more is leased."

    async def _resume(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        await queue.order(Resume(run))
        self._mark("resume", queue)
        return None, f"{_subject(action)} goes on."

    async def _drain(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        await queue.order(Drain(None))
        self._mark("drain", queue, stops=True)
        return None, f"{_subject(action)} takes no more messages; what it has is processed, then it pauses."

    async def _scale(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        if await self._registry.consumer_sets.scale(queue.name, None if action.n == "auto" else action.n) is None:
            raise NothingToScale(queue=queue.name)
        self._mark(f"scale {action.n}", queue)
        amount = "one consumer on each worker" if action.n == "auto" else many(action.n, "consumer")
        return None, f"{_subject(action)} has {amount} from now on."

    async def _purge(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        count = await queue.order(Purge(None, action.state.upper()))
        self._mark(f"purge {action.state}", queue)
        return count, f"{_subject(action)}: {many(count, f'{action.state} message')} thrown away."

    async def _compact(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[None, str]:
        if queue.promise == TRANSIENT:
            return None, f"{_subject(action)} is kept in memory: there is no disk space to give back."
        self._mark("compact", queue)
        return None, f"{_subject(action)} is compacted: {await run_orders.compact(queue)}."

    async def _cancel(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        assert run is not None, "only runs are cancelled"
        count = await run_orders.cancel(queue, run)
        self._mark("cancel", queue)
        if not count:
            return 0, f"{_subject(action)} had nothing left to cancel; its results stay."
        return count, f"{_subject(action)} is cancelled: {many(count, 'document')} given up; results that exist stay."

    async def _retry(self, queue: QueueCalls, run: bytes | None, action: Action) -> tuple[int, str]:
        assert run is not None, "only runs are retried"
        codes = (await run_orders.progress_of(queue, run)).record["codes"]
        count = await run_orders.retry(queue, run, classes=action.fingerprints, limit=action.limit)
        if not count:
            return 0, f"{_subject(action)} has no dead document of that kind; nothing was sent."
        version = f"{codes[-1]['name']} v{len(codes)}"
        self._mark(f"retry, {version}", queue)
        return count, f"{_subject(action)}: {many(count, 'document')} sent through again, with {version}."

    def _mark(self, text: str, queue: QueueCalls, *, stops: bool = False) -> None:
        collector = self._registry.collector
        by = f"by {BY}, {minute(collector.clock.wall())}" if stops else ""
        collector.mark(text, queue=queue.name, by=by)


def _subject(action: Action) -> str:
    return f"Run {action.run}" if action.run else f"Queue {action.queue}"


def _named(name: str, known: Any) -> dict[str, str]:
    near = get_close_matches(name, list(known), n=1)
    return {"hint": f" Did you mean {near[0]!r}?" if near else "", "known": ", ".join(sorted(known)[:20]) or "none"}
