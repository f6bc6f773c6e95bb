"""Reads the keys of stored messages that `rules.caps` wants."""

from __future__ import annotations

from collections.abc import Mapping
from sys import intern
from urllib.parse import urlsplit

from dqlab.documents import Document
from dqlab.documents.document import sealed_plainly
from dqlab.documents.parts import Inline
from dqlab.frame import Frame


def keys_of(frame: Frame, by: str) -> list[str]:
    """Return the key of each message of a frame, "" where it has none."""
    return [intern(_key(sealed_plainly(message), by)) for message in frame.messages()]


def _key(value: object, by: str) -> str:
    where, found = value if isinstance(value, str) else "", None
    if type(value) is Document:
        where, part = value.where, value.part
        if type(part) is Inline and isinstance(part.values, tuple):
            value = dict(zip(part.names, part.values, strict=False))
    if isinstance(value, Mapping):
        found, where = value.get(by), str(value.get("url", where))
    if found is None and by == "host":
        try:
            found = urlsplit(where).hostname
        except ValueError:  # no URL
            return ""
    return "" if found is None else str(found)
