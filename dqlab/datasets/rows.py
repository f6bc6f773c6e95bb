"""Results as rows: chooses the columns, their types, and what goes into the rest.

A `Shape` turns pages of results into record batches, and owns the schema. Columns come from the first 1,000 values,
types widen where they may, and a value that fits no column of its row goes into ``_rest`` as JSON; nothing is dropped.
"""

from __future__ import annotations

import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any

import pyarrow as pa

from dqlab.datasets.alike import Alike
from dqlab.datasets.columns import build, widened
from dqlab.datasets.kinds import NULL, Kind, join
from dqlab.datasets.lineage import BARE, ERROR, KEY, LINEAGE, ORDINAL, REST, ROW_LINEAGE
from dqlab.datasets.plain import exact_key, json_of, keys_behind, name_of, parted, row_of
from dqlab.errors import DqlabWarning
from dqlab.texts import one_line, shown
from dqlab.user_frames import level_of_user

__all__ = ["MOST_COLUMNS", "SAMPLE", "Columns", "PartRows", "Rows", "Shape", "moments_of", "warn_of_rest"]

SAMPLE = 1_000
"""Values that define the columns of the schema."""
MOST_COLUMNS = 1_000
"""Columns from values, at most; a dict that counts the words of a text must not become columns."""
NAMED = 3
"""Columns that a warning names."""
_IN_REST = "The column _rest has them, as JSON; run.results().to_frame() has every value."
_NOWHERE = "run.results() has them. Return plain data, such as frame.to_dict('records') for a table."
_INT64 = pa.int64()
_TEXT = pa.string()
_LINEAGE_KINDS = dict(
    zip(ROW_LINEAGE, (_TEXT, _TEXT, pa.float64(), _INT64, _TEXT, pa.timestamp("us", tz="UTC")), strict=True)
)


class _Value:
    """Stands for the column of values that are not rows; no user's key is equal to it."""

    def __repr__(self) -> str:
        return "value"


VALUE = _Value()


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of one part of a sink, as columns, without any values in the rest."""

    table: Any
    """A `pyarrow.Table`."""
    bare: str
    """Name of the column of values that are not rows, if there are any."""
    kinds: Sequence[str | list[Any]]
    """Kinds of its values: `BARE`, `NOTHING`, or the keys of a row."""
    kind_of: Sequence[int]
    """The kind of each row, as a position in `kinds`."""
    keys: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the columns whose name differs from the key."""

    def only(self, rows: list[int]) -> PartRows:
        """Return some of the rows."""
        taken = self.table.take(pa.array(rows, _INT64))
        return PartRows(taken, self.bare, self.kinds, [self.kind_of[row] for row in rows], self.keys)

    def names_of(self, kind: int) -> Sequence[Any]:
        """Return the keys of a row of this kind, with `VALUE` for values that are not rows."""
        of = self.kinds[kind]
        return [VALUE] if of == BARE else [] if isinstance(of, str) else of

    def array(self, raw: Any) -> Any:
        """Return the column of a key, or None if there is none."""
        name = self.bare if raw is VALUE else raw
        if raw is not VALUE and self.keys:
            name = next((each for each, key in self.keys.items() if key == raw), raw)
            if self.keys.get(name, name) != raw:  # the column belongs to another key
                return None
        if name in LINEAGE:  # a user's key that no row of this part has; the column is ours
            return None
        has_bare = BARE in self.kinds
        if name not in self.table.schema.names or (name == self.bare and has_bare) is not (raw is VALUE):
            return None
        return _flat(self.table.column(name))


