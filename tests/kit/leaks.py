"""Detects what code leaves behind: threads, processes, descriptors, connections, pinned keys."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import psutil
from distributed import Client

from dqlab.cluster.transport.internals import KEEPER

__all__ = ["Footprint", "Leaked", "no_leaks"]

SETTLE_S = 5.0
LOOK_AGAIN_S = 0.05
DESCRIPTORS = Path("/proc/self/fd")
"""Lists descriptors with their kind, on Linux only; elsewhere descriptors are not compared."""


class Leaked(AssertionError):
    """Something was left behind; the message lists it."""


@dataclass(frozen=True)
class Footprint:
    """The resources of this process, and of a cluster, at one instant.

    Attributes
    ----------
    threads : Counter of str
        Threads of this process, by name without numbers.
    children : Counter of str
        Processes that this one started, and their children, by command.
    descriptors : Counter of str
        Open files, pipes and sockets of this process, by kind.
    comms : Counter of str
        Connections of the client that are in use, by address.
    pinned : Counter of str
        Keys of actors that are alive without a client.
    workers : Counter of str
        Threads and descriptors of each worker process.
    """

    threads: Counter[str]
    children: Counter[str]
    descriptors: Counter[str]
    comms: Counter[str]
    pinned: Counter[str]
    workers: Counter[str]

    @classmethod
    def take(cls, client: Client | None = None) -> Footprint:
        """Count what this process holds, and with a client its cluster, after closing idle pooled connections."""
        if client is not None:
            _close_idle(client)
        return cls(
            threads=_threads(),
            children=Counter(_command(child) for child in psutil.Process().children(recursive=True)),
            descriptors=_descriptors(),
            comms=Counter() if client is None else _comms(client),
            pinned=Counter() if client is None else Counter(client.run_on_scheduler(_pinned)),
            workers=Counter() if client is None else _workers(client),
        )

    def beyond(self, before: Footprint) -> dict[str, dict[str, int]]:
        """Return, by field, what is held now and was not before; empty if nothing is left behind."""
        more = {field.name: dict(getattr(self, field.name) - getattr(before, field.name)) for field in fields(self)}
        return {name: found for name, found in more.items() if found}


@contextmanager
def no_leaks(client: Client | None = None, *, timeout: float = SETTLE_S) -> Iterator[None]:
    """Fail when the block leaves more threads, processes, descriptors, connections or pinned keys than it found.

    Threads of pools start on first use, so run the block's code once before it.

    Parameters
    ----------
    client : Client, optional
        Look at this client's cluster too.
    timeout : float, default 5 s
        How long closed resources may take to disappear.

    Raises
    ------
    Leaked
        The message lists what is left.
    """
    before = Footprint.take(client)
    yield
    deadline = time.monotonic() + timeout
    while left := Footprint.take(client).beyond(before):
        if time.monotonic() >= deadline:
            raise Leaked(f"left behind: {left}")
        time.sleep(LOOK_AGAIN_S)


def _threads() -> Counter[str]:
    return Counter(thread.name.rstrip("0123456789-_ ()") for thread in threading.enumerate())


def _descriptors() -> Counter[str]:
    """Count descriptors by kind ("socket", "pipe", "anon_inode") or by the file's name."""
    kinds: Counter[str] = Counter()
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.is_dir() else ():
        try:
            target = str(entry.readlink())
        except OSError:  # the descriptor of the listing itself, which is closed by now
            continue
        kinds[target.split(":[", 1)[0]] += 1
    return kinds


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()[:4]) or process.name()
    except psutil.Error:
        return "a process that has ended"


def _close_idle(client: Client) -> None:
    async def here() -> None:
        client.rpc.collect()

    async def on_scheduler(dask_scheduler: Any) -> None:
        dask_scheduler.rpc.collect()

    async def on_worker(dask_worker: Any) -> None:
        dask_worker.rpc.collect()

    # Dask keeps a connection open for the next call: closed when idle, it is no leak.
    client.run(on_worker)
    client.run_on_scheduler(on_scheduler)
    client.sync(here)


def _comms(client: Client) -> Counter[str]:
    counts: Counter[str] = Counter()
    for comms in (client.rpc.available, client.rpc.occupied):
        for address, open_ones in comms.items():
            counts[address] += len(open_ones)
    return counts


def _pinned(dask_scheduler: Any) -> list[str]:
    keeper = dask_scheduler.clients.get(KEEPER)
    return sorted(str(task.key) for task in keeper.wants_what) if keeper is not None else []


def _workers(client: Client) -> Counter[str]:
    counts: Counter[str] = Counter()
    for address, (threads, descriptors) in client.run(_worker_counts).items():
        counts[f"threads of {address}"] += threads
        counts[f"descriptors of {address}"] += descriptors
    return counts


def _worker_counts() -> tuple[int, int]:
    return threading.active_count(), sum(_descriptors().values())
