"""Rows of a run as parts of its sink, and finding rows again by the references in its settlements.

A part is written once, whole, under a name that no other part has. A row counts only if a settlement refers to it,
which is not known here. Knows no cluster; loads pyarrow for Parquet only, when a part is written or read.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
import struct
import threading
import zlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from hashlib import blake2b
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, overload

import msgpack

from dqlab.datasets.alike import Alike
from dqlab.datasets.lineage import BARE, CODE, KEY, NOTHING, ORDINAL, REST, ROW_LINEAGE
from dqlab.datasets.plain import InRest, json_of, name_of, row_of
from dqlab.datasets.sink_targets import NameRefused, Target
from dqlab.datasets.sinks import (
    CLAIM,
    Files,
    Own,
    Parquet,
    Sink,
    check_owner,
    owner_of,
    prefix_of,
    was_dropped,
)
from dqlab.errors import MessageError, ResultNotStorable, RunError, in_words
from dqlab.numbers import many
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.datasets.rows import Columns, PartRows

__all__ = [
    "Finds",
    "Found",
    "NameNotForSink",
    "PartError",
    "PartMissing",
    "PartUnreadable",
    "Reader",
    "SinkNotReadable",
    "SinkRow",
    "SinkRows",
    "Writer",
    "file_of",
    "is_merged",
    "is_moved",
    "moved_in",
    "open_parts",
    "parts_in",
    "read_list",
    "referred",
    "writer_of",
]

# Logs of queues contain references in this layout: do not change it.
_ROW, _FILE = 1, 2
_HEAD = struct.Struct("<BI")
_MOST_HEADS = 10_000
_METADATA = b"dqlab"
_OPEN_BYTES = 256 << 20
"""Bytes of parts, at most, that a process keeps open."""
_PORTION = 64 << 20
"""Bytes of rows, roughly, that are read at once; a page may refer to more than fits into memory or an Arrow array."""
_LOOKS = 5
"""Times that the folder is listed, at most, because consumers merge merged parts meanwhile."""
_NAME_BYTES = 200
_DIGEST = re.compile(r"\.([0-9a-f]{8})\.[a-z]+$")
"""Matches the digest in the name of a part."""
_SLICES = 4
"""Slices of a part with separate sums, since two changes that cancel out are rarely in the same slice."""
_LONG = 4096
"""Bytes; longer metadata is compressed, because Parquet does not do that, and pyarrow holds it twice."""
_HEAD_ROWS = 100
"""Rows of a part that decide which columns get a dictionary."""
_REPEATING, _DIFFERENT = (CODE, "_attempts", "_consumer", REST), (KEY, ORDINAL, "_seconds", "_at")
"""Columns whose values are usually equal, and columns whose values usually differ."""
_UTC = datetime.UTC


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
        at = datetime.datetime.fromtimestamp(self.at, _UTC)
        known = self.version or None, self.code or None, self.seconds, self.attempts, self.consumer, at
        return dict(zip(ROW_LINEAGE, known, strict=True))


class SinkRows(Sequence[SinkRow]):
    """Rows by column, so that writers of columns need no object for each row."""

    # One list for each field of `SinkRow`, in that order; the values may be an `Alike`.
    __slots__ = ("columns",)

    def __init__(self, columns: Iterable[Any] = ()) -> None:
        self.columns: tuple[Any, ...] = tuple(columns) or tuple([] for _ in SinkRow._fields)

    @classmethod
    def of(cls, rows: Sequence[SinkRow]) -> SinkRows:
        """Return rows by column, unchanged if they already are."""
        return rows if isinstance(rows, cls) else cls(map(list, zip(*rows, strict=True)))

    def __len__(self) -> int:
        return len(self.columns[0])

    @overload
    def __getitem__(self, at: int) -> SinkRow: ...

    @overload
    def __getitem__(self, at: slice) -> SinkRows: ...

    def __getitem__(self, at: int | slice) -> SinkRow | SinkRows:
        chosen: Any = [column[at] for column in self.columns]
        return SinkRows(chosen) if isinstance(at, slice) else SinkRow(*chosen)

    def with_values(self, values: Sequence[Any]) -> SinkRows:
        """Return these rows with other values."""
        at = SinkRow._fields.index("value")
        return SinkRows([*self.columns[:at], values, *self.columns[at + 1 :]])

    def extend(self, rows: SinkRows) -> None:
        """Add the rows of another."""
        for mine, others in zip(self.columns, rows.columns, strict=True):
            mine += others


Found: TypeAlias = "tuple[Any, dict[str, Any]]"
"""A value that was read, and its lineage by column."""


class NameNotForSink(MessageError):
    """The file of a document cannot have its name."""

    text = (
        "the result of document {key} cannot be written to {path!r}: {reason}. It was not kept. Move what stands "
        "there, or name the document otherwise, then retry it."
    )


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
        "knows where they are and has none of them. Bring the file back as it was, or run those documents again."
    )


class SinkNotReadable(PartError):
    """A user's own sink has no method to read its parts."""

    text = (
        "{rows:row} of run {run!r} were written by its sink, {part}, which has no method read(part). The sink still "
        "has them. Add a method read(part) that returns the values of a part, in order."
    )


