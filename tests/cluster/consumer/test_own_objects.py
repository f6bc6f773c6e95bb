"""Objects of each consumer's own."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import dqlab as dq


class Client:
    """As clients of HTTP are: it works in the event loop that it was made in, and in no other."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()

    def get(self) -> Client:
        assert self.loop is asyncio.get_running_loop()
        return self


@pytest.mark.parametrize("sent", [False, True])
def test_two_consumers_of_one_process_share_no_client(*, sent: bool) -> None:
    """Each makes its own at its first call, keeps it, and makes another one in another loop."""
    own = dq.per_consumer(Client)
    client, both = pickle.loads(pickle.dumps(own)) if sent else own, Barrier(2)

    async def ask() -> Client:
        await asyncio.sleep(0)
        return client().get()

    def consume(_: int) -> Client:
        both.wait(10.0)

        async def calls() -> set[Client]:
            return set(await asyncio.gather(*(ask() for _ in range(5))))

        (first,), (second,) = asyncio.run(calls()), asyncio.run(calls())
        assert first is not second
        return first

    with ThreadPoolExecutor(2) as consumers:
        assert len(set(consumers.map(consume, range(2)))) == 2
