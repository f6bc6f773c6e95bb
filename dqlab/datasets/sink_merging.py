"""Small parts of a sink become large ones, and what nothing refers to goes.

The references in the log of a queue stay as they are. Beside a part that others were merged into stands a small file
with their names, and where each begins: it is there before one of them is deleted, so a reader finds its rows at any
moment, and after a crash at any line of this. Knows no run; see `Reader.opened` for the other side.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.datasets.plain import same
from dqlab.datasets.sink_parts import (
    PartMissing,
    Reader,
    SinkRow,
    is_merged,
    is_moved,
    open_parts,
    read_list,
    referred,
    writer_of,
)
from dqlab.datasets.sink_targets import WRITING, Target
from dqlab.datasets.sinks import CLAIM, Parquet, owner_of, prefix_of, was_dropped
from dqlab.errors import RunError
from dqlab.numbers import many

__all__ = ["AT_ONCE", "Compaction", "Ladder", "MergeUnderWay", "Unmergeable", "compact", "merge"]

AT_ONCE = 16
"""Parts of about one size that are merged together."""
SMALL = 0.5
"""Share of the rows of a full part below which a part is small."""
ATTEMPTS = 5
"""Times that a compaction begins again because consumers merge the same parts."""
MERGED_BYTES = 64 << 20
"""Bytes in memory of the rows of a merged part."""


class Ladder:
    """Small parts by size, and which of them are worth a merge: `AT_ONCE` of one step make one of the next.

    So a row is written again a few times, however many parts there are.

    Parameters
    ----------
    enough : int
        Rows from which on a part is left as it is.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._steps: dict[int, list[tuple[str, int]]] = {}

    def add(self, part: str, rows: int) -> None:
        """Note a part that was written."""
        if rows < self._enough:
            self._steps.setdefault(_step(rows), []).append((part, rows))

    def take(self) -> list[tuple[str, int]]:
        """Return parts to be merged now, each with its rows, and forget them; none while there are few."""
        for step, parts in self._steps.items():
            if len(parts) >= AT_ONCE:
                self._steps[step] = parts[AT_ONCE:]
                return parts[:AT_ONCE]
        return []


def _step(rows: int) -> int:
    step = 0
    while rows >= AT_ONCE:
        rows, step = rows // AT_ONCE, step + 1
    return step


class Unmergeable(ValueError):
    """The rows of some parts would not come back equal from one: they stay where they are."""


class MergeUnderWay(RunError):
    """Another client merges the parts of the same run."""

    text = (
        "another client merges the parts of run {run!r}, and has not ended within {seconds:g} s. Nothing was done "
        "here; it does what was asked for: call run.compact_sink() again to see what is left."
    )


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


def compact(
    sink: Parquet, run: str, id: str, references: Iterable[tuple[int, bytes]], *, sweep: Iterable[str]
) -> Compaction:
    """Merge small parts of a run with their neighbours in the order of the input.

    Parameters
    ----------
    references : iterable of (int, bytes)
        Of all rows that count, each with its ordinal.
    sweep : iterable of str
        Names in the folder: those without a row that counts are deleted. They are listed first, then the run is found
        to be done, then the references are read: a part that a retry writes meanwhile is not among these names.

    Raises
    ------
    PartError
        A part that is to be merged is gone, cannot be read or has fewer rows than were written; it is not deleted.
    OSError
    """
    wanted: dict[str, _Wanted] = {}
    for ordinal, reference in references:
        part, row = referred(reference)
        if part not in wanted:
            wanted[part] = _Wanted(ordinal)
        wanted[part].add(ordinal, row)
    rows = sum(its.rows for its in wanted.values())
    before = merged = made = 0
    for attempt in range(ATTEMPTS):
        reader = Reader(sink, run, id)
        with reader.naming("", rows):
            reader.look_for_moved()
        places = _places(wanted, reader)
        before = before or len(places)
        try:
            for group in _groups(places, sink, reader):
                with suppress(Unmergeable):
                    merge(sink, run, id, {part: places[part].least for part in group})
                    merged, made = merged + len(group), made + 1
        except FileNotFoundError as error:  # a consumer has merged it meanwhile, with others of its own
            gone = next((place for place in places if place not in set(sink.target.names())), "")
            open_parts.forget()
            if attempt + 1 == ATTEMPTS:
                raise PartMissing(
                    run=run, rows=places[gone].rows if gone else 0, part=sink.target.path(gone)
                ) from error
        else:
            break
    with reader.naming("", rows):
        swept = _sweep(sink.target, id, sweep, set(wanted))
    return Compaction(before, len(places) - merged + made, merged, swept)


@dataclass(slots=True)
class _Wanted:
    """The rows of a part that count: the first ordinal, how many, and how many rows the part has at least."""

    first: int
    rows: int = 0
    least: int = 0

    def add(self, ordinal: int, row: int) -> None:
        """Note a row that counts."""
        self.first, self.rows, self.least = min(self.first, ordinal), self.rows + 1, max(self.least, row + 1)


def _places(wanted: Mapping[str, _Wanted], reader: Reader) -> dict[str, _Wanted]:
    """Return the files that parts are in now."""
    places: dict[str, _Wanted] = {}
    for part, its in wanted.items():
        now, begins = reader.moved.get(part, (part, 0))
        there = places.setdefault(now, _Wanted(its.first))
        there.first, there.rows = min(there.first, its.first), there.rows + its.rows
        there.least = max(there.least, begins + its.least)
    return places


