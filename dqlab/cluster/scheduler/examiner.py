"""Answers the doctor's questions to the scheduler: its own state, its workers, and the registry's actors and queues."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, SchedulerPlugin

from dqlab.clock import SystemClock
from dqlab.cluster.scheduler.registry import Registry
from dqlab.cluster.transport.internals import loop_lag
from dqlab.cluster.transport.process_vitals import process_vitals


class Examiner(SchedulerPlugin):
    """Adds the handler ``dq_overview`` to a scheduler."""

    name = "dqlab-examiner"
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Add our handler."""
        self._scheduler = scheduler
        scheduler.handlers["dq_overview"] = self.overview

    async def overview(self) -> dict[str, Any]:
        """Return the scheduler's state without calling other processes."""
        scheduler = self._scheduler
        now = SystemClock().wall()
        registry = scheduler.plugins[Registry.name]
        assert isinstance(registry, Registry)
        return {
            **process_vitals(),
            "lag": loop_lag(scheduler),
            "workers": [
                {"address": worker.address, "name": str(worker.name), "silent": max(0.0, now - worker.last_seen)}
                for worker in scheduler.workers.values()
            ],
            "registry": _registry(registry),
        }


def _registry(registry: Registry) -> dict[str, Any]:
    state = registry.state
    plan = state.plan()
    actors = [
        {
            "name": entry.name,
            "queue": entry.queue,
            "address": entry.address,
            "gone": entry.gone,
            "made": entry.made.is_set(),
            "failure": entry.failure,
        }
        for entry in state.entries.values()
    ]
    stores = {name: queue.store or {} for name, queue in state.queues.items()}
    return {
        "hosts": list(plan.queues),
        "serving": list(plan.consumers),
        "shared_logs": bool(state.shared),
        "actors": actors,
        "directories": {name: store.get("directory") for name, store in stores.items()},
    }
