"""One durable shard in this process: opened, filled, emptied as a queue actor does it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dqlab.frame import NO_ID, Frame, Kind, Piece, Settlement
from dqlab.log.files import Files
from dqlab.log.writer import LogOptions, SyncMode
from dqlab.rules.leases import Lease
from dqlab.rules.retry import QueueOptions
from dqlab.store.durable_shard import DurableShard

__all__ = ["ack", "close", "drain", "frames", "open_shard", "order", "pieces_of", "put", "settle"]

FRAMES = 10
COMMIT_EVERY = 1_000_000
"""Bytes of frames put between two commits, where putting is not what is measured."""


def frames(size: int, batch: int, run: bytes = NO_ID) -> list[Frame]:
    """Return ten frames of random messages."""
    blobs = [Frame.encode([os.urandom(size) for _ in range(batch)], kind=Kind.VALUE, run=run) for _ in range(FRAMES)]
    return [Frame.decode(blob) for blob in blobs]


def open_shard(directory: Path, sync: SyncMode = "os", files: Files | None = None) -> DurableShard:
    """Open a shard without limits."""
    options = QueueOptions(maxsize=None, max_bytes=None)
    return DurableShard.open(directory, "bench", 0, options, log_options=LogOptions(sync=sync), files=files)


def close(shard: DurableShard) -> None:
    """Close a shard and remove its files."""
    shard.journal.log.close(clean=False)
    shutil.rmtree(shard.journal.log.directory)


def put(shard: DurableShard, those: Sequence[Frame], n: int) -> None:
    """Put `n` frames and commit them, some at a time."""
    every = max(1, COMMIT_EVERY // those[0].nbytes)
    for at in range(n):
        shard.ledger.shard.put(those[at % len(those)])
        if at % every == 0:
            shard.journal.log.commit()
    shard.journal.log.commit()


def order(shard: DurableShard, op: str, run: bytes | None, meta: dict[str, Any] | None = None) -> None:
    """Give an order, and have it recorded."""
    meta = meta or {}
    shard.ledger.obey(op, run, meta)


def pieces_of(lease: Lease) -> list[Piece]:
    """Return all that was leased, as a settlement names it."""
    return [Piece(piece.frame + piece.lo, piece.ordinal, piece.n) for piece in lease.pieces]


def ack(lease: Lease, pieces: Sequence[Piece], epoch: int) -> bytes:
    """Return the bytes in which a consumer sends that these are done, with empty results."""
    n = sum(piece.n for piece in pieces)
    return Settlement.encode(pieces, bytes(n), [b""] * n, run=lease.run, epoch=epoch, lease=lease.id)


def settle(shard: DurableShard, settlement: Settlement) -> None:
    """Apply a settlement and append it."""
    shard.ledger.settle(settlement)


def drain(shard: DurableShard, batch: int) -> None:
    """Lease and ack everything that is ready."""
    rules = shard.ledger.shard
    while (lease := rules.lease("consumer", batch)) is not None:
        settle(shard, Settlement.decode(ack(lease, pieces_of(lease), rules.epoch)))
        if shard.journal.log.pending_bytes > COMMIT_EVERY:
            shard.journal.log.commit()
    shard.journal.log.commit()
