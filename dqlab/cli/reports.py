"""The reports of `dqlab store check` and `dqlab store show` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from dqlab.log.ownership import Holder
from dqlab.numbers import many
from dqlab.store.verbs import CheckReport, Level, QueueInfo, RunInfo, ShardCheck, ShardInfo, StoreInfo, describe_ids
from dqlab.texts import one_line

_LONG = 2_000
_WORDS = {
    Level.CLEAN: "clean",
    Level.DAMAGED: "damaged, but nothing is lost",
    Level.LOST: "data lost",
    Level.UNREADABLE: "cannot be opened as it is",
}


def show_text(found: StoreInfo) -> str:
    """Return the contents of a store, one line for each fact."""
    lines: list[str] = []
    for queue in found.queues:
        lines += [*_queue(queue), ""]
    return "\n".join(lines[:-1])


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


# --- check ----------------------------------------------------------------------------------


def _shard_check(shard: ShardCheck) -> Iterator[str]:
    size = f"{many(shard.segments, 'segment')}, {many(shard.records, 'record')}"
    yield f"  shard {shard.index:03d}: {_WORDS[shard.level]} ({size})"
    for finding in shard.findings:
        yield f"    - {one_line(finding, _LONG)}"
    if shard.lost:
        yield f"    lost in all: {describe_ids(shard.lost)}"


# --- show -----------------------------------------------------------------------------------


def _queue(queue: QueueInfo) -> Iterator[str]:
    yield f"queue {one_line(queue.name)}: {one_line(queue.directory, _LONG)}"
    if queue.error is not None:
        yield f"  {one_line(queue.error, _LONG)}"
    if queue.options:
        yield f"  options: {one_line(_options(queue.options), _LONG)}"
    runs = [(shard.index, run) for shard in queue.shards for run in shard.runs]
    yield from _indented(_run_table(runs), 2)
    for shard in queue.shards:
        yield from _indented(_shard(shard), 2)


def _options(options: dict[str, Any]) -> str:
    flat = {key: value for key, value in options.items() if not isinstance(value, dict)}
    nested = {
        f"{key}.{name}": value
        for key, inner in options.items()
        if isinstance(inner, dict)
        for name, value in inner.items()
    }
    return " ".join(f"{key}={_number(value)}" for key, value in (flat | nested).items())


def _run_table(runs: Sequence[tuple[int, RunInfo]]) -> Iterator[str]:
    if not runs:
        return
    names = {run.run: run.name for _, run in runs if run.name}
    states = [state for state in runs[0][1].counts if any(run.counts[state] for _, run in runs)]
    rows = [["run", "name", "shard", *states, "results", "oldest ready"]]
    for index, run in runs:
        counts = [f"{run.counts[state]:,}" for state in states]
        oldest = "-" if run.oldest_ready_s is None else f"{run.oldest_ready_s:,.0f} s"
        name = one_line(names.get(run.run, "-"))
        rows.append([run.run[:8], name, str(index), *counts, f"{run.results:,}", oldest])
    yield from _aligned(rows, left=2)


def _shard(shard: ShardInfo) -> Iterator[str]:
    if shard.error is not None:
        yield f"shard {shard.index:03d}: {one_line(shard.error, _LONG)}"
        return
    ended = "closed" if shard.clean else "not closed"
    holder = shard.holder
    open_now = holder is not None and (holder.held or (holder.held is None and not shard.clean))
    state = _holder(holder) if holder is not None and open_now else ended
    yield f"shard {shard.index:03d}: format {shard.format}, epoch {shard.epoch:,}, {state}"
    if shard.nbytes is not None:
        yield "  bytes: " + ", ".join(f"{kind} {nbytes:,}" for kind, nbytes in shard.nbytes.items())


def _holder(holder: Holder) -> str:
    owner = f" ({one_line(holder.owner)})" if holder.owner else ""
    process = f"process {holder.pid} on {one_line(holder.host)}{owner}"
    if holder.held:
        return f"open in {process}"
    return f"last opened by {process}; whether it is still open cannot be seen from here"


# --- layout ---------------------------------------------------------------------------------


def _aligned(rows: Sequence[Sequence[str]], *, left: int) -> Iterator[str]:
    """Yield rows in columns, the first `left` of them aligned left and the others right."""
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    for row in rows:
        cells = [
            cell.ljust(w) if at < left else cell.rjust(w) for at, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _indented(lines: Iterator[str], by: int) -> Iterator[str]:
    for line in lines:
        yield " " * by + line


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
