"""How long a run was left alone between an end and a retry."""

from __future__ import annotations

from random import Random
from typing import Any

from dqlab.frame import NO_ID
from dqlab.rules.ledger import Ledger
from dqlab.rules.retry import QueueOptions
from dqlab.rules.shard import Shard
from tests.rules.memory_journal import MemoryJournal

RUN = b"r" * 16


def test_time_between_an_end_and_what_follows_is_idle(clock: Any) -> None:
    """Nothing was asked of the run then, so it does not count as slow."""
    shard = Shard("q", 0, epoch=1, options=QueueOptions(), clock=clock, random=Random(0), journal=MemoryJournal())
    ledger = Ledger(shard)
    ledger.open({"run": RUN, "record": {"name": "r", "codes": []}})
    ledger.order("seal", RUN, {"seal": {"run": RUN, "here": 0, "total": 0}})
    clock.advance(10)
    ledger.note_ends()

    clock.advance(1000)
    ledger.order("reopen", RUN, {})
    clock.advance(5)
    ledger.order("seal", RUN, {"seal": {"run": RUN, "here": 0, "total": 0}})
    ledger.note_ends()
    clock.advance(7)

    book = ledger.book(RUN)
    assert book.idle == 1000
    assert book.ended is not None
    assert book.ended - book.started - book.idle == 15
    assert ledger.book(NO_ID).idle == 0
