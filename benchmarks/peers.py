"""The peers that need no installation: each adds `n` pairs and returns all results."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from itertools import chain
from multiprocessing.pool import Pool

from distributed import Client, Queue, get_client

from benchmarks.stage import SLOTS
from benchmarks.work import add, add_all, pairs

__all__ = ["CHUNK", "chunked_submit", "client_map", "dask_queue", "process_pool"]

CHUNK = 1_000
"""Messages in one chunk where a person makes the chunks."""

Adder = Callable[[int], Sequence[int]]


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
