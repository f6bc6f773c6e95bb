"""Rows of a run as parts of its sink, and finding rows again by the references in its settlements.

A part is written once, whole, under a name that no other part has. A row counts only if a settlement refers to it,
which is not known here. Knows no cluster; loads pyarrow for Parquet only, when a part is written or read.
"""

from __future__ import annotations

import datetime
import json
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from hashlib import blake2b
from itertools import accumulate, chain, groupby, islice, repeat
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgpack

from dqlab.datasets.lineage import KEY, ORDINAL, REST, ROW_LINEAGE
from dqlab.datasets.plain import row_of
from dqlab.datasets.sinks import CLAIM, Files, NameRefused, Own, Parquet, Sink, check_owner, owner_of, was_dropped
from dqlab.datasets.yielded import PART, Yielded, exploded, row_without, spread
from dqlab.documents.kept_open import KeptOpen
from dqlab.errors import ResultRefused, RunError, in_words
from dqlab.numbers import many
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.datasets.rows import Shape

# Logs of queues contain references in this layout: do not change it.
_ROW, _FILE, _ROWS, _VALUES = 1, 2, 3, 4
"""A row; a file; several rows of one document; several values that are no rows."""
_HEAD, _SEVERAL = struct.Struct("<BI"), struct.Struct("<BII")
"""Before the name of the part: the first row, and how many where there may be several."""
_METADATA, _FORMAT = b"dqlab", 2
_OPEN = 8
"""Parts, at most, that a process keeps open."""
_PORTION = 64 << 20
"""Bytes of rows, roughly, that are read at once; a page may refer to more than fits into memory or an Arrow array."""
_NAME_BYTES = 200
_HEAD_ROWS = 100
"""Rows of a part that decide which texts get a dictionary."""
_EMPTY = "{}"
"""The rest of a row that has nothing in any column, where one without a rest stands for a result that is None."""
_KEYS = (str, int, bool, type(None))
"""Types of keys that JSON can tell apart from the names of their columns."""


class SinkRow(NamedTuple):
    """A result and how it was made."""

    ordinal: int
    key: str | int | None
    value: Any
    version: str | None
    code: str | None
    seconds: float
    attempts: int | None
    consumer: str
    at: float
    """Seconds since 1970 UTC."""

    @property
    def lineage(self) -> dict[str, Any]:
        """How it was made, as the columns `ROW_LINEAGE`."""
        at = datetime.datetime.fromtimestamp(self.at, datetime.UTC)
        known = self.version or None, self.code or None, self.seconds, self.attempts, self.consumer, at
        return dict(zip(ROW_LINEAGE, known, strict=True))


_VALUE_AT = SinkRow._fields.index("value")


class SinkRows(Sequence[SinkRow]):
    """Rows by column, so that writers of columns need no object for each row."""

    # One list for each field of `SinkRow`, in that order.
    __slots__ = ("columns", "declared")

    def __init__(self, columns: Iterable[list[Any]] = (), declared: Sequence[Mapping[str, Any]] = ()) -> None:
        self.columns: tuple[list[Any], ...] = tuple(columns) or tuple([] for _ in SinkRow._fields)
        self.declared = list(declared)
        """Columns of `schemas` that the code versions of these rows declare."""

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, at: Any) -> Any:
        return SinkRow(*(column[at] for column in self.columns))

    def cut(self, start: int, stop: int) -> SinkRows:
        """Return the rows from `start` up to `stop`."""
        return SinkRows((column[start:stop] for column in self.columns), self.declared)

    def spread(self, values: list[Any], counts: list[int]) -> SinkRows:
        """Return the rows with other values in place of theirs, and as often as the numbers say."""
        made = self.cut(0, 0)
        made.columns = tuple(list(spread(column, counts)) for column in self.columns)
        made.columns[_VALUE_AT][:] = values
        return made

    def extend(self, rows: SinkRows) -> None:
        """Add the rows of another."""
        for mine, others in zip(self.columns, rows.columns, strict=True):
            mine += others
        self.declared += [each for each in rows.declared if each not in self.declared]


class PartError(RunError):
    """Results were written to a sink, and cannot be read from it."""


