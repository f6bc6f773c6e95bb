"""Calls that wait in a shard whose log is closed beneath them, because the shard moves."""

from __future__ import annotations

from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport.ref import Ref
from dqlab.log.errors import LogClosed


def test_call_that_meets_a_closed_log_is_sent_to_the_next_owner(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard had handed its log over while a put waited for room on the disk: the caller got `LogClosed`."""
    [ref] = queue.handle.refs
    refusals = [LogClosed(directory="store/q/000")]
    send = Ref._send

    async def moved_once(self: Any, place: Any, function: str, body: Any) -> bytes:
        if self is ref and function == "put" and refusals:
            raise refusals.pop()
        return await send(self, place, function, body)

    async def has_moved(*_: Any) -> bool:
        return True

    monkeypatch.setattr(Ref, "_send", moved_once)
    monkeypatch.setattr(Ref, "_moved", has_moved)

    [id] = queue.put([1]).ids

    assert refusals == []
    assert id == queue.put([2]).ids[0] - 1  # it was stored once
