"""Results of a run: `Results` in document order, a page at a time, and `Streams` in the order of completion."""

from __future__ import annotations

import asyncio
import operator
import warnings
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, islice, repeat
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

from dqlab.cluster.shard.pages import PAGE_BYTES, PAGE_VALUES
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.sealed import open_all_here, open_here
from dqlab.datasets import needs_pyarrow
from dqlab.datasets.lineage import CODE, ERROR, KEY, ORDINAL, ROW_LINEAGE, Gathered, Lineage, check_columns
from dqlab.datasets.sink_parts import PartError, Reader, each_row
from dqlab.datasets.yielded import exploded, spread
from dqlab.documents import labels_of
from dqlab.errors import (
    BadOption,
    CallTimeout,
    DqlabWarning,
    MessageNotFound,
    PartsMissing,
    PositionNotFound,
    ResultUnreadable,
    users_code,
)
from dqlab.failures.failure import class_name, users_part
from dqlab.frame import NO_ID, Settlement
from dqlab.imports import import_whole
from dqlab.keywords import SuggestsAttributes
from dqlab.numbers import many
from dqlab.rules.book import CodeRecord
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.runs.failures import AbsentDocument, DeadLetter, Failures
from dqlab.runs.objects import StaysHere
from dqlab.runs.reading.dataframes import FrameRows, empty_frame, series_of
from dqlab.runs.reading.typed import TypedCodes
from dqlab.runs.waiting import reading
from dqlab.texts import one_line, said_by
from dqlab.user_frames import level_of_user
from dqlab.waits import shown

if TYPE_CHECKING:
    import pandas as pd

    from dqlab.datasets.rows import Rows
    from dqlab.datasets.table import RunTable

KEYS_LOOKED_AT = 1_000_000
"""Keys that are compared to find a repeated one; their hashes take some 60 MB."""
SAID_EVERY = 10_000
"""Values between two reports of how many were read."""
READ_AHEAD = 2
"""Calls under way while values are read, since an answer takes longer to arrive than to open."""
READ_VALUES = 16 * PAGE_VALUES
"""Values per call when all are read in turn: a call costs a millisecond of CPU, however large it is."""
KEPT_BYTES, VALUE_BYTES, LETTER_BYTES = 4 * PAGE_BYTES, 512, 16 << 10
"""Most bytes of pages kept for values read by position; what counts for a value besides its pickle, and for a failure
in place of one."""
SINGLE = 32
"""Results that are asked for at once, each with a call of its own."""
IN_TURN = 0.05
"""Seconds to wait for one shard while other shards may have results."""


