"""Values with keys of their own: by the index of a pandas Series each of them belongs to a row."""

from __future__ import annotations

import operator
import pickletools
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from dqlab.errors import BadOption

__all__ = ["Labelled", "key_text", "label_of", "labelled", "sealed_label"]

_WHOLE, _TEXT = "\0i", "\0s"
"""Prefix of a whole number in a key, since 7 and "7" are two labels; and of a text that would otherwise be
taken for none, or for one of these. File names contain no such character."""


class Labelled(NamedTuple):
    """A value and its label; functions receive the value."""

    label: str | int
    value: Any


COPIED = 1 << 30
"""Bytes of an array that is copied before it is read."""
NAMED = 3
"""Labels that are named one by one."""

_KEY_FIRST = {
    (Labelled.__module__, Labelled.__qualname__),
    *(("dqlab.documents.document", name) for name in ("_row", "_line", "_inline", "_numbered")),
}
"""What pickles name that have the label, or the key of a row, right behind it."""
_LOOKUPS = ("BINGET", "LONG_BINGET")
"""Opcodes whose argument is a place in the memo, not a number of the user's."""


def labelled(documents: Any) -> Any:
    """Return an iterable of a Series' values with their labels, a copy of an array, and anything else as it is."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and type(documents) is numpy.ndarray and documents.nbytes <= COPIED:
        return documents.copy()  # `a *= 0` in the next line would change what is still to be read
    if pandas is None or not isinstance(documents, pandas.Series):
        return documents
    documents = documents.copy(deep=False)  # rows may be dropped from the user's while it is read, not from this one
    index = documents.index
    if isinstance(index, pandas.RangeIndex) and (index.start, index.step) == (0, 1):
        return documents  # its labels are the ordinals
    rows = _Rows(documents)
    if index.has_duplicates:
        raise BadOption(option="documents", value=f"a Series of {len(index):,}", problem=_repeated(index))
    return rows


def key_text(label: str | int) -> str:
    """Return a label as the key of a settlement."""
    if isinstance(label, str):
        return label if label and not label.startswith("\0") else f"{_TEXT}{label}"
    return f"{_WHOLE}{label}"


def label_of(key: str) -> str | int:
    """Return the label that a settlement's key stands for."""
    if key.startswith(_WHOLE):
        return int(key[2:])
    return key.removeprefix(_TEXT)


def sealed_label(payload: bytes | memoryview) -> str | int | None:
    """Return the label of a pickled `Labelled`, or the key of a row; None for anything else.

    Unpickles nothing, so no foreign code runs.
    """
    names: list[object] = []
    with suppress(Exception):  # whatever it is, it is not a value with a label
        for op, arg, _ in pickletools.genops(bytes(payload)):
            if op.name in ("PROTO", "FRAME", "MEMOIZE", "MARK"):
                continue
            if len(names) == 3:
                known = names[2] is None and (names[0], names[1]) in _KEY_FIRST
                return arg if known and type(arg) in (str, int) and op.name not in _LOOKUPS else None
            names.append(arg)
    return None


class _Rows:
    """The elements of a Series, each with its label; checked as a whole, before anything is submitted."""

    def __init__(self, series: Any) -> None:
        self._values = series
        self._labels = [_label(label, at) for at, label in enumerate(series.index)]

    def __len__(self) -> int:
        return len(self._labels)

    def __iter__(self) -> Iterator[Labelled]:
        return map(Labelled, self._labels, self._values)


def _repeated(index: Any) -> str:
    labels = index[index.duplicated()].unique()
    named = ", ".join(repr(_label(label, 0))[:60] for label in labels[:NAMED])
    more = f" and {len(labels) - NAMED:,} more" if len(labels) > NAMED else ""
    return (
        f"its index repeats {named}{more}: the index becomes the keys of the results, and one key would stand for "
        "several rows. Nothing was submitted. Pass series.reset_index(drop=True), whose keys are positions, or the "
        "values alone, list(series)."
    )


def _label(label: Any, at: int) -> str | int:
    if isinstance(label, str):
        return str.__str__(label)  # plain text, also of numpy's and other subclasses
    if not isinstance(label, bool):
        with suppress(TypeError):
            return operator.index(label)
    kind = type(label).__name__
    raise BadOption(
        option="documents",
        value=label,
        problem=f"is the index of element {at}, a {kind}; keys of results are texts or whole numbers. Nothing was "
        "submitted. Pass series.reset_index(drop=True), or give it such an index: series.set_axis(list(map(str, "
        "series.index))).",
    )
