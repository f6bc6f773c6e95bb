"""Results of a run that has a sink: how they leave the function with what is known of their making, and open again.

A function of such a run returns a plain tuple in place of its value. So it comes the same way from a thread, from a
coroutine and from a process, and nothing is added to the loop over messages of other runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import MethodType
from typing import Any

from dqlab.cluster.consumer.running.chunk import Chunk, Done
from dqlab.cluster.consumer.running.execution import Origin, Work, check_called, failed
from dqlab.cluster.transport.sealed import open_value
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.parts import SinkRow
from dqlab.documents import Document, label_of
from dqlab.frame import Outcome

__all__ = ["code_in", "opened_rows", "referring", "refused_row", "rowed"]


def code_in(blob: bytes | None) -> str:
    """Return the short code version of a packed function; "" of one that was lost."""
    return "" if blob is None else str(unpack(blob)[0]["code"])


def rowed(work: Work) -> Work:
    """Return a function that gives its value with the seconds it took, when that was, and the document's version."""
    call, clock, now = work.call, time.perf_counter, time.time

    def made(value: Any, document: Any, began: float) -> tuple[Any, float, float, str]:
        version = ""
        if type(document) is Document:
            version = document.version
            if type(value) is MethodType:
                check_called(value, document)
        return value, clock() - began, now(), version

    async def awaited(document: Any) -> Any:
        began = clock()
        return made(await call(document), document, began)

    def called(document: Any) -> Any:
        began = clock()
        return made(call(document), document, began)

    return Work(awaited if work.is_coroutine else called, work.code, rows=True)


def opened_rows(chunk: Chunk, done: Sequence[Done], origin: Origin) -> tuple[list[SinkRow], list[Done | None]]:
    """Return results as rows, and for each outcome None where it is one of them, else the outcome as it is to be.

    That is a failure of its message, where the value of a result cannot be opened here.
    """
    code, consumer, load, ordinal_at = chunk.code, origin.consumer, open_value, chunk.ordinal_at
    rows: list[SinkRow] = []
    others: list[Done | None] = []
    for each in done:
        index, outcome, payload, key = each
        if outcome is not Outcome.ACK:
            others.append(each)
            continue
        try:
            value, seconds, at, version = load(payload)
        except Exception as error:  # noqa: BLE001 - opening runs users' code
            others.append(failed(index, error, origin, code, key, 0.0))
        else:
            label = None if key is None else label_of(key)
            rows.append(SinkRow(ordinal_at(index), label, value, version, code, seconds, consumer, at))
            others.append(None)
    return rows, others


def refused_row(chunk: Chunk, done: Done, error: Exception, origin: Origin) -> Done:
    """Return the failure of a message whose result a sink does not take."""
    index, _, _, key = done
    return failed(index, error, origin, chunk.code, key, 0.0)


def referring(done: Done, reference: bytes) -> Done:
    """Return an outcome whose payload is a reference."""
    index, _, _, key = done
    return index, Outcome.ACK, reference, key
