"""Rows of a run as parts of its sink, and rows found again by the references that its settlements have.

A part is written once, whole, under a name that no other part has. Which rows of it count is not known here: those that
a settlement refers to. Knows no cluster; pyarrow is loaded for Parquet alone, where a part is written or read.
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
from dqlab.datasets.lineage import BARE, CODE, KEY, LINEAGE, NOTHING, ORDINAL, REST, ROW_LINEAGE
from dqlab.datasets.plain import InRest, json_of, keys_behind, name_of, plain, row_of
from dqlab.datasets.sink_targets import NameRefused, Target
from dqlab.datasets.sinks import (
    CLAIM,
    JSONL,
    Files,
    Own,
    Owner,
    Parquet,
    Sink,
    SinkUnreachable,
    owner_of,
    prefix_of,
    was_dropped,
)
from dqlab.errors import MessageError, RunError, in_words
from dqlab.numbers import many
from dqlab.texts import one_line

if TYPE_CHECKING:
    from dqlab.datasets.rows import Columns, PartRows

__all__ = [
    "Finds",
    "Found",
    "NameNotForSink",
    "NotForSink",
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

_ROW, _FILE = 1, 2
_HEAD = struct.Struct("<BI")
_MOST_HEADS = 10_000
_METADATA = b"dqlab"
_OPEN_BYTES = 256 << 20
"""Bytes of parts that a process keeps open."""
_PORTION = 64 << 20
"""Bytes of rows that are read at once, about: a page may refer to more than memory, or an array of Arrow, can have."""
_LOOKS = 5
"""Times that the folder is listed because consumers merge what was merged before."""
_NAME_BYTES = 200
_NAMED = re.compile(r"\.([0-9a-f]{8})\.[a-z]+$")
"""The digest in the name of a part."""
_SLICES = 4
"""Of a part, each with a sum of its own: two changes that make up for each other are seldom in one."""
_LONG = 4096
"""Bytes of metadata from which on they are compressed: Parquet does not do that, and pyarrow keeps them twice."""
_HEAD_ROWS = 100
"""Rows of a part by which the columns are chosen that have a dictionary."""
_REPEATING, _DIFFERENT = (CODE, "_attempts", "_consumer", REST), (KEY, ORDINAL, "_seconds", "_at")
"""Columns whose values are known to be equal mostly, and to differ mostly."""
_UTC = datetime.UTC


class SinkRow(NamedTuple):
    """A result with where it comes from; `at` is seconds since 1970 UTC."""

    ordinal: int
    key: str | int | None
    value: Any
    version: str | None
    code: str | None
    seconds: float
    attempts: int | None
    consumer: str
    at: float

    @property
    def lineage(self) -> dict[str, Any]:
        """As the columns that `ROW_LINEAGE` names."""
        at = datetime.datetime.fromtimestamp(self.at, _UTC)
        known = self.version or None, self.code or None, self.seconds, self.attempts, self.consumer, at
        return dict(zip(ROW_LINEAGE, known, strict=True))


class SinkRows(Sequence[SinkRow]):
    """Rows by column: what writes columns makes no object of each row.

    Attributes
    ----------
    columns : tuple of list
        One for each field of `SinkRow`, in that order; that of values may be an `Alike`.
    """

    __slots__ = ("columns",)

    def __init__(self, columns: Iterable[Any] = ()) -> None:
        self.columns: tuple[Any, ...] = tuple(columns) or tuple([] for _ in SinkRow._fields)

    @classmethod
    def of(cls, rows: Sequence[SinkRow]) -> SinkRows:
        """Return rows by column, if they are not already."""
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
        """Add rows of others."""
        for mine, others in zip(self.columns, rows.columns, strict=True):
            mine += others


Found: TypeAlias = "tuple[Any, dict[str, Any]]"
"""A value that was read, and its lineage by column."""


class NotForSink(MessageError):
    """A result cannot be written by the sink of its run."""

    text = "the result, of type {type}, cannot be written to {sink}, which takes {takes}. It was not kept. {steps}"


class NameNotForSink(MessageError):
    """The file of a document cannot have its name."""

    text = (
        "the result of document {key} cannot be written to {path!r}: {reason}. It was not kept. Move what stands "
        "there, or name the document otherwise, then retry it."
    )


class PartError(RunError):
    """Results were written to a sink, and cannot be read from there."""


class PartMissing(PartError):
    """A part of a sink is not there any more."""

    text = (
        "{rows:row} of run {run!r} that were asked for stand in {part}, and it is not there any more. The queue knows "
        "where they were and has none of them. Bring the file back, or run those documents again."
    )


class PartUnreadable(PartError):
    """A part of a sink is damaged, or cannot be reached."""

    text = (
        "{rows:row} of run {run!r} that were asked for stand in {part}, which cannot be read: {reason}. The queue "
        "knows where they are and has none of them. Bring the file back as it was, or run those documents again."
    )


class SinkNotReadable(PartError):
    """A sink of the user's own has no way to read what it wrote."""

    text = (
        "{rows:row} of run {run!r} that were asked for were written by its sink, {part}, which has no method "
        "read(part). They are where it has put them. Give it one that returns the values of a part, in their order."
    )


