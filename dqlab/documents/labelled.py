"""Values with keys of their own: the index of a pandas Series gives each element its key."""

from __future__ import annotations

import operator
import pickletools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from dqlab.errors import BadOption
from dqlab.imports import loaded

_WHOLE, _TEXT = "\0i", "\0s"
"""Prefixes of labels in keys: of whole numbers, because 7 and "7" are different labels, and of texts that are empty or
begin with NUL. File names contain no NUL."""


class Labelled(NamedTuple):
    """A value and its label, which functions do not receive."""

    label: str | int
    value: Any


COPIED = 1 << 30
"""Bytes of an array, at most, that is copied before it is read."""
NAMED = 3
"""Labels that an error names."""

_KEY_FIRST = {
    (Labelled.__module__, Labelled.__qualname__),
    *(("dqlab.documents.document", name) for name in ("_row", "_line", "_inline", "_numbered")),
}
"""Globals that pickles name directly before a label, or the key of a row."""
_LOOKUPS = ("BINGET", "LONG_BINGET")
"""Opcodes whose argument is an index of the memo, not a number of the user."""


def labelled(documents: Any) -> Any:
    """Return the values of a Series with their labels, a copy of an array, and anything else unchanged."""
    numpy, pandas = loaded("numpy"), loaded("pandas")
    if numpy is not None and type(documents) is numpy.ndarray and documents.nbytes <= COPIED:
        return documents.copy()  # the user's next line may be `a *= 0`, while the array is still being read
    if pandas is None or not isinstance(documents, pandas.Series):
        return documents
    documents = documents.copy(deep=False)  # the user may drop rows from the original while this one is being read
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


def key_texts(labels: Iterable[str | int | None]) -> list[str]:
    """Return labels as the keys of a settlement, "" for those that are missing."""
    return [f"{_WHOLE}{label}" if type(label) is int else "" if label is None else key_text(label) for label in labels]


def label_of(key: str) -> str | int:
    """Return the label of a settlement's key."""
    return labels_of((key,))[0]


def labels_of(keys: Iterable[str]) -> list[str | int]:
    """Return the labels of a settlement's keys."""
    return [int(key[2:]) if key[:2] == _WHOLE else key.removeprefix(_TEXT) for key in keys]


def sealed_label(payload: bytes | memoryview) -> str | int | None:
    """Return the label of a pickled `Labelled`, or the key of a row, without unpickling, or None for anything else."""
    # Read opcodes only: unpickling would run the user's code. Such a pickle begins with the module, the name,
    # STACK_GLOBAL (whose argument is None) and the label.
    names: list[object] = []
    with suppress(Exception):  # any payload may come here
        for op, arg, _ in pickletools.genops(bytes(payload)):
            if op.name in ("PROTO", "FRAME", "MEMOIZE", "MARK"):
                continue
            if len(names) == 3:
                known = names[2] is None and (names[0], names[1]) in _KEY_FIRST
                return arg if known and type(arg) in (str, int) and op.name not in _LOOKUPS else None
            names.append(arg)
    return None


class _Rows:
    """The elements of a Series with their labels, which are checked before anything is submitted."""

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
        return str.__str__(label)  # a plain str, also for subclasses such as numpy's
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
