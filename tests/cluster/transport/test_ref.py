"""A process that was stopped reads what has come before it says that nothing came."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport import ref
from dqlab.cluster.transport.ref import Ref, limited


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ref, "LATE", 0.2)


async def turns(n: int) -> str:
    """Answer after the loop has come round a few times, as something does that waits in a socket."""
    for _ in range(n):
        await asyncio.sleep(0)
    return "answer"


async def stopped(seconds: float) -> str:
    async with limited(0.05):
        time.sleep(seconds)  # noqa: ASYNC251 - the whole process stands still
        return await turns(10)


def test_what_has_come_while_the_process_stood_still_is_an_answer() -> None:
    assert asyncio.run(stopped(0.4)) == "answer"


def test_what_does_not_come_after_that_either_ends_in_time() -> None:
    async def scenario() -> None:
        async with limited(0.05):
            time.sleep(0.4)  # noqa: ASYNC251
            await asyncio.Event().wait()

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(scenario())
    assert time.monotonic() - began < 5


@pytest.mark.cluster
def test_a_put_that_was_confirmed_while_its_client_stood_still_is_confirmed(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is stopped for longer than a put may take has not failed to put."""
    send, stands = Ref._send, [1.0]

    async def stand_still(self: Ref, place: Any, function: str, body: bytes) -> bytes:
        answer = asyncio.ensure_future(send(self, place, function, body))
        if function == "put" and stands:
            await asyncio.sleep(0.1)  # it is on its way
            time.sleep(stands.pop())  # noqa: ASYNC251
            await turns(10)
        return await answer

    assert queue.submit(abs, -1).results(timeout=20) == [1]
    monkeypatch.setattr(Ref, "_send", stand_still)
    monkeypatch.setattr("dqlab.runs.submit.sender.CONFIRM_WAIT", 0.5)
    monkeypatch.setattr("dqlab.cluster.transport.queue_calls.RPC_TIMEOUT", 0.5)
    monkeypatch.setattr("dqlab.runs.submit.sender.ROOM_WAIT", 0.0)
    assert queue.map(abs, [-2]).results(timeout=20)[0] == 2
    assert not stands