@dataclass(frozen=True, slots=True)
class Columns:
    """Rows of several parts of a sink, as columns."""

    parts: Sequence[PartRows]
    """These rows, and no others."""
    order: Any
    """A `pyarrow.Array` with the position of each row among the rows of all parts."""

    def cut(self, start: int, stop: int) -> Columns:
        """Return the rows from `start` up to `stop`, in parts without other rows."""
        chosen: list[dict[int, int]] = [{} for _ in self.parts]
        places = self.places()[start:stop]
        for part, row in places:
            chosen[part].setdefault(row, len(chosen[part]))
        kept = [part.only(list(rows)) for part, rows in zip(self.parts, chosen, strict=True)]
        begins = [0, *accumulate(len(rows) for rows in chosen)]
        return Columns(kept, pa.array([begins[part] + chosen[part][row] for part, row in places], _INT64))

    def agree(self) -> bool:
        """Return whether each column has a common type in all parts."""
        # Otherwise the order of rows decides which values fit, so that they must be joined one by one.
        for raw in self.names():
            kind: Kind | None = NULL
            for array in [part.array(raw) for part in self.parts]:
                if array is not None and array.null_count < len(array):
                    kind = join(kind, array.type)
                if kind is None:
                    return False
        return True

    def are_of(self, ordinals: Sequence[int]) -> bool:
        """Return whether each row is the row of its document."""
        found = self.ordered([_flat(part.table.column(ORDINAL)) for part in self.parts])
        return bool(found.equals(_ordinals(ordinals)))

    def ordered(self, arrays: Sequence[Any]) -> Any:
        """Return the arrays of all parts as one array, in the order of the rows."""
        return pa.concat_arrays(arrays).take(self.order)

    def places(self) -> list[tuple[int, int]]:
        """Return the part of each row, and its position there."""
        ends = list(accumulate(len(part.kind_of) for part in self.parts))
        begins = [0, *ends]
        return [(part := bisect_right(ends, place), place - begins[part]) for place in self.order.to_pylist()]

    def names(self) -> dict[Any, None]:
        """Return the columns of the rows, in order of appearance."""
        first = self.parts[0].kinds
        if len(first) == 1 and all(part.kinds == first for part in self.parts):
            return dict.fromkeys(self.parts[0].names_of(0))
        kinds = dict.fromkeys((part, self.parts[part].kind_of[row]) for part, row in self.places())
        found = {raw: None for part, kind in kinds for raw in self.parts[part].names_of(kind)}
        if VALUE in found:  # last, as in `_split`, so that a table has the same columns either way
            found[VALUE] = found.pop(VALUE)
        return found


def _flat(column: Any) -> Any:
    """Return a column of a table as one array."""
    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made


@dataclass(frozen=True, slots=True)
class Rows:
    """Some results, in the order of the input."""

    ordinals: Sequence[int]
    """Positions in the input."""
    keys: Sequence[Any] | None
    """Texts or whole numbers; None if the positions are the keys."""
    values: Sequence[Any]
    reasons: list[str | None] | None = None
    """Why a document has no result, or None for one with a result; None if all have one."""
    lineage: Mapping[str, Sequence[Any]] | None = None
    """Values, or Arrow arrays, of the columns `ROW_LINEAGE`, if they are known."""
    columns: Columns | None = None
    """The values and the lineage, in place of `values` and `lineage`."""

    def __len__(self) -> int:
        return len(self.ordinals)

    def cut(self, start: int, stop: int) -> Rows:
        """Return the results from `start` up to `stop`."""
        at = slice(start, stop)
        keys = None if self.keys is None else self.keys[at]
        reasons = None if self.reasons is None else self.reasons[at]
        lineage = None if self.lineage is None else {name: column[at] for name, column in self.lineage.items()}
        columns = None if self.columns is None else self.columns.cut(start, stop)
        return Rows(self.ordinals[at], keys, self.values[at], reasons, lineage, columns)