# --- references ----------------------------------------------------------------------------------


def refer_all(part: str, rows: int) -> list[bytes | Exception]:
    """Return what the settlements of so many rows of a part have in their place, in order."""
    name = part.encode()
    made: list[bytes | Exception] = [head + name for head in islice(_heads(), rows)]
    made += [_HEAD.pack(_ROW, row) + name for row in range(len(made), rows)]
    return made


@cache
def _heads() -> tuple[bytes, ...]:
    """Return what references to the first rows of any part begin with; whole, as threads of several sinks share it."""
    return tuple(_HEAD.pack(_ROW, row) for row in range(_MOST_HEADS))


def referred(reference: bytes | memoryview) -> tuple[str, int]:
    """Return the part and the row of a reference."""
    _, row = _HEAD.unpack_from(reference)
    return bytes(reference[_HEAD.size :]).decode(), row


def parts_in(references: Sequence[bytes | Exception]) -> Mapping[str, int]:
    """Return the parts that references of one writing are to, in order, and how many rows each has."""
    made = [each for each in references if type(each) is bytes]
    if not made:
        return {}
    first, last = referred(made[0])[0], referred(made[-1])[0]
    return {first: len(made)} if first == last else Counter(referred(each)[0] for each in made)


def file_of(reference: bytes | memoryview) -> str:
    """Return the name of the file that a reference of `Files` stands for."""
    name: str = _file_in(reference)[0]
    return name


def _file_in(reference: bytes | memoryview) -> list[Any]:
    found: list[Any] = msgpack.unpackb(bytes(reference[1:]), unicode_errors="surrogatepass")
    return found


# --- writing -------------------------------------------------------------------------------------


class Writer(Protocol):
    """Writes the parts of one run on one consumer, one after the other; in a thread of its own.

    Attributes
    ----------
    by_column : bool
        Whether it makes columns of the values, so that these may be an `Alike`.
    """

    by_column: bool

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        """Write a part; return a reference for each row, or why it cannot be written at all.

        Parameters
        ----------
        hurried : bool
            Rows come as fast as they can be written: where that can be done faster with more bytes, it is.

        Raises
        ------
        Exception
            Nothing of it counts, and it is to be tried again.
        """
        ...


def writer_of(sink: Sink, run: str, id: str, here: str, *, durable: bool = True) -> Writer:
    """Return what writes to a sink.

    Parameters
    ----------
    here : str
        This process, for errors.
    durable : bool
        Whether what refers to the rows outlives a machine that loses its power: then they are on the disk before it.
    """
    if isinstance(sink, Own):
        return _OwnWriter(sink)
    target = _Claimed(sink.target, id, here, flushed=durable)
    if isinstance(sink, Files):
        return _FileWriter(target, sink)
    if isinstance(sink, JSONL):
        return _PartWriter(target, ".jsonl", sink.rows, _jsonl, zlib.crc32)
    return _PartWriter(target, ".parquet", sink.rows, partial(_parquet, run=run, id=id), _digest_of, by_column=True)


