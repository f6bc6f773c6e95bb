"""Orders that take more than one call to a queue's shards."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dqlab.cluster.transport import queue_calls
from dqlab.cluster.transport.orders import Code
from dqlab.cluster.transport.queue_calls import QueueCalls
from dqlab.cluster.transport.reports import ShardProgress
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import RunError
from dqlab.rules.reports import LaneReport

RUN = b"r" * 16
CODE = {"name": "f", "hash": "1", "short": "abc123", "source": "", "cell": None, "blob": b"f" * 16}


class Shards(QueueCalls):
    """Two shards with a dead document each; keeps what they are asked. The second one may have paused itself."""

    name, promise, shards = "q", "safe", 2

    def __init__(self, halted: str = "", function: bytes | None = None) -> None:
        self.asked: list[str] = []
        self.ordered: list[tuple[int, str]] = []
        self.retried: list[dict[str, Any]] = []
        self.halted, self.function = ("", halted), function

    async def ask(self, shard: int, asked: Any, *parts: bytes, wait: float = 0.0) -> tuple[Any, list[memoryview]]:
        call, body = asked.method, asked.pack(*parts)
        self.asked.append(call)
        if call == "control":
            self.ordered.append((shard, unpack(body)[0]["op"]))
        if call == "retry":
            self.retried.append(unpack(body)[0])
        answers: dict[str, dict[str, Any]] = {
            "watch": self.standing(shard).to_wire(),
            "dead_counts": {"counts": [(RUN, 1)]},
            "function": {"known": self.function is not None},
            "control": {"count": 0},
            "retry": {"count": 1, "after": None},
        }
        return asked.opened(pack(answers[call], *([self.function] if call == "function" and self.function else [])))

    def standing(self, shard: int) -> ShardProgress:
        lane = LaneReport(run=RUN.hex(), name="word-count", counts=[0] * 7, halted=self.halted[shard])
        return ShardProgress(lane=lane, done=False, codes=[CODE])


def test_retry_whose_code_is_kept_nowhere_is_refused_and_sends_nothing() -> None:
    """It once sent the documents with the code that they had failed with, and named the newest."""
    shards = Shards()
    with pytest.raises(RunError, match=r"'word-count': its newest code, 'f' \(version abc123\).*run\.retry\(fn="):
        asyncio.run(queue_calls.retry(shards, RUN))
    assert "retry" not in shards.asked


def test_new_code_for_a_run_that_paused_itself_in_one_shard_is_that_of_its_rest_in_all() -> None:
    """The others went on with the code that failed, until they paused too."""
    shards = Shards(halted="the first 100 failed")
    assert asyncio.run(queue_calls.retry(shards, RUN, Code(b"g" * 16, b"", CODE))) == 2
    assert shards.ordered == [(0, "adopt"), (1, "adopt")]


def test_every_shard_learns_new_code_before_any_document_runs_it() -> None:
    """One with nothing to run keeps it for a later retry."""
    shards = Shards()
    asyncio.run(queue_calls.retry(shards, RUN, Code(b"g" * 16, b"", CODE)))
    assert shards.ordered == [(0, "retry"), (1, "retry")]
    assert shards.asked.index("control") < shards.asked.index("retry")


def test_retry_without_code_ends_the_pause_of_a_run_in_all_its_shards_with_the_newest() -> None:
    """One of them may have nothing of the class that is retried, and would stay paused."""
    shards = Shards(halted="the first 100 failed", function=b"pickled")
    assert asyncio.run(queue_calls.retry(shards, RUN, classes=["abc"])) == 2
    assert shards.ordered == [(0, "adopt"), (1, "adopt")]


def test_retry_without_code_brings_no_version_along() -> None:
    """Another client may have retried with a newer one since it was looked up."""
    shards = Shards(function=b"pickled")
    asyncio.run(queue_calls.retry(shards, RUN))
    assert shards.ordered == []
    assert [(meta["function"], "code" in meta) for meta in shards.retried] == [(CODE["blob"], False)] * 2