class PartMissing(PartError):
    """A part of a sink no longer exists."""

    text = (
        "{rows:row} of run {run!r} were written to {part}, which no longer exists. The queue has only references to "
        "them. Bring the file back, or run those documents again."
    )


class PartUnreadable(PartError):
    """A part of a sink is damaged, or cannot be reached."""

    text = (
        "{rows:row} of run {run!r} that were asked for stand in {part}, which cannot be read: {reason}. The queue "
        "knows where they are and has none of them. Mend that, or bring the file back as it was, or run those "
        "documents again."
    )


# --- references ----------------------------------------------------------------------------------


def refer_all(part: str, rows: int) -> list[bytes | Exception]:
    """Return references to the first `rows` rows of a part, which settlements have in place of results."""
    name = part.encode()
    return [_HEAD.pack(_ROW, row) + name for row in range(rows)]


def _refer_several(references: Sequence[bytes | Exception], values: Sequence[Any], counts: Sequence[int]) -> list[Any]:
    """Return a reference for each document, or the first error of its rows, given references to all rows in order."""
    made, first = list[bytes | Exception](), 0
    for value, count in zip(values, counts, strict=True):
        its: Sequence[Any] = references[first : first + count]
        error = next((each for each in its if isinstance(each, Exception)), None)
        if type(value) is not Yielded:
            made += its
        elif error is not None:
            made.append(error)
        else:
            _, row = _HEAD.unpack_from(its[0]) if its else (0, 0)
            name = its[0][_HEAD.size :] if its else b""
            made.append(_SEVERAL.pack(_VALUES if value.bare else _ROWS, row, count) + name)
        first += count
    return made


def each_row(references: Sequence[bytes]) -> tuple[list[bytes], list[int]] | None:
    """Return references to single rows, and how many each document has; None if each has one."""
    if {reference[0] for reference in references}.isdisjoint((_ROWS, _VALUES)):
        return None
    rows, counts = list[bytes](), list[int]()
    for reference in references:
        several = [reference]
        if reference[0] in (_ROWS, _VALUES):
            _, first, n = _SEVERAL.unpack_from(reference)
            several = [_HEAD.pack(_ROW, first + at) + reference[_SEVERAL.size :] for at in range(n)]
        rows += several
        counts.append(len(several))
    return rows, counts


def file_of(reference: bytes | memoryview) -> str:
    """Return the name of the file in a reference of `Files`."""
    name: str = _file_in(reference)[0]
    return name


def _file_in(reference: bytes | memoryview) -> list[Any]:
    found: list[Any] = msgpack.unpackb(bytes(reference[1:]), unicode_errors="surrogatepass")
    return found


# --- writing -------------------------------------------------------------------------------------


def writer_of(sink: Sink, run: str, id: str, here: str, *, durable: bool = True) -> Writer:
    """Return the writer for a sink."""
    # `here` names this process in errors. `durable`: settlements outlive a power failure, so rows must be on the disk
    # before them. If `write` raises, nothing of the part counts, and the caller tries again; `hurried`: rows arrive as
    # fast as they can be written, so it may use more bytes to write faster.
    if isinstance(sink, Own):
        return _OwnWriter(sink)
    target = _Claimed(sink, id, here, flushed=durable)
    return _FileWriter(target, sink) if isinstance(sink, Files) else _PartWriter(target, sink.rows, run, id)


class _Claimed:
    """A folder that is checked, before the first file, to be the one that the run was given."""

    def __init__(self, sink: Parquet | Files, id: str, here: str, *, flushed: bool) -> None:
        self._sink, self._target, self._id, self._here, self._known = sink, sink.target, id, here, False
        self._flushed = flushed

    def write(self, name: str, data: bytes | memoryview, *, lasting: bool = True) -> None:
        if not self._known:
            check_owner(self._sink, self._id, owner_of(self._target), self._here)
            self._known = True
        try:
            self._target.write(name, data, lasting=lasting, flushed=self._flushed)
        except Exception:
            self._known = False  # the folder may be gone, so look up its owner again before the next file
            raise

    def close_part(self, names: Iterable[str]) -> None:
        """Delete these files if the run was dropped while they were written, and check the folder's owner again."""
        there = owner_of(self._target)
        if was_dropped(there):
            for name in names:
                self._target.delete(name)
        self._known = False
        check_owner(self._sink, self._id, there, self._here)
        self._known = True

    def sync(self) -> None:
        if self._flushed:
            self._target.sync()


