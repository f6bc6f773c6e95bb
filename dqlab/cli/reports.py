"""The reports of `dqlab store check` and `dqlab store show` as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dqlab.numbers import many
from dqlab.store.verbs import CheckReport, Level, ShardCheck, describe_ids
from dqlab.texts import one_line

_LONG = 2_000
_WORDS = {
    Level.CLEAN: "clean",
    Level.DAMAGED: "damaged, but nothing is lost",
    Level.LOST: "data lost",
    Level.UNREADABLE: "cannot be opened as it is",
}


def show_text(found: dict[str, Any]) -> str:
    """Return the contents of a store, one line for each fact."""
    return "\n".join(_facts({f"queue {queue['name']}": queue for queue in found["queues"]}))


def _facts(known: Mapping[Any, Any], indent: str = "") -> Iterator[str]:
    """Yield plain data as indented lines, without what is empty."""
    for name, value in known.items():
        if isinstance(value, dict | tuple | list) and value:
            yield f"{indent}{one_line(name)}:"
            yield from _facts(value if isinstance(value, dict) else dict(enumerate(value)), indent + "  ")
        elif value not in (None, "", (), {}, []):
            text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
            yield f"{indent}{one_line(name)}: {one_line(text, _LONG)}"


def check_text(found: CheckReport) -> str:
    """Return the findings, what to do next, and the verdict."""
    lines: list[str] = []
    for queue in found.queues:
        lines.append(f"queue {one_line(queue.name)}: {one_line(queue.directory, _LONG)}")
        lines += [f"  - {one_line(finding, _LONG)}" for finding in queue.findings]
        for shard in queue.shards:
            lines += _shard_check(shard)
    shards = list(found.shards())
    if found.level:
        lines.append(f"next: {found.level.advice}")
    verdict = f"{many(len(shards), 'shard')} checked: {_WORDS[found.level]}."
    return "\n".join([*lines, f"{verdict} Exit status {int(found.level)}."])


def _shard_check(shard: ShardCheck) -> Iterator[str]:
    size = f"{many(shard.segments, 'segment')}, {many(shard.records, 'record')}"
    yield f"  shard {shard.index:03d}: {_WORDS[shard.level]} ({size})"
    for finding in shard.findings:
        yield f"    - {one_line(finding, _LONG)}"
    if shard.lost:
        yield f"    lost in all: {describe_ids(shard.lost)}"
