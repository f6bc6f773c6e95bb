"""The two producers: plain puts, and the documents of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from dqlab.cluster.handle import Handle
from dqlab.cluster.sender import Batch, Entry, Sender, Ticket

__all__ = ["PutSender", "RunSender"]


class PutSender(Sender):
    """Plain puts of one client: each message with its function and its ticket."""

    buffer: deque[tuple[Entry, bytes, Ticket]]

    def append(self, entry: Entry, payload: bytes, ticket: Ticket) -> None:
        """Hand over one message; waits while the buffer is full."""
        self.buffer.append((entry, payload, ticket))
        self.buffered_bytes += len(payload)
        self.hand_over()

    def gather(self) -> Batch:
        """Take neighbours with the same function."""
        buffer, size = self.buffer, 0
        batch = Batch(buffer[0][0])
        while buffer and len(batch.payloads) < self.frame_messages and size < self.frame_bytes:
            entry, payload, ticket = buffer[0]
            if not entry.joins(batch.entry):
                break
            buffer.popleft()
            batch.payloads.append(payload)
            batch.tickets.append(ticket)
            size += len(payload)
        self.buffered_bytes -= size
        return batch


class RunSender(Sender):
    """The documents of one run: one function, no tickets, pages where they are known.

    `buffer` holds payloads and `weights`, if the run's first document has pages, their pages; both are
    appended to by the run's one thread, which calls `hand_over` after each message.
    """

    buffer: deque[bytes]

    def __init__(self, handle: Handle, entry: Entry, **options: Any) -> None:
        super().__init__(handle, patient=True, **options)
        self.entry = entry
        self.weights: deque[int] = deque()

    def go_on_behind(self, here: Sequence[int]) -> None:
        """Continue a run of which each shard holds so many documents already."""
        self.here = list(here)
        self.sent = sum(here)

    def gather(self) -> Batch:
        """Take as many as fit a frame by their mean size."""
        buffer, batch = self.buffer, Batch(self.entry)
        mean = self.buffered_bytes / max(1, len(buffer))
        n = max(1, min(len(buffer), self.frame_messages, int(self.frame_bytes / max(1.0, mean))))
        batch.payloads = [buffer.popleft() for _ in range(n)]
        if self.weights:
            batch.weights = [self.weights.popleft() for _ in range(n)]
        self.buffered_bytes -= sum(map(len, batch.payloads))
        return batch