@dataclass(slots=True)
class Shape:
    """Columns and types of a run's results, as far as they were seen."""

    reasoned: bool = False
    """Whether documents without a result are among the rows."""
    lined: bool = False
    """Whether rows have the columns `ROW_LINEAGE`."""
    exact: bool = False
    """Whether keys without a column, if their name would differ from the key, go into the rest as pairs of key and
    value. Parts of sinks need this, because such a name depends on the other keys of its row, and so would stand for
    different keys in different rows."""
    seen: int = 0
    """Values that were seen, up to `SAMPLE`, at which columns are final."""
    in_rest: int = 0
    """Rows with values in ``_rest``, of all that it made into batches."""
    misfits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many values are not in a column, by its name, `REST` where there is none, and by the class of those that the
    rest cannot represent either, "" for the others."""
    _names: dict[Any, str] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)
    """The values of `_names`."""
    _kinds: dict[Any, Kind] = field(default_factory=dict)
    _key: Kind = NULL

    def copied(self) -> Shape:
        """Return an equal shape that changes independently, and has made no rows."""
        other = copy(self)
        other._names, other._kinds, other.in_rest = dict(self._names), dict(self._kinds), 0
        other._named, other.misfits = set(self._named), Counter()
        return other

    @property
    def columns(self) -> list[str]:
        """Names of the columns from values."""
        return list(self._names.values()) or ["value"]

    @property
    def schema(self) -> Any:
        """The `pyarrow.Schema` of batches."""
        return pa.schema([pa.field(name, kind) for name, kind in self._fields()])

    def schema_of(self, columns: Sequence[str] | None) -> Any:
        """Return the schema with these columns only, in their order, or the whole one for None."""
        schema = self.schema
        return schema if columns is None else pa.schema([schema.field(name) for name in columns])

    def _fields(self) -> Iterator[tuple[str, Kind]]:
        yield KEY, self._key
        yield ORDINAL, _INT64
        for raw, name in self._names.items():
            yield name, self._kinds[raw]
        if not self._names:
            yield "value", NULL
        if self.lined:
            yield from _LINEAGE_KINDS.items()
        if self.reasoned:
            yield ERROR, pa.string()
        yield REST, pa.string()

    def batches(self, rows: Rows, *, widen: bool) -> Iterator[Any]:
        """Yield the rows as record batches, whose schema may change between batches if types may widen."""
        # Without `widen`, values that do not fit go into the rest. Cut at SAMPLE: columns are added up to there only,
        # whatever the sizes of pages.
        start = 0
        while start < len(rows):
            open_for = max(0, SAMPLE - self.seen) if widen else 0
            stop = min(len(rows), start + open_for) if open_for else len(rows)
            part = rows if (start, stop) == (0, len(rows)) else rows.cut(start, stop)
            yield self._batch(part, widen=widen, grow=bool(open_for))
            self.seen = min(SAMPLE, self.seen + len(part)) if widen else self.seen
            start = stop

    def whole(self, rows: Rows) -> Any:
        """Return rows as one record batch with a column for each of their keys, up to `MOST_COLUMNS`."""
        return self._batch(rows, widen=True, grow=True)

    @property
    def value_column(self) -> str:
        """Name of the column of values that are not rows."""
        return self._names.get(VALUE, "value")

    def name_of(self, raw: Any) -> str | None:
        """Return the name of a key's column, or None if its values are in the rest."""
        return self._names.get(raw)

    def keys_behind(self) -> dict[str, Any]:
        """Return the keys of the columns whose name differs from the key."""
        return keys_behind((raw, name) for raw, name in self._names.items() if raw is not VALUE)

    def _batch(self, rows: Rows, *, widen: bool, grow: bool) -> Any:
        rest: dict[int, dict[str, Any]] = {}
        made: dict[str, Any] = {}
        if rows.columns is not None:
            self._take(rows.columns, made, rest, widen=widen, grow=grow)
        else:
            self._make(rows, made, rest, widen=widen, grow=grow)
        made[KEY] = self._keys(rows, rest, widen=widen)
        made[ORDINAL] = _ordinals(rows.ordinals)
        if self.lined:
            made |= _lineage_columns(rows)
        if self.reasoned:
            reasons = [reason and shown(reason) for reason in rows.reasons or ()]
            made[ERROR] = pa.array(reasons or [None] * len(rows), pa.string())
        made[REST] = pa.array(self._told(len(rows), rest), _TEXT) if rest else pa.nulls(len(rows), _TEXT)
        self.in_rest += len(rows) - made[REST].null_count
        schema = self.schema
        return pa.RecordBatch.from_arrays(
            [made[name] if name in made else pa.nulls(len(rows)) for name in schema.names], schema=schema
        )

    def _told(self, count: int, rest: Mapping[int, dict[str, Any]]) -> list[str | None]:
        """Return the rest of each row as JSON, and count its values."""
        told: list[str | None] = [None] * count
        for at, its in rest.items():
            made, opaque = (json_of(its), {}) if self.exact else parted(its)
            told[at] = made or None
            for name in its.keys() - {KEY}:  # the document's key, not a column
                self.misfits[name if name in self._named or name in opaque else REST, opaque.get(name, "")] += 1
        return told

    def _take(
        self, columns: Columns, made: dict[str, Any], rest: dict[int, dict[str, Any]], *, widen: bool, grow: bool
    ) -> None:
        """Take values from Arrow columns, without an object for each."""
        theirs, lost = columns.names(), list[tuple[str, int, int, Any]]()
        for raw in theirs:
            if grow and raw not in self._names and (raw is VALUE or len(self._names) < MOST_COLUMNS):
                self._add(raw)
        for raw, name in self._names.items():
            arrays = [part.array(raw) for part in columns.parts]
            if widen:
                for array in arrays:
                    if array is not None and array.null_count < len(array):
                        self._kinds[raw] = join(self._kinds[raw], array.type) or self._kinds[raw]
            kind, recast = self._kinds[raw], []
            for number, array in enumerate(arrays):
                if array is None:
                    recast.append(pa.nulls(len(columns.parts[number].kind_of), kind))
                    continue
                fitted, misfits = _recast(array, kind, strictly=True)
                recast.append(fitted)
                lost += [(name, number, row, array[row]) for row in misfits]
            made[name] = columns.ordered(recast)
        others = [raw for raw in theirs if raw not in self._names]
        if lost or others:
            self._take_rest(columns, lost, others, rest)

    def _take_rest(
        self,
        columns: Columns,
        lost: Sequence[tuple[str, int, int, Any]],
        others: Sequence[Any],
        rest: dict[int, dict[str, Any]],
    ) -> None:
        """Put columns that came too late, and values that do not fit, as (column, part, row, scalar), into the rest."""
        places = columns.places()
        at_of = {place: at for at, place in enumerate(places)}
        for name, part, row, value in lost:
            if (at := at_of.get((part, row))) is not None:
                rest.setdefault(at, {})[name] = value.as_py()
        for raw in others:
            arrays = [part.array(raw) for part in columns.parts]
            for at, (number, row) in enumerate(places):
                its = columns.parts[number]
                if raw in its.names_of(its.kind_of[row]):
                    rest.setdefault(at, {})[self._spare_name(raw, rest[at])] = arrays[number][row].as_py()

    def _make(
        self, rows: Rows, made: dict[str, Any], rest: dict[int, dict[str, Any]], *, widen: bool, grow: bool
    ) -> None:
        """Make columns of values."""
        columns, extra = _split(rows, self._names, grow=grow)
        for raw in columns:
            if raw not in self._names:
                self._add(raw)
        for raw, name in self._names.items():
            values = columns.get(raw)
            if values is None:
                made[name] = pa.nulls(len(rows), self._kinds[raw])
                continue
            made[name], self._kinds[raw], misfits = _fitted(values, self._kinds[raw], widen=widen)
            for at in misfits:
                rest.setdefault(at, {})[name] = values[at]
        for at, raw, value in extra:
            its = rest.setdefault(at, {})
            if self.exact and (type(raw) is not str or raw in LINEAGE or raw in self._named or name_of(raw) != raw):
                its.setdefault(REST, []).append([exact_key(raw), value])
            else:
                its[self._spare_name(raw, its)] = value

    def _add(self, raw: Any) -> None:
        self._names[raw], self._kinds[raw] = self._spare_name(raw, {}), NULL
        self._named.add(self._names[raw])

    def _spare_name(self, raw: Any, taken: Mapping[str, Any]) -> str:
        if raw in self._names:
            return self._names[raw]
        name = "value" if raw is VALUE else name_of(raw)
        while name in LINEAGE or name in self._named or name in taken:
            name += "_"
        return name

    def _keys(self, rows: Rows, rest: dict[int, dict[str, Any]], *, widen: bool) -> Any:
        if rows.keys is None:
            keys: Sequence[Any] = rows.ordinals
            if pa.types.is_null(self._key) or self._key == _INT64:
                self._key = _INT64
                return _ordinals(rows.ordinals)
        else:
            keys = rows.keys
        if pa.types.is_null(self._key):
            self._key = pa.string()
            if set(map(type, keys)) == {int} and not build(keys, _INT64)[1]:
                self._key = _INT64
        made, misfits = build(keys, self._key)
        if misfits and widen and self._key == _INT64:
            self._key = pa.string()
            made, misfits = build(keys, self._key)
        if not misfits:
            return made
        for at in misfits:
            if type(keys[at]) is not int or self._key == _INT64:  # as text, a whole number loses nothing
                rest.setdefault(at, {})[KEY] = keys[at]
        if self._key == _INT64:
            return made
        return pa.array([key if type(key) is str and key.isascii() else name_of(key) for key in keys], pa.string())

    # --- batches of an earlier schema ---------------------------------------------------------------

    def recast(self, batch: Any, columns: Sequence[str] | None = None) -> Any:
        """Return a batch from an earlier state of this shape with its present schema, or with these columns of it."""
        schema = self.schema_of(columns)
        if batch.schema.equals(schema):
            return batch
        count, before = batch.num_rows, {name: at for at, name in enumerate(batch.schema.names)}
        made, lost = {}, dict[int, dict[str, Any]]()
        for wanted in schema:
            if wanted.name not in before:
                made[wanted.name] = pa.nulls(count, wanted.type)
                continue
            column = batch.column(before[wanted.name])
            made[wanted.name], misfits = _recast(column, wanted.type)
            for at in misfits:
                lost.setdefault(at, {})[wanted.name] = column[at].as_py()
            if misfits:
                self.misfits[wanted.name, ""] += len(misfits)
        if lost and REST in made:
            self.in_rest += sum(1 for at in lost if not made[REST][at].is_valid)
            made[REST] = _joined_rest(made[REST], lost)
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _split(rows: Rows, known: Mapping[Any, str], *, grow: bool) -> tuple[dict[Any, Any], list[tuple[int, Any, Any]]]:
    """Return the values by column, as lists or arrays, and those without a column, as (row, key, value)."""
    # `known` are the present columns; with `grow` there may be more.
    values, reasons = rows.values, rows.reasons
    if isinstance(values, Alike):
        if grow and reasons is None and not known and len(values.columns) <= MOST_COLUMNS:
            return dict(values.columns), []
        values = list(values)
    dicts: Sequence[Any] = values
    others: dict[int, Any] = {}
    if reasons is not None or set(map(type, values)) != {dict}:
        dicts = []
        for at, value in enumerate(values):
            row = None if reasons is not None and reasons[at] is not None else row_of(value)
            if row is None and value is not None and (reasons is None or reasons[at] is None):
                others[at] = value
            dicts.append(row or {})
    names = dict.fromkeys(chain.from_iterable(dicts))
    even = {len(names)} == set(map(len, dicts))
    columns: dict[Any, list[Any]] = {}
    extra: list[tuple[int, Any, Any]] = []
    unknown = set[Any]()
    room = MOST_COLUMNS - len(known)
    for name in names:
        if name in known or (grow and room > 0):
            room -= name not in known
            columns[name] = list(map(itemgetter(name), dicts)) if even else [row.get(name) for row in dicts]
        else:
            unknown.add(name)
    if unknown:  # in the order of each row, so that their names depend on that row alone
        extra = [(at, name, row[name]) for at, row in enumerate(dicts) for name in row if name in unknown]
    if others:
        if VALUE in known or grow:
            columns[VALUE] = [others.get(at) for at in range(len(values))]
        else:
            extra += [(at, VALUE, value) for at, value in others.items()]
    return columns, extra


