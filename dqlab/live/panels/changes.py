"""Changes to models of an open document: only what differs is sent to the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, Div, InlineStyleSheet
from numpy.typing import NDArray

__all__ = ["Series", "fill", "html", "series", "show", "together"]

Series = NDArray[np.float32]


def series(values: Sequence[float | None]) -> Series:
    """Return values as a column; unknown ones are NaN, and nothing is drawn there."""
    return np.asarray(values, dtype=np.float32)


def together(count: int, **columns: Sequence[float | None]) -> tuple[int, dict[str, Series]]:
    """Return columns of `count` values from where the first of them is known, and how many come before that."""
    made = {name: series(values if len(values) == count else [0.0] * count) for name, values in columns.items()}
    known = ~np.all([column != column for column in made.values()], axis=0)  # NaN differs from itself
    first = int(np.argmax(known)) if known.any() else count
    return first, {name: np.nan_to_num(column[first:], nan=0.0) for name, column in made.items()}


def show(model: Any, **values: Any) -> None:
    """Set the properties that differ."""
    differing = {name: value for name, value in values.items() if getattr(model, name) != value}
    if differing:
        model.update(**differing)


def fill(source: ColumnDataSource, **columns: Any) -> None:
    """Replace all columns if one differs."""
    old = source.data
    if old.keys() != columns.keys() or any(not _same(old[name], column) for name, column in columns.items()):
        source.data = columns


def _same(old: Any, new: Any) -> bool:
    if isinstance(new, np.ndarray) and isinstance(old, np.ndarray):
        return old.shape == new.shape and bool(np.array_equal(old, new, equal_nan=new.dtype.kind == "f"))
    return bool(type(old) is type(new) and old == new)


def html(sheet: InlineStyleSheet, *classes: str, content: str = "") -> Div:
    """Return a place for HTML, laid out by its classes in `panel.css`; formulas in it stay text."""
    return Div(
        text=content,
        stylesheets=[sheet],
        css_classes=list(classes),
        margin=0,
        sizing_mode="stretch_width",
        disable_math=True,
        syncable=False,
    )