@dataclass(frozen=True, slots=True)
class OpenedStretch:
    """Results with neighbouring ordinals."""

    ordinal: int
    values: list[Any]
    """For a run with a sink, references to its rows, until these are read."""
    keys: list[Any] | None = None
    """None if the ordinals are the keys."""
    unreadable: ResultUnreadable | PartError | None = None
    """Why the result cannot be unpickled; the stretch then has one value, which is this error."""
    lineage: Lineage | None = None
    """How the results were made; None if that was not recorded, or if the values replace results."""

    @property
    def end(self) -> int:
        """The ordinal after the last one."""
        return self.ordinal + len(self.values)

    def cut(self, lo: int, hi: int) -> OpenedStretch:
        """Return the results with ordinals in [lo, hi)."""
        if (lo, hi) == (self.ordinal, self.end):
            return self
        a, b = lo - self.ordinal, hi - self.ordinal
        lineage = None if self.lineage is None else self.lineage.cut(a, b)
        return OpenedStretch(lo, self.values[a:b], self.keys and self.keys[a:b], lineage=lineage)

    def of(self, values: list[Any]) -> OpenedStretch:
        """Return the stretch with other values."""
        return OpenedStretch(self.ordinal, values, self.keys, self.unreadable, self.lineage)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Yield (key, value)."""
        keys = self.keys if self.keys is not None else range(self.ordinal, self.end)
        return zip(keys, self.values, strict=True)


def check_errors(errors: str, *more: str) -> None:
    """Raise `BadOption` for a value of `errors` other than "raise", "return" and those in `more`."""
    known = ("raise", *more, "return")
    if errors not in known:
        raise BadOption(option="errors", value=errors, problem=f"is one of {', '.join(map(repr, known))}.")


def check_readable(stretch: OpenedStretch) -> OpenedStretch:
    """Return the stretch, or raise why its value cannot be read."""
    # Without its traceback: each reading would add to that of the kept error.
    if stretch.unreadable is not None:
        raise stretch.unreadable.with_traceback(None)
    return stretch


def open_settlements(parts: Sequence[bytes | memoryview]) -> list[OpenedStretch]:
    """Return the results in pages of settlements, by ordinal, with a `ResultUnreadable` for each unreadable value."""
    return _open_all(_decoded(parts))


def _decoded(parts: Sequence[bytes | memoryview]) -> list[Settlement]:
    return [Settlement.decode(part) for part in parts]


def _open_all(settlements: Sequence[Settlement], *, referring: bool = False) -> list[OpenedStretch]:
    """Return the results of settlements, unopened if they are references to rows of a sink."""
    found: list[OpenedStretch] = []
    for settlement in settlements:
        made = settlement.made
        lineage: Lineage | None = None if made is None else Lineage(made, 0, settlement.count)
        errors: dict[int, BaseException] = {}
        if referring:
            values: list[Any] = list(settlement.entries())
        else:
            values, errors = _opened(settlement.views(), settlement.payload)
        keys: list[Any] | None = settlement.keys()
        if keys is not None:
            texts, keys = keys, labels_of(keys)
            if "" in texts:
                keys = [key if text else at for text, key, at in zip(texts, keys, settlement.ordinals(), strict=True)]
        at = 0
        for piece in settlement.pieces:
            stop = at + piece.n
            its = lineage
            if its is not None and (at, stop) != (0, settlement.count):
                its = its.cut(at, stop)
            whole = OpenedStretch(piece.ordinal, values[at:stop], keys and keys[at:stop], lineage=its)
            if errors:
                broken = {i - at: errors[i] for i in range(at, stop) if i in errors}
                found += _without(whole, broken, single=settlement.run == NO_ID)
            else:
                found.append(whole)
            at = stop
    found.sort(key=lambda stretch: stretch.ordinal)
    return found


def _opened(entries: Sequence[bytes | memoryview], payload: memoryview) -> tuple[list[Any], dict[int, BaseException]]:
    """Unpickle entries, and return their values, or their bytes if they cannot be unpickled, and errors by position."""
    with users_code:  # opened one by one below, which shows the broken entry
        return open_all_here(entries, payload), {}
    values: list[Any] = []
    errors: dict[int, BaseException] = {}
    for at, entry in enumerate(entries):
        try:
            values.append(open_here(entry))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - unpickling runs arbitrary code, which may even call sys.exit
            errors[at] = error
            values.append(bytes(entry))
    return values, errors


def _without(whole: OpenedStretch, errors: dict[int, BaseException], *, single: bool) -> Iterator[OpenedStretch]:
    """Cut a stretch so that each value that cannot be unpickled is a stretch of its own."""
    start = 0
    for i, error in [*errors.items(), (len(whole.values), None)]:
        if i > start:
            yield whole.cut(whole.ordinal + start, whole.ordinal + i)
        if isinstance(error, PartError):
            yield OpenedStretch(whole.ordinal + i, [error], whole.keys and [whole.keys[i]], error)
        elif error is not None:
            key, payload = whole.ordinal + i if whole.keys is None else whole.keys[i], whole.values[i]
            unreadable = ResultUnreadable(
                payload,
                what=f"{'message' if single else 'document'} {one_line(key) if isinstance(key, str) else key!r}",
                key=key,
                error=class_name(type(error)),
                reason=one_line(said_by(error), 300) or "it does not say why",
                size=len(payload),
            )
            # Keep only the frames of the user's unpickling: dqlab's frames hold the whole page in memory.
            unreadable.__cause__ = error.with_traceback(users_part(error.__traceback__, None))
            lineage = None if whole.lineage is None else whole.lineage.cut(i, i + 1)
            yield OpenedStretch(whole.ordinal + i, [unreadable], whole.keys and [key], unreadable, lineage)
        start = i + 1


class Keys:
    """Warns once of a key that repeats among (key, value) pairs, since a dict would keep only one of them."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._seen: set[int] = set()
        """Hashes of texts, which keep no text alive, and numbers themselves, since -1 and -2 have the same hash."""
        self._over = False
        """Whether the warning was given, or enough keys were compared."""

    def look(self, stretch: OpenedStretch) -> None:
        """Compare the keys of some pairs with all keys before."""
        if stretch.keys is None or self._over:  # without keys, the ordinals are the keys, and never repeat
            return
        codes = [key if type(key) is int else hash(key) for key in stretch.keys]
        if len(set(codes)) == len(codes) and self._seen.isdisjoint(codes):
            self._seen.update(codes)
            self._over = len(self._seen) >= KEYS_LOOKED_AT
            return
        pairs = zip(stretch.keys, codes, strict=True)
        again = next(key for key, code in pairs if code in self._seen or self._seen.add(code))  # type: ignore[func-returns-value]
        self._seen, self._over = set(), True
        warnings.warn(
            f"run {self._run!r}: key {again!r} belongs to more than one document, and a dict of the pairs would keep "
            "one of them. list(run.results()) and run.results().to_frame() have all, in document order.",
            DqlabWarning,
            stacklevel=level_of_user(),
        )


class InPlace:
    """The dead letters, lost and cancelled documents that replace results, by ordinal."""

    # Only the places of dead letters are held: there may be a million, each with a traceback of up to 16 KiB.
    def __init__(
        self, failures: Failures | None, lost: Mapping[int, AbsentDocument], covered: Ranges | None = None
    ) -> None:
        self._failures = failures
        # What has failed when it ran again keeps its earlier result.
        kept = () if covered is None else covered
        places = [(at, id) for at, id in failures.places() if at not in kept] if failures is not None else []
        self._dead = array("Q", (ordinal for ordinal, _ in places))
        self._ids = array("Q", (id for _, id in places))
        self._absent: dict[int, AbsentDocument] = {}
        self._gone = array("Q")
        self.add(lost)

    def add(self, absent: Mapping[int, AbsentDocument]) -> None:
        """Add documents that have no result and are not dead."""
        self._absent = dict(sorted([*self._absent.items(), *absent.items()]))
        self._gone = array("Q", self._absent)

    def __bool__(self) -> bool:
        return bool(self._dead or self._gone)

    @staticmethod
    def is_one(value: object) -> bool:
        """Return whether a value stands for a result that is missing or unreadable."""
        return isinstance(value, DeadLetter | AbsentDocument | ResultUnreadable | PartError | PartsMissing)

    @property
    def ordinals(self) -> Iterator[int]:
        """Yield all ordinals, beginning with those of dead letters."""
        yield from self._dead
        yield from self._gone

    def between(self, lo: int, hi: int) -> Iterator[DeadLetter | AbsentDocument]:
        """Fetch the dead letters with ordinals in [lo, hi), and yield them and the other documents there."""
        if self._failures is not None:
            yield from self._failures.named(self._ids[bisect_left(self._dead, lo) : bisect_left(self._dead, hi)])
        for ordinal in self._gone[bisect_left(self._gone, lo) : bisect_left(self._gone, hi)]:
            yield self._absent[ordinal]


