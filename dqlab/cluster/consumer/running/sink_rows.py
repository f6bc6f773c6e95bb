"""Results of a run with a sink: opened as rows with their lineage, and settled as references."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice, repeat
from operator import itemgetter
from typing import Any

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.consumer.running.execution import Origin, failed
from dqlab.cluster.transport.sealed import open_value
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.sink_parts import SinkRows
from dqlab.documents import label_of
from dqlab.frame import Outcome

__all__ = ["acked_payloads", "code_in", "columns_in", "opened_rows", "settled_rows"]

_POSITION, _OUTCOME, _PAYLOAD, _KEY = map(itemgetter, range(4))


def code_in(blob: bytes | None) -> str:
    """Return the short code version of a packed function, or "" if it was lost."""
    return "" if blob is None else str(unpack(blob)[0]["code"])


def columns_in(blob: bytes | None) -> dict[str, Any] | None:
    """Return the columns of `datasets.schemas` that a packed function declares for its results, or None."""
    columns: dict[str, Any] | None = None if blob is None else unpack(blob)[0].get("plan", {}).get("columns")
    return columns


def acked_payloads(done: Sequence[Done]) -> list[bytes]:
    """Return the payloads of the acks among some outcomes."""
    return list(map(_PAYLOAD, done if _all_acked(done) else [each for each in done if each[1] is Outcome.ACK]))


def _all_acked(done: Sequence[Done]) -> bool:
    return list(map(_OUTCOME, done)).count(Outcome.ACK) == len(done)


def opened_rows(chunk: Chunk, done: Sequence[Done], origin: Origin) -> tuple[SinkRows, list[Done | None]]:
    """Return results as rows, and for each outcome None if it became a row, else the outcome to settle."""
    # A result that cannot be opened here becomes a failure of its message.
    code, acked = chunk.code, Outcome.ACK
    kept, values, others = list[Done](), list[Any](), list[Done | None]()
    if _all_acked(done):
        # All at once, as nearly always; a value that cannot be opened is found below.
        with suppress(Exception):
            values = [open_value(payload) for _, _, payload, _ in done]
            kept, others = list(done), [None] * len(done)
    for each in () if kept else done:
        index, outcome, payload, key = each
        other: Done | None = None if outcome is acked else each
        if other is None:
            try:
                values.append(open_value(payload))
            except Exception as error:  # noqa: BLE001 - opening runs users' code
                other = failed(index, error, origin, code, key, 0.0)
            else:
                kept.append(each)
        others.append(other)
    if not kept:
        return SinkRows(), others
    # Column by column: a loop over rows takes as long as writing them.
    n, indexes, keys = len(kept), list(map(_POSITION, kept)), list(map(_KEY, kept))
    now = time.perf_counter()
    since, versions = time.time() - now, chunk.versions
    labels = keys if keys.count(None) == n else [None if key is None else label_of(key) for key in keys]
    columns = (
        chunk.ordinals_at(indexes),
        labels,
        values,
        [versions.get(index) for index in indexes] if versions else [None] * n,
        [code] * n,
        chunk.seconds_at(indexes),
        chunk.attempts_at(indexes),
        [chunk.lease.consumer] * n,
        [since + (ended or now) for ended in chunk.ended_at(indexes)],
    )
    return SinkRows(columns, [] if chunk.columns is None else [chunk.columns]), others


def settled_rows(
    chunk: Chunk,
    done: Sequence[Done],
    others: Sequence[Done | None],
    references: Iterator[bytes | Exception],
    origin: Origin,
) -> list[Done]:
    """Return the outcomes to settle, with references in place of results and failures of rows that the sink rejects."""
    # Takes as many references as the chunk has rows: the iterator goes on to the next chunk. `others` is what
    # `opened_rows` has returned for the same outcomes.
    acked, code = Outcome.ACK, chunk.code
    if not any(others):
        some = list(islice(references, len(done)))
        if set(map(type, some)) == {bytes}:
            acks = repeat(acked, len(some))
            return list(zip(map(_POSITION, done), acks, some, map(_KEY, done), strict=True))  # type: ignore[arg-type]
        references = iter(some)
    made: list[Done] = []
    for each, other in zip(done, others, strict=True):
        if other is not None:
            made.append(other)
            continue
        index, _, _, key = each
        reference = next(references)
        if isinstance(reference, bytes):
            made.append((index, acked, reference, key))
        else:
            made.append(failed(index, reference, origin, code, key, 0.0))
    return made
