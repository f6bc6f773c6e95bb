"""A durable shard: opened from its directory, or made there."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.log import Files, Log, LogOptions, Recovery
from dqlab.rules.leases import NOBODY
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.store.journal import LogJournal
from dqlab.store.replay import rebuild
from dqlab.store.snapshot import freeze, hold_resting

__all__ = ["DurableShard"]


@dataclass
class DurableShard:
    """A ledger, the journal that records it, and what opening found. Made by `open`."""

    ledger: Ledger
    journal: LogJournal
    recovery: Recovery
    skipped: int

    @classmethod
    def open(
        cls,
        directory: Path,
        name: str,
        index: int,
        options: QueueOptions,
        *,
        log_options: LogOptions | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
        files: Files | None = None,
        owner: str = "",
        takeover: bool = False,
        patience: float = 0.0,
        journal: Callable[[Log, Clock], LogJournal] = LogJournal,
    ) -> DurableShard:
        """Open a shard and bring it to where its log ends; blocks.

        Parameters
        ----------
        directory : Path
            The shard's own.
        name, index
            Of the queue, and which of its shards.
        options : QueueOptions
            For lanes that are opened from now on.
        log_options, files, owner, takeover
            See `Log.open`.
        patience : float
            Seconds that consumers have to reclaim what they had acked early; see `Shard.reclaim`.
        journal : callable, optional
            Makes the journal.

        Raises
        ------
        LogError
            See `Log.open`.
        FrameCorrupt
            A record that this dqlab cannot read.
        """
        clock = clock or SystemClock()
        log = Log.open(directory, options=log_options, files=files, clock=clock, owner=owner, takeover=takeover)
        try:
            keeper = journal(log, clock)
            shard = Shard(
                name, index, epoch=log.epoch, options=options, clock=clock, random=random or Random(), journal=keeper
            )
            ledger = Ledger(shard)
            keeper.recording = False
            with _no_collections():
                replay = rebuild(ledger, keeper, log.recovery.checkpoint, log.replay())
            keeper.recording = True
            replay.end_early(patience)
            keeper.remember_begun(shard.leases.of_consumer(NOBODY))
            keeper.noted()
            return cls(ledger, keeper, log.recovery, replay.skipped)
        except BaseException:
            log.close(clean=False)
            raise

    def checkpoint(self) -> Callable[[], None]:
        """Take the state of this instant; return what makes it durable, to be called in any thread."""
        self.journal.noted()
        self.ledger.note_functions()
        mark, pack = self.journal.log.mark(), freeze(self.ledger, reuse=True)
        return lambda: self.journal.log.checkpoint(mark, pack())

    def checkpointing(self) -> Generator[Callable[[], None], Any, None]:
        """Do so in steps, that thousands of lanes at rest hold nobody up; yields what blocks, as `compaction` does."""
        for _ in hold_resting(self.ledger):
            yield _let_others_go_on
        yield self.checkpoint()


def _let_others_go_on() -> None:
    """Do nothing, elsewhere."""


@contextmanager
def _no_collections() -> Iterator[None]:
    """Let nothing be searched for cycles: a replay makes many objects and none of those, and takes a quarter longer."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
