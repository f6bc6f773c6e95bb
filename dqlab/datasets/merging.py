"""Small parts of a sink become large ones, and what nothing refers to goes.

The references in the log of a queue stay as they are. Beside a part that others were merged into stands a small file
with their names, and where each begins: it is there before one of them is deleted, so a reader finds its rows at any
moment, and after a crash at any line of this. Knows no run; see `Reader.opened` for the other side.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dqlab.datasets.parts import Reader, SinkRow, is_moved, open_parts, referred, writer_of
from dqlab.datasets.sinks import CLAIM, JSONL, Parquet, prefix_of
from dqlab.datasets.targets import WRITING, Target
from dqlab.numbers import many

__all__ = ["Compaction", "compact", "merge"]

SMALL = 0.5
"""Share of the rows of a full part below which a part is small."""
MERGED_BYTES = 64 << 20
"""Bytes in memory of the rows of a merged part."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What became of the parts of a sink.

    Attributes
    ----------
    before, after : int
        Parts that the run's rows stand in.
    merged : int
        Parts that were merged into others.
    swept : int
        Files that nothing refers to, and were deleted.
    """

    before: int = 0
    after: int = 0
    merged: int = 0
    swept: int = 0

    def __str__(self) -> str:
        swept = f", {many(self.swept, 'file')} that nothing refers to deleted" if self.swept else ""
        return f"{many(self.before, 'part')} before, {self.after:,} now{swept}"


def compact(sink: Parquet, run: str, id: str, references: Iterable[tuple[int, bytes]], *, sweep: bool) -> Compaction:
    """Merge small parts of a run with their neighbours in the order of the input.

    Parameters
    ----------
    references : iterable of (int, bytes)
        Of all rows that count, each with its ordinal.
    sweep : bool
        Delete parts without a row that counts: only where no settlement is on its way.

    Raises
    ------
    PartError
        A part that is to be merged cannot be read; nothing of it is deleted.
    OSError
    """
    target, reader = sink.target, Reader(sink, run, id)
    reader.look_for_moved()
    first: dict[str, int] = {}
    for ordinal, reference in references:
        part, _ = referred(reference)
        first[part] = min(ordinal, first.get(part, ordinal))
    places: dict[str, int] = {}
    for part, ordinal in first.items():
        now = reader.moved.get(part, (part, 0))[0]
        places[now] = min(ordinal, places.get(now, ordinal))
    merged = made = 0
    group: list[str] = []
    rows = nbytes = 0
    ends: list[str | None] = [*sorted(places, key=places.__getitem__), None]
    for place in ends:
        size = 0 if place is None else len(reader.opened(place, 1)[0])
        small = place is not None and size < SMALL * sink.rows
        if group and (not small or rows + size > sink.rows or nbytes >= MERGED_BYTES):
            if len(group) > 1:
                merge(sink, run, id, group)
                merged, made = merged + len(group), made + 1
            group, rows, nbytes = [], 0, 0
        if small and place is not None:
            group.append(place)
            rows, nbytes = rows + size, nbytes + reader.opened(place, 1)[0].nbytes
    swept = _sweep(target, id, set(first)) if sweep else 0
    return Compaction(len(places), len(places) - merged + made, merged, swept)


def merge(sink: Parquet, run: str, id: str, parts: Sequence[str]) -> str:
    """Write the rows of some parts as one, then delete them; return its name.

    Raises
    ------
    PartError
        One cannot be read.
    """
    target, reader = sink.target, Reader(sink, run, id)
    gathered: list[SinkRow] = []
    of: list[tuple[str, int, int]] = []
    before = _listed_in(target, id)
    for part in parts:
        opened, _ = reader.opened(part, 1)
        begins = len(gathered)
        keys, ordinals = opened.whose()
        found = opened.rows(range(len(opened))) if len(opened) else []
        for key, ordinal, (value, lineage) in zip(keys, ordinals, found, strict=True):
            version, code, seconds, consumer, at = lineage.values()
            gathered.append(SinkRow(ordinal, key, value, version, code, seconds, consumer, at.timestamp()))
        of.append((part, begins, len(opened)))
        of += [(earlier, begins + at, n) for earlier, at, n in before.get(part, ("", ()))[1]]
    stem = f"{prefix_of(id)}m-{uuid.uuid4().hex[:12]}"
    written = writer_of(sink, run, id, "here").write(stem, gathered)
    places = [referred(each) for each in written if isinstance(each, bytes)]
    name = f"{stem}{'.jsonl' if isinstance(sink, JSONL) else '.parquet'}"
    if places != [(name, at) for at in range(len(gathered))]:  # a row that was written once can be written again
        target.delete(name)
        raise ValueError(f"{len(gathered) - len(places):,} rows of {len(parts):,} parts cannot be written again")
    target.write(f"{stem}.json", json.dumps({"into": name, "of": of}).encode())
    for part in parts:
        if part in before:
            target.delete(before[part][0])
        target.delete(part)
    open_parts.forget()
    return name


def _listed_in(target: Target, id: str) -> Mapping[str, tuple[str, list[tuple[str, int, int]]]]:
    """Return, by merged part, the file with what was merged into it, and what that was."""
    found = {}
    for name in target.names():
        if is_moved(name, id):
            listed = json.loads(target.read(name))
            found[listed["into"]] = name, [(part, first, n) for part, first, n in listed["of"]]
    return found


def _sweep(target: Target, id: str, wanted: set[str]) -> int:
    """Delete what is in no way to a wanted part; return how many files that were."""
    listed = _listed_in(target, id)
    needed = set(wanted)
    for into, (name, of) in listed.items():
        if any(part in wanted for part, _, _ in of):
            needed |= {into, name}
    swept = 0
    for name in target.names():
        if name == CLAIM or name in needed:
            continue
        if name.startswith(prefix_of(id)) or (name.startswith(".") and WRITING in name):
            target.delete(name)
            swept += 1
    return swept
