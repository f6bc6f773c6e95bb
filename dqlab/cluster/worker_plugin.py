"""What every worker runs for us: it makes actors of its own when the registry asks.

Installed by the registry's client; Dask installs it on workers that join later too.
"""

from __future__ import annotations

from typing import Any

from distributed import Client, Worker, WorkerPlugin
from distributed.comm.core import Comm

from dqlab.cluster.durable import keep, list_stored
from dqlab.cluster.internals import CALL, answer_call, pin_remotely, start_actor
from dqlab.cluster.protocol import greeting
from dqlab.cluster.sealed import open_value

__all__ = ["DqlabWorkerPlugin"]


class DqlabWorkerPlugin(WorkerPlugin):
    """Adds the handlers ``dq_spawn``, ``dq_greet``, ``dq_keep``, ``dq_stored`` and ``dq_call`` to a worker."""

    name = "dqlab"
    idempotent = True

    def setup(self, worker: Worker) -> None:
        """Add our handlers."""
        self._worker = worker
        worker.handlers["dq_spawn"] = self.spawn
        worker.handlers["dq_greet"] = self.greet
        worker.handlers["dq_keep"] = keep
        worker.handlers["dq_stored"] = list_stored
        worker.handlers[CALL] = self.call

    def teardown(self, worker: Worker) -> None:
        """Take our handlers away, but the one of the actors that still live here."""
        for handler in ("dq_spawn", "dq_greet", "dq_keep", "dq_stored"):
            worker.handlers.pop(handler, None)

    async def greet(self) -> dict[str, object]:
        """Say which protocol this worker speaks."""
        return greeting()

    async def call(self, comm: Comm, actor: str, call: str, body: bytes) -> dict[str, Any]:
        """Call an actor that lives here."""
        return await answer_call(self._worker, comm, actor, call, body)

    async def spawn(self, key: str, sealed: bytes) -> dict[str, Any]:
        """Make an actor here, pin it, and start it.

        Parameters
        ----------
        key : str
            Dask key of the actor.
        sealed : bytes
            Pickled (class, args).

        Notes
        -----
        A client of our own, closed at once: the worker's own client would become asynchronous,
        and users' calls to get_client() in functions would get that one.
        """
        worker = self._worker
        kind, args = open_value(sealed)
        async with Client(
            worker.scheduler.address,
            asynchronous=True,
            set_as_default=False,
            security=worker.security,
            name="dqlab-spawn",
        ) as client:
            future = client.submit(
                kind, *args, key=key, actor=True, workers=[worker.address], allow_other_workers=False, pure=False
            )
            await future
            await pin_remotely(worker, key)
        await start_actor(worker, key)
        return {"address": worker.address, **greeting()}