class _Label(int):
    """An integer key of a document that also has the position of its value."""

    # `dict(results)` gets the value of every key by indexing, and an int as index is a position: plain ints as keys
    # would get the values of other documents.

    at: int
    within: object
    """Stands for the results that have this key; in other results the label is a position like any int."""

    @classmethod
    def of(cls, key: Any, at: int, within: object) -> Any:
        """Return an integer key as a label with its position, and any other key unchanged."""
        if isinstance(key, bool) or not isinstance(key, SupportsIndex):
            return key
        label = cls(key)
        label.at, label.within = at, within
        return label

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)  # in another process it is a plain number


class Labels:
    """Makes the keys of a sequence of `count` results, and finds the positions of keys and of plain numbers."""

    def __init__(self, count: int) -> None:
        self._positions = range(count)
        self._mark = object()

    def keys(self, keys: Iterable[Any]) -> Iterator[Any]:
        """Yield the keys of all values, in order, as labels that `at` can resolve."""
        return (_Label.of(key, at, self._mark) for at, key in enumerate(keys))

    def at(self, index: Any) -> int:
        """Return the position that an index stands for, or raise `PositionNotFound`, or TypeError for another type."""
        if isinstance(index, _Label) and index.within is self._mark:
            return index.at
        if not isinstance(index, SupportsIndex):
            hint = "dict(results.items()) looks keys up, results.to_frame() can be filtered by a mask"
            raise TypeError(
                f"results are a sequence: a position, not {one_line(brief(index))} ({type(index).__name__}); {hint}"
            )
        try:
            return self._positions[index]
        except IndexError:
            count = len(self._positions)
            length = f"{many(count, 'value')}, at the positions 0 to {count - 1:,}" if count else "no values"
            raise PositionNotFound(what="results", length=length, position=operator.index(index)) from None


if TYPE_CHECKING:
    Values = Sequence[Any]
else:

    class Values:
        """The methods of a sequence, except `__contains__`, without which `in` still looks through the values."""

        # With `__contains__` and `keys`, pandas takes results for a dict: ``df["new"] = results`` gave them the index
        # 0, 1, 2 and aligned that with the frame's index, so that values stood in wrong rows.

        def __eq__(self, other: object) -> bool:
            if other is self:
                return True
            if not isinstance(other, list | tuple | Values):
                return NotImplemented
            return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

        __hash__ = object.__hash__

        __reversed__, index, count = Sequence.__reversed__, Sequence.index, Sequence.count

    Sequence.register(Values)


