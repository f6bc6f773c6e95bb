"""What a consumer tells its slots."""

from __future__ import annotations

from collections.abc import Callable

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin, Work

__all__ = ["SlotOptions"]


class SlotOptions:
    """What a consumer tells its slots.

    Attributes
    ----------
    batch : int
        Most messages in one lease.
    early : bool
        Early ack: at most once.
    concurrency : int
        Coroutines at a time.
    values : callable or None
        Makes the function that takes plain values (a consumer's own process_item).
    calls : callable or None
        Makes what runs a chunk's calls in place of their function.
    """

    def __init__(
        self,
        *,
        batch: int,
        early: bool,
        concurrency: int,
        origin: Origin,
        values: Callable[[], Work] | None,
        calls: Callable[[Work, Chunk], Work] | None = None,
    ) -> None:
        self.batch, self.early, self.concurrency, self.origin = batch, early, concurrency, origin
        self.values, self.calls = values, calls