class _PartWriter:
    """Writes a part as one Parquet file."""

    def __init__(self, target: _Claimed, most: int, run: str, id: str) -> None:
        self._target, self._most, self._run, self._id = target, most, run, id

    def write(self, part: str, rows: SinkRows, *, hurried: bool = False) -> list[bytes | Exception]:
        """Write a part, and return for each row a reference, or the error of a row that the format cannot hold."""
        made = list[bytes | Exception]()
        for at in range(0, len(rows), self._most):
            name = f"{part}-{at}.parquet" if len(rows) > self._most else f"{part}.parquet"
            documents = some = rows.cut(at, at + self._most)
            if (several := exploded(some.columns[_VALUE_AT])) is not None:
                some = some.spread(*several)
                if not len(some):
                    made += _refer_several([], documents.columns[_VALUE_AT], several[1])
                    continue
            try:
                data, refused = self._packed(some, hurried=hurried)
            except Exception as error:  # noqa: BLE001 - a value broke the writer, and would break it at each try
                made += [error] * len(documents)
                continue
            self._target.write(name, data)
            self._target.close_part([name])
            references = refer_all(name, len(some))
            # A refused row stands in the part without the value that no table can hold, and nothing refers to it.
            for row, why in refused.items():
                references[row] = why
            if several is not None:
                references = _refer_several(references, documents.columns[_VALUE_AT], several[1])
            made += references
        return made

    def _packed(self, rows: SinkRows, *, hurried: bool) -> tuple[memoryview, dict[int, Exception]]:
        """Return the rows as a Parquet file, and the errors of those that it cannot hold, by position."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from dqlab.datasets.rows import VALUE, Rows, Shape

        shape, (ordinals, labels, values, *known) = Shape(lined=True), rows.columns
        for declared in rows.declared:
            shape.declare(declared)
        lineage: dict[str, Any] = dict(zip(ROW_LINEAGE, known, strict=True))
        lineage["_at"] = _moments(lineage["_at"])
        # "" stands for an unknown text.
        lineage |= {name: [text or None for text in lineage[name]] for name in ("_version", "_code")}
        unnamed = labels.count(None)
        keys = None if unnamed == len(rows) else [_key_of(row) for row in rows] if unnamed else labels
        batch = shape.record_batch(Rows(ordinals, keys, values, lineage=lineage))
        spelled = {name for raw, name in shape.names.items() if type(raw) not in _KEYS}
        about = {
            "format": _FORMAT,
            "run": self._run,
            "id": self._id,
            "value": shape.names.get(VALUE, None if shape.names else "value"),
            "keys": {
                name: raw
                for raw, name in shape.names.items()
                if raw != name and type(raw) in _KEYS and raw not in spelled
            },
        }
        table = _with_empty(pa.Table.from_batches([batch]), shape, values)
        table = table.replace_schema_metadata({_METADATA: json.dumps(about)})
        file = pa.BufferOutputStream()  # a Python file would take the GIL for each page, and slow the running function
        # Numbers usually differ: a dictionary of an embedding's costs as much as the model, and makes the file larger.
        head = batch.slice(0, _HEAD_ROWS)
        texts = [field.name for field in batch.schema if pa.types.is_string(field.type)]
        repeating = ["_attempts", *(name for name in texts if 2 * len(head.column(name).unique()) <= len(head))]
        compression = "snappy" if hurried else "zstd"  # snappy is faster, and takes more bytes
        pq.write_table(table, file, compression=compression, use_dictionary=repeating, write_page_checksum=True)
        refused: dict[int, Exception] = {at: _not_storable(column, kind) for at, (column, kind) in shape.opaque.items()}
        return memoryview(file.getvalue()), refused


def _with_empty(table: Any, shape: Shape, values: Sequence[Any]) -> Any:
    """Return the table of a part with `_EMPTY` as the rest of dicts that have nothing in any column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    filled = [table.column(name) for name in (*shape.names.values(), REST)]
    if any(not column.null_count for column in filled):
        return table
    nothing = reduce(pc.and_, map(pc.is_null, filled))
    empty = [at for at in pc.indices_nonzero(nothing).to_pylist() if row_of(values[at]) is not None]
    if not empty:
        return table
    rest = table.column(REST).to_pylist()
    for at in empty:
        rest[at] = _EMPTY
    return table.set_column(table.schema.get_field_index(REST), REST, pa.array(rest, pa.string()))