class _Claimed:
    """A folder that has to be the one that the run was given, which is looked up before the first file."""

    def __init__(self, target: Target, id: str, here: str, *, flushed: bool) -> None:
        self._target, self._id, self._here, self._known = target, id, here, False
        self._flushed = flushed

    def write(self, name: str, data: bytes | memoryview, *, lasting: bool = True) -> None:
        if not self._known:
            self._check(owner_of(self._target))
            self._known = True
        try:
            self._target.write(name, data, lasting=lasting, flushed=self._flushed)
        except Exception:
            self._known = False
            raise

    def close_part(self, names: Iterable[str]) -> None:
        """Leave no files of these names behind a run that was dropped, with what it had written, meanwhile."""
        there = owner_of(self._target)
        if was_dropped(there):
            for name in names:
                self._target.delete(name)
        self._known = False
        self._check(there)
        self._known = True

    def _check(self, there: Owner | None) -> None:
        reason = ""
        if there is None:
            reason = "it is not there, or has no _dqlab.json"
        elif there.id != self._id:
            reason = "it belongs to another run"
        elif there.dropped:
            reason = "its run was dropped, and its files are being deleted"
        if reason:
            raise SinkUnreachable(path=str(self._target.where), where=self._here, reason=reason)

    def sync(self) -> None:
        if self._flushed:
            self._target.sync()


class _PartWriter:
    """Writes a part as one file; rows that its format cannot have are named one by one."""

    def __init__(
        self,
        target: _Claimed,
        suffix: str,
        most: int,
        pack: Callable[..., bytes | memoryview],
        digest: Callable[[bytes | memoryview], int],
        *,
        by_column: bool = False,
    ) -> None:
        self._target, self._suffix, self._most, self._pack, self._digest = target, suffix, most, pack, digest
        self.by_column = by_column

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        if len(rows) <= self._most:
            return self._write(part, rows, hurried=hurried)
        pieces = [rows[at : at + self._most] for at in range(0, len(rows), self._most)]
        return [each for at, piece in enumerate(pieces) for each in self._write(f"{part}-{at}", piece, hurried=hurried)]

    def _write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool) -> list[bytes | Exception]:
        try:
            data = self._pack(rows, hurried=hurried)
        except Exception:  # noqa: BLE001 - which one it was is found out one by one
            return self._write_some(part, rows)
        return refer_all(self._put(part, data), len(rows))

    def _put(self, part: str, data: bytes | memoryview) -> str:
        """Write a file; return its name, which has a digest of its bytes, so each reference to it does."""
        name = f"{part}.{self._digest(data):08x}{self._suffix}"
        self._target.write(name, data)
        self._target.close_part([name])
        return name

    def _write_some(self, part: str, rows: Sequence[SinkRow]) -> list[bytes | Exception]:
        """Write those rows that the format can have."""
        refused: dict[int, Exception] = {}
        for at, row in enumerate(rows):
            try:
                self._pack([row], hurried=False)
            except Exception as error:  # noqa: BLE001 - its message fails with it
                refused[at] = error
        kept = [row for at, row in enumerate(rows) if at not in refused]
        references = iter(self._write_together(part, kept) if kept else ())
        return [refused[at] if at in refused else next(references) for at in range(len(rows))]

    def _write_together(self, part: str, rows: Sequence[SinkRow]) -> list[bytes | Exception]:
        """Write rows that the format can have one by one; as several parts where it cannot have them together."""
        try:
            data = self._pack(rows, hurried=False)
        except Exception:
            if len(rows) == 1:
                raise
            half = len(rows) // 2
            halves = (f"{part}-a", rows[:half]), (f"{part}-b", rows[half:])
            return [each for name, piece in halves for each in self._write_together(name, piece)]
        return refer_all(self._put(part, data), len(rows))


