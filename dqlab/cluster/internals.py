"""Every name of `distributed` that is not documented, in one place.

`tests/cluster/test_internals.py` fails when one of them is gone or changed its meaning.
Versions that were tried: distributed 2026.8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import Any

from distributed import Client, Scheduler, Worker
from distributed.core import ConnectionPool, Status, rpc
from distributed.threadpoolexecutor import ThreadPoolExecutor

__all__ = [
    "KEEPER",
    "ActorFailed",
    "NoSuchActor",
    "Unreachable",
    "call_actor",
    "call_actor_proxied",
    "daemon_thread",
    "event_loop",
    "in_event_loop",
    "is_shut",
    "pin",
    "pin_remotely",
    "report",
    "scheduler_rpc",
    "unpin",
]

KEEPER = "dqlab-keeper"
"""The pseudo-client that wants our actors, so that they outlive the notebook that made them."""


CONNECT_TIMEOUT = 3.0
"""Seconds to try to connect to a worker."""


class NoSuchActor(Exception):
    """The worker answers, but does not hold the actor."""


class Unreachable(Exception):
    """The worker does not answer."""


class ActorFailed(Exception):
    """The method raised; the scheduler passes on what without opening it."""


async def call_actor(pool: ConnectionPool, address: str, key: str, function: str, body: bytes) -> bytes:
    """Call one async method of an actor over a pooled connection, past the Actor proxy.

    The proxy never answers when the key is gone (the KeyError is raised outside of its try).

    Raises
    ------
    NoSuchActor, Unreachable
        There is nobody to answer.
    Exception
        What the method raised.
    """
    return await _answer(_execute(pool, address, key, function, body))


async def _execute(pool: ConnectionPool, address: str, key: str, function: str, body: bytes) -> dict[str, Any]:
    # Left to itself the pool tries for 30 s to connect to a worker that is dead. The connection put back here
    # is the one that the call takes next.
    pool.reuse(address, await pool.connect(address, timeout=CONNECT_TIMEOUT))
    answer: dict[str, Any] = await pool(address).actor_execute(actor=key, function=function, args=(body,), kwargs={})
    return answer


async def call_actor_proxied(scheduler: Any, address: str, key: str, function: str, body: bytes) -> bytes:
    """Do the same through the scheduler, for clients that cannot reach the workers."""
    message = {"op": "actor_execute", "actor": key, "function": function, "args": (body,), "kwargs": {}}
    return await _answer(scheduler.proxy(worker=address, msg=message))


async def _answer(call: Awaitable[dict[str, Any]]) -> bytes:
    try:
        answer = await call
    except KeyError as error:
        raise NoSuchActor(str(error)) from None
    except TimeoutError:
        raise
    except OSError as error:
        raise Unreachable(str(error)) from error
    if answer["status"] == "OK":
        result: bytes = answer["result"]
        return result
    raised = answer["exception"]
    raise raised if isinstance(raised, BaseException) else ActorFailed("see the log of its worker")


def scheduler_rpc(owner: Any) -> rpc:
    """Return the pooled RPC of a client or worker to its scheduler."""
    scheduler: rpc = owner.scheduler
    return scheduler


def is_shut(owner: Client | Worker) -> bool:
    """Return whether a client's or worker's connections are closed for good: its process is going."""
    return owner.rpc.status is not Status.running


def event_loop(client: Client) -> asyncio.AbstractEventLoop:
    """Return the asyncio loop that a client's thread runs."""
    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop  # type: ignore[union-attr]
    return loop


def in_event_loop(client: Client) -> bool:
    """Return whether the caller runs in the client's own loop thread, where waiting is a deadlock."""
    try:
        return asyncio.get_running_loop() is event_loop(client)
    except RuntimeError:  # no loop runs in this thread
        return False


def pin(scheduler: Scheduler, keys: Collection[str]) -> None:
    """Keep actors alive without a client, as published datasets are kept."""
    scheduler.client_desires_keys(keys=list(keys), client=KEEPER)


async def pin_remotely(worker: Worker, key: str) -> None:
    """Ask the scheduler, through the registry's handler, to pin a key."""
    await worker.scheduler.dq_pin(key=key)


def unpin(scheduler: Scheduler, keys: Collection[str]) -> None:
    """Let actors go."""
    if KEEPER in scheduler.clients:
        known = [key for key in keys if key in scheduler.tasks]
        scheduler.client_releases_keys(keys=known, client=KEEPER)


def report(worker: Worker, message: dict[str, Any]) -> None:
    """Send counters to the scheduler's plugin over the worker's open stream: 22 µs, no answer."""
    stream = worker.batched_stream
    if stream.comm is not None and not stream.comm.closed():
        stream.send({"op": "dq-report", **message})


def daemon_thread(name: str) -> ThreadPoolExecutor:
    """Return an executor of one daemon thread, so that a function that never ends blocks no shutdown."""
    return ThreadPoolExecutor(1, thread_name_prefix=name)