class Results(Values, StaysHere, SuggestsAttributes):
    """A lazy sequence of a run's values, in document order.

    Indexing and slicing fetch only the pages they need, of at most 1,000 values or 4 MiB; iterating fetches the next
    page while you read the current one. Indexing keeps the last pages, up to 16 MiB, or one piece of a sink, so that
    values can be read backwards and at random.

    Parameters
    ----------
    covered : sequence of (int, int)
        Half-open ranges of ordinals that have results, in ascending order.
    instead : InPlace, optional
        Values for ordinals without a result (``errors="return"``).
    gone : callable, optional
        Raises the reason why results that existed are missing.
    code : callable, optional
        Returns the code version that made all results, or None.
    reader : Reader, optional
        Finds the rows of a run with a sink.
    typed : TypedCodes, optional
        Makes objects of rows.
    """

    _way_out = "take along list(results)"

    def __init__(
        self,
        name: str,
        handle: Handle,
        run: bytes,
        covered: Sequence[tuple[int, int]],
        instead: InPlace | None = None,
        gone: Callable[[], None] | None = None,
        code: Callable[[], str | None] = lambda: None,
        reader: Reader | None = None,
        typed: TypedCodes | None = None,
    ) -> None:
        self.name = name
        self.typed = TypedCodes() if typed is None else typed
        self._reader = reader
        self._handle, self._run, self._instead = handle, run, instead
        merged = sorted([*covered, *((at, at + 1) for at in (instead.ordinals if instead is not None else ()))])
        self._ranges = _join(merged)
        self._starts = list(accumulate((hi - lo for lo, hi in self._ranges), initial=0))
        self._labels = Labels(len(self))
        self._kept: tuple[tuple[list[OpenedStretch], int], ...] = ()
        """Pages read by position with the bytes that count for them, the last one first."""
        self._fitting = PAGE_VALUES
        """Values that fit into a page, as far as the page read last shows."""
        self._gone, self._code = gone, code
        self._made_by: list[str | None] = []

    def __repr__(self) -> str:
        return f"<Results of {self.name!r}: {many(len(self), 'value')}>"

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            wanted = range(*index.indices(len(self)))
            if not wanted:
                return []
            low, high = min(wanted), max(wanted) + 1
            found = list(self._read(low, high))
            values = [value for stretch in map(self.typed.objects, found) for value in stretch.values]
            for at, stretch in zip(accumulate((len(each.values) for each in found), initial=low), found, strict=False):
                if at in wanted:
                    self._checked(stretch)
            return [values[i - low] for i in wanted]
        at = self._labels.at(index)
        ordinal = self.ordinal(at)
        page = self._page_with(at, ordinal)
        stretch = page[bisect_right(page, ordinal, key=lambda each: each.ordinal) - 1]
        value = self._checked(stretch).values[ordinal - stretch.ordinal]
        make = self.typed.maker(stretch)
        return value if make is None else make(value)

    def __iter__(self) -> Iterator[Any]:
        found = map(self._checked, self._read(0, len(self)))
        return chain.from_iterable(self.typed.objects(stretch).values for stretch in found)

    def keys(self) -> Iterator[Any]:
        """Yield the key of each value: the document's key, or its position in the input."""
        unopened = chain.from_iterable(self._pages(0, len(self)))  # reads no file of a sink
        pairs = chain.from_iterable(stretch.items() for stretch in unopened)
        return self._labels.keys(key for key, _ in pairs)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) in document order.

        Warns
        -----
        DqlabWarning
            A key repeats among the first million: a dict of the pairs would keep only one of its documents.
        """
        keys = Keys(self.name)
        for stretch in self._read(0, len(self)):
            keys.look(stretch)
            yield from self.typed.objects(self._checked(stretch)).items()

    def _checked(self, stretch: OpenedStretch) -> OpenedStretch:
        """Return the stretch, or raise why its value cannot be read unless errors replace values."""
        return check_readable(stretch) if self._instead is None else stretch

    def to_frame(self, columns: Sequence[Any] | None = None) -> pd.DataFrame:
        """Return a pandas DataFrame indexed by key; the items of dicts become its columns, others are in ``value``.

        What a generator function yielded for one document is a row each, numbered in a column ``_part``.
        Rows of None values are then empty, and so are the rows of documents without a result, which `errors="return"`
        lists with the reason in a column ``error``. Rows that all have the same columns, each of integers, floats,
        booleans or texts, are not held as Python objects meanwhile.

        Parameters
        ----------
        columns : sequence, optional
            Only these columns, in this order; the others are not kept while results are read. Besides the columns of
            the values (``value`` for values that are not dicts) there are: ``_key``, ``_ordinal``, ``_version`` (of the
            document), ``_code`` (the code version that made the row), ``_seconds`` (how long that took), ``_attempts``
            (the number of the delivery), ``_consumer``, ``_at`` (when, to a tenth of a second), and ``_error`` with
            `errors="return"`. A column of the values with one of these names takes its place, as without `columns`.
            Rows that were made before queues recorded these have none of them, except ``_code`` if one version made all
            rows.

        Raises
        ------
        ImportError
            pandas is not installed (it is in the extra ``lab``).
        ColumnNotFound
            No row has such a column.
        """
        import_whole("pandas")
        pages = ([self._checked(stretch) for stretch in page] for page in self._whole(0, len(self)))
        with reading(self.name, self._handle):
            if not len(self) and (declared := self.typed.columns):
                empty: pd.DataFrame = empty_frame(declared, columns)
                return empty
            if columns is None:
                return frame_of_pages(pages, len(self), self._replaces)
            if isinstance(columns, str):
                columns = [columns]
            return chosen_columns(self.name, pages, list(columns), self._replaces, len(self), lambda: self.code)

    def to_arrow(self, columns: Sequence[str] | None = None) -> Any:
        """Return a `pyarrow.Table`: ``_key``, ``_ordinal``, columns of the values and of their lineage, and ``_rest``.

        See `to_frame` for the columns of lineage, and `RunTable` for types and ``_rest``. With `errors="return"`, a
        column ``_error`` has the reasons why documents have no result.

        Parameters
        ----------
        columns : sequence of str, optional
            Only these columns, in this order; the others are not kept while results are read.

        Raises
        ------
        ExtraMissing
            pyarrow is not installed (it is in the extra ``tables``).
        ColumnNotFound
            There is no such column.
        """
        with reading(self.name, self._handle):
            return self.table().to_arrow(columns)

    def table(self) -> RunTable:
        """Return these results as a lazy table; see `Run.table`."""
        needs_pyarrow()
        from dqlab.datasets.table import RunTable

        return RunTable(ResultRows(self))

    @property
    def code(self) -> str | None:
        """Short code version that made all results, or None if several did; fetched once."""
        if (
            not self._made_by
        ):  # not cached_property: before Python 3.12 its lock would make all threads wait for the first call's answer
            self._made_by.append(self._code())
        return self._made_by[0]

    @property
    def _replaces(self) -> Callable[[Any], bool] | None:
        return None if self._instead is None else self._instead.is_one

    def rows(self, most: int) -> Iterator[Rows]:
        """Yield pages of rows for a table until at least `most` rows were yielded."""
        for page in self._pages(0, min(most, len(self))):
            for piece in [page] if self._reader is None else _pieces(page, self._reader):
                yield self._rows_of(piece)

    def _rows_of(self, piece: list[OpenedStretch]) -> Rows:
        from dqlab.datasets.rows import Rows

        where, replaces, reader = (_ordinals_of(piece), _keys_of(piece)), self._replaces, self._reader
        gathered = Gathered()
        if reader is not None and reader.has_columns and not _is_replaced(piece[0]):
            references = [reference for stretch in piece for reference in stretch.values]
            several = each_row(references)
            if several is not None:
                references, where = several[0], _spread(where, several[1])
            try:
                columns, rest = reader.columns(references, where[0]) if references else ({}, [])
            except PartError as error:
                if self._instead is None:
                    raise error.with_traceback(None) from error.__cause__
            else:
                for stretch in piece:
                    gathered.add(_lineage_in(stretch, None, lambda: self.code))
                lineage = gathered.arrow(None if several is None else several[1])
                return Rows(*where, [], lineage=lineage, columns=columns, rest=rest)
        values: list[Any] = []
        for stretch in piece if reader is None else _rows_in(piece, reader):
            values += self._checked(stretch).values
            gathered.add(_lineage_in(stretch, replaces, lambda: self.code))
        counts = None
        if (rows := exploded(values)) is not None:
            values, counts = rows
            where = _spread(where, counts)
        reasons = None if replaces is None else [said_by(value) if replaces(value) else None for value in values]
        return Rows(*where, values, reasons, gathered.arrow(counts))

    def references(self) -> Iterator[tuple[int, bytes]]:
        """Yield the ordinal of each row and the reference to it, for a run with a sink."""
        for stretch in chain.from_iterable(self._pages(0, len(self))):
            yield from zip(range(stretch.ordinal, stretch.end), stretch.values, strict=True)

    @property
    def in_sink(self) -> bool:
        """Whether the values are rows of a sink."""
        return self._reader is not None

    def made(self) -> Iterator[tuple[int, Any, float, int | None]]:
        """Yield (ordinal, value, seconds, attempts), with NaN and None for what was not recorded."""
        for stretch in self._read(0, len(self)):
            lineage = stretch.lineage or Lineage(None, 0, len(stretch.values))
            attempts = chain.from_iterable(repeat(value, n) for value, n in lineage.runs("_attempts"))
            yield from zip(
                range(stretch.ordinal, stretch.end), stretch.values, lineage.seconds(), attempts, strict=True
            )

    def ordinals_of(self, code: str) -> list[tuple[int, int]]:
        """Return the ordinals of the results that a code version made, as half-open ranges."""
        if self.code == code:
            return self._ranges
        found = Ranges()
        for settlement in self._settlements():
            if settlement.made and settlement.made.code == code:
                for piece in settlement.pieces:
                    found.add(piece.ordinal, piece.ordinal + piece.n)
        return [span for lo, hi in self._ranges for span in found.within(lo, hi)]

    def identities(self) -> Iterator[tuple[int, list[str] | None, list[str], str]]:
        """Yield (position, keys, versions, code) of neighbours, "" for what was not recorded, and open no value."""
        covered = Ranges(self._ranges)
        for settlement in self._settlements():
            made, at = settlement.made, 0
            versions = [""] * settlement.count if made is None else made.each_version()
            code = (made.code if made is not None else "") or self.code or ""
            keys = settlement.keys()
            for _, first, n in settlement.pieces:
                for lo, hi in covered.within(first, first + n):
                    a, b = at + lo - first, at + hi - first
                    yield self._position(lo), keys and keys[a:b], versions[a:b], code
                at += n

    def _settlements(self) -> Iterator[Settlement]:
        """Yield what holds the results, without the values, and request more while the caller reads."""
        link, count, at = self._handle.link, len(self), 0
        asked = [link.start(self._ask(0, min(count, READ_VALUES), bare=True))] if count else []
        try:
            while asked:
                with reading(self.name, self._handle):
                    page = _decoded(link.result(asked.pop()))
                at = max(at + 1, self._reached(page, at, min(count, at + READ_VALUES)))
                if at < count:
                    asked = [link.start(self._ask(at, min(count, at + READ_VALUES), bare=True))]
                yield from page
        finally:
            for future in asked:
                future.cancel()

    def single(self, ordinals: Sequence[int]) -> Iterator[OpenedStretch]:
        """Yield the results at a few ordinals of many, with a call for each: a page would have all between them."""
        for at in range(0, len(ordinals), SINGLE):
            with reading(self.name, self._handle):
                parts = self._handle.link.sync(self._of(ordinals[at : at + SINGLE]))
                page = _open_all(_decoded(parts), referring=self._reader is not None)
            for piece in [page] if self._reader is None or not page else _with_rows(page, self._reader):
                yield from map(self.typed.objects, piece)

    async def _of(self, ordinals: Sequence[int]) -> list[bytes | memoryview]:
        asked = [calls.PageCall(self._run, ordinal, ordinal + 1) for ordinal in ordinals]
        shards = range(self._handle.shards)
        answers = await asyncio.gather(*(self._handle.ask(at, call) for call in asked for at in shards))
        return [part for _, parts in answers for part in parts]

    def replaced_keys(self) -> Iterator[tuple[Any, Any]]:
        """Yield the key of each value, with the object that replaces the value or None."""
        for stretch in self._read(0, len(self)):
            for key, value in stretch.items():
                yield key, value if self._instead is not None and self._instead.is_one(value) else None

    # --- fetching ---------------------------------------------------------------------------

    def ordinal(self, at: int) -> int:
        """Return the ordinal of the value at a position."""
        span = bisect_right(self._starts, at) - 1
        return self._ranges[span][0] + at - self._starts[span]

    def _position(self, ordinal: int) -> int:
        span = bisect_right(self._ranges, (ordinal, ENDLESS)) - 1
        return self._starts[span] + ordinal - self._ranges[span][0]

    def _read(self, low: int, high: int) -> Iterator[OpenedStretch]:
        return chain.from_iterable(self._whole(low, high))

    def _whole(self, low: int, high: int) -> Iterator[list[OpenedStretch]]:
        """Yield the results at positions [low, high) in pages, with the rows of a sink."""
        for page in self._pages(low, high):
            yield from [page] if self._reader is None else _with_rows(page, self._reader)

    def _pages(self, low: int, high: int) -> Iterator[list[OpenedStretch]]:
        """Yield the results at positions [low, high), requesting the next pages while the caller reads one."""
        link = self._handle.link
        wanted = ((at, min(high, at + READ_VALUES)) for at in range(low, high, READ_VALUES))
        asked = deque((at, stop, link.start(self._ask(at, stop))) for at, stop in islice(wanted, READ_AHEAD))
        try:
            while asked:
                at, stop, future = asked.popleft()
                with reading(self.name, self._handle):
                    found = _decoded(link.result(future))
                    if self._instead is None and at < (rest := self._reached(found, at, stop)) < stop:
                        # The page was cut at 4 MiB: request its rest before this part is opened.
                        asked.appendleft((rest, stop, link.start(self._ask(rest, stop))))
                    else:
                        asked.extend((at, stop, link.start(self._ask(at, stop))) for at, stop in islice(wanted, 1))
                    page = self._opened(found, at, stop)
                at += _values_n(page)
                del future, found  # frees the pickled bytes of the page before the caller reads its values
                yield page
                if self._instead is None:
                    continue
                while at < stop:  # the page was cut at 4 MiB, and failures replace results: fetch the rest in order
                    page, _ = self._fetch(at, stop)
                    at += _values_n(page)
                    yield page
        finally:
            for _, _, future in asked:  # the caller stopped reading, or was interrupted
                future.cancel()

    def _page_with(self, at: int, ordinal: int) -> list[OpenedStretch]:
        """Return the page that has a position, and keep it."""
        kept = self._kept  # one read of the attribute: another thread may replace the pages meanwhile
        found = next((each for each in kept if each[0][0].ordinal <= ordinal < each[0][-1].end), None)
        if found is None or found is not kept[0]:
            found = found or self._fetch_with(at, ordinal)
            room = KEPT_BYTES - found[1]
            self._kept = (found, *(each for each in kept if each is not found and (room := room - each[1]) >= 0))
        return found[0]

    def _fetch_with(self, at: int, ordinal: int) -> tuple[list[OpenedStretch], int]:
        """Fetch the page that has a position, and return it with the bytes that count."""
        reader, fitting = self._reader, self._fitting
        if reader is not None:
            low = at - at % PAGE_VALUES
            pieces = chain.from_iterable(
                _pieces(page, reader) for page in self._pages(low, min(len(self), low + PAGE_VALUES))
            )
            piece = next(piece for piece in pieces if ordinal < piece[-1].end)
            return [*_rows_in(piece, reader)], KEPT_BYTES
        while True:
            # Pages do not begin where the reader is, but at multiples: those of a reader who goes backwards end there.
            low = at - at % fitting
            page, nbytes = self._fetch(low, min(len(self), low + fitting))
            read = _values_n(page)
            self._fitting = max(1, min(PAGE_VALUES, read * PAGE_BYTES // max(1, nbytes)))
            if at < low + read:
                return page, nbytes + VALUE_BYTES * read + LETTER_BYTES * sum(map(_is_replaced, page))
            fitting = min(read, self._fitting)  # the page was cut at 4 MiB before the position

    def _fetch(self, at: int, stop: int) -> tuple[list[OpenedStretch], int]:
        """Fetch a page from a position on, and return it with its bytes as they were sent."""
        with reading(self.name, self._handle):
            found = _decoded(self._handle.link.sync(self._ask(at, stop)))
            return self._opened(found, at, stop), sum(one.nbytes for one in found)

    def _opened(self, settlements: list[Settlement], at: int, stop: int) -> list[OpenedStretch]:
        """Return the results of a page from position `at` up to the first missing one."""
        page = _open_all(settlements, referring=self._reader is not None)
        if self._instead is not None:
            # The page may be cut at 4 MiB. Failures after its end belong to the next page, or to this one if it is
            # empty.
            end = page[-1].end if page else self.ordinal(min(stop, at + PAGE_VALUES) - 1) + 1
            near = self._instead.between(self.ordinal(at), end)
            page += [OpenedStretch(f.ordinal, [f], None if f.key == f.ordinal else [f.key]) for f in near]
            page.sort(key=lambda stretch: stretch.ordinal)
        kept = self._wanted(page, at, stop)
        if not kept:
            if self._gone is not None:
                self._gone()
            raise MessageNotFound(queue=self._handle.name, id=self.ordinal(at))
        return kept

    def _wanted(self, page: list[OpenedStretch], at: int, stop: int) -> list[OpenedStretch]:
        """Return the results of a page at positions [at, stop), up to the first missing one."""
        # Retried documents may have results by now that had none when the ranges were made: they have no position.
        spans = self._spans([(stretch.ordinal, stretch.end) for stretch in page], at, stop)
        return [page[number].cut(lo, hi) for number, lo, hi in spans]

    def _reached(self, settlements: Sequence[Settlement], at: int, stop: int) -> int:
        """Return the first position from `at` on that a page has no result for."""
        places = sorted((piece.ordinal, piece.ordinal + piece.n) for one in settlements for piece in one.pieces)
        return at + sum(hi - lo for _, lo, hi in self._spans(places, at, stop))

    def _spans(self, places: Sequence[tuple[int, int]], at: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (number of the range, lo, hi) for the ordinals of positions [at, stop), up to the first missing one."""
        for number, (first, end) in enumerate(places):
            while at < stop and (ordinal := self.ordinal(at)) < end:
                if ordinal < first:
                    return
                hi = min(end, self._ranges[bisect_right(self._starts, at) - 1][1])
                yield number, ordinal, hi
                at += hi - ordinal

    async def _ask(self, at: int, stop: int, *, bare: bool = False) -> Sequence[bytes | memoryview]:
        """Request the results at positions [at, stop), and return encoded settlements."""
        # Not decoded here: this runs on the event loop, which also serves every other call.
        page = calls.PageCall(self._run, self.ordinal(at), self.ordinal(stop - 1) + 1, bare)
        answers = await asyncio.gather(*(self._handle.ask(at, page) for at in range(self._handle.shards)))
        return [part for _, parts in answers for part in parts]


