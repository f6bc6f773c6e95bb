"""Pages of dead letters for views outside a client, made from failure records alone, so payloads stay sealed."""

from __future__ import annotations

from typing import Any

from dqlab.cluster.transport.calls import DeadCall, DeadRow
from dqlab.cluster.transport.queue_calls import QueueCalls, dead_counts
from dqlab.errors import BadOption, FrameCorrupt
from dqlab.failures.classes import NO_ANSWER
from dqlab.failures.failure import NO_ERROR, Failure, shown_name

MOST = 100
_NO_FAILURE = {
    "error": NO_ERROR,
    "at": "",
    "traceback": "",
    "fingerprint": NO_ANSWER,
    "version": "",
    "consumer": "",
    "when": 0.0,
    "logs": "",
    "cut": 0,
}
"""Fields of a message whose function never raised."""


async def dead_page(queue: QueueCalls, run: bytes | None, fingerprint: str, after: str, limit: int) -> dict[str, Any]:
    """Return {total, rows, next} of dead letters, or raise BadOption for an invalid `after` or `limit`."""
    if not 1 <= limit <= MOST:
        raise BadOption(option="limit", value=limit, problem=f"is 1 to {MOST}.")
    # `after` is the `next` of the page before; an empty one begins at the first page.
    begin = _place(after)
    classes = [fingerprint] if fingerprint else []
    by_shard = await dead_counts(queue, run, classes)
    places = sorted((shard, lane) for shard, lanes in enumerate(by_shard) for lane in lanes)
    rows: list[dict[str, Any]] = []
    last: tuple[int, bytes, int] | None = None
    for shard, lane in places:
        if (shard, lane) < begin[:2]:
            continue
        id = begin[2] if (shard, lane) == begin[:2] else -1
        asked = DeadCall(lane, id, limit + 1 - len(rows), classes, bare=True)
        answer, records = await queue.ask(shard, asked)
        for row, record in zip(answer.rows, records, strict=True):
            if len(rows) == limit:  # one more than asked for: there is a next page
                return _page(by_shard, rows, last)
            rows.append(described(row, bytes(record)))
            last = shard, lane, row.id
    return _page(by_shard, rows, None)


def _page(
    by_shard: list[dict[bytes, int]], rows: list[dict[str, Any]], last: tuple[int, bytes, int] | None
) -> dict[str, Any]:
    total = sum(count for lanes in by_shard for count in lanes.values())
    return {"total": total, "rows": rows, "next": None if last is None else f"{last[0]}-{last[1].hex()}-{last[2]}"}


def _place(after: str) -> tuple[int, bytes, int]:
    """Return the shard, lane and id that a page follows."""
    if not after:
        return 0, b"", -1
    try:
        shard, lane, id = after.split("-")
        return int(shard), bytes.fromhex(lane), int(id)
    except ValueError:
        problem = "is the 'next' of the page before; leave it out for the first page."
        raise BadOption(option="after", value=after[:80], problem=problem) from None


def described(row: DeadRow, record: bytes) -> dict[str, Any]:
    """Describe a dead letter from its row and its failure record."""
    id, ordinal, reason, deliveries, *_ = row
    failure = None
    if record:
        try:
            failure = Failure.from_bytes(record)
        except FrameCorrupt as error:
            reason = f"{reason}; {error}"
    known = {"id": id, "key": ordinal, "deliveries": deliveries, "reason": reason}
    if failure is None:
        return _NO_FAILURE | known | {"message": reason}
    return known | {
        "key": failure.key if failure.key is not None else ordinal,
        "error": shown_name(failure.error),
        "message": failure.message,
        "at": failure.at,
        "traceback": failure.traceback,
        "fingerprint": failure.fingerprint,
        "version": failure.code,
        "consumer": failure.consumer,
        "when": failure.when,
        "logs": failure.printed,
        "cut": failure.cut,
    }
