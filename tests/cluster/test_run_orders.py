"""Orders that take more than one call to a queue's shards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dqlab.cluster.transport import run_orders
from dqlab.cluster.transport.queue_calls import QueueCalls
from dqlab.cluster.transport.wire import pack
from dqlab.errors import CodeGone

RUN = b"r" * 16
CODE = {"name": "f", "hash": "1", "short": "abc123", "source": "", "cell": None, "blob": b"f" * 16}


class Shards(QueueCalls):
    """Two shards with a dead document each, of which none has the function; keeps what they are asked."""

    name, promise, shards = "q", "safe", 2

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, shard: int, call: str, body: bytes, *, timeout: float) -> bytes:
        self.asked.append(call)
        answers: dict[str, dict[str, Any]] = {
            "watch": {"name": "word-count", "codes": [CODE]},
            "dead_counts": {"counts": [(RUN, 1)]},
            "function": {"known": False},
        }
        return pack(answers[call])

    async def keep_note(self, run: bytes, facts: dict[str, Any] | None) -> None:
        raise AssertionError("only queues in memory need notes")


def test_retry_whose_code_is_kept_nowhere_is_refused_and_sends_nothing() -> None:
    """It once sent the documents with the code that they had failed with, and named the newest."""
    shards = Shards()
    with pytest.raises(CodeGone, match=r"newest code of run 'word-count', 'f' \(version abc123\).*run\.retry\(fn="):
        asyncio.run(run_orders.retry(shards, RUN))
    assert "retry" not in shards.asked