def _moments(seconds: Sequence[float]) -> Any:
    """Return seconds since 1970 UTC as an array of times."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.round(pc.multiply(pa.array(seconds, pa.float64()), 1e6))
    return micros.cast(pa.int64()).view(pa.timestamp("us", tz="UTC"))


def _not_storable(column: str, kind: str) -> ResultRefused:
    return ResultRefused(
        reason=f"the result has a value of type {kind} in {column!r}, which cannot be read back from a sink. It was "
        "not kept. Return plain data (for dq.Files a text or bytes): numbers, texts, times, and lists, dicts or "
        "dataclasses of them, such as frame.to_dict('records'). Or map without sink=: the queue keeps objects."
    )


class _FileWriter:
    """Writes each result as a separate file."""

    def __init__(self, target: _Claimed, sink: Files) -> None:
        self._target, self._sink = target, sink

    def write(self, part: str, rows: SinkRows, *, hurried: bool = False) -> list[bytes | Exception]:
        made: list[bytes | Exception] = []
        names: list[str] = []
        for row in rows:
            value = row.value
            if not isinstance(value, str | bytes | bytearray):
                kind = "list, of yielded rows," if type(value) is Yielded else type(value).__name__
                made.append(_not_storable("value", kind))
                continue
            name = file_name(self._sink.name, row.key, row.ordinal)
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
            try:
                self._target.write(name, data, lasting=False)
                names.append(name)
            except NameRefused as error:  # concerns this document only; the others get their files
                reason = error.strerror or in_words(error)
                path = self._sink.target.path(name)
                problem = (
                    f"the result of document {one_line(str(_key_of(row)), 60)} cannot be written to {path!r}: {reason}."
                )
                way = "It was not kept. Move what stands there, or name the document otherwise, then retry it."
                made.append(ResultRefused(reason=f"{problem} {way}"))
                continue
            # Only append to this list: logs contain references in this order (see `Reader._file`).
            fields = [name, isinstance(value, str), zlib.crc32(data)]
            made.append(bytes([_FILE]) + msgpack.packb(fields, unicode_errors="surrogatepass"))
        self._target.sync()  # once for all files, before the references count
        self._target.close_part(names)
        return made


def file_name(pattern: str, key: str | int | None, ordinal: int) -> str:
    """Return the name of a document's file (see `Files`)."""
    text = str(ordinal if key is None else key)
    safe = (
        "".join(f"%{ord(each):02X}" if each in "%/\\" or ord(each) < 32 or ord(each) == 127 else each for each in text)
        .encode("utf-8", "backslashreplace")
        .decode()
    )
    name = pattern.replace("{ordinal}", str(ordinal)).replace("{key}", safe)
    if name.startswith(".") or name.lower() == CLAIM:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith((".", " ")):  # some systems drop these
        name = f"{name[:-1]}%{ord(name[-1]):02X}"
    name = name or "%"
    if len(name.encode()) > _NAME_BYTES:
        stem, dot, suffix = name.rpartition(".")
        if not dot or len(suffix) > 16:
            stem, suffix = name, ""
        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        room = _NAME_BYTES - len(digest) - len(suffix.encode()) - 2
        short = stem.encode()[:room].decode("utf-8", "ignore")
        name = f"{short}-{digest}{f'.{suffix}' if suffix else ''}"
    return name


