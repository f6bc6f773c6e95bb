"""Keys of rows and names of columns that users choose: whether they are valid, whether they repeat, and what was meant.

Owns the check for repeated keys, which takes 16 to 32 bytes per key of any length. Knows nothing of files.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from dqlab.errors import BadOption, ColumnNotFound, ColumnRepeated, DocumentError, KeyMissing, KeysRepeat, KeyUnusable
from dqlab.keywords import meant
from dqlab.numbers import few_of

__all__ = ["Keys", "check_column", "check_columns", "chosen", "key_of_row"]

_ALL = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_OF_ZERO = 0xD1B54A32D192ED03
"""Stands for the hash 0, because 0 marks a free place; not 1, which is usually the hash of the next row's key."""
NAMED = 10
"""Keys that an error names, at most."""


def key_of_row(value: Any, column: Any, where: str, position: int, way: str = KeysRepeat.OF_FILES) -> str | int:
    """Return a value as a key if it is a text or a whole number, or raise `KeyMissing` or `KeyUnusable`."""
    if type(value) is str or type(value) is int:
        return value
    if missing := "null" if value is None else getattr(value, "in_words", ""):  # of `Unreadable`
        raise KeyMissing(where=where, position=position, column=column, value=missing, way=way)
    raise KeyUnusable(
        found=f"row {position:,} of {where!r} has a key of type {type(value).__name__} in {column!r}",
        left="The rows before it were listed, and those that were submitted go on.",
        where=where,
        column=column,
        position=position,
        way=way,
    )


class Keys:
    """The keys that were listed so far."""

    def __init__(self, again: Callable[[], Iterable[tuple[str | int, str]]], way: str = KeysRepeat.OF_FILES) -> None:
        # `again` lists (key, place) of all rows from the first: only hashes are kept, so a repeated hash is looked up.
        # `way` says in the error what to do about repeated keys.
        self._again, self._way = again, way
        self._codes = _Codes()

    def add(self, key: str | int) -> None:
        """Note a key, and raise `KeysRepeat` with the first ten repeated keys if it was noted before."""
        code = hash(key) & _ALL or _OF_ZERO
        if not self._codes.add(code):
            self._look(code)

    def add_all(self, keys: Sequence[str | int]) -> tuple[int, KeysRepeat | None]:
        """Note several keys in half the time, and return how many precede the first repeated one, with its error."""
        codes = [hash(key) & _ALL or _OF_ZERO for key in keys]
        known = self._codes.add_all(codes)
        for code in known:
            try:
                self._look(code)
            except KeysRepeat as error:
                first = codes.index(code)
                was_known = codes.count(code) == known.count(code)
                return first if was_known else codes.index(code, first + 1), error
        return len(codes), None

    def _all(self) -> Iterator[tuple[str | int, str]]:
        """List all keys again, up to the first that is invalid."""
        # An invalid key lies after the keys listed so far; the listing itself raises the error when it reaches it.
        with suppress(DocumentError):
            yield from self._again()

    def _look(self, code: int) -> None:
        """List all keys twice, without holding them, and raise if two are equal."""
        codes = _Codes()
        repeating = {code}  # perhaps two different keys with one hash, as happens among a billion keys
        for key, _ in self._all():
            each = hash(key) & _ALL or _OF_ZERO
            if not codes.add(each):
                repeating.add(each)
                if len(repeating) > NAMED:
                    break
        places: dict[str | int, list[str]] = {}
        for key, place in self._all():
            if (hash(key) & _ALL or _OF_ZERO) in repeating:
                there = places.setdefault(key, [])
                there += [place] if len(there) < 2 else []
        alike = {key: there for key, there in places.items() if len(there) > 1}
        if alike:
            shown = [f"{key!r} in {' and '.join(there)}" for key, there in alike.items()]
            more = " and more" if len(shown) > NAMED else ""
            raise KeysRepeat(shown="; ".join(shown[:NAMED]) + more, keys=list(alike)[:NAMED], way=self._way)


class _Codes:
    """Hashes that were seen, in an open table that takes a tenth of the memory of a set of keys."""

    def __init__(self) -> None:
        self._bits, self._count = 12, 0
        self._table = array("Q", bytes(8 << self._bits))

    def add(self, code: int) -> bool:
        """Note a hash, which must not be 0, and return whether it is new."""
        table, last = self._table, (1 << self._bits) - 1
        # Multiply, because the hash of a whole number is the number: multiples of a power of two would collide.
        at = (code * _GOLDEN & _ALL) >> (64 - self._bits)
        while there := table[at]:
            if there == code:
                return False
            at = (at + 1) & last
        table[at] = code
        self._count += 1
        # Keep half of the places free: in a full table the loop above would not end.
        if 2 * self._count > last:
            self._grow()
        return True

    def add_all(self, codes: Sequence[int]) -> list[int]:
        """Note several hashes, and return those that are not new."""
        # Grow before the loop, not in it: the loop holds the table in a local variable.
        while 2 * (self._count + len(codes)) >= 1 << self._bits:
            self._grow()
        table, last, shift, known = self._table, (1 << self._bits) - 1, 64 - self._bits, []
        for code in codes:
            at = (code * _GOLDEN & _ALL) >> shift
            while there := table[at]:
                if there == code:
                    known.append(code)
                    break
                at = (at + 1) & last
            else:
                table[at] = code
        self._count += len(codes) - len(known)
        return known

    def _grow(self) -> None:
        old, self._bits = self._table, self._bits + 1
        self._table, self._count = array("Q", bytes(8 << self._bits)), 0
        for code in old:
            if code:
                self.add(code)


# --- names of columns ------------------------------------------------------------------------


_SHOWN = 20
"""Names that an error lists, at most."""


def chosen(columns: Any) -> list[Any] | None:
    """Return the option `columns` as a list, or None for all columns."""
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        problem = f"is not a list of names. Nothing was listed. Write columns=[{columns!r}]."
        raise BadOption(option="columns", value=columns, problem=problem)
    names = list(columns)
    if not names:
        raise BadOption(
            option="columns", value=columns, problem="is empty. Omit it to get all columns. Nothing was listed."
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        problem = f"has {twice[0]!r} twice. Nothing was listed. Name each column once."
        raise BadOption(option="columns", value=columns, problem=problem)
    return names


def check_columns(wanted: Iterable[Any], known: Sequence[Any], where: str) -> None:
    """Raise `ColumnNotFound` or `ColumnRepeated` unless each name is the name of exactly one column."""
    there = Counter(known)
    for name in wanted:
        if name not in there:
            check_column(name, known, where, "submitted")
        if there[name] > 1:
            raise ColumnRepeated(where=where, column=name)


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
