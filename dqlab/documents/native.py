"""Documents whose parsers are native code, which may crash on one of them: functions over them run in processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from dqlab.documents.document import Document
from dqlab.documents.listing import Documents
from dqlab.errors import DqlabError

__all__ = ["NATIVE", "parsed_natively"]

NATIVE = (".pdf",)
"""Last parts of their names, in lower case."""


def parsed_natively(documents: Any) -> bool:
    """Return whether the first document is of such a kind; False of what can be iterated only once."""
    first = None
    if isinstance(documents, Documents):
        with suppress(DqlabError, OSError, LookupError):  # iterating raises it again
            first = documents[0] if documents.repeats else None
    elif isinstance(documents, Sequence) and documents:
        first = documents[0]
    return isinstance(first, Document) and first.where.partition("::")[0].lower().endswith(NATIVE)
