"""Changes to models of an open document: only what differs is sent to the browser, and together, as one message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.core.serialization import Serializer
from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.models import ColumnDataSource, Div, InlineStyleSheet
from bokeh.protocol.messages.patch_doc import patch_doc
from numpy.typing import NDArray

__all__ = ["HeldChanges", "Series", "fill", "html", "series", "show", "together"]

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


class HeldChanges:
    """Keeps what is changed inside ``with held:`` until `send`.

    Bokeh sends a message for each property, and each takes three websocket messages, and two more for each array.
    What figures repeat is also read in one frame: no panel is a step ahead of another one.

    Parameters
    ----------
    doc : Document
    """

    def __init__(self, doc: Document) -> None:
        self._doc = doc
        self._changes: list[Any] = []

    def __enter__(self) -> None:
        self._doc.callbacks.hold("combine")
        self._doc.callbacks._held_events = self._changes

    def __exit__(self, *_: object) -> None:
        self._changes = list(self._doc.callbacks._held_events)
        self._doc.callbacks._held_events = []
        self._doc.callbacks.unhold()

    def send(self) -> None:
        """Send what was kept."""
        changes, self._changes = self._changes, []
        session = getattr(self._doc.session_context, "session", None)
        writes = getattr(session, "_pending_writes", None)
        patches: list[Any] = []
        for each in changes:
            if writes is not None and isinstance(each, DocumentPatchedEvent):
                patches.append(each)
            else:
                self._doc.callbacks.trigger_on_change(each)
        if session is None or writes is None or not patches:
            return
        for connection in list(session._subscribed_connections):
            writes.append(connection._socket.send_message(_message(self._doc, patches)))


def _message(doc: Document, patches: list[Any]) -> Any:
    serializer = Serializer(references=doc.models.synced_references, deferred=False)
    content = {"events": serializer.encode(patches)}
    doc.models.flush_synced(lambda model: not serializer.has_ref(model))
    return patch_doc(patch_doc.create_header(), {}, content)
