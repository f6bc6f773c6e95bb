"""Work on the queues of a store that nobody has open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from dqlab.log import LogOptions
from dqlab.rules.options import QueueOptions
from dqlab.rules.retry import Retry
from dqlab.store.compaction import MOSTLY, Compacted, compaction, run_through
from dqlab.store.directories import NotAQueue, StoredQueue, read_queue, shard_directory, stored_directories
from dqlab.store.shard import DurableShard

__all__ = ["compact_offline"]


def compact_offline(directory: Path, progress: Callable[[str, int, int], None]) -> Iterator[tuple[str, Compacted]]:
    """Compact each shard of a queue, or of all queues of a store; yield its name and what that gave.

    Parameters
    ----------
    directory : Path
        A store, or one queue's directory.
    progress : callable
        Called with the shard's name, bytes gone through and bytes in all.

    Raises
    ------
    NotAQueue
        There is no queue.
    LogError
        A log cannot be opened; its subclasses say why. What was compacted before stays so.
    """
    queues = stored_directories(directory)
    if not queues:
        hint = "Give a store, or one queue's directory in it."
        raise NotAQueue(directory=str(directory), reason="no queue.json is in it or below", hint=hint)
    for path in queues:
        queue = read_queue(path)
        assert queue is not None, "only directories of queues are listed"
        for index in range(queue.shards):
            name = f"{queue.name}/{index}"
            yield name, _compact(path, queue, index, partial(progress, name))


def _compact(path: Path, queue: StoredQueue, index: int, progress: Callable[[int, int], None]) -> Compacted:
    kept = queue.options
    options = QueueOptions(
        kept["visibility_timeout"],
        kept["max_deliveries"],
        Retry(**kept["retry"]),
        kept["maxsize"],
        kept["max_bytes"],
    )
    shard = DurableShard.open(
        shard_directory(path, index), queue.name, index, options, log_options=LogOptions(), owner="dqlab compact"
    )
    try:
        return run_through(compaction(shard, below=MOSTLY, progress=progress))
    finally:
        shard.journal.log.close()
