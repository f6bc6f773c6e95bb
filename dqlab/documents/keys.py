"""Keys of rows and names of columns that users choose: whether they are valid, whether they repeat, and what was meant.

Owns the versions of rows by their values, and the check for repeated keys, which holds all keys. Knows no files.
"""

from __future__ import annotations

import marshal
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any

from dqlab.errors import BadOption, ColumnNotFound, DocumentError, in_words
from dqlab.keywords import meant
from dqlab.numbers import few_of

KEYS_OF_FILES = (
    "Name a column with unique texts or whole numbers, or leave out key=: rows are then called by file and position."
)
KEYS_OF_FRAME = (
    "Name a column with unique texts or whole numbers in key=, or have rows called by position: leave out key=, "
    "and pass frame.reset_index() if the frame has an index."
)
"""What to do about unusable keys, by their origin."""


def key_of_row(value: Any, column: Any, where: str, position: int, way: str = KEYS_OF_FILES) -> str | int:
    """Return a value as a key if it is a text or a whole number, or raise `DocumentError`."""
    if type(value) is str or type(value) is int:
        return value
    if value is None:
        problem = f"has no key: its {column!r} is null"
    else:
        kind = type(value).__name__
        problem = f"has a key of type {kind} in {column!r}: keys of documents are texts or whole numbers"
    left = "The rows before it were listed, and those that were submitted go on."
    raise DocumentError(reason=f"row {position:,} of {where!r} {problem}. {left} {way}")


class Keys:
    """The keys that were listed so far."""

    def __init__(self, way: str = KEYS_OF_FILES) -> None:
        # `way` says in the error what to do about repeated keys.
        self._way = way
        self.seen: set[str | int] = set()

    def add(self, key: str | int, place: str) -> None:
        """Note a key, and raise `DocumentError` if it was noted before."""
        if key in self.seen:
            raise DocumentError(
                reason=f"keys repeat, so results could not be joined with their rows: {key!r} comes again in {place}. "
                f"What was submitted before it goes on. {self._way}",
                keys=[key],
            )
        self.seen.add(key)

    def noted(self, keys: Sequence[str | int], name: str, first: int) -> Iterator[Sequence[str | int]]:
        """Note keys and yield them together, or those before one that `add` refuses, whose error comes then."""
        new = set(keys)
        if len(new) == len(keys) and self.seen.isdisjoint(new):
            self.seen |= new
            yield keys
            return
        for at, key in enumerate(keys):
            if at and key in self.seen:
                yield keys[:at]
            self.add(key, f"{name}:{first + at}")


# --- names of columns ------------------------------------------------------------------------


_SHOWN = 20
"""Names that an error lists, at most."""


def chosen(columns: Any, option: str = "columns") -> list[Any] | None:
    """Return the option `columns`, or another one that names some, as a list, or None for None."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        problem = f"is not a list of names. Nothing was listed. Write {option}=[{columns!r}]."
        raise BadOption(option=option, value=columns, problem=problem)
    names = list(columns)
    if not names:
        raise BadOption(option=option, value=columns, problem="is empty. Omit it, or name some. Nothing was listed.")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        problem = f"has {twice[0]!r} twice. Nothing was listed. Name each column once."
        raise BadOption(option=option, value=columns, problem=problem)
    return names


def check_columns(wanted: Iterable[Any], known: Sequence[Any], where: str) -> None:
    """Raise `ColumnNotFound` or `DocumentError` unless each name is the name of exactly one column."""
    there = Counter(known)
    for name in wanted:
        if name not in there:
            check_column(name, known, where, "submitted")
        if there[name] > 1:
            problem = f"{where!r} has more than one column {name!r}, so a row cannot have both. Nothing was submitted."
            raise DocumentError(reason=f"{problem} Rename one of them, or choose other columns with columns=[...].")


def check_column(name: Any, known: Sequence[Any], where: str, done: str) -> None:
    """Raise `ColumnNotFound`, with similar names, unless there is such a column."""
    if name in known:
        return
    texts = [each for each in known if isinstance(each, str)]
    same = [each for each in known if str(each) == str(name)]
    shown = few_of(list(map(repr, known)), _SHOWN) or "none"
    hint = f" Did you mean {same[0]!r}?" if same else meant(str(name), texts)
    if len(texts) == len(known) == 1 and (other := next((each for each in ";\t|" if each in texts[0]), None)):
        hint = f" Its columns seem to be separated by {other!r}: pass delimiter={other!r}."
    raise ColumnNotFound(where=where, column=name, hint=hint, done=done, known=shown)


# --- versions of rows by their values, the same in every process ---


def versions_of(columns: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a hash of the values of each row by column, in whatever order the columns are."""
    names, seeds = tuple(sorted(columns)), dict[tuple[str, ...], Any]()

    def version(row: tuple[Any, ...]) -> str:
        named = names
        if None in row:  # null is the same as a column that is not there, as in the rows that functions get
            named = tuple(name for name, value in zip(names, row, strict=True) if value is not None)
            row = tuple(value for value in row if value is not None)
        if named not in seeds:
            seeds[named] = blake2b(content_of(named), digest_size=8)
        hashed = seeds[named].copy()
        hashed.update(content_of(row))
        return str(hashed.hexdigest())

    return list(map(version, zip(*map(columns.__getitem__, names), strict=True)))


def content_of(values: tuple[Any, ...]) -> bytes:
    """Return values as bytes that are the same in every process."""
    # Not pickle, whose bytes depend on which values happen to be the same object; the same holds for marshal's
    # references, which version 2 does not have.
    try:
        return marshal.dumps(values, 2)
    except ValueError:
        return marshal.dumps(tuple(map(_spelled, values)), 2)


_BY_REPR = (datetime, date, time, timedelta, Decimal)


def _spelled(value: Any) -> Any:
    """Return a value as types that `marshal` can write."""
    kind = type(value)
    if kind in (str, int, float, bool, bytes, complex, type(None)):
        return value
    if kind in (list, tuple):
        return kind.__name__, tuple(map(_spelled, value))
    if kind is dict:
        return "dict", tuple((_spelled(key), _spelled(each)) for key, each in value.items())
    if kind in (set, frozenset):
        return kind.__name__, tuple(sorted(marshal.dumps(_spelled(each), 2) for each in value))
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, _BY_REPR):
        return name, repr(value)
    try:
        return name, pickle.dumps(value, 5)
    except Exception as error:  # noqa: BLE001 - sending it fails, too, with an error that has its position
        return name, in_words(error)
