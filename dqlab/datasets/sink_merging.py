"""Merges small parts of a sink into large ones, and deletes files that nothing refers to.

References in the log of a queue do not change. Beside a merged part is a small file that lists the earlier parts, and
where each begins. It is written before any of them is deleted, so readers find every row at any moment, also after a
crash at any line. `Reader.opened` is the other side. Knows no run.
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
from dqlab.datasets.sinks import CLAIM, Parquet, check_owner, owner_of, prefix_of, was_dropped
from dqlab.errors import RunError
from dqlab.numbers import many

__all__ = ["AT_ONCE", "Compaction", "Ladder", "MergeUnderWay", "Unmergeable", "compact", "merge"]

AT_ONCE = 16
"""Parts of about the same size that are merged together."""
SMALL = 0.5
"""A part is small below this share of the rows of a full part."""
ATTEMPTS = 5
"""Times that a compaction starts, at most, because consumers merge the same parts."""
MERGED_BYTES = 64 << 20
"""Bytes in memory at which a merged part is full."""


class Ladder:
    """Small parts by steps of size, where `AT_ONCE` parts of one step are merged into a part of the next."""

    def __init__(self, enough: int) -> None:
        # Merging by steps rewrites each row a few times only, however many parts there are.
        self._enough = enough  # rows; a part with that many is not merged
        self._steps: dict[int, list[tuple[str, int]]] = {}

    def add(self, part: str, rows: int) -> None:
        """Note a part that was written."""
        if rows < self._enough:
            self._steps.setdefault(_step(rows), []).append((part, rows))

    def take(self) -> list[tuple[str, int]]:
        """Return parts to merge now, each with its rows, and forget them, or nothing while there are few."""
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
    """Rows would not come back equal from one part, so their parts stay as they are."""


class MergeUnderWay(RunError):
    """Another client is merging the parts of the same run."""

    text = (
        "another client merges the parts of run {run!r}, and has not finished within {seconds:g} s. This call merged "
        "nothing; that client is doing the same work. Call run.compact_sink() again to see what is left."
    )


@dataclass(frozen=True, slots=True)
class Compaction:
    """The effect of a compaction on the parts of a sink.

    Attributes
    ----------
    before, after : int
        Parts with rows of the run.
    merged : int
        Parts that were merged into others.
    swept : int
        Files that were deleted because nothing refers to them.
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
    """Merge small parts of a run with their neighbours in the order of the input, then delete unreferenced files."""
    # `references` are those of all rows that count. The caller lists `sweep` first, then makes sure that the run is
    # done, then reads the references. In this order, a part that a retry writes meanwhile is not in `sweep`, and so is
    # not deleted.
    check_owner(sink, id, owner_of(sink.target), "here")
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
        except FileNotFoundError as error:  # a consumer has merged this part with its own meanwhile
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
    """The rows of a part that count."""

    first: int
    """The lowest ordinal."""
    rows: int = 0
    least: int = 0
    """Rows that the part must have at least; with fewer it is damaged."""

    def add(self, ordinal: int, row: int) -> None:
        """Note a row that counts."""
        self.first, self.rows, self.least = min(self.first, ordinal), self.rows + 1, max(self.least, row + 1)


def _places(wanted: Mapping[str, _Wanted], reader: Reader) -> dict[str, _Wanted]:
    """Return the files that now contain the rows of these parts."""
    places: dict[str, _Wanted] = {}
    for part, its in wanted.items():
        now, begins = reader.moved.get(part, (part, 0))
        there = places.setdefault(now, _Wanted(its.first))
        there.first, there.rows = min(there.first, its.first), there.rows + its.rows
        there.least = max(there.least, begins + its.least)
    return places


def _groups(places: Mapping[str, _Wanted], sink: Parquet, reader: Reader) -> Iterator[list[str]]:
    """Yield groups of small parts to merge, without opening large ones."""
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
    """Write the rows of some parts as one part, then delete them, and return its name."""
    # `parts` has how many rows each must have at least. If one cannot be read, has fewer rows, or has a value that
    # would change, this raises before it deletes any of them.
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
    # Expected: a row that was written once can be written again. If not, keep the parts.
    if places != [(name, at) for at in range(len(gathered))]:
        for written_as in {part for part, _ in places}:
            target.delete(written_as)
        raise Unmergeable(f"{len(gathered) - len(places):,} rows of {len(parts):,} parts cannot be written again")
    opened, _ = Reader(sink, run, id).opened(name, len(gathered))
    for (value, _), row in zip(opened.rows(range(len(gathered))), gathered, strict=True):
        if not same(value, row.value):
            target.delete(name)
            raise Unmergeable(f"the value of document {row.ordinal:,} would change among those of {len(parts):,} parts")
    # Order: new part, its list, then delete the old lists, then the old parts. References find their rows after each
    # step. Read the new part back first, above, since a value may change among those of other parts.
    target.write(_list_of(name), json.dumps({"into": name, "of": of}).encode())
    if was_dropped(owner_of(target)):  # the run was dropped meanwhile, with all files that were there
        target.delete(_list_of(name))
    for name_of_list in again:
        target.delete(name_of_list)
    for part in parts:
        target.delete(part)
    open_parts.forget()
    return name


def _list_of(part: str) -> str:
    """Return the name of the file that lists the parts merged into a part."""
    return f"{part.rpartition('.')[0]}.json"


def _merged_into(target: Target, part: str) -> list[tuple[str, int, int]]:
    """Return the earlier parts in a part as (part, first row, rows), or nothing if its list is not written yet."""
    with suppress(FileNotFoundError):
        return read_list(target, _list_of(part))[1]
    return []


def _listed_in(target: Target, id: str) -> Mapping[str, tuple[str, list[tuple[str, int, int]]]]:
    """Return, by merged part, the name of its list and the earlier parts in it."""
    found = {}
    for name in target.names():
        if is_moved(name, id):
            with suppress(FileNotFoundError):  # merged again meanwhile; a newer list has the same parts
                into, of = read_list(target, name)
                found[into] = name, of
    return found


def _sweep(target: Target, id: str, names: Iterable[str], wanted: set[str]) -> int:
    """Delete those of some files that no wanted part needs, and return how many were deleted."""
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
        # Keep a merged part without a list: a consumer may be about to write the list, and then deletes the originals.
        if name not in there or name == CLAIM or name in needed or (is_merged(name, id) and name not in listed):
            continue
        if name.startswith((prefix_of(id), WRITING)):
            target.delete(name)
            swept += 1
    return swept
