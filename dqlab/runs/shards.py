"""A queue's shards, one by one, under the names the ancestor gave them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.transport.handle import Handle
from dqlab.rules.states import State

__all__ = ["ShardView", "Shards"]


@dataclass(frozen=True)
class ShardView:
    """One shard of a queue. Every method asks it anew.

    Attributes
    ----------
    index : int
        Which one, from 0.
    """

    handle: Handle
    index: int

    def __repr__(self) -> str:
        return f"<shard {self.index} of queue {self.handle.name!r}>"

    def stats(self) -> dict[str, Any]:
        """Return the shard's totals as it reports them to the scheduler; counts by lane."""
        totals, _ = self.handle.link.sync(self.handle.ask(self.index, "stats", {}))
        return totals

    def qsize(self) -> int:
        """Return messages that are ready, delayed or leased."""
        return sum(sum(lane["counts"][state] for state in State if state.alive) for lane in self.stats()["lanes"])

    def empty(self) -> bool:
        """Return whether nothing is ready, delayed or leased."""
        return self.qsize() == 0


class Shards:
    """What a queue pool says of its shards: ``len(pool)``, ``pool[i]``, sizes."""

    handle: Handle

    def __len__(self) -> int:
        return len(self.handle.refs)

    def __getitem__(self, index: int) -> ShardView:
        return ShardView(self.handle, range(len(self))[index])

    def __iter__(self) -> Iterator[ShardView]:
        return (ShardView(self.handle, index) for index in range(len(self)))

    def get_len(self) -> int:
        """Return the number of shards."""
        return len(self)

    def get_queue(self, idx: int) -> ShardView:
        """Return one shard, as ``pool[idx]`` does."""
        return self[idx]

    def get_queues(self) -> list[ShardView]:
        """Return all shards."""
        return list(self)

    def get_queue_size(self) -> dict[int, int]:
        """Return how many messages are ready, delayed or leased in each shard, by its index."""
        return {shard.index: shard.qsize() for shard in self}

    def print(self) -> str:
        """Return a line for each shard, with what waits and runs there."""
        sizes = self.get_queue_size().items()
        return "\n".join([f"{self!r}", *(f"  shard {index}: {size:,} messages" for index, size in sizes)])