# --- references ----------------------------------------------------------------------------------


def refer_all(part: str, rows: int) -> list[bytes | Exception]:
    """Return references to the first `rows` rows of a part, which settlements have in place of results."""
    name = part.encode()
    made: list[bytes | Exception] = [head + name for head in islice(_heads(), rows)]
    made += [_HEAD.pack(_ROW, row) + name for row in range(len(made), rows)]
    return made


@cache
def _heads() -> tuple[bytes, ...]:
    """Return the beginnings of references to the first rows of any part."""
    # Complete at once, because threads of several sinks share it.
    return tuple(_HEAD.pack(_ROW, row) for row in range(_MOST_HEADS))


def referred(reference: bytes | memoryview) -> tuple[str, int]:
    """Return the part and the row of a reference."""
    _, row = _HEAD.unpack_from(reference)
    return bytes(reference[_HEAD.size :]).decode(), row


def parts_in(references: Sequence[bytes | Exception]) -> Mapping[str, int]:
    """Return the parts of the references from one writing, in order, with the number of rows in each."""
    made = [each for each in references if type(each) is bytes]
    if not made:
        return {}
    first, last = referred(made[0])[0], referred(made[-1])[0]
    return {first: len(made)} if first == last else Counter(referred(each)[0] for each in made)


def file_of(reference: bytes | memoryview) -> str:
    """Return the name of the file in a reference of `Files`."""
    name: str = _file_in(reference)[0]
    return name


def _file_in(reference: bytes | memoryview) -> list[Any]:
    found: list[Any] = msgpack.unpackb(bytes(reference[1:]), unicode_errors="surrogatepass")
    return found


# --- writing -------------------------------------------------------------------------------------


class Writer(Protocol):
    """Writes the parts of one run on one consumer, one after another, in a separate thread."""

    by_column: bool
    """Whether it writes columns, so that the values may be an `Alike`."""

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        """Write a part, and return for each row a reference, or the error of a row that the format cannot hold."""
        # If it raises, nothing of the part counts, and the caller tries again. `hurried`: rows arrive as fast as they
        # can be written, so it may use more bytes to write faster.
        ...


