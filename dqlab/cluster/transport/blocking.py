"""Reports to a run's shards why the run has to wait: results cannot be kept, or documents cannot be read.

A shard forgets a report after a while (`shard.blocks`), so callers repeat it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeAlias

from dqlab.cluster.transport.calls import HoldCall
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import RunNotFound
from dqlab.stats import Blocked

__all__ = ["Answer", "CallShard", "hold"]

logger = logging.getLogger("dqlab.consumer")

CallShard: TypeAlias = Callable[[str, bytes], Awaitable[Packed]]
"""Calls a method of one shard with packed arguments, and returns the packed answer."""


class Answer(NamedTuple):
    """The joined answers of a run's shards."""

    wanted: bool
    """Whether results of the run are still to come, or a shard did not answer."""
    others: bool
    """Whether another consumer has reported the same."""


async def hold(calls: Iterable[CallShard], run: bytes, reporter: str, what: Blocked, why: str) -> Answer:
    """Report to a run's shards why something cannot be done, or with "" that it can."""
    asked = HoldCall(run, reporter, why, what)
    answers = await asyncio.gather(*(asked.ask(call) for call in calls), return_exceptions=True)
    wanted = others = False
    for answer in answers:
        if not isinstance(answer, BaseException):
            known, _ = answer
            wanted |= known.wanted
            others |= known.others
        elif not isinstance(answer, RunNotFound):  # the shard is on the move: the next report reaches it
            logger.warning("event=hold_unknown reporter=%s what=%s %s", reporter, what.name, answer)
            wanted = True
    return Answer(wanted, others)
