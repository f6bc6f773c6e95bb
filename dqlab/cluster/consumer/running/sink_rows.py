"""Results of a run with a sink: opened as rows with their lineage, and settled as references."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Origin, failed
from dqlab.cluster.consumer.running.outcomes import Columns
from dqlab.cluster.transport.alike import open_alike
from dqlab.datasets.sink_parts import SinkRows
from dqlab.frame import Outcome


@dataclass(frozen=True, slots=True)
class Opened:
    """Outcomes whose results are to be written."""

    done: Columns
    """What is to be settled, but for the results."""
    places: Sequence[int]
    """Which of them are rows."""
    rows: SinkRows


def opened_rows(chunk: Chunk, done: Columns, origin: Origin) -> Opened:
    """Open results as rows."""
    acked, payloads, values = Outcome.ACK, done.payloads, list[Any]()
    places: Sequence[int] = range(len(payloads))
    if done.outcomes.count(acked) < len(payloads):
        places = [place for place in places if done.outcomes[place] is acked]
    try:
        # All at once, as nearly always; a value that cannot be opened is found below.
        values = open_alike([payloads[place] for place in places])
    except Exception:  # noqa: BLE001 - opening runs users' code
        done, places, values = _opened_one_by_one(chunk, done, places, origin)
    if not places:
        return Opened(done, places, SinkRows())
    # Column by column: a loop over rows takes as long as writing them.
    n, indexes, keys = len(places), [done.positions[place] for place in places], done.keys
    if n < len(payloads):
        keys = [keys[place] for place in places]
    now = time.perf_counter()
    since, versions = time.time() - now, chunk.versions
    columns = (
        chunk.ordinals_at(indexes),
        keys,
        values,
        list(map(versions.get, indexes)),
        [chunk.code] * n,
        chunk.seconds_at(indexes),
        chunk.attempts_at(indexes),
        [chunk.lease.consumer] * n,
        [since + (chunk.ended[index] or now) for index in indexes],
    )
    return Opened(done, places, SinkRows(columns, [] if chunk.columns is None else [chunk.columns]))


def _opened_one_by_one(
    chunk: Chunk, done: Columns, places: Sequence[int], origin: Origin
) -> tuple[Columns, list[int], list[Any]]:
    """Return outcomes, the places of results among them, and their values; others have become failures."""
    found, rows, values = list(zip(*done, strict=True)), list[int](), list[Any]()
    for place in places:
        index, _, payload, key = found[place]
        try:
            values.append(pickle.loads(payload))
            rows.append(place)
        except Exception as error:  # noqa: BLE001 - opening runs users' code
            found[place] = failed(index, error, origin, chunk.code, key, 0.0)
    return Columns.of(found), rows, values


def settled_rows(chunk: Chunk, opened: Opened, references: Sequence[bytes | Exception], origin: Origin) -> Columns:
    """Return the outcomes to settle, with references in place of results and failures of rows that the sink rejects."""
    before = opened.done
    done = Columns(list(before.positions), list(before.outcomes), list(before.payloads), list(before.keys))
    positions, outcomes, payloads, keys = done
    for place, reference in zip(opened.places, references, strict=True):
        if isinstance(reference, bytes):
            payloads[place] = reference
        else:
            failure = failed(positions[place], reference, origin, chunk.code, keys[place], 0.0)
            _, outcomes[place], payloads[place], _ = failure
    return done