def _values_n(page: Sequence[OpenedStretch]) -> int:
    return sum(len(stretch.values) for stretch in page)


def _ordinals_of(page: Sequence[OpenedStretch]) -> Sequence[int]:
    first, last = page[0], page[-1]
    if last.end - first.ordinal == _values_n(page):
        return range(first.ordinal, last.end)
    return [at for stretch in page for at in range(stretch.ordinal, stretch.end)]


def _keys_of(page: Sequence[OpenedStretch]) -> list[Any] | None:
    """Return the keys of a page, or None if all of them are the ordinals."""
    if all(stretch.keys is None for stretch in page):
        return None
    return [key for stretch in page for key in (stretch.keys or range(stretch.ordinal, stretch.end))]


def _spread(where: tuple[Sequence[int], list[Any] | None], counts: list[int]) -> tuple[Sequence[int], list[Any] | None]:
    """Return ordinals and keys of documents as often as these have rows."""
    ordinals, keys = where
    return list(spread(ordinals, counts)), None if keys is None else list(spread(keys, counts))


def _lineage_in(
    stretch: OpenedStretch, replaces: Callable[[Any], bool] | None, code: Callable[[], str | None]
) -> Lineage:
    """Return the recorded lineage of results, or one that has only the run's single code version, if there is one."""
    if stretch.lineage is not None:
        return stretch.lineage
    is_result = replaces is None or not replaces(stretch.values[0])
    return Lineage(None, 0, len(stretch.values), code() if is_result else None)