def writer_of(sink: Sink, run: str, id: str, here: str, *, durable: bool = True) -> Writer:
    """Return the writer for a sink."""
    # `here` names this process in errors. `durable`: settlements outlive a power failure, so rows must be on the disk
    # before them.
    if isinstance(sink, Own):
        return _OwnWriter(sink)
    target = _Claimed(sink, id, here, flushed=durable)
    if isinstance(sink, Files):
        return _FileWriter(target, sink)
    return _PartWriter(target, sink.rows, partial(_parquet, run=run, id=id))


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
    """Writes a part as one Parquet file, and finds the rows that it cannot hold."""

    by_column = True

    def __init__(self, target: _Claimed, most: int, pack: Callable[..., memoryview]) -> None:
        self._target, self._most, self._pack = target, most, pack

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        if len(rows) <= self._most:
            return self._write(part, rows, hurried=hurried)
        pieces = [rows[at : at + self._most] for at in range(0, len(rows), self._most)]
        return [each for at, piece in enumerate(pieces) for each in self._write(f"{part}-{at}", piece, hurried=hurried)]

    def _write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool) -> list[bytes | Exception]:
        try:
            data = self._pack(rows, hurried=hurried)
        except Exception as error:  # noqa: BLE001 - the messages of rows that are no plain data fail with their error
            refused = _refused(rows)
            if not refused:  # they are plain data, and cannot be written together: none of them would ever be
                return [error] * len(rows)
            kept = [row for at, row in enumerate(rows) if at not in refused]
            references = iter(self._write(part, kept, hurried=False) if kept else ())
            return [refused[at] if at in refused else next(references) for at in range(len(rows))]
        return refer_all(self._put(part, data), len(rows))

    def _put(self, part: str, data: bytes | memoryview) -> str:
        """Write a file, and return its name."""
        # With a digest of the bytes in the name, each reference to the part has it, too.
        name = f"{part}.{_digest_of(data):08x}.parquet"
        self._target.write(name, data)
        self._target.close_part([name])
        return name


def _refused(rows: Sequence[SinkRow]) -> dict[int, Exception]:
    """Return, by position, why rows are no plain data."""
    refused: dict[int, Exception] = {}
    for at, row in enumerate(rows):
        try:
            values = row_of(row.value)
            for raw, each in ({"value": row.value} if values is None else values).items():
                json_of({name_of(raw): each})
        except Exception as error:  # noqa: BLE001 - reading a value runs users' code
            refused[at] = error
    return refused


class _FileWriter:
    """Writes each result as a separate file."""

    by_column = False

    def __init__(self, target: _Claimed, sink: Files) -> None:
        self._target, self._sink = target, sink

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        made: list[bytes | Exception] = []
        names: list[str] = []
        for row in rows:
            value = row.value
            if not isinstance(value, str | bytes | bytearray):
                made.append(ResultNotStorable(column="value", type=type(value).__name__))
                continue
            name = file_name(self._sink.name, row.key, row.ordinal)
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
            try:
                self._target.write(name, data, lasting=False)
                names.append(name)
            except NameRefused as error:  # concerns this document only; the others get their files
                reason = error.strerror or in_words(error)
                path = self._sink.target.path(name)
                made.append(NameNotForSink(key=one_line(str(_key_of(row)), 60), path=path, reason=reason))
                continue
            # Only append to this list: logs contain references in this order (see `Reader._file`).
            how = row.version, row.code, row.seconds, row.consumer, row.at, row.attempts
            fields = [name, isinstance(value, str), zlib.crc32(data), *how]
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

    by_column = False

    def __init__(self, sink: Own) -> None:
        self._sink, self._made = sink, None

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        if self._made is None:
            self._made = self._sink.opened()
        opened: Any = self._made
        begun = opened.open(part)
        opened.write(
            begun, [{KEY: _key_of(row), ORDINAL: row.ordinal, **row.lineage, "value": row.value} for row in rows]
        )
        name = opened.commit(begun)
        name = name if isinstance(name, str) and name else part
        return refer_all(name, len(rows))


def _key_of(row: SinkRow) -> str | int:
    return row.ordinal if row.key is None else row.key


