"""Frames: changes to an open document that reach the browser together, as one message."""

from __future__ import annotations

from typing import Any

from bokeh.core.serialization import Serializer
from bokeh.document import Document
from bokeh.document.events import DocumentPatchedEvent
from bokeh.protocol.messages.patch_doc import patch_doc

__all__ = ["Frame"]


class Frame:
    """Keeps what is changed inside ``with frame:`` until `send`.

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
