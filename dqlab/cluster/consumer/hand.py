"""What one slot has in hand, and what follows from it: how much to ask for, what runs next, what a shard may forget.

Knows neither threads nor calls: a `Slot` asks, and carries the answers out.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from itertools import count

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.transport.calls import HeldBySlot
from dqlab.cluster.transport.parking import Credit

STAY_S = 30.0
"""Seconds in which a slot takes messages of a run that has loaded a model before those of others."""
STAY_TIMES = 5
"""The least that these seconds are, in times of what loading took."""
IN_HAND = 2
"""Leases in hand above which only a shard that has none of them is asked for more."""
LET_GO_S = 5.0
"""Seconds that a function may take to end after its message was cancelled, until its thread is abandoned."""


SAY_AFTER, SAY_EVERY = 1.0, 5.0
"""Seconds until a running message is first reported, and between two reports of it; the first where it says how far
its function is."""


class Stage(Enum):
    """How far a chunk is."""

    WAITS = 1
    RUNS = 2
    """In the slot's thread, at most one."""
    FLIES = 3
    """Its coroutines or batches run or wait to begin, beside others."""
    ENDS = 4
    """It has run, and its last outcomes are not acknowledged."""


class Hand:
    """The chunks of one slot."""

    def __init__(self, name: str, batch: int) -> None:
        self.name, self.batch = name, batch
        self.at_least = 1
        """Fewest messages to ask a shard for, whatever their cost; the slot's thread sets it."""
        self.stopping = False
        # One table, so that a chunk is never missing between two stages: its renewals would end and its lease expire,
        # and a recreated shard would deliver its messages to others.
        self._stages: dict[Chunk, Stage] = {}
        self._credits = count(1)
        self._told: dict[int, tuple[int, int]] = {}
        """The last credit that each shard has answered: its number, and how many messages it asks for."""
        self._stays: tuple[bytes | None, float] = None, 0.0
        """The last run that has loaded something here, and until when it goes before others."""

    def move(self, chunk: Chunk, to: Stage) -> None:
        """Note how far a chunk is."""
        self._stages[chunk] = to

    def leave(self, chunk: Chunk, *only: Stage) -> None:
        """Note that nothing of a chunk is left to do, if it is at one of these stages or none is given."""
        if not only or self._stages.get(chunk) in only:
            self._stages.pop(chunk, None)

    def at(self, stage: Stage) -> Chunk | None:
        """Return the oldest chunk at a stage, from any thread."""
        return next((chunk for chunk, its in list(self._stages.items()) if its is stage), None)

    @property
    def chunks(self) -> list[Chunk]:
        """Chunks that wait or run, oldest first."""
        return [chunk for chunk, stage in self._stages.items() if stage is not Stage.ENDS]

    def of(self, shard: int) -> list[Chunk]:
        """Return the chunks of a shard whose leases must not expire."""
        return [chunk for chunk in self._stages if chunk.lease.shard == shard]

    def held(self, shard: int, now: float) -> list[HeldBySlot]:
        """Return the messages of a shard that are in hand, by lease."""
        found: dict[int, HeldBySlot] = {}
        for chunk in self.of(shard):
            if ids := chunk.unsettled():
                new = HeldBySlot(self.name, chunk.lease.id, chunk.run, [], now - chunk.leased_at, early=False)
                before = found.get(chunk.lease.id, new)
                found[chunk.lease.id] = replace(before, ids=[*before.ids, *ids], early=before.early or chunk.early)
        return list(found.values())

    def look_ahead(self) -> None:
        """Have reading ahead follow the next messages, which have changed."""
        if (running := self.at(Stage.RUNS)) is not None and running.ahead is not None:
            running.ahead.look()

    def look(self, chunk: Chunk, now: float) -> bool:
        """Note a chunk's running message at `now`, in steady seconds, and return whether a report is due."""
        index = chunk.running
        if index is None:
            chunk.seen = None
            return False
        if chunk.seen is None or chunk.seen[0] != index:
            chunk.seen = index, now, now + SAY_AFTER
        _, since, due = chunk.seen
        if now >= due:
            chunk.seen = index, since, now + (SAY_AFTER if chunk.step_of(index) else SAY_EVERY)
        return now >= due

    def longest(self) -> tuple[Chunk, int] | None:
        """Return the chunk and the position of the message that has run longest."""
        # The thread may have begun another message since `look`; when that one began is not known yet.
        seen = [(chunk.seen[1], chunk) for chunk in self.chunks if chunk.seen and chunk.running == chunk.seen[0]]
        chunk = min(seen, key=lambda each: each[0], default=(0.0, None))[1]
        return None if chunk is None or chunk.seen is None else (chunk, chunk.seen[0])

    # --- leasing ----------------------------------------------------------------------------

    def want(self, shard: int) -> int:
        """Return how many messages to ask a shard for, none while enough leases are in hand."""
        # A chunk of coroutines that has begun all its messages does not count: the next ones begin beside them. Leases
        # and not chunks: a lease of a run with a sink is cut into many chunks.
        leases = {
            (chunk.lease.shard, chunk.lease.id)
            for chunk, stage in self._stages.items()
            if stage is not Stage.ENDS and (chunk.todo or (stage is Stage.RUNS and not chunk.finished))
        }
        here = sum(of == shard for of, _ in leases)
        return self.batch if here < (IN_HAND if len(leases) < IN_HAND else 1) and not self.stopping else 0

    def credit(self, shard: int) -> Credit:
        """Return the next credit of a shard."""
        return Credit(next(self._credits), self.want(shard), self.at_least)

    def told(self, shard: int, credit: Credit) -> None:
        """Note a credit that a shard has."""
        # The highest number wins, here as in the shard: answers of lease calls and settlements overtake each other.
        self._told[shard] = max(self._told.get(shard, (0, 0)), (credit.at, credit.want))

    def outdated(self, shard: int) -> bool:
        """Return whether a shard should be told another credit than it has."""
        return not self.stopping and self._told[shard][1] != self.want(shard)

    def stays(self, now: float) -> bytes | None:
        """Return the run whose messages go before those of others."""
        run, until = self._stays
        return run if now < until else None

    def stay(self, run: bytes, now: float, loading: float = 0.0) -> None:
        """Note that something is loaded for a run, which may be kept, and how many seconds it took here before."""
        # Not before the other run has had its time: messages of it are in hand too.
        if self._stays[0] != run and now >= self._stays[1]:
            self._stays = run, now + max(STAY_S, STAY_TIMES * loading)


def clinging(chunk: Chunk, running: list[int | None]) -> list[int]:
    """Return which of the messages that run are cancelled."""
    return [index for index in running if index is not None and index in chunk.cancelled]


def let_go(chunk: Chunk, running: list[int | None], now: float) -> bool:
    """Return whether a chunk is to be left to its thread, whose function ignores a cancel."""
    late = chunk.cancelled and now - chunk.cancelled_at >= LET_GO_S
    return chunk.stopped or bool(late and clinging(chunk, running))