def _fitted(values: Any, kind: Kind, *, widen: bool) -> tuple[Any, Kind, list[int]]:
    """Return the values as an array, its type, and the positions of those that do not fit."""
    if not isinstance(values, list):  # an array from `Alike`, which `_split` returns only before there are columns
        made = values if isinstance(values, pa.Array) else pa.array(values)
        return made, made.type, []
    if widen and pa.types.is_null(kind):
        kind = widened(values, kind, range(len(values)))
    made, misfits = build(values, kind)
    if misfits and widen:
        wider = widened(values, kind, misfits)
        if wider is not kind:
            kind = wider
            made, misfits = build(values, kind)
    return made, kind, misfits


def _lineage_columns(rows: Rows) -> dict[str, Any]:
    if rows.columns is not None:
        columns = rows.columns
        return {
            name: columns.ordered([_of_part(part.table, name) for part in columns.parts]) for name in _LINEAGE_KINDS
        }
    if rows.lineage is None:
        return {name: pa.nulls(len(rows), kind) for name, kind in _LINEAGE_KINDS.items()}
    known = {name: rows.lineage.get(name, [None] * len(rows)) for name in _LINEAGE_KINDS}
    return {
        name: known[name] if isinstance(known[name], pa.Array) else _often_alike(list(known[name]), kind)
        for name, kind in _LINEAGE_KINDS.items()
    }


