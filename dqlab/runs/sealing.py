"""A function as a run sends and remembers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqlab.cluster.functions import pack_function
from dqlab.cluster.sealed import blob_hash, seal_function
from dqlab.runs.code import CodeVersion, code_version

__all__ = ["code_record", "sealed_function"]


def sealed_function(fn: Callable[..., Any]) -> tuple[bytes, bytes, CodeVersion]:
    """Return a function's blob hash, its blob and its code version.

    Raises
    ------
    NotPicklable
        The function, or something it captured, cannot be pickled.
    """
    version = code_version(fn)
    blob = pack_function(seal_function(fn), code=version.short)
    return blob_hash(blob), blob, version


def code_record(version: CodeVersion, blob: bytes) -> dict[str, Any]:
    """Return what the queue keeps of a code version."""
    return {
        "name": version.name,
        "hash": version.hash,
        "short": version.short,
        "source": version.source,
        "cell": version.cell,
        "blob": blob,
    }
