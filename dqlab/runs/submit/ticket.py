"""What stands behind a put: the ticket its caller holds, and the batch its messages travel in."""

from __future__ import annotations

import asyncio
import concurrent.futures
from dataclasses import dataclass, field

from dqlab.frame import NO_ID, Kind

__all__ = ["Entry", "Ticket", "UnsentFrame"]


@dataclass(eq=False)
class Ticket:
    """Where one put's messages went; done when all are confirmed.

    Attributes
    ----------
    ranges : list of (int, int)
        Half-open ranges of ids, in the order of the messages.
    actors : list of str or None
        For each range, the key of the actor in memory that confirmed it; another actor may reuse the ids.
    read : bool
        The caller has read what became of them, so a refusal is not news.
    """

    count: int
    done: concurrent.futures.Future[list[tuple[int, int]]] = field(default_factory=concurrent.futures.Future)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    actors: list[str | None] = field(default_factory=list)
    confirmed: int = 0
    read: bool = False

    def confirm(self, first: int, n: int, actor: str | None = None) -> None:
        """Record that `n` messages got ids from `first` on."""
        if self.ranges and self.ranges[-1][1] == first and self.actors[-1] == actor:
            self.ranges[-1] = (self.ranges[-1][0], first + n)
        else:
            self.ranges.append((first, first + n))
            self.actors.append(actor)
        self.confirmed += n
        if self.confirmed == self.count and not self.done.done():
            self.done.set_result(self.ranges)

    async def landed(self) -> list[tuple[int, int]]:
        """Wait, on the client's loop, until all are confirmed; raises why they were refused."""
        if not self.done.done():
            news = asyncio.Event()
            self.done.add_done_callback(lambda _: news.set())  # on that loop too: there senders confirm and refuse
            await news.wait()
        return self.done.result(0)

    def fail(self, error: BaseException) -> None:
        """Record that the put was refused."""
        if not self.done.done():
            self.done.set_exception(error)


@dataclass(slots=True, eq=False)
class Entry:
    """What a frame's messages share: the kind of their payloads, and the function with its blob."""

    kind: Kind
    function: bytes = NO_ID
    blob: bytes = b""

    def joins(self, other: Entry) -> bool:
        """Whether messages of both may share a frame."""
        return self is other or (self.function == other.function and self.kind == other.kind)


@dataclass(slots=True, eq=False)
class UnsentFrame:
    """A frame before it has bytes: it is numbered when it is taken."""

    entry: Entry
    payloads: list[bytes] = field(default_factory=list)
    weights: list[int] | None = None
    tickets: list[Ticket] = field(default_factory=list)
    shard: int = 0
    ordinal: int = 0
    sequence: int = 0
