"""Which consumer holds which messages until when; `deliveries` decides what becomes of them when a lease ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from sortedcontainers import SortedList

from dqlab.rules.ranges import Ranges

NO_OWNER = ""
"""Placeholder owner, after recovery, of leases whose consumer may be gone."""
_EPOCH_SHIFT = 32


def epoch_of(lease_id: int) -> int:
    """Return the epoch of the shard that granted a lease."""
    return (lease_id - 1 >> _EPOCH_SHIFT) + 1


class LeasedPiece(NamedTuple):
    """Neighbours in one stored frame."""

    frame: int
    """First id of the frame."""
    lo: int
    """Position in the frame of the first message of the piece."""
    n: int
    """Number of messages."""
    ordinal: int
    """Position of the first message in the run's input."""
    function: bytes | None
    """Runs in place of the frame's function; None = the frame's own."""


@dataclass(slots=True, eq=False)
class Lease:
    """Messages of one lane, delivered together to one consumer."""

    id: int
    """Never given twice."""
    consumer: str
    run: bytes
    pieces: tuple[LeasedPiece, ...]
    """What was delivered; does not change."""
    since: float
    """When it was delivered, monotonic seconds."""
    deadline: float
    """When it ends unless it is renewed, monotonic seconds; a renewal at `now` sets it to `now + timeout`."""
    timeout: float
    suspect: bool
    """One message, which was a suspect."""
    price: float
    """Estimated seconds per message, charged to the lane in advance."""
    remaining: Ranges
    """Ids that are not settled yet."""
    taken: Mapping[str, float]
    """What limits were charged in advance for each message, by unit."""
    answered: int = 0
    """How many of its messages have a row that waits for its part of a sink: their calls have ended."""
    early: bool = False
    """Acked early: none of these messages is delivered again, unless its consumer returns it untouched."""
    renewals: int = 0
    """How often it was renewed."""
    isolated: bool = False
    """Its consumer has reported that it runs in the consumer's process, so its loss counts against its message."""
    ran: bool = False
    """Its consumer has reported that its message has run: it holds back no other suspect."""

    @property
    def receipt(self) -> tuple[int, int]:
        """The epoch that granted it, and its id."""
        return epoch_of(self.id), self.id


class Leases(Mapping[int, Lease]):
    """The live leases of a shard, by id."""

    def __init__(self, epoch: int = 1) -> None:
        self._by_id: dict[int, Lease] = {}
        self._by_consumer: dict[str, dict[int, Lease]] = {}
        self._deadlines: SortedList = SortedList()  # (deadline, id)
        # The epoch is part of the id, since a renewal or a settlement may come an epoch late: it must not meet another
        # lease. Ids ascend, from epoch to epoch too; `Trouble.first_lease` relies on that.
        self.next_id = ((epoch - 1) << _EPOCH_SHIFT) + 1

    def __getitem__(self, id: int) -> Lease:
        return self._by_id[id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    def grant(
        self,
        consumer: str,
        run: bytes,
        pieces: Sequence[LeasedPiece],
        *,
        now: float,
        timeout: float,
        suspect: bool,
        price: float,
        taken: Mapping[str, float] = MappingProxyType({}),
        id: int | None = None,
    ) -> Lease:
        """Open a lease over the pieces."""
        remaining = Ranges((piece.frame + piece.lo, piece.frame + piece.lo + piece.n) for piece in pieces)
        deadline = now + timeout
        if id is None:  # a consumer that takes back a lease of an earlier epoch keeps its id
            id, self.next_id = self.next_id, self.next_id + 1
        receipt = id, consumer, run, tuple(pieces), now, deadline, timeout
        lease = Lease(*receipt, suspect, price, remaining, taken)
        self._by_id[lease.id] = lease
        self._by_consumer.setdefault(consumer, {})[lease.id] = lease
        self._deadlines.add((deadline, lease.id))
        return lease

    def renew(self, lease: Lease, now: float) -> None:
        """Renew a lease for its full timeout from now."""
        self._deadlines.remove((lease.deadline, lease.id))
        lease.renewals += 1
        lease.deadline = now + lease.timeout
        self._deadlines.add((lease.deadline, lease.id))

    def close(self, lease: Lease) -> None:
        """Forget a lease."""
        del self._by_id[lease.id]
        held = self._by_consumer[lease.consumer]
        del held[lease.id]
        if not held:
            del self._by_consumer[lease.consumer]
        self._deadlines.remove((lease.deadline, lease.id))

    def expired(self, now: float) -> list[Lease]:
        """Return the leases whose deadline has passed, the earliest first."""
        expired = []
        for deadline, id in self._deadlines:
            if deadline > now:
                break
            expired.append(self._by_id[id])
        return expired

    def of_consumer(self, consumer: str) -> list[Lease]:
        """Return a consumer's leases, the oldest first."""
        # A list, because callers close leases while they go through it; so in `of_run`.
        return list(self._by_consumer.get(consumer, {}).values())

    def of_run(self, run: bytes) -> list[Lease]:
        """Return the leases of a lane, the oldest first."""
        return [lease for lease in self._by_id.values() if lease.run == run]

    def suspects_held(self, consumer: str) -> int:
        """Return how many suspects that have not run a consumer holds, each in a lease of its own."""
        return sum(lease.suspect and not lease.ran for lease in self._by_consumer.get(consumer, {}).values())

    def next_deadline(self) -> float | None:
        """Return when the next lease ends, monotonic seconds."""
        return self._deadlines[0][0] if self._deadlines else None
