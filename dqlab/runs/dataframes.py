"""Pandas tables with any text: pandas' own text type accepts only valid Unicode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

__all__ = ["frame_of", "index_of"]


def index_of(keys: Sequence[Any]) -> Any:
    """Return keys as an index named ``key``, of objects if one of them is not valid Unicode."""
    import pandas as pd

    try:
        return pd.Index(keys, name="key")
    except UnicodeEncodeError:
        return pd.Index(keys, name="key", dtype=object)


def frame_of(rows: Sequence[Mapping[Any, Any]], index: Any, columns: list[str] | None = None) -> Any:
    """Return rows as a table; a column with text that is not valid Unicode is of objects, others of a fitting type."""
    import pandas as pd

    rows = list(rows)
    try:  # not from_records: it takes an index whose labels are all columns for the names of these columns
        return pd.DataFrame(rows, index=index, columns=columns)
    except UnicodeEncodeError:
        names = list(dict.fromkeys(chain.from_iterable(rows))) if columns is None else columns
        named = pd.Index(names, dtype=object, tupleize_cols=False)
        frame = pd.DataFrame(rows, index=index, columns=named, dtype=object)
    for name in frame:
        try:
            frame[name] = frame[name].infer_objects()
        except UnicodeEncodeError:
            continue
    return frame
