"""Rows of Parquet files, where functions run, and values of Arrow columns as plain Python.

Owns which files and row groups this process keeps open, and how much of them. A row group is decoded in batches, and a
batch becomes lists of Python values, column by column, as functions request them: neighbouring rows cost one decode,
however many slots read them. Knows nothing of listings. Imports pyarrow when the first file is opened.

Texts, numbers, lists and dicts stay as in Arrow, null becomes None, NaN stays NaN, times become `datetime` in
microseconds.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from dqlab.documents.kept_open import Forward, KeptOpen, Piece, at_let_go
from dqlab.documents.keys import check_column
from dqlab.documents.parts import Row
from dqlab.documents.servers import ServerBusy
from dqlab.documents.storage import local_path, open_binary, place_of, stamp_of
from dqlab.errors import DocumentChanged, DqlabError, ExtraMissing, FileUnreadable, RecordInvalid, in_words
from dqlab.imports import import_whole

BATCH_BYTES = 4 << 20
"""Bytes of a row group that are decoded at once, roughly, and not more than `BATCH_ROWS` rows."""
BATCH_ROWS = 8192
GROUP_BYTES = 32 << 20
"""Bytes of a row group that stay decoded."""
BLOCK_VALUES = 64 << 10
"""Values of all columns that become Python objects at once, at most 1,024 of each column."""
BLOCKS_KEPT = 4
"""Blocks of each column that are kept as Python objects; slots of a process read rows near each other."""


OTHER_REASONS = (DqlabError, OSError, MemoryError, ImportError, RecursionError)
"""Errors of a conversion that are not due to the values, as a date after the year 9999 and a text that is not UTF-8."""


class _CannotRead(Exception):
    """Python cannot hold a value, for the reason in the argument."""


class _Changed(Exception):
    """The file is not the one that was listed, with the listed version and the present one as arguments."""


def cell(where: str, version: str, key: Any, part: Row, column: Any) -> Any:
    """Return one value of a row, or raise `DocumentChanged` for another file, `RecordInvalid` for such a value."""
    group, at, columns = part[:3]
    last = _last
    try:
        # Nearly every document lies near the one before. Use a local copy: other slots set `_last` too.
        same = last.group == group and last.columns == columns and last.version == version
        if same and (last.where is where or last.place == place_of(where)):
            start, values = last.near.get(column, _NONE)  # read at once: other slots replace it
            if 0 <= at - start < len(values):
                return values[at - start]
        return _cell(where, version, part, column)
    except _CannotRead as error:
        raise RecordInvalid(
            reason=f"document {key!r} has a value in column {column!r} that Python cannot hold: {error}. It was not "
            f"read, and the document has no result; its other columns, and other rows of {where!r}, are not touched "
            "by this. Correct the value and map the rows again; or read other columns, doc['column'] or columns=[...].",
            key=key,
            column=column,
        ) from None
    except _Changed as error:
        was, now = error.args
        raise DocumentChanged(document=key, was=was, now=now, way=DocumentChanged.OF_ROW) from None


def _cell(where: str, version: str, part: Row, column: Any) -> Any:
    global _last
    table = _table(where, version)
    chosen = table.chosen(part.columns)
    if column not in chosen:
        more = dict(part.added)
        if column not in more:
            check_column(column, (*chosen, *more), where, "read")
        return more[column]
    _last = last = _batches(table, version, part, (column,))
    last.where = where
    return last.value(part.at, column)


def row(where: str, version: str, key: Any, part: Row) -> dict[str, Any]:
    """Return a row with the chosen columns in the file's order, with the errors of `cell`."""
    try:
        table = _table(where, version)
        chosen = tuple(table.chosen(part.columns))
        batches = _batches(table, version, part, chosen)
        return {name: batches.value(part.at, name) for name in chosen} | dict(part.added)
    except _CannotRead:
        for name in chosen:
            cell(where, version, key, part, name)  # raises for the unreadable column, with its name
        raise
    except _Changed as error:
        was, now = error.args
        raise DocumentChanged(document=key, was=was, now=now, way=DocumentChanged.OF_ROW) from None