class _FileWriter:
    """Writes each result as a file of its own."""

    by_column = False

    def __init__(self, target: _Claimed, sink: Files) -> None:
        self._target, self._sink = target, sink

    def write(self, part: str, rows: Sequence[SinkRow], *, hurried: bool = False) -> list[bytes | Exception]:
        made: list[bytes | Exception] = []
        names: list[str] = []
        for row in rows:
            value = row.value
            if not isinstance(value, str | bytes | bytearray):
                takes, steps = "texts and bytes", "Return one of them, or choose dq.Parquet or dq.JSONL."
                made.append(NotForSink(type=type(value).__name__, sink=repr(self._sink), takes=takes, steps=steps))
                continue
            name = file_name(self._sink.name, row.key, row.ordinal)
            data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)
            try:
                self._target.write(name, data, lasting=False)
                names.append(name)
            except NameRefused as error:  # of this document; the others have their files
                reason = error.strerror or in_words(error)
                path = self._sink.target.path(name)
                made.append(NameNotForSink(key=one_line(str(_key_of(row)), 60), path=path, reason=reason))
                continue
            told = [
                name,
                isinstance(value, str),
                zlib.crc32(data),
                row.version,
                row.code,
                row.seconds,
                row.consumer,
                row.at,
                row.attempts,
            ]
            made.append(bytes([_FILE]) + msgpack.packb(told, unicode_errors="surrogatepass"))
        self._target.sync()  # of all of them at once
        self._target.close_part(names)
        return made


def file_name(pattern: str, key: str | int | None, ordinal: int) -> str:
    """Return the name of a document's file; see `Files`."""
    text = str(ordinal if key is None else key)
    safe = (
        "".join(f"%{ord(each):02X}" if each in "%/\\" or ord(each) < 32 or ord(each) == 127 else each for each in text)
        .encode("utf-8", "backslashreplace")
        .decode()
    )
    name = pattern.replace("{ordinal}", str(ordinal)).replace("{key}", safe)
    if name.startswith(".") or name.lower() == CLAIM:
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith((".", " ")):  # which some systems leave out
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
    """Hands parts to an object of the user's."""

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
    file = pa.BufferOutputStream()  # a file of Python's would take the GIL for each page, from a function that runs
    compression = "snappy" if hurried else "zstd"  # faster, and more bytes
    pq.write_table(table, file, compression=compression, use_dictionary=_repeating(batch))
    return memoryview(file.getvalue())


def _known(texts: Sequence[str | None]) -> Sequence[str | None]:
    """Return texts with None in place of "", which stands for one that is not known."""
    if texts and texts[0] and texts.count(texts[0]) == len(texts):
        return texts
    return [text or None for text in texts]


