"""Room `log`: a durable shard alone, rules and log in this process, beside raw writes, SQLite and LMDB.

Not part of `make bench`, which looks at the whole way of a message; `make bench-log` measures it.

::

    log_shard       one shard, opened, filled, emptied
    log_peers       raw writes, SQLite; LMDB in a process of its own
    log_puts        batches, one by one, many producers
    log_gets        gets and acks
    log_reopening   full queues, long histories: memory, disk, checkpoints, reopening
    log_compaction  puts beside a compaction
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from benchmarks.figures import Figure
from benchmarks.log_compaction import puts_beside_compaction
from benchmarks.log_gets import gets_and_acks, scattered_acks
from benchmarks.log_peers import Lmdb
from benchmarks.log_puts import group_commit, puts, single_puts
from benchmarks.log_reopening import full_queue, history
from benchmarks.processes import ChildFailed
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["log"]


def log(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure puts, gets, acks, full queues, histories and compaction of one shard."""
    with _directory() as directory, _lmdb(stage, sizes, directory) as lmdb:
        return [
            *puts(directory, lmdb, sizes),
            *single_puts(directory, sizes),
            *group_commit(directory, sizes),
            *gets_and_acks(directory, lmdb, sizes),
            *scattered_acks(directory, sizes),
            *full_queue(directory, sizes, batch=100),
            *full_queue(directory, sizes, batch=1),
            *history(directory, sizes),
            puts_beside_compaction(directory, sizes),
        ]


@contextmanager
def _directory() -> Iterator[Path]:
    path = Path(mkdtemp(prefix="bench-log-", dir=Path.cwd()))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def _lmdb(stage: Stage, sizes: Sizes, directory: Path) -> Iterator[Lmdb | None]:
    try:
        lmdb = Lmdb(stage.say, directory, install=sizes.full)
    except ChildFailed as reason:
        stage.say(f"SKIPPED LMDB, and all rows over it: {reason}")
        yield None
        return
    try:
        yield lmdb
    finally:
        lmdb.close()