class ParquetTable:
    """An open Parquet file with its schema and row groups."""

    def __init__(self, where: str) -> None:
        parquet = _pyarrow_parquet()
        self.where = where
        self._file: Any = None
        self._stream = None if local_path(where) is not None else open_binary(where)
        if self._stream is not None:
            weakref.finalize(self, self._stream.close)
        try:
            self._file = parquet.ParquetFile(self._stream or local_path(where), pre_buffer=self._stream is not None)
        except (FileNotFoundError, PermissionError, IsADirectoryError, ServerBusy):
            self.close()
            raise
        except Exception as error:  # ArrowInvalid, and other errors that damaged footers cause
            self.close()
            raise _unreadable(where, error) from error
        self.schema: Any = self._file.schema_arrow
        self.names: list[str] = self.schema.names
        self.group_rows: list[int] = [
            self._file.metadata.row_group(at).num_rows for at in range(self._file.metadata.num_row_groups)
        ]
        self._chosen: dict[int, dict[str, None]] = {}
        self._lock = threading.Lock()
        """Several slots read row groups, and pyarrow does not promise that two threads may read one file."""

    def chosen(self, mask: int) -> dict[str, None]:
        """Return the names that a mask selects, in the file's order."""
        found = self._chosen.get(mask)
        if found is None:
            found = dict.fromkeys(name for at, name in enumerate(self.names) if not mask or mask >> at & 1)
            self._chosen[mask] = found
        return found

    def batches(self, group: int, names: Sequence[str], rows: int | None = None) -> Iterator[Any]:
        """Decode some columns of a row group in batches of `rows`, or of about `BATCH_BYTES` for None."""
        if rows is None:
            rows = self._rows_of_a_batch(group, set(names))
        try:
            batches = self._file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)
            while True:
                with self._lock:  # not around the yield: a caller may stop there for long
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        except (MemoryError, ServerBusy):  # the file may be fine, and another try give it
            raise
        except Exception as error:
            raise _unreadable(self.where, error) from error

    def _rows_of_a_batch(self, group: int, names: set[str]) -> int:
        described = self._file.metadata.row_group(group)
        size = sum(
            column.total_uncompressed_size
            for column in map(described.column, range(described.num_columns))
            if column.path_in_schema in names or column.path_in_schema.partition(".")[0] in names
        )
        rows: int = max(1, min(BATCH_ROWS, BATCH_BYTES * self.group_rows[group] // max(1, size)))
        return rows

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        if self._stream is not None:
            self._stream.close()


_TABLES: KeptOpen[ParquetTable] = KeptOpen(16)
_GROUPS: KeptOpen[_Batches] = KeptOpen(4)


def _table(where: str, version: str) -> ParquetTable:
    def opened() -> ParquetTable:
        try:
            table = ParquetTable(where)
        except FileUnreadable:
            _check(where, version)
            raise
        _check(where, version)
        return table

    return _TABLES.get((place_of(where), version), opened)


def _check(where: str, version: str) -> None:
    """Raise `_Changed` if a file is not the one that was listed."""
    # Call it after reading: then all that was read before is from the listed file.
    now = stamp_of(where).version
    if now != version:
        raise _Changed(version, now)


def _batches(table: ParquetTable, version: str, part: Row, asked: tuple[str, ...]) -> _Batches:
    """Return the decoded columns of a row group, which include those that were asked for."""
    place = (place_of(table.where), version, part.group, part.columns)
    # Decode all columns that the user chose. Without a choice, decode those that functions have requested so far: after
    # a few rows these are all that the function reads.
    names = tuple(table.chosen(part.columns)) if part.columns else asked
    batches = _GROUPS.get(place, partial(_Batches, table, version, part, names))
    # Ask for the columns so far and the new ones together. In a loop, because another slot may put its own batches
    # there meanwhile.
    while not batches.names.issuperset(asked):
        _GROUPS.forget(place)
        names = tuple(dict.fromkeys((*batches.order, *asked)))
        batches = _GROUPS.get(place, partial(_Batches, table, version, part, names))
    return batches


class _Batches:
    """Some columns of one row group, decoded as far as they were read."""

    def __init__(self, table: ParquetTable | None, version: str, part: Row, names: Sequence[str] = ()) -> None:
        self.place, self.version = "" if table is None else place_of(table.where), version
        self.where = ""
        """The place as a document has it: its neighbours have the same object, which takes less to compare."""
        self.group, self.columns = part.group, part.columns
        self.near: dict[Any, tuple[int, list[Any]]] = {}
        """The values of each column around the row that was read last, and the position of the first of them."""
        self.names = frozenset(names)
        self.order = list(names)
        # Not a bound method: the reference cycle would keep the file open until the next garbage collection.
        self._forward: Forward[_Batch] = Forward(partial(_decode, table, version, self.group, self.order), GROUP_BYTES)
        self._piece: Piece[_Batch] | None = None

    def value(self, index: int, name: str) -> Any:
        """Return the value of a row, by its position in the group."""
        piece = self._piece  # read once: other slots replace it
        if piece is None or not piece.start <= index < piece.stop:
            self._piece = piece = self._forward.at(index)
        start, values = piece.held.block(index - piece.start, name)
        self.near[name] = start + piece.start, values
        return values[index - piece.start - start]


def _decode(table: ParquetTable | None, version: str, group: int, names: list[str]) -> Iterator[Piece[_Batch]]:
    assert table is not None, "or there is nothing to decode"
    at = 0
    try:
        for batch in table.batches(group, names):
            _check(table.where, version)
            yield Piece(at, at + batch.num_rows, _Batch(batch), batch.nbytes)
            at += batch.num_rows
    except FileUnreadable:
        _check(table.where, version)
        raise


_NONE: tuple[int, list[Any]] = (0, [])
_last = _NOTHING = _Batches(None, "", Row(-1, 0))
"""The batches of the row that was read last, in any slot."""


@at_let_go
def _let_go() -> None:
    global _last
    _TABLES.clear()
    _GROUPS.clear()
    _last = _NOTHING


class _Batch:
    """Rows that were decoded together, and those of their values that are Python objects by now."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._at = {name: at for at, name in enumerate(batch.schema.names)}
        columns = max(1, len(self._at))
        self._rows = max(16, min(1024, BLOCK_VALUES // columns))
        self._most = BLOCKS_KEPT * columns
        self._lists: dict[tuple[str, int], list[Any]] = {}
        self._lock = threading.Lock()

    def block(self, index: int, name: str) -> tuple[int, list[Any]]:
        """Return the values around a row, and the position of the first of them."""
        start = index - index % self._rows
        with self._lock:
            values = self._lists.get((name, start))
            if values is None:
                column = self._batch.column(self._at[name])
                try:
                    values = plain_values(column.slice(start, self._rows))
                except OTHER_REASONS:
                    raise
                except Exception:  # noqa: BLE001 - raised below, if it is about this value
                    return index, _alone(column.slice(index, 1))
                self._lists[name, start] = values
                if len(self._lists) > self._most:
                    del self._lists[next(iter(self._lists))]
            return start, values


def _alone(value: Any) -> list[Any]:
    try:
        return plain_values(value)
    except Exception as error:
        raise _CannotRead(in_words(error)) from error


def _pyarrow_parquet() -> Any:
    with ExtraMissing.without("pyarrow", what="Parquet files", extra="tables"):
        import_whole("pyarrow.parquet")
    import pyarrow.parquet

    return pyarrow.parquet


def _unreadable(where: str, error: BaseException) -> FileUnreadable:
    return FileUnreadable(
        where=where,
        form="Parquet",
        reason=in_words(error),
        hint="A file that is being written has no footer yet: wait until it is whole. Leave other files out of the "
        "pattern, for example with '*.parquet'",
    )


# --- values of Arrow columns -----------------------------------------------------------------


def plain_values(array: Any) -> list[Any]:
    """Return the values of an Arrow array, or of a part of a column."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks != 1:
            return [value for chunk in array.chunks for value in plain_values(chunk)]
        array = array.chunk(0)
    kind = array.type
    types = pa.types
    if types.is_dictionary(kind):
        return plain_values(array.dictionary_decode())
    if _quick(types, kind, array):
        try:  # takes a tenth of the time of to_pylist, which makes a scalar of each value first
            values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
            return values
        except (ImportError, NotImplementedError, pa.ArrowException):  # numpy is missing, or a text is not UTF-8
            pass
    if types.is_timestamp(kind) and kind.unit == "ns":
        # pyarrow turns nanoseconds into objects of pandas if that is installed, and raises otherwise; a cast rounds
        # towards 1970, which is up for earlier times.
        import pyarrow.compute

        array = pyarrow.compute.floor_temporal(array, unit="microsecond").cast(pa.timestamp("us", kind.tz), safe=False)
    elif types.is_duration(kind) and kind.unit == "ns":
        array = array.cast(pa.duration("us"), safe=False)
    values = array.to_pylist()
    return list(map(_coarse, values)) if types.is_nested(kind) and "[ns" in str(kind) else values


def _coarse(value: Any) -> Any:
    """Return a nested value with times of Python in place of those that pyarrow makes of nanoseconds for pandas."""
    if isinstance(value, list | tuple):
        return type(value)(map(_coarse, value))
    if isinstance(value, dict):
        return {name: _coarse(each) for name, each in value.items()}
    if hasattr(value, "nanosecond"):
        return value.to_pydatetime(warn=False)
    return value.to_pytimedelta() if hasattr(value, "nanoseconds") else value


def _quick(types: Any, kind: Any, array: Any) -> bool:
    """Return whether numpy gives the same values as `to_pylist`."""
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return True
    # Not with nulls: numpy has none for numbers, and would turn whole numbers into floats.
    numeric: bool = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return numeric and not array.null_count
