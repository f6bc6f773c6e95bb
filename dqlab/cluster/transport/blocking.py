"""Reports to a run's shards why the run has to wait: its results cannot be kept.

A shard forgets a report after a while (`shard.recalls`), so callers repeat it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from dqlab.cluster.transport.calls import HoldCall
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import RunNotFound

logger = logging.getLogger("dqlab.consumer")

CallShard: TypeAlias = Callable[[str, bytes], Awaitable[Packed]]
"""Calls a method of one shard with packed arguments, and returns the packed answer."""


async def hold(calls: Iterable[CallShard], run: bytes, reporter: str, why: str) -> bool:
    """Report to a run's shards why results cannot be kept, or with "" that they can.

    Returns whether results of the run are still to come, or a shard did not answer.
    """
    asked = HoldCall(run, reporter, why)
    answers = await asyncio.gather(*(asked.ask(call) for call in calls), return_exceptions=True)
    wanted = False
    for answer in answers:
        if not isinstance(answer, BaseException):
            known, _ = answer
            wanted |= known.wanted
        elif not isinstance(answer, RunNotFound):  # the shard is on the move: the next report reaches it
            logger.warning("event=hold_unknown reporter=%s %s", reporter, answer)
            wanted = True
    return wanted