class ResultRows:
    """The `dqlab.datasets.table.Source` of some results."""

    lined = True

    def __init__(self, results: Results) -> None:
        self._results = results

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._results.name

    @property
    def reasoned(self) -> bool:
        """Whether documents without a result are among the rows."""
        return self._results._replaces is not None

    @property
    def declared(self) -> Sequence[Mapping[str, Any]]:
        """Columns that code versions declare."""
        return self._results.typed.columns

    def count(self) -> int:
        """Return how many rows there are."""
        return len(self._results)

    def now(self) -> ResultRows:
        """Return itself, since the number of these results never changes."""
        return self

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        """Yield pages of rows."""
        return self._results.rows(len(self._results) if most is None else most)


def _portions(page: list[OpenedStretch], reader: Reader) -> Iterator[list[OpenedStretch]]:
    """Yield a page of references in pieces with rows that fit into memory and into one Arrow array."""
    for start, stop in reader.portions([reference for stretch in page for reference in stretch.values]):
        piece, at = list[OpenedStretch](), 0
        for stretch in page:
            lo, hi = max(start - at, 0), min(stop - at, len(stretch.values))
            if lo < hi:
                piece.append(stretch.cut(stretch.ordinal + lo, stretch.ordinal + hi))
            at += len(stretch.values)
        yield piece


