"""Keeps a transient shard's bytes: frames in memory, results in a vault."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dqlab.cluster.shard.vault import Vault
from dqlab.cluster.transport.wire import LARGE_PART
from dqlab.errors import DqlabError
from dqlab.frame import Frame, Settlement
from dqlab.rules.batches import Batch
from dqlab.rules.deliveries import Settled
from dqlab.rules.journal import Journal, MemoryJournal
from dqlab.rules.result_index import Stretch

__all__ = ["MemoryStore", "Store"]


class Store(Journal, Protocol):
    """A journal as a queue actor needs it."""

    @property
    def nbytes(self) -> int:
        """Bytes of results."""

    @property
    def end(self) -> int:
        """Number of the newest record."""

    @property
    def confirmed(self) -> int:
        """Number of the newest record that is as safe as the store promises."""

    @property
    def full(self) -> bool:
        """Whether no more results should be accepted."""

    @property
    def failure(self) -> DqlabError | None:
        """Why nothing can be kept any more."""

    @property
    def short(self) -> DqlabError | None:
        """Why nothing can be confirmed until there is room again."""

    @property
    def trouble(self) -> str:
        """Why results cannot be put where they belong, though they are kept elsewhere."""

    def no_room(self, nbytes: int) -> DqlabError | None:
        """Return the error for a frame of `nbytes` that cannot be kept, or None if it can."""

    async def durable(self, number: int | None = None) -> None:
        """Wait until the records up to a number, or all so far, are as safe as the store promises."""

    async def frame(self, batch: Batch) -> Frame:
        """Return the frame of a batch."""
        # Pass the lane's own `Batch`, not a copy: when compaction moves the frame, it updates `place` only there.

    async def read(self, stretch: Stretch) -> bytes | memoryview:
        """Return the settlement that contains a stretch of results."""

    async def close(self) -> None:
        """Release all files and memory."""


def _kept(blob: bytes | memoryview) -> bytes | memoryview:
    """Return a settlement's bytes to keep, copied unless they are large."""
    # A large part arrives in memory of its own. A small one is a view that would keep the whole message alive.
    return blob if len(blob) >= LARGE_PART else bytes(blob)


class MemoryStore(MemoryJournal):
    """A `Store` that ends with its process, with budgets in bytes for results in memory and in total."""

    failure = short = None
    end = confirmed = 0

    def __init__(self, memory_bytes: int, maxsize: int) -> None:
        super().__init__()
        self._vault = Vault(memory_bytes, maxsize)

    @property
    def nbytes(self) -> int:
        """Bytes of results."""
        return self._vault.nbytes

    @property
    def full(self) -> bool:
        """Whether no more results should be accepted."""
        return self._vault.full

    @property
    def trouble(self) -> str:
        """Why results cannot be written to a temporary file now."""
        return self._vault.trouble

    def settled(self, settlement: Settlement, settled: Settled) -> list[Stretch]:
        """Keep the accepted results, of the whole settlement or of parts."""
        if not settled.results:
            return []
        accepted = sum(piece.n for piece, _ in settled.results)
        if accepted == settlement.count:
            place = self._vault.add(_kept(settlement.blob))
            return [Stretch(piece, place, at) for piece, at in settled.results]
        return [Stretch(piece, self._vault.add(settlement.cut(piece, at)), 0) for piece, at in settled.results]

    def no_room(self, nbytes: int) -> None:
        """Return None, since only the bounds of lanes limit frames."""

    async def durable(self, number: int | None = None) -> None:
        """Return at once."""

    async def frame(self, batch: Batch) -> Frame:
        """Return a batch's frame."""
        return self.frames[batch.place]

    async def read(self, stretch: Stretch) -> bytes | memoryview:
        """Return the settlement that contains a stretch of results."""
        return await self._vault.read(stretch.place)

    def forgot(self, results: Iterable[Stretch]) -> None:
        """Free the space of results."""
        self._vault.forget({stretch.place for stretch in results})

    async def close(self) -> None:
        """Drop everything."""
        self._vault.close()
