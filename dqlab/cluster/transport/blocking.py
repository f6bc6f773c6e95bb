"""Reports to a run's shards that it has to wait: its results cannot be kept, or its documents cannot be read.

Owns what is reported and what the answers mean together. A shard forgets a report after a while (`shard.blocks`), so it
is repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from dqlab.cluster.transport.calls import Hold
from dqlab.cluster.transport.wire import Packed
from dqlab.errors import RunNotFound

__all__ = ["Answer", "Blocked", "CallShard", "hold"]

logger = logging.getLogger("dqlab.consumer")

CallShard: TypeAlias = Callable[[str, bytes], Awaitable[Packed]]
"""Calls a method of one shard with packed arguments; returns its packed answer."""


class Blocked(StrEnum):
    """What cannot be done for a run; each has a reason of its own."""

    RESULTS = ""
    """To keep results."""
    DOCUMENTS = "documents"
    """To read documents."""
    INPUT = "input"
    """To list more documents."""


class Answer(NamedTuple):
    """What the shards of a run know about it.

    Attributes
    ----------
    wanted : bool
        Some of its results are still to come, or a shard has not answered.
    others : bool
        Another consumer has reported the same.
    """

    wanted: bool
    others: bool


async def hold(calls: Iterable[CallShard], run: bytes, reporter: str, what: Blocked, why: str) -> Answer:
    """Report to a run's shards why something cannot be done, "" when it can.

    Parameters
    ----------
    calls : iterable of callable
        Call one shard each.
    reporter : str
        The consumer that reports it, or what stands for one.
    """
    asked = Hold(run, reporter, why, what.value)
    answers = await asyncio.gather(*(call(asked.method, asked.pack()) for call in calls), return_exceptions=True)
    wanted = others = False
    for answer in answers:
        if not isinstance(answer, BaseException):
            known, _ = asked.opened(answer)
            wanted |= known.wanted
            others |= known.others
        elif not isinstance(answer, RunNotFound):  # the shard is on the move: the next report reaches it
            logger.warning("event=hold_unknown reporter=%s what=%s %s", reporter, what.name, answer)
            wanted = True
    return Answer(wanted, others)