def _is_replaced(stretch: OpenedStretch) -> bool:
    return InPlace.is_one(stretch.values[0])


def _pieces(page: list[OpenedStretch], reader: Reader) -> Iterator[list[OpenedStretch]]:
    """Yield a page in pieces that have either references, to as many rows as memory can hold, or what replaces them."""
    for replaced, stretches in groupby(page, _is_replaced):
        some = list(stretches)
        yield from [some] if replaced else _portions(some, reader)


def _with_rows(page: list[OpenedStretch], reader: Reader) -> Iterator[list[OpenedStretch]]:
    """Yield a page in pieces, with the rows of a sink in place of their references."""
    return ([*_rows_in(piece, reader)] for piece in _pieces(page, reader))


def _rows_in(piece: list[OpenedStretch], reader: Reader) -> Iterable[OpenedStretch]:
    """Return the stretches of a piece with rows in place of their references."""
    if _is_replaced(piece[0]):
        return piece
    rows = reader.find([reference for stretch in piece for reference in stretch.values], _ordinals_of(piece))
    made, at = list[OpenedStretch](), 0
    for stretch in piece:
        values = rows[at : at + len(stretch.values)]
        at += len(values)
        errors: dict[int, BaseException] = {i: value for i, value in enumerate(values) if isinstance(value, PartError)}
        whole = OpenedStretch(stretch.ordinal, values, stretch.keys, lineage=stretch.lineage)
        made += _without(whole, errors, single=False) if errors else [whole]
    return made


def chosen_columns(
    run: str,
    pages: Iterable[list[OpenedStretch]],
    columns: list[Any],
    replaces: Callable[[Any], bool] | None,
    count: int,
    code: Callable[[], str | None],
) -> pd.DataFrame:
    """Return a DataFrame with some columns of the results or of their lineage."""
    # `code` calls the queue for the only code version of the run, so call it only for rows that have none recorded.
    import numpy as np

    lineage = [KEY, ORDINAL, *ROW_LINEAGE, *([ERROR] if replaces is not None else [])]
    ordinals, rows = array("q"), FrameRows(replaces, columns)
    gathered = Gathered([name for name in columns if name in ROW_LINEAGE])

    def seen() -> Iterator[list[OpenedStretch]]:
        for page in pages:
            ordinals.extend(_ordinals_of(page))
            for each in page if gathered.names else ():
                gathered.add(_lineage_in(each, replaces, code if CODE in gathered.names else lambda: None))
            yield page

    frame = _frame_of(rows, seen(), count)
    missing = [column for column in dict.fromkeys(columns) if column not in frame.columns]
    check_columns(missing if len(frame) else [], [*frame.columns, *rows.others, *lineage], run)
    made = {KEY: frame.index, ERROR: series_of(rows.reasons or None, frame.index)}
    made[ORDINAL] = rows.repeated(np.array(ordinals))
    made |= {name: rows.repeated(gathered.pandas(name, None)).set_axis(frame.index) for name in gathered.names}
    for name in made.keys() & missing:  # a user's column keeps its name, as without `columns`
        frame[name] = made[name]
    return frame[columns] if len(frame) else frame.reindex(columns=columns)


