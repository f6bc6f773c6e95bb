"""The peers that dqlab is compared with: each adds `n` pairs and returns all results.

Those that need packages, Ray and Daft, take part with `--peers`, each in a process of an environment of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import chain
from multiprocessing.pool import Pool

from distributed import Client, Queue, get_client

from benchmarks.environment import python_with
from benchmarks.processes import Child, ChildFailed
from benchmarks.stage import SLOTS
from benchmarks.work import add, add_all, pairs

__all__ = ["CHUNK", "chunked_submit", "client_map", "dask_queue", "installed", "process_pool"]

CHUNK = 1_000
"""Messages in one chunk where a person makes the chunks."""
PACKAGES = ("ray==2.52.1", "daft==0.7.26", "pyarrow==25.0.1", "psutil==7.2.2")

Adder = Callable[[int], Sequence[int]]


def installed(kind: str, say: Callable[[str], None]) -> Child | None:
    """Return a process with a peer that needs packages, which are installed first, or say why there is none."""
    try:
        python = python_with("peers-" + "-".join(PACKAGES[:2]), PACKAGES, say=say, install=True)
        child = Child([str(python), "-m", "benchmarks.peers_child", kind, str(SLOTS)])
    except ChildFailed as reason:
        say(f"SKIPPED {kind}: {reason}")
        return None
    try:
        child.wait_until_ready()
    except ChildFailed as reason:
        say(f"SKIPPED {kind}: {reason}")
        child.close()
        return None
    return child


def process_pool(pool: Pool) -> Adder:
    """Return `multiprocessing.Pool.map` in chunks: no acknowledgement, no loss when a process dies but all of it."""
    return lambda n: pool.map(add, pairs(n), chunksize=CHUNK)


def client_map(client: Client) -> Adder:
    """Return `client.map` and `gather`: one Dask task for each message."""
    return lambda n: client.gather(client.map(add, pairs(n), pure=False))


def chunked_submit(client: Client) -> Adder:
    """Return `client.submit` of chunks cut by hand: one Dask task for 1,000 messages."""

    def run(n: int) -> list[int]:
        todo = pairs(n)
        futures = [client.submit(add_all, todo[at : at + CHUNK], pure=False) for at in range(0, n, CHUNK)]
        return list(chain.from_iterable(client.gather(futures)))

    return run


def dask_queue(client: Client) -> Adder:
    """Return `distributed.Queue`: two tasks take messages one by one and put results into a second queue."""

    def run(n: int) -> list[int]:
        name = uuid.uuid4().hex
        todo, done = Queue(f"todo-{name}", client=client), Queue(f"done-{name}", client=client)
        servers = [client.submit(_serve, todo.name, done.name, pure=False) for _ in range(SLOTS)]
        for pair in pairs(n):
            todo.put(pair)
        for _ in servers:
            todo.put(None)
        results = list(done.get(batch=n))
        client.gather(servers)
        todo.close()
        done.close()
        return results

    return run


def _serve(todo_name: str, done_name: str) -> None:
    client = get_client()
    todo, done = Queue(todo_name, client=client), Queue(done_name, client=client)
    while (pair := todo.get()) is not None:
        done.put(add(pair))