def _often_alike(values: list[Any], kind: Any) -> Any:
    """Return values as an array."""
    # All rows of most parts have the same code, consumer and attempt.
    if values and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), len(values))
    return pa.array(values, kind)


def moments_of(seconds: Sequence[float]) -> Any:
    """Return seconds since 1970 UTC as an array of times."""
    import numpy as np

    return pa.array(np.rint(np.asarray(seconds, np.float64) * 1e6).astype(np.int64)).view(_LINEAGE_KINDS["_at"])


def _of_part(table: Any, name: str) -> Any:
    """Return a column of lineage, or nulls for a part that was written before that column existed."""
    if name not in table.schema.names:
        return pa.nulls(table.num_rows, _LINEAGE_KINDS[name])
    return _flat(table.column(name))


def _ordinals(ordinals: Sequence[int]) -> Any:
    if isinstance(ordinals, range) and ordinals:
        try:
            return pa.arange(ordinals.start, ordinals.stop)
        except AttributeError:  # before pyarrow 21
            pass
    return pa.array(ordinals, _INT64)


def warn_of_rest(run: str, shape: Shape, columns: Sequence[str] | None = None) -> None:
    """Warn about values, of the columns that were read, that are not in a column of the table."""
    schema = shape.schema
    for opaque, what, where in (
        (False, "do not fit the type of their column, or have none, are null there", _IN_REST),
        (True, "neither a column nor JSON can hold are not in the table", _NOWHERE),
    ):
        parts = [
            f"{n:,} "
            + ("without a column" if name == REST else f"in {one_line(name, 40)} ({kind or schema.field(name).type})")
            for (name, kind), n in shape.misfits.items()
            if bool(kind) is opaque and (columns is None or name in columns)
        ]
        if parts:
            more = f" and of {len(parts) - NAMED} more columns" if len(parts) > NAMED else ""
            said = f"values of run {run!r} that {what}: {', '.join(parts[:NAMED])}{more}. {where}"
            warnings.warn(said, DqlabWarning, stacklevel=level_of_user())


def _recast(column: Any, kind: Kind, *, strictly: bool = False) -> tuple[Any, list[int]]:
    """Return a column with another type, and the positions of values that do not fit it."""
    # `strictly` allows any type, not only a wider one, for which a cast would be wrong: Arrow reads numbers from texts.
    if column.type.equals(kind):
        return column, []
    if not pa.types.is_nested(kind) and not (strictly and join(kind, column.type) != kind):
        try:
            return column.cast(kind), []
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass  # find out one by one below which values do not fit
    return build(column.to_pylist(), kind)


def _joined_rest(column: Any, more: Mapping[int, dict[str, Any]]) -> Any:
    """Return the column of rests with more values in it."""
    texts = column.to_pylist()
    for at, values in more.items():
        # Join the JSON texts: parsing and writing an existing rest again could change it.
        made = json_of(values)
        texts[at] = made if texts[at] is None else f"{texts[at][:-1]},{made[1:]}"
    return pa.array(texts, pa.string())
