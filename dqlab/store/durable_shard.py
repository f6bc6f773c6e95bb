"""Opens a durable shard from its directory, and creates it if it is new."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from dqlab.clock import Clock, SystemClock
from dqlab.log.files import Files
from dqlab.log.log import Log
from dqlab.log.options import LogOptions
from dqlab.log.recovery import Recovery
from dqlab.rules.leases import NO_OWNER
from dqlab.rules.ledger import Ledger
from dqlab.rules.options import QueueOptions
from dqlab.rules.shard import Shard
from dqlab.store.checkpoint import freeze, hold_resting
from dqlab.store.journal import LogJournal
from dqlab.store.replay import rebuild


@dataclass
class DurableShard:
    """A ledger, the journal that records its changes, and what opening found."""

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
        """Open a shard and replay its log."""
        clock = clock or SystemClock()
        log = Log.open(directory, options=log_options, files=files, clock=clock, owner=owner, takeover=takeover)
        try:
            keeper = journal(log, clock)
            shard = Shard(
                name, index, epoch=log.epoch, options=options, clock=clock, random=random or Random(), journal=keeper
            )
            ledger = Ledger(shard)
            with _no_collections():
                replay = rebuild(ledger, log.recovery.checkpoint, log.replay())
            # Before `end_early`: its moves are new, and must be in the log. With `patience`, in seconds, consumers may
            # first reclaim what they acked early (`Shard.reclaim`).
            keeper.start_recording(ledger)
            replay.end_early(patience)
            shard.end_drain()  # what had been acked early may have been all that was alive
            keeper.remember_begun(shard.leases.of_consumer(NO_OWNER))
            keeper.noted()
            return cls(ledger, keeper, log.recovery, replay.skipped)
        except BaseException:
            # Not clean: nothing that a failed opening has appended may become durable.
            log.close(clean=False)
            raise

    def checkpoint(self) -> Callable[[], None]:
        """Copy the state of this instant, and return a function for any thread that makes the copy durable."""
        # No await in here: the mark, the state and the records before the mark must belong to one instant. Moves that
        # are not recorded yet go first; behind the mark they would be applied a second time.
        self.journal.noted()
        self.ledger.note_functions()
        mark, pack = self.journal.log.mark(), freeze(self.ledger, reuse=True)
        return lambda: self.journal.log.checkpoint(mark, pack())

    def checkpointing(self) -> Generator[Callable[[], None], Any, None]:
        """Take a checkpoint in steps, so that thousands of lanes do not block the event loop."""
        # As `compaction`, this yields functions to be called in another thread. The first ones do nothing there:
        # meanwhile the event loop serves others.
        for _ in hold_resting(self.ledger):
            yield _let_others_go_on
        yield self.checkpoint()


def _let_others_go_on() -> None:
    """Do nothing, in another thread."""


@contextmanager
def _no_collections() -> Iterator[None]:
    """Stop the garbage collector while the block runs."""
    # A replay makes many objects and no cycles, and would take a quarter longer.
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
