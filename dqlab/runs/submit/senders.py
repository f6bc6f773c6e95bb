"""The two producers: plain puts, and the documents of a run."""

from __future__ import annotations

import threading
import uuid
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from dqlab.cluster.transport.handle import Handle
from dqlab.cluster.transport.orders import Open
from dqlab.errors import DqlabError, NotSentAgain, PutFailed, PutTimeout
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import Verdict
from dqlab.runs.submit.sender import Sender
from dqlab.runs.submit.ticket import Batch, Entry, Ticket

__all__ = ["PutSender", "RunSender"]

_ENDLESS = 1 << 62


class PutSender(Sender):
    """Plain puts of one client: each message with its function and its ticket."""

    buffer: deque[tuple[Entry, bytes, Ticket]]

    def __init__(self, handle: Handle, **options: Any) -> None:
        super().__init__(handle, **options)
        self._appending = threading.Lock()

    def append(self, entry: Entry, payload: bytes, ticket: Ticket) -> None:
        """Hand over one message; waits while the buffer is full."""
        with self._appending:  # any number of threads may put
            self.buffer.append((entry, payload, ticket))
            self.handed_bytes += len(payload)
        self.hand_over()

    def gather(self) -> Batch:
        """Take neighbours with the same function."""
        buffer, size = self.buffer, 0
        batch = Batch(buffer[0][0])
        while buffer and len(batch.payloads) < self.frame_messages:
            entry, payload, ticket = buffer[0]
            if batch.payloads and (size + len(payload) > self.frame_bytes or not entry.joins(batch.entry)):
                break
            buffer.popleft()
            batch.payloads.append(payload)
            batch.tickets.append(ticket)
            size += len(payload)
        self.taken_bytes += size
        return batch

    def _refused(self, batch: Batch, error: DqlabError) -> None:
        super()._refused(batch, error)
        if isinstance(error, PutTimeout | PutFailed):  # the queue may have it, so nobody else may have its number
            self.producer, self._next_sequence = uuid.uuid4().bytes, [0] * len(self.handle.refs)


class RunSender(Sender):
    """The documents of one run: one function, no tickets, pages where they are known.

    `buffer` holds payloads and `weights`, if the run's first document has pages, their pages; both are
    appended to by the run's one thread, which calls `hand_over` after each message.

    Attributes
    ----------
    held : Ranges
        Ordinals that the queue holds, as far as confirmed.
    through : int
        The first ordinal that is not among them.
    room : list of int or None
        Of documents that were lost: how many of them each shard still takes, in the place of its lost ones.
    claim : int or None
        Number of the claim to send those.
    """

    buffer: deque[bytes]
    opening: Open

    def __init__(self, handle: Handle, entry: Entry, **options: Any) -> None:
        super().__init__(handle, patient=True, **options)
        self.options = options
        self.entry = entry
        self.room: list[int] | None = None
        self.claim: int | None = None
        self.weights: deque[int] = deque()
        self.held, self.through = Ranges(), 0
        self._refusals: list[Batch] = []
        self._gaps: deque[tuple[int, int]] = deque([(0, _ENDLESS)])

    def go_on(self, here: Sequence[int], held: Iterable[tuple[int, int]]) -> None:
        """Continue a run whose shards hold so many documents each, and all of them these ordinals."""
        self.here, self.held = list(here), Ranges(held)
        self._gaps = deque(self.held.gaps(0, _ENDLESS))
        self.through = self._gaps[0][0]

    def replace(self, lost: Iterable[tuple[int, int]], room: Sequence[int], claim: int) -> None:
        """Put documents that were lost, with these ordinals, in the place of as many in each shard."""
        self._gaps, self.room, self.claim = deque(lost), list(room), claim
        self.frames_per_call = 1

    def recount(self, shard: int, holds: int) -> None:
        """Count the refused frames that a shard holds after all; it took what it took in their order."""
        for batch in sorted(self._refusals, key=lambda batch: batch.sequence):
            if batch.shard == shard and self.here[shard] + len(batch.payloads) <= holds:
                self._confirmed(batch, None)

    def gather(self) -> Batch:
        """Take as many as fit a frame: about that many by their mean size, then no more than fit by their own."""
        buffer, batch = self.buffer, Batch(self.entry)
        mean = self.buffered_bytes / max(1, len(buffer))
        self.sent, stop = self._gaps.popleft()
        n = max(1, min(len(buffer), self.frame_messages, int(self.frame_bytes / max(1.0, mean)), stop - self.sent))
        if self.room is not None:
            n = max(1, min(n, self.room[self.shard]))
        payloads = [buffer.popleft() for _ in range(n)]
        size = sum(map(len, payloads))
        if size > self.frame_bytes and n > 1:
            n = max(1, bisect_right(list(accumulate(map(len, payloads))), self.frame_bytes))
            buffer.extendleft(reversed(payloads[n:]))
            del payloads[n:]
            size = sum(map(len, payloads))
        if self.room is not None:
            self.room[self.shard] -= n
        if self.sent + n < stop:
            self._gaps.appendleft((self.sent + n, stop))
        batch.payloads = payloads
        if self.weights:
            batch.weights = [self.weights.popleft() for _ in range(n)]
        self.taken_bytes += size
        return batch

    def choose(self) -> int:
        """Return the shard that the next frame goes to: of lost documents, one that has lost some."""
        shard = super().choose()
        if self.room is None or self.room[shard] > 0:
            return shard
        return max(range(len(self.room)), key=self.room.__getitem__)

    def _judge(self, answer: dict[str, Any]) -> None:
        if self.room is not None and answer["verdict"] == Verdict.SEALED.name and self.failure is None:
            raise NotSentAgain(run=self.opening.record["name"])
        super()._judge(answer)

    def _encode(self, parcel: list[Batch]) -> tuple[dict[str, Any], Sequence[bytes]]:
        meta, parts = super()._encode(parcel)
        return meta | ({} if self.claim is None else {"lost": self.claim}), parts

    def _confirmed(self, batch: Batch, first: int | None) -> None:
        super()._confirmed(batch, first)
        self.held.add(batch.ordinal, batch.ordinal + len(batch.payloads))
        lo, hi = next(iter(self.held))
        self.through = 0 if lo else hi

    def _refused(self, batch: Batch, error: DqlabError) -> None:
        super()._refused(batch, error)
        self._refusals.append(batch)