def _digest_of(data: bytes | memoryview) -> int:
    """Return a digest of a part in Parquet, from the sums of its 64-bit words in some slices.

    A CRC of all bytes, or those of Parquet for each page, would take a tenth of the time that the whole part takes.
    """
    import pyarrow as pa

    count, whole = len(data) // 8, pa.py_buffer(data)
    words = pa.Array.from_buffers(pa.uint64(), count, [None, whole])
    step = max(1, -(-count // _SLICES))
    sums = [words.slice(at, step).sum().as_py() for at in range(0, count, step)]
    return zlib.crc32(
        bytes(memoryview(data)[8 * count :]), zlib.crc32(struct.pack(f"<Q{len(sums)}Q", len(data), *sums))
    )


def _check_digest(name: str, data: bytes, digest: Callable[[bytes], int]) -> None:
    """Raise `ValueError` where a part has not the bytes that were written; older ones have no digest in their name."""
    named = _NAMED.search(name)
    if named is not None and digest(data) != int(named[1], 16):
        raise ValueError("it has other bytes than were written there")


def _repeating(batch: Any) -> list[str] | bool:
    """Return the columns that a dictionary makes smaller; for all others it is work, and no gain.

    True, which is all, where a column is nested: Parquet calls its parts by other names.
    """
    import pyarrow as pa

    if any(pa.types.is_nested(field.type) for field in batch.schema):
        return True
    head = batch.slice(0, _HEAD_ROWS)
    unsure = (name for name in head.schema.names if name not in _REPEATING and name not in _DIFFERENT)
    return [*_REPEATING, *(name for name in unsure if 2 * len(head.column(name).unique()) <= len(head))]


def _packed(about: Mapping[str, Any]) -> bytes:
    """Return what a part has of itself as text; rows that all have columns of their own make it long."""
    text = json.dumps(about, separators=(",", ":")).encode()
    return text if len(text) < _LONG else base64.b64encode(zlib.compress(text))


def _unpacked(text: bytes) -> Any:
    return json.loads(text if text.startswith(b"{") else zlib.decompress(base64.b64decode(text)))


def _kinds_of(
    values: Sequence[Any], name_of: Callable[[Any], str | None]
) -> tuple[list[str | list[str]], list[tuple[int, int]]]:
    """Return the kinds of values, and the runs of values of one kind in order: (number of the kind, length).

    A column is null where a row does not have it, where it has None there, and where the value is not a row. A kind is
    `NOTHING`, `BARE`, or the names of the columns that a row has.
    """
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
    """Return the kind of a value, of a row with its keys as they are."""
    if type(value) is dict:
        return tuple(value)
    row = None if value is None else row_of(value)
    return NOTHING if value is None else BARE if row is None else tuple(row)


def _jsonl(rows: Sequence[SinkRow], *, hurried: bool) -> bytes:
    return b"".join(map(_line, rows))


_BARE, _KEYS = _OF_LINES = "_bare", "_names"
"""What a line has of its value: that it is no row, and the keys of fields that are not called as these are."""


def _line(row: SinkRow) -> bytes:
    made: dict[str, Any] = {KEY: _key_of(row), ORDINAL: row.ordinal}
    values = row_of(row.value)
    if values is None:
        made["value"], made[_BARE] = row.value, True
    else:
        named, alike = list[tuple[Any, str]](), True
        for raw, value in values.items():
            name = name_of(raw)
            while name in made or name in LINEAGE or name in _OF_LINES:
                name += "_"
            made[name] = value
            alike = alike and name == raw
            named.append((raw, name))
        if not alike and (keys := keys_behind(named)):
            made[_KEYS] = keys
    return json_of({**made, **{name: plain(value) for name, value in row.lineage.items()}}).encode() + b"\n"


# --- reading -------------------------------------------------------------------------------------


class _Opened(Protocol):
    nbytes: int

    def __len__(self) -> int: ...

    def rows(self, at: Sequence[int], ordinals: Sequence[int] | None = None, *, marked: bool = False) -> list[Found]:
        """Return rows by position. With `marked`, what is from the rest is `InRest`.

        Raises
        ------
        IndexError
            There is none at a position.
        ValueError
            One has another ordinal than it should.
        """
        ...

    def whose(self) -> tuple[list[Any], list[int]]:
        """Return the keys and the ordinals of all rows."""
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
        """By kind the columns of a row."""
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
        """Return rows by position as columns; None where some have values in the rest, which are no columns yet."""
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
        for name in ROW_LINEAGE:  # a part that was written before it had all of them
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
                more.pop(KEY, None)
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
        """Return rows by position as a table; neighbours are not copied."""
        if list(at) == list(range(at[0], at[0] + len(at))):
            return self._table.slice(at[0], len(at))
        return self._table.take(list(at))


class _Lines:
    """A part in lines of JSON.

    Parameters
    ----------
    keyed : bool
        Whether it was written since lines have the keys of fields that are called otherwise.
    """

    def __init__(self, data: bytes, *, keyed: bool) -> None:
        self._keyed = keyed
        self._lines = data.splitlines()
        if data and not data.endswith(b"\n"):
            raise ValueError("it is cut off in its last line")
        self.nbytes = len(data)

    def __len__(self) -> int:
        return len(self._lines)

    def whose(self) -> tuple[list[Any], list[int]]:
        rows = [json.loads(line) for line in self._lines]
        return [row[KEY] for row in rows], [row[ORDINAL] for row in rows]

    def rows(self, at: Sequence[int], ordinals: Sequence[int] | None = None, *, marked: bool = False) -> list[Found]:
        _check_there(at, len(self))
        lines = [json.loads(self._lines[each]) for each in at]
        _check_ordinals([line[ORDINAL] for line in lines], ordinals)
        return list(map(self._row, lines))

    def _row(self, made: dict[str, Any]) -> Found:
        lineage = {name: made.pop(name, None) for name in ROW_LINEAGE}
        if lineage["_at"]:
            lineage["_at"] = datetime.datetime.fromisoformat(lineage["_at"])
        for name in (KEY, ORDINAL):
            made.pop(name, None)
        keys = made.pop(_KEYS, {}) if self._keyed else {}
        if made.pop(_BARE, False):
            return made["value"], lineage
        return ({keys.get(name, name): value for name, value in made.items()} if keys else made), lineage


class _Values:
    """A part of a sink of the user's own."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._values, self.nbytes = list(values), 1 << 20

    def __len__(self) -> int:
        return len(self._values)

    def whose(self) -> tuple[list[Any], list[int]]:
        raise NotImplementedError

    def rows(self, at: Sequence[int], ordinals: Sequence[int] | None = None, *, marked: bool = False) -> list[Found]:
        _check_there(at, len(self))
        return [(self._values[each], dict.fromkeys(ROW_LINEAGE)) for each in at]


class _Kept:
    """The parts that were opened last in this process."""

    def __init__(self, most: int) -> None:
        self._most, self._nbytes = most, 0
        self._parts: OrderedDict[Any, _Opened] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], _Opened]) -> _Opened:
        """Return a part; it is opened if it is not here."""
        with self._lock:
            found = self._parts.get(key)
            if found is not None:
                self._parts.move_to_end(key)
                return found
        made = make()  # not under the lock: it may take long
        with self._lock:
            if key not in self._parts:
                self._parts[key] = made
                self._nbytes += made.nbytes
            while self._nbytes > self._most and len(self._parts) > 1:
                self._nbytes -= self._parts.popitem(last=False)[1].nbytes
        return made

    def forget(self) -> None:
        """Close all of them."""
        with self._lock:
            self._parts.clear()
            self._nbytes = 0


open_parts = _Kept(_OPEN_BYTES)
"""Of this process; parts never change, so one that is open stays right."""


class Finds(Protocol):
    """What finds the rows that references stand for."""

    def find(self, references: Sequence[bytes], ordinals: Sequence[int] | None = None) -> list[Found | PartError]:
        """Return the row of each reference, or why it cannot be read; with their ordinals, none of another document."""
        ...


class Reader:
    """Finds the rows of a run again.

    Parameters
    ----------
    sink : Sink
    run, id : str
        Name of the run, and its id in hex digits.
    """

    def __init__(self, sink: Sink, run: str, id: str) -> None:
        self.sink, self._run, self._id = sink, run, id
        self._target = None if isinstance(sink, Own) else sink.target
        self._own: Any = None
        self.moved: dict[str, tuple[str, int]] = {}
        """Parts that were merged into others since they were referred to: the other one, and where they begin there."""

    def find(
        self, references: Sequence[bytes], ordinals: Sequence[int] | None = None, *, marked: bool = False
    ) -> list[Found | PartError]:
        """Return what references stand for: each a value with its lineage, or why it cannot be read.

        With `ordinals`, rows of other documents are errors. With `marked`, values that stood in the rest of a row are
        `InRest`.
        """
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
        """Return rows as columns of Arrow; None where `find` has to find them one by one, or why it cannot."""
        if not isinstance(self.sink, Parquet) or isinstance(self.sink, JSONL):
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
            except Exception:  # noqa: BLE001 - `find` meets the same, and names the rows
                return None
            if taken is None:
                return None
            tables.append(taken)
            begins[part], end = end, end + len(rows)
        columns = Columns(tables, pa.array([begins[part] + at for part, at in places], pa.int64()))
        return columns if columns.agree() and (ordinals is None or columns.are_of(ordinals)) else None

    def portions(self, references: Sequence[bytes]) -> Iterator[tuple[int, int]]:
        """Yield where neighbouring references begin and end whose rows have some 64 MB; a large one is alone."""
        start, nbytes = 0, 0.0
        for at, size in enumerate(self._sizes(references)):
            if at > start and nbytes + size > _PORTION:
                yield start, at
                start, nbytes = at, 0.0
            nbytes += size
        if start < len(references):
            yield start, len(references)

    def _sizes(self, references: Sequence[bytes]) -> Iterator[float]:
        """Yield how many bytes the row of each reference has: of a part, its share; 0 where that is not known.

        Yield nothing where all of them together have room.
        """
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
        """Return how many bytes a row of a part has, and the whole part; of one that cannot be read, 0."""
        try:
            opened, _ = self._there(part, 1)
        except Exception:  # noqa: BLE001 - `find` meets the same, and names the rows
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
        """Have what reading a part raises be a `PartUnreadable` that names it; `FileNotFoundError` stays that."""
        try:
            yield
        except (PartError, FileNotFoundError):
            raise
        except Exception as error:
            raise PartUnreadable(run=self._run, rows=rows, part=self._where(part), reason=in_words(error)) from error

    def _there(self, part: str, rows: int) -> tuple[_Opened, int]:
        """Return what `opened` returns, also of a part that was merged into another one meanwhile."""
        try:
            return self.opened(part, rows)
        except FileNotFoundError:
            if self._target is None or not self.look_for_moved():
                raise
            return self.opened(part, rows)

    def opened(self, part: str, rows: int) -> tuple[_Opened, int]:
        """Return a part, or the one that it was merged into, and the position of its first row there.

        Raises
        ------
        PartError
            It cannot be read.
        FileNotFoundError
        """
        part, first = self.moved.get(part, (part, 0))
        with self.naming(part, rows):
            return open_parts.get((self._id, part), lambda: self._open(part, rows)), first

    def look_for_moved(self) -> bool:
        """Look up which parts were merged into others; return whether that has changed."""
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
        if isinstance(self.sink, JSONL):
            _check_digest(part, data, zlib.crc32)
            return _Lines(data, keyed=_NAMED.search(part) is not None)
        _check_digest(part, data, _digest_of)
        table = _Table(data)
        if table.id != self._id:
            raise ValueError("it is of another run")
        return table

    def _file(self, reference: bytes) -> Found | PartError:
        assert self._target is not None
        # Attempts are not in references that were written before parts had them.
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
        except Exception as error:  # noqa: BLE001 - likewise
            return PartUnreadable(run=self._run, rows=1, part=self._target.path(name), reason=in_words(error))


def moved_in(target: Target, id: str) -> dict[str, tuple[str, int]]:
    """Return which parts of a run were merged into others, and the position of their first row there."""
    found: dict[str, tuple[str, int]] = {}
    for _ in range(_LOOKS):
        names, again = target.names(), False
        for name in names:
            if not is_moved(name, id):
                continue
            try:
                into, of = read_list(target, name)
            except FileNotFoundError:  # what it lists was merged again meanwhile, into a part that was not listed
                again = True
                continue
            if into not in names:  # by a process that was killed before it could delete this
                continue
            for part, first, _ in of:
                found[part] = into, first
        if not again:
            break
    return found


def read_list(target: Target, name: str) -> tuple[str, list[tuple[str, int, int]]]:
    """Return the part that others were merged into, and these: (part, first row, rows).

    Raises
    ------
    FileNotFoundError
    ValueError
        It is damaged.
    """
    data = target.read(name)
    try:
        listed = json.loads(data)
        return str(listed["into"]), [(str(part), int(first), int(rows)) for part, first, rows in listed["of"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{name!r}, which lists what was merged, is damaged: {in_words(error)}") from error


def is_moved(name: str, id: str) -> bool:
    """Return whether a file has the names of parts of a run that were merged into another one."""
    return name.startswith(f"{prefix_of(id)}m-") and name.endswith(".json")


def is_merged(name: str, id: str) -> bool:
    """Return whether a file is a part that others of a run were merged into."""
    return name.startswith(f"{prefix_of(id)}m-") and not name.endswith(".json")


assert issubclass(JSONL, Parquet), "a part of one is told from a part of the other by its class"
