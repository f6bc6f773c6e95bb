"""Decides the outcomes of documents that their storage has refused, and pauses a run whose storage refuses everything.

A document that is forbidden by itself fails as usual. Where the storage also refuses the file that the same process
read last, credentials have expired: the messages are given back, uncounted, and the run pauses itself until a user
resumes it. This module knows neither how a file is read (`documents.storage`) nor how an outcome is settled (`slot`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import Mapping
from typing import Protocol

from dqlab.cluster.consumer.running.chunk import Chunk, Columns
from dqlab.cluster.consumer.running.execution import HALT
from dqlab.cluster.transport.calls import ControlCall, WatchCall
from dqlab.cluster.transport.wire import Packed, unpack
from dqlab.documents.storage import located, reconnect, refuses, root_of
from dqlab.frame import NO_ID, Outcome
from dqlab.rules.journal import Op
from dqlab.stats.counts import StopReason

logger = logging.getLogger("dqlab.consumer")


class _Calls(Protocol):
    async def call(self, function: str, body: bytes, /) -> Packed: ...


class Refusals:
    """The runs of one consumer whose documents are refused."""

    # `here` names this process where a reason asks for new credentials.
    def __init__(self, consumer: str, here: str) -> None:
        self._consumer, self._here = consumer, f"{here}, process {os.getpid()} on {socket.gethostname()}"
        self.renewed = 0.0
        """When credentials may have been renewed; an older process of a slot still has the old ones. Seconds of
        `time.monotonic`."""
        self._refused: dict[bytes, set[str]] = {}
        """Files that were read before and refused, by the run that was paused for it."""
        self._halted: dict[bytes, float] = {}
        """When a run was paused last because nothing of it can run here, in seconds of `time.monotonic`."""

    def begin(self, run: bytes) -> None:
        """Let what runs next of a run open its files with new credentials, if the run was paused for them."""
        if (files := self._refused.pop(run, None)) is not None:
            self.renewed = time.monotonic()
            for where in files:
                reconnect(where)

    async def decide(self, chunk: Chunk, shards: Mapping[int, _Calls]) -> None:
        """Decide the outcomes of a chunk that are undecided now."""
        undecided = [(place, done, *unpack(done[2])) for place, done in chunk.refusals()]
        halts = [meta[HALT] for _, _, meta, _ in undecided if HALT in meta]
        paused = False
        if not chunk.early and chunk.run != NO_ID:  # acknowledged messages cannot be given back
            try:
                if halts:  # its function could not be set up here, or its service refuses all calls
                    halt, why = halts[0]
                    # What was leased before a pause is late, and must not pause a run that was resumed since.
                    if chunk.leased_at > self._halted.get(chunk.run, -math.inf):
                        self._halted[chunk.run] = time.monotonic()
                        await self._halt(chunk.run, why, StopReason(halt), shards, function=chunk.frames[0].function)
                    paused = True
                else:
                    before = {located(*meta["before"]) for _, _, meta, _ in undecided if meta["before"]}
                    paused = await self._is_paused(chunk, before, shards)
            except Exception:  # go on, since an undecided outcome would never be settled
                logger.exception("event=refusal_undecided consumer=%s run=%s", self._consumer, chunk.run.hex())
        for place, (index, _, _, key), _, (failure,) in undecided:
            # A failure is retried, though many servers call a refused file missing.
            outcome, payload = (Outcome.RETURN, b"") if paused else (Outcome.FAIL, bytes(failure))
            chunk.done.replace(place, Columns.of([(index, outcome, payload, key)]))

    async def _is_paused(self, chunk: Chunk, before: set[str], shards: Mapping[int, _Calls]) -> bool:
        """Return whether a run is paused for credentials, after pausing it if a storage refuses what it gave before."""
        progress, _ = await WatchCall(chunk.run).ask(shards[min(shards)].call)  # the first shard has the run's record
        lane = progress.lane
        paused = (
            bool(lane.halted) and lane.halt is StopReason.REFUSED
        )  # by another consumer, which may have read something there
        for where in () if paused else before:
            if why := await asyncio.to_thread(refuses, where):
                await self._pause(chunk.run, where, why, shards)
                paused = True
                break
        if paused:
            self._refused.setdefault(chunk.run, set()).update(before)
        elif before and chunk.lease.process is not None:
            self.renewed = time.monotonic()  # its process may have the credentials of before
        return paused

    async def _pause(self, run: bytes, where: str, reason: str, shards: Mapping[int, _Calls]) -> None:
        """Pause a run in all its shards, with the reason."""
        why = (
            f"its documents cannot be read: {root_of(where).partition(' ')[2]} refuses files that it returned before "
            f"({reason}). Renew the credentials of {self._here}"
        )
        await self._halt(run, why, StopReason.REFUSED, shards)

    async def _halt(self, run: bytes, why: str, halt: StopReason, shards: Mapping[int, _Calls], **more: bytes) -> None:
        logger.warning("event=run_halted consumer=%s run=%s %s", self._consumer, run.hex(), why)
        order = {"op": Op.HALT, "run": run, "halted": why, "halt": halt, **more}
        await asyncio.gather(*(ControlCall(order).ask(shard.call) for shard in shards.values()))
