"""Results of a run that has a sink: opened as rows, with what is known of their making, and settled as references."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.consumer.running.execution import Origin, failed
from dqlab.cluster.transport.sealed import open_value
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.alike import Alike, alike
from dqlab.datasets.parts import SinkRows
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
    return alike([b"".join(payloads)], [list(map(len, payloads))])


def opened_rows(
    chunk: Chunk, done: Sequence[Done], origin: Origin, *, without_values: bool = False
) -> tuple[SinkRows, list[Done | None]]:
    """Return results as rows, and for each outcome None where it is one of them, else the outcome as it is to be.

    That is a failure of its message, where the value of a result cannot be opened here.
    """
    code, load, acked = chunk.code, _left_closed if without_values else open_value, Outcome.ACK
    rows = SinkRows()
    ordinals, labels, values, versions, codes, took, attempts, consumers, moments = rows.columns
    others: list[Done | None] = [None] * len(done)
    now = time.perf_counter()
    since = time.time() - now
    for place, each in enumerate(done):
        index, outcome, payload, key = each
        if outcome is not acked:
            others[place] = each
            continue
        try:
            value = load(payload)
        except Exception as error:  # noqa: BLE001 - opening runs users' code
            others[place] = failed(index, error, origin, code, key, 0.0)
            continue
        ordinals.append(index)
        labels.append(None if key is None else label_of(key))
        values.append(value)
        versions.append(chunk.versions.get(index))
        attempts.append(chunk.attempt_at(index))
        moments.append(since + (chunk.ended[index] or now))
    took += chunk.seconds_at(ordinals) if ordinals else []
    ordinals[:] = chunk.ordinals_at(ordinals)
    codes += [code] * len(ordinals)
    consumers += [chunk.consumer] * len(ordinals)
    return rows, others


def _left_closed(payload: bytes | memoryview) -> None:
    """Open nothing: the values are known otherwise."""


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