def _parquet(rows: Sequence[SinkRow], *, hurried: bool, run: str, id: str) -> memoryview:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from dqlab.datasets.rows import Rows, Shape, moments_of

    shape, (ordinals, labels, values, *known) = Shape(lined=True, exact=True), SinkRows.of(rows).columns
    lineage: dict[str, Sequence[Any]] = dict(zip(ROW_LINEAGE, known, strict=True))
    lineage["_at"] = moments_of(lineage["_at"])
    lineage |= {name: _known(lineage[name]) for name in ("_version", "_code")}
    unnamed = labels.count(None)
    keys = None if unnamed == len(rows) else [_key_of(row) for row in rows] if unnamed else labels
    batch = shape.whole(Rows(ordinals, keys, values, lineage=lineage))
    kinds, runs = _kinds_of(values, shape.name_of)
    about: dict[str, Any] = {"run": run, "id": id, "value": shape.value_column, "kinds": kinds, "runs": runs}
    if keys_of := shape.keys_behind():
        about["keys"] = keys_of
    table = pa.Table.from_batches([batch]).replace_schema_metadata({_METADATA: _packed(about)})
    file = pa.BufferOutputStream()  # a Python file would take the GIL for each page, and slow the running function
    compression = "snappy" if hurried else "zstd"  # snappy is faster, and takes more bytes
    pq.write_table(table, file, compression=compression, use_dictionary=_repeating(batch))
    return memoryview(file.getvalue())


def _known(texts: Sequence[str | None]) -> Sequence[str | None]:
    """Return texts with None in place of "", which stands for an unknown one."""
    if texts and texts[0] and texts.count(texts[0]) == len(texts):  # the usual case: all rows have the same text
        return texts
    return [text or None for text in texts]