class _OwnWriter:
    """Passes parts to a user's own sink."""

    def __init__(self, sink: Own) -> None:
        self._sink, self._made = sink, None

    def write(self, part: str, rows: SinkRows, *, hurried: bool = False) -> list[bytes | Exception]:
        if self._made is None:
            self._made = self._sink.opened()
        opened: Any = self._made
        begun = opened.open(part)
        told, counts = list[dict[str, Any]](), list[int]()
        for row in rows:
            about = {KEY: _key_of(row), ORDINAL: row.ordinal, **row.lineage}
            its: list[dict[str, Any]] = [{"value": row.value}]
            if type(row.value) is Yielded:
                its = [{PART: at, "value": each} for at, each in enumerate(row.value)]
            told += [about | each for each in its]
            counts.append(len(its))
        opened.write(begun, told)
        name = opened.commit(begun)
        name = name if isinstance(name, str) and name else part
        return _refer_several(refer_all(name, len(told)), rows.columns[_VALUE_AT], counts)


def _key_of(row: SinkRow) -> str | int:
    return row.ordinal if row.key is None else row.key


Writer: TypeAlias = _PartWriter | _FileWriter | _OwnWriter
"""Writes the parts of one run on one consumer, one after another, in a separate thread."""


# --- reading -------------------------------------------------------------------------------------


def _check_there(at: Sequence[int], rows: int) -> None:
    if at and max(at) >= rows:
        raise IndexError(f"it has {many(rows, 'row')}, and {max(at) + 1:,} were written at least")


