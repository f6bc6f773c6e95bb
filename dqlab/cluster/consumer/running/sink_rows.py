"""Results of a run that has a sink: opened as rows, with what is known of their making, and settled as references."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.consumer.running.execution import Origin, failed
from dqlab.cluster.transport.sealed import open_value
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.alike import Alike, alike
from dqlab.datasets.sink_parts import SinkRows
from dqlab.documents import label_of
from dqlab.frame import Outcome

__all__ = ["code_in", "opened_rows", "rows_alike", "settled_rows"]


def code_in(blob: bytes | None) -> str:
    """Return the short code version of a packed function; "" of one that was lost."""
    return "" if blob is None else str(unpack(blob)[0]["code"])


def rows_alike(work: Iterable[tuple[Chunk, Sequence[Done]]]) -> Alike | None:
    """Return the values of all results of some chunks, if they are rows that are pickled alike."""
    acked = Outcome.ACK
    payloads = [each[2] for _, done in work for each in done if each[1] is acked]
    return alike(payloads, [list(map(len, payloads))], arrow=True)


def opened_rows(
    chunk: Chunk, done: Sequence[Done], origin: Origin, *, without_values: bool = False
) -> tuple[SinkRows, list[Done | None]]:
    """Return results as rows, and for each outcome None where it is one of them, else the outcome as it is to be.

    That is a failure of its message, where the value of a result cannot be opened here.
    """
    code, acked = chunk.code, Outcome.ACK
    kept, values, others = list[Done](), list[Any](), list[Done | None]()
    if without_values and all(each[1] is acked for each in done):
        kept, values, others = list(done), [None] * len(done), [None] * len(done)
    else:
        for each in done:
            index, outcome, payload, key = each
            other: Done | None = None if outcome is acked else each
            if other is None:
                try:
                    values.append(None if without_values else open_value(payload))
                except Exception as error:  # noqa: BLE001 - opening runs users' code
                    other = failed(index, error, origin, code, key, 0.0)
                else:
                    kept.append(each)
            others.append(other)
    if not kept:
        return SinkRows(), others
    # Column by column: with a step of a loop for each row this takes as long as writing them.
    n, indexes = len(kept), [each[0] for each in kept]
    now = time.perf_counter()
    since, ended, versions = time.time() - now, chunk.ended, chunk.versions
    labels = [None if each[3] is None else label_of(each[3]) for each in kept]
    columns = (
        chunk.ordinals_at(indexes),
        labels,
        values,
        [versions.get(index) for index in indexes] if versions else [None] * n,
        [code] * n,
        chunk.seconds_at(indexes),
        chunk.attempts_at(indexes),
        [chunk.consumer] * n,
        [since + (ended[index] or now) for index in indexes],
    )
    return SinkRows(columns), others


def settled_rows(
    chunk: Chunk,
    done: Sequence[Done],
    others: Sequence[Done | None],
    references: Iterator[bytes | Exception],
    origin: Origin,
) -> list[Done]:
    """Return outcomes as they are settled: references in place of results, failures of what a sink does not take.

    Parameters
    ----------
    others : sequence
        As `opened_rows` returns them.
    references : iterator
        One for each row; what is left is that of other chunks.
    """
    acked, code = Outcome.ACK, chunk.code
    if not any(others):
        some = list(islice(references, len(done)))
        written = [each for each in some if isinstance(each, bytes)]
        if len(written) == len(some):
            return [(each[0], acked, reference, each[3]) for each, reference in zip(done, written, strict=True)]
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
