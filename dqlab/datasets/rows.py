"""Results as rows: chooses the columns, their types, and what goes into the rest.

A `Shape` turns pages of results into record batches, and owns the schema. Columns come from the first 1,000 values,
types widen where they may, and a value that fits no column of its row goes into ``_rest`` as JSON; nothing is dropped.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from dqlab.datasets.columns import NULL, Kind, declared_kind, fitted, joined
from dqlab.datasets.lineage import ERROR, KEY, LINEAGE, ORDINAL, REST, ROW_LINEAGE
from dqlab.datasets.plain import even_columns, name_of, parted, row_of
from dqlab.errors import DqlabWarning
from dqlab.texts import one_line, shown
from dqlab.user_frames import level_of_user

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
    columns: Mapping[Any, Any] | None = None
    """Columns by key, or `VALUE`, as Arrow arrays, in place of the values."""
    rest: Any = None
    """The rest of each row as an Arrow array of JSON, beside `columns`."""

    def __len__(self) -> int:
        return len(self.ordinals)

    def cut(self, start: int, stop: int) -> Rows:
        """Return the results from `start` up to `stop`."""
        at = slice(start, stop)
        keys, rest = (None if each is None else each[at] for each in (self.keys, self.rest))
        reasons = None if self.reasons is None else self.reasons[at]
        lineage, columns = (
            None if named is None else {name: column[at] for name, column in named.items()}
            for named in (self.lineage, self.columns)
        )
        return Rows(self.ordinals[at], keys, self.values[at], reasons, lineage, columns, rest)


@dataclass(slots=True)
class Shape:
    """Columns and types of a run's results, as far as they were seen."""

    reasoned: bool = False
    """Whether documents without a result are among the rows."""
    lined: bool = False
    """Whether rows have the columns `ROW_LINEAGE`."""
    seen: int = 0
    """Values that were seen, up to `SAMPLE`, at which columns are final."""
    in_rest: int = 0
    """Rows with values in ``_rest``, of all that it made into batches."""
    misfits: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many values are not in a column, by its name, `REST` where there is none, and by the class of those that the
    rest cannot represent either, "" for the others."""
    opaque: dict[int, tuple[str, str]] = field(default_factory=dict)
    """The column and the class of a value that no plain data stands for, by its row in the last batch."""
    _names: dict[Any, str] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)
    """The values of `_names`."""
    _kinds: dict[Any, Kind] = field(default_factory=dict)
    _unsure: set[Any] = field(default_factory=set)
    """Declared columns whose first values decide the zone of times, or the digits of decimals."""
    _key: Kind = NULL

    def copied(self) -> Shape:
        """Return an equal shape that changes independently, and has made no rows."""
        other = copy(self)
        other._names, other._kinds, other.in_rest = dict(self._names), dict(self._kinds), 0
        other._named, other.misfits, other.opaque = set(self._named), Counter(), {}
        other._unsure = set(self._unsure)
        return other

    def declare(self, columns: Mapping[str, Any]) -> None:
        """Add columns of `schemas` before the first values, or widen those that a code version before has declared."""
        for name, column in columns.items():
            kind = declared_kind(column)
            if name not in self._names:
                self._names[name], self._kinds[name] = self._spare_name(name, {}), NULL
                self._named.add(self._names[name])
            wider = joined(self._kinds[name], kind)
            self._kinds[name] = self._kinds[name] if wider is None else wider
            if "timestamp" in str(kind) or "decimal" in str(kind):
                self._unsure.add(name)

    @property
    def names(self) -> Mapping[Any, str]:
        """The names of columns by key, or `VALUE`."""
        return self._names

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

    def record_batch(self, rows: Rows) -> Any:
        """Return rows as one record batch with a column for each of their keys, up to `MOST_COLUMNS`."""
        return self._batch(rows, widen=True, grow=True)

    def _batch(self, rows: Rows, *, widen: bool, grow: bool) -> Any:
        rest: dict[int, dict[str, Any]] = {}
        made = self._columns(rows, rest, widen=widen, grow=grow)
        made[KEY] = self._keys(rows, rest, widen=widen)
        made[ORDINAL] = pa.array(rows.ordinals, _INT64)
        if self.lined:
            known = rows.lineage or {}
            made |= {name: _array(known.get(name), kind, len(rows)) for name, kind in _LINEAGE_KINDS.items()}
        if self.reasoned:
            reasons = [reason and shown(reason) for reason in rows.reasons or ()]
            made[ERROR] = _array(reasons or None, _TEXT, len(rows))
        for its in rest.values() if rows.rest is not None else ():
            its.pop(KEY, None)  # a part has it in its rest already
        told = self._told({at: its for at, its in rest.items() if its})
        made[REST] = _array(rows.rest, _TEXT, len(rows))
        self._count(made[REST])
        if told:
            made[REST] = _joined_rest(made[REST], told)
        self.in_rest += len(rows) - made[REST].null_count
        schema = self.schema
        return pa.RecordBatch.from_arrays(
            [made[name] if name in made else pa.nulls(len(rows)) for name in schema.names], schema=schema
        )

    def _told(self, rest: Mapping[int, dict[str, Any]]) -> dict[int, str]:
        """Return the rest of each row as JSON, and count its values."""
        told: dict[int, str] = {}
        self.opaque = {}
        for at, its in rest.items():
            made, opaque = parted(its)
            if made:
                told[at] = made
            if opaque:
                self.opaque[at] = next(iter(opaque.items()))
            for name in its.keys() - {KEY}:  # the document's key, not a column
                self.misfits[name if name in self._named or name in opaque else REST, opaque.get(name, "")] += 1
        return told

    def _count(self, rest: Any) -> None:
        """Count the values that were in the rest of a part of a sink already."""
        for text in rest.drop_null().to_pylist():
            for name in json.loads(text).keys() - {KEY}:
                self.misfits[name if name in self._named else REST, ""] += 1

    def _columns(self, rows: Rows, rest: dict[int, dict[str, Any]], *, widen: bool, grow: bool) -> dict[str, Any]:
        """Return the values by name of their column, and put into the rest what has none, or does not fit."""
        columns, extra = _split(rows, self._names, grow=grow)
        for raw in columns:
            if raw not in self._names:
                self._names[raw], self._kinds[raw] = self._spare_name(raw, {}), NULL
                self._named.add(self._names[raw])
        made = {}
        for raw, name in self._names.items():
            values = columns.get(raw)
            if values is None:
                made[name] = pa.nulls(len(rows), self._kinds[raw])
                continue
            made[name], kind, misfits = fitted(values, self._kinds[raw], widen=widen)
            if raw in self._unsure:
                if misfits and widen:
                    made[name], kind, misfits = fitted(values, NULL, widen=True)
                if made[name].null_count < len(rows):
                    self._unsure.remove(raw)
            self._kinds[raw] = kind
            for at in misfits:
                rest.setdefault(at, {})[name] = values[at].as_py() if isinstance(values, pa.Array) else values[at]
        for at, raw, value in extra:
            its = rest.setdefault(at, {})
            its[self._spare_name(raw, its)] = value
        return made

    def _spare_name(self, raw: Any, taken: Mapping[str, Any]) -> str:
        name = "value" if raw is VALUE else name_of(raw)
        while name in LINEAGE or name in self._named or name in taken:
            name += "_"
        return name

    def _keys(self, rows: Rows, rest: dict[int, dict[str, Any]], *, widen: bool) -> Any:
        if rows.keys is None and (pa.types.is_null(self._key) or self._key == _INT64):
            self._key = _INT64
            return pa.array(rows.ordinals, _INT64)
        keys: Sequence[Any] = rows.ordinals if rows.keys is None else rows.keys
        if pa.types.is_null(self._key):
            self._key = _INT64 if set(map(type, keys)) == {int} else _TEXT
        made, _, misfits = fitted(keys, self._key, widen=False)
        if misfits and widen and self._key == _INT64:
            self._key = _TEXT
            made, _, misfits = fitted(keys, _TEXT, widen=False)
        for at in misfits:
            if type(keys[at]) is not int or self._key == _INT64:  # as text, a whole number loses nothing
                rest.setdefault(at, {})[KEY] = keys[at]
        return pa.array([name_of(key) for key in keys], _TEXT) if misfits and self._key == _TEXT else made

    # --- batches of an earlier schema ---------------------------------------------------------------

    def recast(self, batch: Any, columns: Sequence[str] | None = None) -> Any:
        """Return a batch from an earlier state of this shape with its present schema, or with these columns of it."""
        schema = self.schema_of(columns)
        if batch.schema.equals(schema):
            return batch
        made, lost = {}, dict[int, dict[str, Any]]()
        for wanted in schema:
            if wanted.name not in batch.schema.names:
                made[wanted.name] = pa.nulls(batch.num_rows, wanted.type)
                continue
            column = batch.column(wanted.name)
            made[wanted.name], _, misfits = fitted(column, wanted.type, widen=False)
            for at in misfits:
                lost.setdefault(at, {})[wanted.name] = column[at].as_py()
        if lost and REST in made:
            told = self._told(lost)
            self.in_rest += sum(1 for at in told if not made[REST][at].is_valid)
            made[REST] = _joined_rest(made[REST], told)
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _split(rows: Rows, known: Mapping[Any, str], *, grow: bool) -> tuple[dict[Any, Any], list[tuple[int, Any, Any]]]:
    """Return the values by column, and those without a column, as (row, key, value)."""
    # `known` are the present columns; with `grow` there may be more.
    if rows.columns is not None:
        return _split_columns(rows.columns, known, grow=grow)
    values, reasons = rows.values, rows.reasons
    dicts: Sequence[Any] = values
    others: dict[int, Any] = {}
    if reasons is not None or set(map(type, values)) != {dict}:
        dicts = []
        for at, value in enumerate(values):
            row = None if reasons is not None and reasons[at] is not None else row_of(value)
            if row is None and value is not None and (reasons is None or reasons[at] is None):
                others[at] = value
            dicts.append(row or {})
    columns: dict[Any, Any] | None = even_columns(dicts)
    names = dict.fromkeys(chain.from_iterable(dicts)) if columns is None else dict.fromkeys(columns)
    chosen = _chosen(names, known, grow=grow)
    if columns is None or len(chosen) < len(names):
        columns = {name: [row.get(name) for row in dicts] for name in chosen}
    extra: list[tuple[int, Any, Any]] = []
    if len(chosen) < len(names):  # in the order of each row, so that their names depend on that row alone
        extra = [(at, name, row[name]) for at, row in enumerate(dicts) for name in row if name not in chosen]
    if others:
        if VALUE in known or grow:
            columns[VALUE] = [others.get(at) for at in range(len(values))]
        else:
            extra += [(at, VALUE, value) for at, value in others.items()]
    return columns, extra


def _split_columns(
    columns: Mapping[Any, Any], known: Mapping[Any, str], *, grow: bool
) -> tuple[dict[Any, Any], list[tuple[int, Any, Any]]]:
    chosen = _chosen([raw for raw in columns if raw is not VALUE], known, grow=grow)
    if VALUE in columns and (VALUE in known or grow):
        chosen[VALUE] = None
    extra = [
        (at, raw, value)
        for raw, column in columns.items()
        if raw not in chosen
        for at, value in enumerate(column.to_pylist() if isinstance(column, pa.Array) else column)
        if value is not None
    ]
    return {raw: columns[raw] for raw in chosen}, extra


def _chosen(names: Iterable[Any], known: Mapping[Any, str], *, grow: bool) -> dict[Any, None]:
    """Return those of some keys that have a column, or get one."""
    new = [name for name in names if name not in known]
    room = set(new[: max(0, MOST_COLUMNS - len(known))] if grow else ())
    return {name: None for name in names if name in known or name in room}


def _array(values: Any, kind: Kind, count: int) -> Any:
    """Return values as an array, or nulls for None."""
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, pa.Array):
        return values
    return pa.array(values, kind)


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


def _joined_rest(column: Any, told: Mapping[int, str]) -> Any:
    """Return the column of rests with more JSON texts in it."""
    texts = column.to_pylist()
    for at, made in told.items():
        # Join the JSON texts: parsing and writing an existing rest again could change it.
        texts[at] = made if texts[at] is None else f"{texts[at][:-1]},{made[1:]}"
    return pa.array(texts, _TEXT)
