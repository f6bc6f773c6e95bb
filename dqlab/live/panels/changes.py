"""Change models of an open document: send only what differs to the browser, and all of it as one message."""

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
    """Return values as a column, with NaN for unknown ones, where nothing is drawn."""
    return np.asarray(values, dtype=np.float32)


def together(count: int, **columns: Sequence[float | None]) -> tuple[int, dict[str, Series]]:
    """Return columns from the first known value on, and how many values come before that."""
    made = {name: series(values if len(values) == count else [0.0] * count) for name, values in columns.items()}
    # NaN differs from itself.
    known = ~np.all([column != column for column in made.values()], axis=0)
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
    """Return a place for HTML, laid out by its classes in `panel.css`."""
    return Div(
        text=content,
        stylesheets=[sheet],
        css_classes=list(classes),
        margin=0,
        sizing_mode="stretch_width",
        # A formula in a document's name or an error must stay text.
        disable_math=True,
        syncable=False,
    )


class HeldChanges:
    """Keep the changes made inside ``with held:`` until `send`."""

    # Bokeh sends a message for each property: three websocket messages each, and two more for each array. One message
    # is also read in one frame, so that no panel is a step ahead of another one.
    def __init__(self, doc: Document) -> None:
        self._doc = doc
        self._changes: list[Any] = []

    def __enter__(self) -> None:
        self._doc.callbacks.hold("combine")
        # Steps of the same frame go on with the changes of the steps before, so that `combine` can replace them.
        self._doc.callbacks._held_events = self._changes

    def __exit__(self, *_: object) -> None:
        # Taken out before `unhold`, which would send them.
        self._changes = list(self._doc.callbacks._held_events)
        self._doc.callbacks._held_events = []
        self._doc.callbacks.unhold()

    def send(self) -> None:
        """Send the kept changes as one message."""
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
        # Through the session's pending writes: Bokeh sends these in order, and waits for them before it unlocks the
        # document.
        for connection in list(session._subscribed_connections):
            writes.append(connection._socket.send_message(_message(self._doc, patches)))


def _message(doc: Document, patches: list[Any]) -> Any:
    serializer = Serializer(references=doc.models.synced_references, deferred=False)
    content = {"events": serializer.encode(patches)}
    # A browser knows a model by id only once it was sent: models new in this message are marked as sent.
    doc.models.flush_synced(lambda model: not serializer.has_ref(model))
    return patch_doc(patch_doc.create_header(), {}, content)