def frame_of_pages(
    pages: Iterable[list[OpenedStretch]], count: int, replaces: Callable[[Any], bool] | None
) -> pd.DataFrame:
    """Return a DataFrame of results as `Results.to_frame` does."""
    rows = FrameRows(replaces)
    return _with_reasons(_frame_of(rows, pages, count), rows)


def frame_of_pairs(
    pairs: Iterable[tuple[Any, Any]], count: int, replaces: Callable[[Any], bool] | None
) -> pd.DataFrame:
    """Return a DataFrame of (key, value) as `Results.to_frame` does; `replaces` finds values that replace a result."""
    left = iter(pairs)
    pages = iter(lambda: list(islice(left, SAID_EVERY)), [])
    stretches = ([OpenedStretch(0, [value for _, value in page], [key for key, _ in page])] for page in pages)
    return frame_of_pages(stretches, count, replaces)


def _frame_of(rows: FrameRows, pages: Iterable[list[OpenedStretch]], count: int) -> pd.DataFrame:
    read = 0
    with shown(f"reading {many(count, 'result')}") as wait:
        for page in pages:
            rows.add([value for stretch in page for value in stretch.values], _keys_of(page), _ordinals_of(page))
            read += _values_n(page)
            wait.step(f"{read:,} read")
    frame: pd.DataFrame = rows.frame()
    return frame


def _with_reasons(frame: pd.DataFrame, rows: FrameRows) -> pd.DataFrame:
    """Return a table with the reasons why documents have no result, if one has none."""
    import pandas as pd

    if any(rows.reasons) and rows.has_dicts:
        name = "error"
        while name in frame:  # never overwrite a column of the results
            name = f"dqlab_{name}"
        frame[name] = pd.Series(rows.reasons, frame.index, dtype=object)
    return frame


def _join(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for lo, hi in ranges:
        if joined and lo <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(hi, joined[-1][1]))
        else:
            joined.append((lo, hi))
    return joined


class Streams:
    """Reads the results of each shard in the order of completion, each result once."""

    # `reader` finds the rows of a run with a sink, and `codes` returns its code versions. They ask the queue, so they
    # are called when there are results.
    def __init__(
        self,
        handle: Handle,
        run: bytes,
        reader: Callable[[float | None], Reader | None] = lambda _: None,
        codes: Callable[[float | None], Sequence[CodeRecord]] = lambda _: (),
    ) -> None:
        self._handle, self._run, self._reader = handle, run, reader
        self._codes, self._typed = codes, TypedCodes()
        self._cursors = [0] * handle.shards
        self._done = [False] * handle.shards
        self._more = [True] * handle.shards
        self._unreadable: OpenedStretch | None = None

    @property
    def done(self) -> bool:
        """Whether every shard reported in its last answer that it has no more results."""
        return all(self._done)

    @property
    def more(self) -> bool:
        """Whether some shard reported in its last answer that it has further results."""
        return any(self._more)

    def pages(self, wait: float, patience: float | None = None) -> Iterator[list[OpenedStretch]]:
        """Request new results from every shard once and yield the readable ones, then raise a `CallTimeout` if any."""
        # A shard waits up to `wait` seconds for results if it is the only one left, and has `patience` seconds to
        # answer.
        alone, silent = self._done.count(False) == 1, None
        for shard, cursor in enumerate(self._cursors):
            seconds = wait if alone and not self._done[shard] else IN_TURN
            stream = calls.StreamCall(self._run, cursor, seconds, READ_VALUES)
            asked = self._handle.ask(shard, stream, wait=wait)
            try:
                answer, parts = self._handle.link.sync(asked, timeout=patience)
                reader = self._reader(patience) if parts else None
                whole = _open_all(_decoded(parts), referring=reader is not None)
                if not self._typed.knows(whole):
                    self._typed.note(self._codes(patience))
            except CallTimeout as error:
                silent = error
                continue
            pages: Iterable[list[OpenedStretch]] = [whole] if reader is None else _with_rows(whole, reader)
            del parts  # frees the pickled bytes before the caller reads the values
            for page in pages:
                if new := [self._typed.objects(stretch) for stretch in page if self._is_readable(stretch)]:
                    yield new
            # Only after the pages were yielded: a caller that stops in the middle gets the rest at the next call.
            self._cursors[shard] = answer.cursor
            self._more[shard], self._done[shard] = answer.more, answer.done
        if silent is not None:
            raise silent

    def check_readable(self) -> None:
        """Raise the first `ResultUnreadable` among the results, if there is one."""
        if self._unreadable is not None:
            check_readable(self._unreadable)

    def _is_readable(self, stretch: OpenedStretch) -> bool:
        """Return whether the results of a stretch can be yielded, and keep the first unreadable one."""
        if stretch.unreadable is not None:
            self._unreadable = self._unreadable or stretch
        return stretch.unreadable is None