def _digest_of(data: bytes | memoryview) -> int:
    """Return a digest of a Parquet part, from sums of its 64-bit words in several slices."""
    import pyarrow as pa

    # A CRC of all bytes, or Parquet's own for each page, would take a tenth of the time to write the part. Names of
    # parts contain this digest, so it must not change.
    count, whole = len(data) // 8, pa.py_buffer(data)
    words = pa.Array.from_buffers(pa.uint64(), count, [None, whole])
    step = max(1, -(-count // _SLICES))
    sums = [words.slice(at, step).sum().as_py() for at in range(0, count, step)]
    return zlib.crc32(
        bytes(memoryview(data)[8 * count :]), zlib.crc32(struct.pack(f"<Q{len(sums)}Q", len(data), *sums))
    )


def _check_digest(name: str, data: bytes) -> None:
    """Raise `ValueError` if a part has other bytes than were written."""
    named = _DIGEST.search(name)
    # Older parts have no digest in their name.
    if named is not None and _digest_of(data) != int(named[1], 16):
        raise ValueError("it has other bytes than were written there")


def _repeating(batch: Any) -> list[str] | bool:
    """Return the columns that a dictionary makes smaller, or True for all columns."""
    import pyarrow as pa

    # Parquet calls the parts of a nested column by other names, so a list of names would not match.
    if any(pa.types.is_nested(field.type) for field in batch.schema):
        return True
    head = batch.slice(0, _HEAD_ROWS)
    unsure = (name for name in head.schema.names if name not in _REPEATING and name not in _DIFFERENT)
    return [*_REPEATING, *(name for name in unsure if 2 * len(head.column(name).unique()) <= len(head))]


def _packed(about: Mapping[str, Any]) -> bytes:
    """Return the metadata of a part as text, compressed if it is long."""
    # It is long if each row has columns of its own. `_unpacked` recognises plain JSON by its first byte.
    text = json.dumps(about, separators=(",", ":")).encode()
    return text if len(text) < _LONG else base64.b64encode(zlib.compress(text))


def _unpacked(text: bytes) -> Any:
    return json.loads(text if text.startswith(b"{") else zlib.decompress(base64.b64decode(text)))


def _kinds_of(
    values: Sequence[Any], name_of: Callable[[Any], str | None]
) -> tuple[list[str | list[str]], list[tuple[int, int]]]:
    """Return the kinds of values, and the runs of values of the same kind as (position of the kind, length)."""
    # A kind is `NOTHING`, `BARE`, or the column names of a row. Needed to restore values, because null in a column
    # means that the row has None there, or lacks the column, or that the value is no row.
    if isinstance(values, Alike):
        return [[name for raw in values.columns if (name := name_of(raw)) is not None]], [(0, len(values))]
    kinds: dict[Any, int] = {}
    runs: list[tuple[int, int]] = []
    for kind, alike in groupby(map(_raw_kind, values)):
        runs.append((kinds.setdefault(kind, len(kinds)), sum(1 for _ in alike)))
    return [
        kind if isinstance(kind, str) else [name for raw in kind if (name := name_of(raw)) is not None]
        for kind in kinds
    ], runs


def _raw_kind(value: Any) -> Any:
    """Return the kind of a value, with a row's keys unchanged."""
    if type(value) is dict:
        return tuple(value)
    row = None if value is None else row_of(value)
    return NOTHING if value is None else BARE if row is None else tuple(row)


# --- reading -------------------------------------------------------------------------------------


class _Opened(Protocol):
    nbytes: int

    def __len__(self) -> int: ...

    def rows(self, at: Sequence[int], ordinals: Sequence[int] | None = None, *, marked: bool = False) -> list[Found]:
        """Return rows by position, or raise `IndexError` for a missing one, `ValueError` for another ordinal."""
        # With `marked`, values from the rest are `InRest`.
        ...

    def whose(self) -> tuple[list[Any], list[int]]:
        """Return the keys and ordinals of all rows."""
        ...


def _check_ordinals(found: Sequence[int], ordinals: Sequence[int] | None) -> None:
    if ordinals is not None and found != ordinals and list(found) != list(ordinals):
        theirs, its = next(pair for pair in zip(found, ordinals, strict=True) if pair[0] != pair[1])
        raise ValueError(f"it has the row of document {theirs:,} where that of document {its:,} was written")


def _check_there(at: Sequence[int], rows: int) -> None:
    if at and max(at) >= rows:
        raise IndexError(f"it has {many(rows, 'row')}, and {max(at) + 1:,} were written at least")


class _Table:
    """A part in Parquet."""

    def __init__(self, data: bytes) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._table = pq.read_table(pa.BufferReader(data), use_threads=False)
        about = _unpacked(self._table.schema.metadata[_METADATA])
        self.id = about["id"]
        self._value = about["value"]
        self._columns: list[str | list[str]] = about["kinds"]
        """By kind, the columns of a row."""
        self._keys: dict[str, Any] = about.get("keys", {})
        self._kinds = [
            kind if isinstance(kind, str) else [self._keys.get(name, name) for name in kind] for kind in self._columns
        ]
        self._kind_of = [kind for kind, n in about["runs"] for _ in range(n)]
        self.nbytes = self._table.nbytes

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def whose(self) -> tuple[list[Any], list[int]]:
        return self._table[KEY].to_pylist(), self._table[ORDINAL].to_pylist()

    def take(self, at: Sequence[int]) -> PartRows | None:
        """Return rows by position as columns, or None if some have values in the rest, which has no columns."""
        from dqlab.datasets.rows import PartRows

        _check_there(at, len(self))
        taken = self._near(at)
        if taken.column(REST).null_count < len(at):
            return None
        return PartRows(taken, self._value, self._kinds, [self._kind_of[row] for row in at], self._keys)

    def rows(self, at: Sequence[int], ordinals: Sequence[int] | None = None, *, marked: bool = False) -> list[Found]:
        _check_there(at, len(self))
        near = self._near(at)
        columns: dict[str, list[Any]] = {name: near.column(name).to_pylist() for name in near.schema.names}
        _check_ordinals(columns[ORDINAL], ordinals)
        for name in ROW_LINEAGE:  # older parts lack some of these columns
            columns.setdefault(name, [None] * len(at))
        rest, found = columns[REST], list[Found]()
        of_kind: dict[int, list[tuple[Any, str, list[Any]]]] = {}
        for i, row in enumerate(at):
            number = self._kind_of[row]
            kind = self._kinds[number]
            more: dict[str, Any] = {}
            value: Any = None
            if rest[i] is not None:
                more = json.loads(rest[i])
                more.pop(KEY, None)  # the document's key, not a column
            pairs = more.pop(REST, ()) if more else ()
            if marked and more:
                more = {name: InRest(each) for name, each in more.items()}
            if kind == BARE:
                value = more[self._value] if self._value in more else columns[self._value][i]
            elif kind != NOTHING:
                its = of_kind.get(number)
                if its is None:
                    names = self._columns[number]
                    its = [(key, name, columns[name]) for key, name in zip(kind, names, strict=True)]
                    of_kind[number] = its
                if more:
                    value = {key: more.pop(name) if name in more else column[i] for key, name, column in its}
                    value.update(more)
                else:
                    value = {key: column[i] for key, _, column in its}
                for key, each in pairs:
                    value[key] = InRest(each) if marked else each
            found.append((value, {name: columns[name][i] for name in ROW_LINEAGE}))
        return found

    def _near(self, at: Sequence[int]) -> Any:
        """Return rows by position as a table, without copying if they are consecutive."""
        if list(at) == list(range(at[0], at[0] + len(at))):
            return self._table.slice(at[0], len(at))
        return self._table.take(list(at))


class _Values:
    """A part of a user's own sink."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values, self.nbytes = list(values), 1 << 20  # a guess; the values may be anything

    def __len__(self) -> int:
        return len(self._values)

    def whose(self) -> tuple[list[Any], list[int]]:
        raise NotImplementedError

    def rows(self, at: Sequence[int], ordinals: Sequence[int] | None = None, *, marked: bool = False) -> list[Found]:
        _check_there(at, len(self))
        return [(self._values[each], dict.fromkeys(ROW_LINEAGE)) for each in at]


class _Kept:
    """The parts that this process opened most recently."""

    def __init__(self, most: int) -> None:
        self._most, self._nbytes = most, 0
        self._parts: OrderedDict[Any, _Opened] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], _Opened]) -> _Opened:
        """Return a part, opened if necessary."""
        with self._lock:
            found = self._parts.get(key)
            if found is not None:
                self._parts.move_to_end(key)
                return found
        made = make()  # outside the lock, because it may take long; two threads may open the same part
        with self._lock:
            if key not in self._parts:
                self._parts[key] = made
                self._nbytes += made.nbytes
            while self._nbytes > self._most and len(self._parts) > 1:
                self._nbytes -= self._parts.popitem(last=False)[1].nbytes
        return made

    def forget(self) -> None:
        """Drop all parts."""
        with self._lock:
            self._parts.clear()
            self._nbytes = 0


open_parts = _Kept(_OPEN_BYTES)
"""The open parts of this process; never outdated, because parts do not change."""


class Finds(Protocol):
    """Finds the rows of references."""

    def find(self, references: Sequence[bytes], ordinals: Sequence[int] | None = None) -> list[Found | PartError]:
        """Return the row of each reference, or why it cannot be read, also if its ordinal is another one."""
        ...


class Reader:
    """Reads the rows of a run from its sink by their references."""

    def __init__(self, sink: Sink, run: str, id: str) -> None:
        self.sink, self._run, self._id = sink, run, id  # the id in hex digits
        self._target = None if isinstance(sink, Own) else sink.target
        self._own: Any = None
        self.moved: dict[str, tuple[str, int]] = {}
        """Parts that were merged since references to them were made: the new part, and their first row in it."""

    def find(
        self, references: Sequence[bytes], ordinals: Sequence[int] | None = None, *, marked: bool = False
    ) -> list[Found | PartError]:
        """Return for each reference the value with its lineage, or why it cannot be read."""
        # With `ordinals`, a row of another document is an error. With `marked`, values from the rest are `InRest`.
        found: list[Found | PartError | None] = [None] * len(references)
        by_part: dict[str, list[tuple[int, int]]] = {}
        for at, reference in enumerate(references):
            if reference[0] == _FILE:
                found[at] = self._file(reference)
            else:
                part, row = referred(reference)
                by_part.setdefault(part, []).append((at, row))
        for part, places in by_part.items():
            its = None if ordinals is None else [ordinals[at] for at, _ in places]
            rows = self._rows(part, [row for _, row in places], its, marked=marked)
            for (at, _), each in zip(places, rows, strict=True):
                found[at] = each
        return found  # type: ignore[return-value]

    def columns(self, references: Sequence[bytes], ordinals: Sequence[int] | None = None) -> Columns | None:
        """Return rows as Arrow columns, or None if `find` must read them one by one, or report why it cannot."""
        if not isinstance(self.sink, Parquet):
            return None
        import pyarrow as pa

        from dqlab.datasets.rows import Columns

        rows_of: dict[str, list[int]] = {}
        places: list[tuple[str, int]] = []
        for reference in references:
            part, row = referred(reference)
            rows = rows_of.setdefault(part, [])
            places.append((part, len(rows)))
            rows.append(row)
        tables: list[PartRows] = []
        begins, end = dict[str, int](), 0
        for part, rows in rows_of.items():
            try:
                opened, first = self._there(part, len(rows))
                taken = opened.take([first + row for row in rows]) if isinstance(opened, _Table) else None
            except Exception:  # noqa: BLE001 - `find` reports the same error, and names the rows
                return None
            if taken is None:
                return None
            tables.append(taken)
            begins[part], end = end, end + len(rows)
        columns = Columns(tables, pa.array([begins[part] + at for part, at in places], pa.int64()))
        return columns if columns.agree() and (ordinals is None or columns.are_of(ordinals)) else None

    def portions(self, references: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of consecutive references whose rows take about 64 MB together, or a larger one alone."""
        start, nbytes = 0, 0.0
        for at, size in enumerate(self._sizes(references)):
            if at > start and nbytes + size > _PORTION:
                yield start, at
                start, nbytes = at, 0.0
            nbytes += size
        if start < len(references):
            yield start, len(references)

    def _sizes(self, references: Sequence[bytes]) -> Iterator[float]:
        """Yield the bytes of each reference's row, as its share of the part, or nothing if all fit together."""
        if isinstance(self.sink, Own) or self._target is None:
            return
        if isinstance(self.sink, Files):
            sizes = self._target.sizes()
            yield from (sizes.get(file_of(each), 0) for each in references)
            return
        shares: dict[bytes, float] = {}
        room: float = _PORTION
        for name in dict.fromkeys(each[_HEAD.size :] for each in references):
            shares[name], nbytes = self._share(name.decode())
            room -= nbytes
            if room < 0:
                break
        else:
            return
        for each in references:
            name = each[_HEAD.size :]
            if name not in shares:
                shares[name], _ = self._share(name.decode())
            yield shares[name]

    def _share(self, part: str) -> tuple[float, int]:
        """Return the bytes of a part's row and of the whole part, or zeros if it cannot be read."""
        try:
            opened, _ = self._there(part, 1)
        except Exception:  # noqa: BLE001 - `find` reports the same error, and names the rows
            return 0.0, 0
        return opened.nbytes / max(1, len(opened)), opened.nbytes

    def _rows(
        self, part: str, rows: Sequence[int], ordinals: Sequence[int] | None, *, marked: bool
    ) -> Sequence[Found | PartError]:
        try:
            with self.naming(part, len(rows)):
                opened, first = self._there(part, len(rows))
                return opened.rows([first + row for row in rows], ordinals, marked=marked)
        except PartError as error:
            return [error] * len(rows)
        except FileNotFoundError:
            return [PartMissing(run=self._run, rows=len(rows), part=self._where(part))] * len(rows)

    def _where(self, part: str) -> str:
        return self._target.path(part) if self._target is not None else repr(self.sink)

    @contextmanager
    def naming(self, part: str, rows: int) -> Iterator[None]:
        """Turn errors of reading a part into `PartUnreadable` with its name, except `FileNotFoundError`."""
        try:
            yield
        except (PartError, FileNotFoundError):  # the latter makes callers look for a merged part
            raise
        except Exception as error:
            raise PartUnreadable(run=self._run, rows=rows, part=self._where(part), reason=in_words(error)) from error

    def _there(self, part: str, rows: int) -> tuple[_Opened, int]:
        """Return what `opened` returns, looking again for parts that were merged meanwhile."""
        try:
            return self.opened(part, rows)
        except FileNotFoundError:
            if self._target is None or not self.look_for_moved():
                raise
            return self.opened(part, rows)

    def opened(self, part: str, rows: int) -> tuple[_Opened, int]:
        """Return a part, or the one it was merged into, and its first row there, or raise `FileNotFoundError`."""
        part, first = self.moved.get(part, (part, 0))
        with self.naming(part, rows):
            return open_parts.get((self._id, part), lambda: self._open(part, rows)), first

    def look_for_moved(self) -> bool:
        """Read which parts were merged into others, and return whether that has changed."""
        assert self._target is not None
        before, self.moved = self.moved, moved_in(self._target, self._id)
        return self.moved != before

    def _open(self, part: str, rows: int) -> _Opened:
        if isinstance(self.sink, Own):
            if self._own is None:
                self._own = self.sink.opened()
            if not callable(getattr(self._own, "read", None)):
                raise SinkNotReadable(run=self._run, rows=rows, part=repr(self.sink))
            return _Values(self._own.read(part))
        assert self._target is not None
        data = self._target.read(part)
        _check_digest(part, data)
        table = _Table(data)
        if table.id != self._id:
            raise ValueError("it is of another run")
        return table

    def _file(self, reference: bytes) -> Found | PartError:
        assert self._target is not None
        # Older references have no attempts.
        name, is_text, written, version, code, seconds, consumer, at, *attempts = _file_in(reference)
        row = SinkRow(0, None, None, version, code, seconds, attempts[0] if attempts else None, consumer, at)
        try:
            data = self._target.read(name)
            if zlib.crc32(data) != written:
                raise ValueError(
                    "it has other bytes than were written there; another document with this key, or a later delivery "
                    "of this one, may have taken its place"
                )
            return (data.decode("utf-8", "surrogatepass") if is_text else data), row.lineage
        except FileNotFoundError:
            return PartMissing(run=self._run, rows=1, part=self._target.path(name))
        except Exception as error:  # noqa: BLE001 - the error of this row must not hide the others
            return PartUnreadable(run=self._run, rows=1, part=self._target.path(name), reason=in_words(error))


def moved_in(target: Target, id: str) -> dict[str, tuple[str, int]]:
    """Return which parts of a run were merged into others, and their first row there."""
    found: dict[str, tuple[str, int]] = {}
    for _ in range(_LOOKS):
        names, again = target.names(), False
        for name in names:
            if not is_moved(name, id):
                continue
            try:
                into, of = read_list(target, name)
            except FileNotFoundError:  # its parts were merged again meanwhile, into one that `names` lacks
                again = True
                continue
            if into not in names:  # a process was killed before it could delete this list
                continue
            for part, first, _ in of:
                found[part] = into, first
        if not again:
            break
    return found


def read_list(target: Target, name: str) -> tuple[str, list[tuple[str, int, int]]]:
    """Return a merged part, and the earlier parts in it as (part, first row, rows), from its list."""
    data = target.read(name)
    try:
        listed = json.loads(data)
        return str(listed["into"]), [(str(part), int(first), int(rows)) for part, first, rows in listed["of"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{name!r}, which lists what was merged, is damaged: {in_words(error)}") from error


def is_moved(name: str, id: str) -> bool:
    """Return whether a file lists the parts of a run that were merged into one."""
    return name.startswith(f"{prefix_of(id)}m-") and name.endswith(".json")


def is_merged(name: str, id: str) -> bool:
    """Return whether a file is a part of a run that others were merged into."""
    return name.startswith(f"{prefix_of(id)}m-") and not name.endswith(".json")