class _Table:
    """A part in Parquet."""

    def __init__(self, data: bytes, id: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from dqlab.datasets.rows import VALUE

        table = pq.read_table(pa.BufferReader(data), use_threads=False, page_checksum_verification=True)
        about = json.loads((table.schema.metadata or {}).get(_METADATA, _EMPTY))
        if about.get("format") != _FORMAT:
            raise ValueError("an earlier version of dqlab has written it, in a format that this one does not read")
        if about["id"] != id:
            raise ValueError("it is of another run")
        self._table, self._keys, self._value = table, about["keys"], about["value"]
        self._names = {
            VALUE if name == self._value else self._keys.get(name, name): name
            for name in table.column_names
            if name not in (KEY, ORDINAL, REST, *ROW_LINEAGE)
        }

    def share(self) -> float:
        """Return the bytes of a row."""
        return float(self._table.nbytes / max(1, self._table.num_rows))

    def columns(self, at: Sequence[int], ordinals: Sequence[int]) -> tuple[dict[Any, Any], Any]:
        """Return the columns of some rows by key, and their rest, as arrays.

        Raises `IndexError` for a missing row, and `ValueError` for that of another document.
        """
        _check_there(at, self._table.num_rows)
        near = range(at[0], at[0] + len(at))
        taken = self._table.slice(at[0], len(at)) if list(at) == list(near) else self._table.take(list(at))
        found = taken.column(ORDINAL).to_pylist()
        if found != list(ordinals):
            theirs, its = next(pair for pair in zip(found, ordinals, strict=True) if pair[0] != pair[1])
            raise ValueError(f"it has the row of document {theirs:,} where that of document {its:,} was written")
        return {raw: _flat(taken.column(name)) for raw, name in self._names.items()}, _flat(taken.column(REST))

    def values(self, at: Sequence[int], ordinals: Sequence[int]) -> list[Any]:
        """Return some rows as values, with the errors of `columns`: dicts, or what is in the column of other values."""
        from dqlab.datasets.rows import VALUE

        columns, rest = self.columns(at, ordinals)
        pairs = (zip(repeat(raw), each.to_pylist()) for raw, each in columns.items() if raw is not VALUE)
        rows: list[Any] = list(map(dict, zip(*pairs, strict=True)))
        full = any(not array.null_count for raw, array in columns.items() if raw is not VALUE)
        if full and rest.null_count == len(rest):
            return rows
        others = columns[VALUE].to_pylist() if VALUE in columns else [None] * len(at)
        rows = rows or [{} for _ in at]
        return list(map(self._value_of, rows, others, rest.to_pylist()))

    def _value_of(self, row: dict[Any, Any], other: Any, rest: str | None) -> Any:
        more = json.loads(rest or _EMPTY)
        more.pop(KEY, None)  # the document's key, not a column
        if other is not None or self._value in more:
            return other if other is not None else more[self._value]
        if not more and rest != _EMPTY and all(each is None for each in row.values()):
            return None
        return row | {self._keys.get(name, name): value for name, value in more.items()}


def _flat(column: Any) -> Any:
    """Return a column of a table as one array."""
    import pyarrow as pa

    made = column.combine_chunks()
    return pa.concat_arrays(made.chunks) if isinstance(made, pa.ChunkedArray) else made


class _Values:
    """A part of a user's own sink."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values = list(values)

    def share(self) -> float:
        return 0.0

    def values(self, at: Sequence[int], ordinals: Sequence[int]) -> list[Any]:
        _check_there(at, len(self._values))
        return [self._values[each] for each in at]


_Opened: TypeAlias = _Table | _Values
open_parts: KeptOpen[_Opened] = KeptOpen(_OPEN)
"""The open parts of this process; never outdated, because parts do not change."""


class Reader:
    """Reads the rows of a run from its sink by their references."""

    def __init__(self, sink: Sink, run: str, id: str) -> None:
        self.sink, self._run, self._id = sink, run, id  # the id in hex digits
        self._target = None if isinstance(sink, Own) else sink.target
        self._own: Any = None

    @property
    def has_columns(self) -> bool:
        """Whether rows can be read as Arrow columns."""
        return isinstance(self.sink, Parquet)

    def find(self, references: Sequence[bytes], ordinals: Sequence[int]) -> list[Any]:
        """Return the value of each reference, or a `PartError` that says why it cannot be read."""
        if isinstance(self.sink, Files):
            return [self._file(reference) for reference in references]
        if (several := each_row(references)) is not None:
            return self._find_several(references, ordinals, *several)
        found: list[Any] = [None] * len(references)
        for part, (places, rows) in _by_part(references).items():
            its = [ordinals[at] for at in places]
            try:
                values: Sequence[Any] = self._read(part, len(rows), "values", rows, its)
            except PartError as error:
                values = [error] * len(rows)
            for at, each in zip(places, values, strict=True):
                found[at] = each
        return found

    def _find_several(
        self, references: Sequence[bytes], ordinals: Sequence[int], rows: Sequence[bytes], counts: Sequence[int]
    ) -> list[Any]:
        found, made = iter(self.find(rows, list(spread(ordinals, counts)))), list[Any]()
        for reference, count in zip(references, counts, strict=True):
            its = list(islice(found, count))
            if reference[0] == _ROW:
                made += its
                continue
            error = next((each for each in its if isinstance(each, PartError)), None)
            bare = reference[0] == _VALUES
            its = [row_without(each, bare=bare) for each in its] if self.has_columns and error is None else its
            made.append(Yielded(its) if error is None else error)
        return made

    def columns(self, references: Sequence[bytes], ordinals: Sequence[int]) -> tuple[dict[Any, Any], Any]:
        """Return rows as columns by key, Arrow arrays or lists, and their rest, or raise a `PartError`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from dqlab.datasets.rows import VALUE

        parts: list[tuple[dict[Any, Any], Any]] = []
        order: list[int] = []
        for part, (places, rows) in _by_part(references).items():
            parts.append(self._read(part, len(rows), "columns", rows, [ordinals[at] for at in places]))
            order += places
        there = pc.array_sort_indices(pa.array(order, pa.int64()))
        names = dict.fromkeys(chain.from_iterable(columns for columns, _ in parts))
        if VALUE in names:  # last, as in a table of values
            names[VALUE] = names.pop(VALUE)
        made = {raw: _in_order([columns.get(raw, len(rest)) for columns, rest in parts], there) for raw in names}
        rest = pa.concat_arrays([rest for _, rest in parts]).take(there)
        return made, pc.if_else(pc.equal(rest, _EMPTY), None, rest)

    def portions(self, references: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of consecutive references whose rows take about 64 MB together, or a larger one alone."""
        ends, start = list(accumulate(self._sizes(references))), 0
        while start < len(references):
            before = ends[start - 1] if start else 0.0
            stop = max(start + 1, bisect_right(ends, before + _PORTION))
            yield start, stop
            start = stop

    def _sizes(self, references: Sequence[bytes]) -> Iterable[float]:
        """Return the bytes of each reference's row, as its share of the part."""
        if isinstance(self.sink, Files):
            sizes = self.sink.target.sizes()
            return (sizes.get(file_of(reference), 0) for reference in references)
        counts = [_SEVERAL.unpack_from(each)[2] if each[0] in (_ROWS, _VALUES) else 1 for each in references]
        names = [each[_SEVERAL.size if each[0] in (_ROWS, _VALUES) else _HEAD.size :] for each in references]
        shares = dict.fromkeys(names, 0.0)
        for name in shares:
            with suppress(PartError):  # raised again when the rows are read
                shares[name] = self._read(name.decode(), 1, "share")
        return map(mul, map(shares.__getitem__, names), counts)

    def _read(self, part: str, rows: int, method: str, *args: Any) -> Any:
        """Return what a method of a part returns, or raise a `PartError` that names the part."""
        where = self._target.path(part) if self._target is not None else repr(self.sink)
        try:
            opened = open_parts.get((self._id, part), lambda: self._open(part, rows))
            return getattr(opened, method)(*args)
        except PartError:
            raise
        except FileNotFoundError:
            raise PartMissing(run=self._run, rows=rows, part=where) from None
        except Exception as error:
            raise PartUnreadable(run=self._run, rows=rows, part=where, reason=in_words(error)) from error

    def _open(self, part: str, rows: int) -> _Opened:
        if self._target is not None:
            return _Table(self._target.read(part), self._id)
        if self._own is None:
            assert isinstance(self.sink, Own)
            self._own = self.sink.opened()
        if not callable(getattr(self._own, "read", None)):
            reason = "it has no method read(part), which returns the values of a part, in order"
            raise PartUnreadable(run=self._run, rows=rows, part=repr(self.sink), reason=reason)
        return _Values(self._own.read(part))

    def _file(self, reference: bytes) -> Any:
        assert self._target is not None
        name, is_text, written, *_ = _file_in(reference)
        try:
            data = self._target.read(name)
            if zlib.crc32(data) != written:
                raise ValueError(
                    "it has other bytes than were written there; another document with this key, or a later delivery "
                    "of this one, may have taken its place"
                )
            return data.decode("utf-8", "surrogatepass") if is_text else data
        except FileNotFoundError:
            return PartMissing(run=self._run, rows=1, part=self._target.path(name))
        except Exception as error:  # noqa: BLE001 - the error of this row must not hide the others
            return PartUnreadable(run=self._run, rows=1, part=self._target.path(name), reason=in_words(error))


def _by_part(references: Sequence[bytes]) -> Mapping[str, tuple[list[int], list[int]]]:
    """Return, by part, the positions of references to it, and the rows that they have."""
    heads = b"".join([reference[: _HEAD.size] for reference in references])
    rows, found, at = [row for _, row in _HEAD.iter_unpack(heads)], dict[str, tuple[list[int], list[int]]](), 0
    for name, same in groupby([reference[_HEAD.size :] for reference in references]):
        stop = at + len(list(same))
        places, its = found.setdefault(name.decode(), ([], []))
        places += range(at, stop)
        its += rows[at:stop]
        at = stop
    return found


def _in_order(parts: Sequence[Any], there: Any) -> Any:
    """Return a column of several parts in the order of the rows, as a list if its parts have no common type."""
    # A part without the column is the number of its rows.
    import pyarrow as pa

    from dqlab.datasets.columns import NULL, joined, recast

    kind: Any = NULL
    for array in parts:
        kind = kind if kind is None or isinstance(array, int) else joined(kind, array.type)
    recasts = [] if kind is None else [pa.nulls(a, kind) if isinstance(a, int) else recast(a, kind) for a in parts]
    if recasts and all(recast is not None for recast in recasts):
        return pa.concat_arrays(recasts).take(there)
    values = list(chain.from_iterable([None] * a if isinstance(a, int) else a.to_pylist() for a in parts))
    return [values[at] for at in there.to_pylist()]
