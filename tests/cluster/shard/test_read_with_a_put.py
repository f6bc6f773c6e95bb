"""A put whose caller waits for its results has them in its answer where they come at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dqlab.cluster.shard import actor as shard
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.frame import Settlement
from tests.cluster import desk


def test_results_that_come_at_once_come_with_the_confirmation() -> None:
    """A second call for them would cost a quarter of all messages of a single call."""

    async def scenario() -> tuple[Any, list[bytes]]:
        actor = await desk.opened()
        put = asyncio.ensure_future(actor.put(pack({"frames": 1, "wait": 0.0, "reads": True}, desk.frame(2))))
        await desk.finish(actor, await desk.lease(actor, "c"), [b"one", b"two"])
        answer, [part] = unpack(await put)
        page = Settlement.decode(bytes(part))
        return answer["firsts"], [bytes(page.entry(at)) for at in range(page.count)]

    firsts, results = asyncio.run(scenario())
    assert (len(firsts), results) == (1, [b"one", b"two"])


@pytest.mark.parametrize("reads", [True, False])
def test_a_put_is_confirmed_though_its_results_take_longer(monkeypatch: pytest.MonkeyPatch, reads: bool) -> None:
    """The next put of its client waits for this answer."""
    monkeypatch.setattr(shard, "READ_S", 0.01)

    async def scenario() -> tuple[Any, list[memoryview]]:
        actor = await desk.opened()
        return unpack(await actor.put(pack({"frames": 1, "wait": 0.0, "reads": reads}, desk.frame(2))))

    answer, parts = asyncio.run(scenario())
    assert (len(answer["firsts"]), parts) == (1, [])
