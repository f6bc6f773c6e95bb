"""A town: scheduler, nannies and workers, in a process of its own that may be killed with all of them.

Started with ``python -m tests.chaos.town``; see `serving`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import dask
from distributed import LocalCluster
from distributed.core import Status

from tests.chaos import truth
from tests.chaos.serving import serve

__all__ = ["Town"]

LOOK_EVERY = 0.05


class Town:
    """What can be done to the cluster from where it was started."""

    def __init__(self) -> None:
        self.cluster: LocalCluster | None = None
        self._adaptive: Any = None
        self._known: dict[str, tuple[str, int, bool]] = {}
        self._witness_task: asyncio.Task[None] | None = None

    @property
    def _up(self) -> LocalCluster:
        assert self.cluster is not None
        return self.cluster

    def up(self, workers: int) -> dict[str, Any]:
        """Start; return the scheduler's address."""
        dask.config.set({"distributed.worker.profile.enabled": False, "dqlab.views": []})
        dask.config.set({"temporary-directory": str(truth.directory() / truth.SCRATCH)})
        self.cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            preload=["dqlab.preload", "tests.chaos.stacks"],
            scheduler_kwargs={"dashboard": False},  # Bokeh takes a second to import
        )
        self.cluster.sync(self._begin_to_witness)
        return {"address": self.cluster.scheduler_address}

    async def _begin_to_witness(self) -> None:
        self._witness_task = asyncio.get_running_loop().create_task(self._witness())
        self._witness_task.add_done_callback(_blind)

    def workers(self) -> list[dict[str, Any]]:
        """Return name, address, process and what it holds, of each worker that runs."""
        return self._up.sync(self._workers)

    async def _workers(self) -> list[dict[str, Any]]:
        pids = self._pids()
        entries = list(self._entries().values())
        running = [state.address for state in self._up.scheduler.running]
        return [
            {
                "address": address,
                "pid": pids[address],
                "queues": sorted({e.queue for e in entries if e.is_shard and e.address == address and e.gone is None}),
                "consumers": sorted(e.queue for e in entries if not e.is_shard and e.address == address),
            }
            for address in sorted(running)
            if address in pids
        ]

    def scale(self, n: int) -> None:
        """Have so many workers from now on."""
        self._up.scale(n)

    def adapt(self, minimum: int, maximum: int) -> None:
        """Let the cluster find its size by itself."""
        self._adaptive = self._up.adapt(minimum=minimum, maximum=maximum, interval="200ms")

    def steady(self) -> None:
        """Let it do so no more."""
        if self._adaptive is not None:
            self._adaptive.stop()
            self._adaptive = None

    def whole(self, n: int, patience: float) -> None:
        """Have so many workers, and wait until they run."""
        self.steady()
        deadline = time.monotonic() + patience
        while True:
            self._up.sync(self._forget_nannies)
            self._up.scale(n)
            if self._up.sync(self._running) == n and len(self.workers()) == n:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"there are {self.workers()} after {patience:g} s")
            time.sleep(LOOK_EVERY)

    async def _forget_nannies(self) -> None:
        """Let the cluster replace workers that have left for good, which it would do only 15 s after they left."""
        for name, nanny in list(self._up.workers.items()):
            if nanny.status in (Status.closed, Status.failed):
                del self._up.workers[name]

    async def _running(self) -> int:
        return len(self._up.scheduler.running)

    def keys(self) -> list[str]:
        """Return the keys on the scheduler that are dqlab's."""
        return self._up.sync(self._keys)

    async def _keys(self) -> list[str]:
        return sorted(str(key) for key in self._up.scheduler.tasks if str(key).startswith("dq-"))

    def down(self) -> None:
        """End the cluster in good order."""
        if self._witness_task is not None:
            self._up.loop.add_callback(self._witness_task.cancel)
        self._up.close(timeout=30)
        self.cluster = None

    def end(self) -> None:
        """Go; a parent that left without an order wants the cluster gone too."""
        if self.cluster is not None:
            os.killpg(0, signal.SIGKILL)

    # --- what is taken from its place -------------------------------------------------------

    def _entries(self) -> dict[str, Any]:
        registry = self._up.scheduler.plugins.get("dqlab")
        return dict(registry.state.entries) if registry is not None else {}

    def _pids(self) -> dict[str, int]:
        nannies = list(self._up.workers.values())
        return {nanny.worker_address: nanny.pid for nanny in nannies if nanny.worker_address and nanny.pid}

    def _pid_of(self, name: str) -> int:
        return self._known[name][1] if name in self._known else 0

    async def _witness(self) -> None:
        """Note each shard that was recreated and each consumer that is gone, for ever."""
        while True:
            pids = self._pids()
            here = {
                name: (entry.key, pids.get(entry.address) or self._pid_of(name), entry.made.is_set())
                for name, entry in self._entries().items()
            }
            for name, (key, pid, made) in self._known.items():
                key_now, _, made_now = here.get(name, ("", 0, True))
                if key_now != key or made_now != made:
                    kind, queue, _ = name.split("/")
                    truth.taken("shard" if kind == "queue" else "consumer", queue, pid, truth.REGISTRY)
            self._known = here
            await asyncio.sleep(LOOK_EVERY)


def _blind(task: asyncio.Task[None]) -> None:
    """Note that no process sees any more what is taken."""
    if not task.cancelled() and task.exception() is not None:
        truth.fault(f"the witness of a town has failed: {task.exception()!r}")


def main() -> None:
    """Serve until the tester is gone."""
    town = Town()
    serve(lambda op: getattr(town, op), town.end, (OSError, TimeoutError))


if __name__ == "__main__":
    main()