def _groups(places: Mapping[str, _Wanted], sink: Parquet, reader: Reader) -> Iterator[list[str]]:
    """Yield groups of small parts to be merged; large ones are not opened for that."""
    group: list[str] = []
    rows = nbytes = 0
    for place in sorted(places, key=lambda place: places[place].first):
        its = places[place]
        opened = reader.opened(place, its.rows)[0] if its.rows < SMALL * sink.rows else None
        size = sink.rows if opened is None else len(opened)
        if len(group) > 1 and (rows + size > sink.rows or nbytes >= MERGED_BYTES):
            yield group
        if rows + size > sink.rows or nbytes >= MERGED_BYTES:
            group, rows, nbytes = [], 0, 0
        if opened is not None and size < SMALL * sink.rows:
            group.append(place)
            rows, nbytes = rows + size, nbytes + opened.nbytes
    if len(group) > 1:
        yield group


def merge(sink: Parquet, run: str, id: str, parts: Mapping[str, int]) -> str:
    """Write the rows of some parts as one, then delete them; return its name.

    Parameters
    ----------
    parts : mapping
        How many rows each has at least: one that has fewer is damaged.

    Raises
    ------
    Unmergeable
        A value would change, as where a number and its text have one column: none of the parts is deleted.
    PartError
        One cannot be read, or has fewer rows: none of them is deleted.
    """
    target, reader = sink.target, Reader(sink, run, id)
    gathered: list[SinkRow] = []
    of: list[tuple[str, int, int]] = []
    again: list[str] = []
    for part, least in parts.items():
        begins = len(gathered)
        with reader.naming(part, least):
            before = _merged_into(target, part) if is_merged(part, id) else []
            opened, _ = reader.opened(part, least)
            keys, ordinals = opened.whose()
            found = opened.rows(range(max(least, len(opened))), marked=True)
            for key, ordinal, (value, lineage) in zip(keys, ordinals, found, strict=True):
                version, code, seconds, attempts, consumer, at = (lineage[name] for name in ROW_LINEAGE)
                when = at.timestamp()
                gathered.append(SinkRow(ordinal, key, value, version, code, seconds, attempts, consumer, when))
        again += [_list_of(part)] if is_merged(part, id) else []
        of.append((part, begins, len(opened)))
        of += [(earlier, begins + at, n) for earlier, at, n in before]
    stem = f"{prefix_of(id)}m-{uuid.uuid4().hex[:12]}"
    written = writer_of(sink, run, id, "here").write(stem, gathered)
    places = [referred(each) for each in written if isinstance(each, bytes)]
    name = places[0][0] if places else stem
    if places != [(name, at) for at in range(len(gathered))]:  # a row that was written once can be written again
        for written_as in {part for part, _ in places}:
            target.delete(written_as)
        raise Unmergeable(f"{len(gathered) - len(places):,} rows of {len(parts):,} parts cannot be written again")
    opened, _ = Reader(sink, run, id).opened(name, len(gathered))
    for (value, _), row in zip(opened.rows(range(len(gathered))), gathered, strict=True):
        if not same(value, row.value):
            target.delete(name)
            raise Unmergeable(f"the value of document {row.ordinal:,} would change among those of {len(parts):,} parts")
    target.write(_list_of(name), json.dumps({"into": name, "of": of}).encode())
    if was_dropped(owner_of(target)):  # meanwhile, with what it had written
        target.delete(_list_of(name))
    for name_of_list in again:
        target.delete(name_of_list)
    for part in parts:
        target.delete(part)
    open_parts.forget()
    return name


def _list_of(part: str) -> str:
    """Return the name of the file that lists what was merged into a part."""
    return f"{part.rpartition('.')[0]}.json"


def _merged_into(target: Target, part: str) -> list[tuple[str, int, int]]:
    """Return what was merged into a part: (part, first row, rows); nothing where its list is not there yet."""
    with suppress(FileNotFoundError):
        return read_list(target, _list_of(part))[1]
    return []


def _listed_in(target: Target, id: str) -> Mapping[str, tuple[str, list[tuple[str, int, int]]]]:
    """Return, by merged part, the file with what was merged into it, and what that was."""
    found = {}
    for name in target.names():
        if is_moved(name, id):
            with suppress(FileNotFoundError):  # merged again meanwhile, so what it lists is in a list that is new
                into, of = read_list(target, name)
                found[into] = name, of
    return found


def _sweep(target: Target, id: str, names: Iterable[str], wanted: set[str]) -> int:
    """Delete those of some files that are in no way to a wanted part; return how many files that were.

    A merged part without the file that lists what was merged into it may be on its way: a consumer writes that file
    next, and then deletes what it has merged.
    """
    names = list(names)
    if not names:
        return 0
    listed = _listed_in(target, id)
    needed = set(wanted)
    for into, (name, of) in listed.items():
        if any(part in wanted for part, _, _ in of):
            needed |= {into, name}
    there = set(target.names())
    swept = 0
    for name in names:
        if name not in there or name == CLAIM or name in needed or (is_merged(name, id) and name not in listed):
            continue
        if name.startswith((prefix_of(id), WRITING)):
            target.delete(name)
            swept += 1
    return swept
