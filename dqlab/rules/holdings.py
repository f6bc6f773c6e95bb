"""What a shard holds, and what time does to it.

The ground on which `Orders` and `Shard` stand: the lanes, the leases and the rules' own memory. Nothing
here is called by clients or consumers except the questions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import islice
from random import Random

from dqlab.clock import Clock
from dqlab.errors import MessageNotFound, RunNotFound
from dqlab.frame import NO_ID
from dqlab.rules.activity import Activity
from dqlab.rules.effects import Revoked
from dqlab.rules.endings import end_lease
from dqlab.rules.fairness import Fairness
from dqlab.rules.ids import first_id
from dqlab.rules.journal import Journal, MemoryJournal
from dqlab.rules.lane import Lane
from dqlab.rules.leases import Lease, Leases
from dqlab.rules.options import QueueOptions
from dqlab.rules.producers import Producers
from dqlab.rules.trouble import DeadLetter

__all__ = ["Holdings"]


class Holdings:
    """All lanes of one shard.

    Parameters
    ----------
    name : str
        The queue's name, for errors.
    index : int
        Number of the shard in its queue, 0-255.
    epoch : int
        Goes up by one each time the shard is opened again.
    options : QueueOptions
        What lanes get that are opened without options of their own.
    clock, random : Clock, random.Random
        Where time and the jitter of retries come from.
    first_sequence : int, default 0
        Where ids start; see `dqlab.rules.ids.next_sequence`.
    journal : Journal, optional
        Keeps the frames; in memory by default.

    Attributes
    ----------
    lanes : dict of bytes to Lane
        By run; lane 0, `NO_ID`, is always there.
    activity : Activity
        Which lanes are at work; with few of many, nothing here takes longer than with few.
    leases : mapping of int to Lease
        The live ones.
    paused, draining : bool
        Of the whole queue. A lane has a `paused` of its own.
    effects : deque of Revoked
        For the shell to empty after each call.
    leases_lost, redelivered : int
        Leases that ended by expiry or by their consumer's death, and messages that were delivered once more.
    """

    def __init__(
        self,
        name: str,
        index: int,
        *,
        epoch: int,
        options: QueueOptions,
        clock: Clock,
        random: Random,
        first_sequence: int = 0,
        journal: Journal | None = None,
    ) -> None:
        self.name = name
        self.index = index
        self.epoch = epoch
        self.options = options
        self.clock = clock
        self.random = random
        self.paused = False
        self.draining = False
        self.effects: deque[Revoked] = deque()
        self.journal = journal if journal is not None else MemoryJournal()
        self.leases = Leases(epoch)
        self.activity = Activity()
        self.lanes = {NO_ID: Lane(NO_ID, options, self.journal, self.activity)}
        self.producers = Producers()
        self.fairness = Fairness()
        self.next_id = first_id(index, first_sequence)
        self.leases_lost = self.redelivered = 0

    def __repr__(self) -> str:
        alive = sum(lane.alive for lane in self.lanes.values())
        return f"<Shard {self.name}/{self.index} epoch {self.epoch}: {len(self.lanes)} lanes, {alive:,} messages alive>"

    def tick(self) -> None:
        """Apply what is due: delayed messages become ready, expired leases end, which is recorded at once.

        So nothing else that is recorded can be taken for its cause. While the journal takes nothing, leases last.
        """
        now = self.clock.monotonic()
        for lane in self.activity.alive():
            if lane.delayed:
                lane.wake(now)
        expired = self.leases.expired(now)
        if expired:
            self.journal.admit()
            for lease in expired:
                self.end(lease)
            self.journal.noted()
        self.end_drain()

    def next_deadline(self) -> float | None:
        """Return when `tick` has something to do, monotonic seconds; None when nothing waits for time."""
        dues = [due for lane in self.activity.alive() if (due := lane.next_due()) is not None]
        lease = self.leases.next_deadline()
        return min(dues if lease is None else [*dues, lease], default=None)

    def locate(self, run: bytes, id: int) -> tuple[int, int]:
        """Return the first id of the frame of a run that holds a message, and the message's index in it.

        Raises
        ------
        MessageNotFound
            No such message, or its frame is freed.
        """
        found = self.lane(run).batches.at(id)
        if found is not None:
            return found[0].first, found[1]
        raise MessageNotFound(queue=self.name, id=id)

    def dead_letters(
        self, run: bytes, *, after: int = -1, limit: int = 1000, classes: Collection[str] = ()
    ) -> list[DeadLetter]:
        """Return up to `limit` dead letters of a run with ids above `after`, by id.

        Parameters
        ----------
        classes : collection of str
            Fingerprints of failures; none = all dead letters.
        """
        return list(islice(self.lane(run).letters(after, classes), limit))

    def unsettled(self, run: bytes, lo: int, hi: int) -> int:
        """Return how many messages with ids in ``[lo, hi)`` are ready, delayed or leased."""
        return self.lane(run).alive_among(lo, hi)

    def mean_cost(self, run: bytes) -> float | None:
        """Return the mean seconds a message of this run takes; None before the first settle."""
        return self.fairness.cost(run)

    def lag(self, run: bytes | None = None) -> float:
        """Return the age of the oldest ready message of a run, or of all, seconds; 0.0 when none is ready."""
        lanes = self.activity.alive() if run is None else [self.lane(run)]
        oldest = min((put_at for lane in lanes if (put_at := lane.oldest()) is not None), default=None)
        return 0.0 if oldest is None else self.clock.monotonic() - oldest

    def lane(self, run: bytes) -> Lane:
        """Return the lane of a run.

        Raises
        ------
        RunNotFound
            It has none here.
        """
        lane = self.lanes.get(run)
        if lane is None:
            known = ", ".join(other.hex() for other in self.lanes if other != NO_ID) or "none"
            raise RunNotFound(run=run.hex(), hint="", known=known)
        return lane

    def end(self, lease: Lease, why: str = "") -> int:
        """Close a lease and return its unsettled messages to their lane; return how many they were.

        Parameters
        ----------
        why : str, optional
            What its consumer died of.
        """
        self.leases.close(lease)
        self.leases_lost += 1
        return end_lease(self.lanes[lease.run], lease, why)

    def end_drain(self) -> None:
        """Pause a draining queue that holds nothing any more."""
        if self.draining and not self.activity.alive():
            self.paused = True
