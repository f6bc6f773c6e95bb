"""Checkpoints and compacts a durable shard, one at a time, beside its traffic."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

from dqlab.cluster.transport.reports import StorageReport
from dqlab.errors import DqlabError
from dqlab.store.durable_shard import MOSTLY, DurableShard, compaction
from dqlab.store.values import Compacted

logger = logging.getLogger("dqlab.queue")

COMPACTIONS = 10
"""Most past compactions that are remembered."""
FIGURES_EVERY = 1.0
"""Seconds between two checks of the log's files."""
CHECKPOINT_AFTER = 5.0
"""Most seconds from the first record after a checkpoint to the next checkpoint."""


class Upkeep:
    """Keeps a shard's recovery short and its disk use proportionate."""

    # It runs on the event loop, between the shard's calls. Every step that blocks goes to the default executor.

    def __init__(self, shard: DurableShard) -> None:
        self._shard = shard
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._closed = False
        self._compactions: deque[list[float]] = deque(maxlen=COMPACTIONS)
        self._figures: dict[str, Any] = {}
        self._figures_at = float("-inf")
        self.copied = 0, 0
        """Bytes that the current compaction has processed, and all bytes of its segments."""

    def report(self) -> StorageReport:
        """Return the figures of the files, at most one second old, and the last compactions."""
        now = self._loop.time()
        if now - self._figures_at >= FIGURES_EVERY:
            self._figures_at = now
            self._figures = self._shard.journal.log.figures()
        return StorageReport(**self._figures, compactions=list(self._compactions))

    def recorded(self) -> None:
        """Start or schedule a checkpoint after a record was appended."""
        if self._closed or self._running is not None:
            return
        if self._shard.journal.log.checkpoint_due:
            self._start()
        elif self._timer is None:
            self._timer = self._loop.call_later(CHECKPOINT_AFTER, self._start)

    async def compact(self) -> Compacted:
        """Free as much disk space as possible."""
        async with self._one_at_a_time:
            return await self._compact(MOSTLY)

    async def close(self) -> None:
        """Wait for the segment that is being copied, and write the last checkpoint."""
        self._closed = True  # stops a compaction after its current segment
        self._cancel_timer()
        if self._running is not None:
            await self._running
        try:
            await self._checkpoint()
        except DqlabError as error:
            logger.warning("event=checkpoint_failed %s", error)
        except Exception:  # a defect; the log must close anyway, and is read in full when it is opened again
            logger.exception("event=checkpoint_failed")

    # --- inside -----------------------------------------------------------------------------

    def _start(self) -> None:
        self._cancel_timer()
        self._running = self._loop.create_task(self._tend(), name="dqlab-upkeep")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _tend(self) -> None:
        log = self._shard.journal.log
        try:
            await self._checkpoint()
            if log.garbage() > 1 - log.options.compact_below and log.victims():
                async with self._one_at_a_time:
                    done = await self._compact(None)
                logger.info("event=compacted bytes_before=%d bytes_after=%d", done.bytes_before, done.bytes_after)
        except DqlabError as error:  # the disk still has all records, and the next try may succeed
            logger.warning("event=upkeep_failed %s", error)
        except Exception:  # a defect; the log has all records, and only grows until a checkpoint succeeds
            logger.exception("event=upkeep_failed")
        finally:
            self._running = None
        if log.checkpoint_due:  # by records that came meanwhile, for which `recorded` did nothing
            self.recorded()

    async def _checkpoint(self) -> None:
        async with self._one_at_a_time:
            for step in self._shard.checkpointing():
                await self._loop.run_in_executor(None, step)

    async def _compact(self, below: float | None) -> Compacted:
        # The generator runs on the event loop and yields the steps that block: state changes only between steps.
        steps = compaction(self._shard, below=below, progress=self._progress, stop=lambda: self._closed)
        result = None
        while True:
            try:
                step = steps.send(result)
            except StopIteration as done:
                compacted: Compacted = done.value
                freed = compacted.bytes_before - compacted.bytes_after
                self._compactions.append([self._shard.ledger.shard.clock.wall(), freed, compacted.seconds])
                self._figures_at = float("-inf")
                return compacted
            result = await self._loop.run_in_executor(None, step)

    def _progress(self, done: int, total: int) -> None:
        self.copied = done, total
