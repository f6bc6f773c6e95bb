"""Seal a function as a run sends and records it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from dqlab.cluster.transport.sealed import blob_hash, pack_function, seal_function
from dqlab.errors import DqlabWarning
from dqlab.runs.code.versions import CodeVersion, code_version, exact_version, fingerprint
from dqlab.user_frames import level_of_user

__all__ = ["Uncomparable", "code_record", "function_bytes", "sealed_function", "tell_uncertain"]


def sealed_function(fn: Callable[..., Any]) -> tuple[bytes, bytes, CodeVersion]:
    """Return a function's blob hash, its blob and its code version.

    Raises
    ------
    NotPicklable
        The function, or something it captured, cannot be pickled.
    """
    sealed = function_bytes(fn)  # first: what cannot be pickled, such as a client, can take long to describe
    version = code_version(fn)
    blob = pack_function(sealed, code=version.short)
    return blob_hash(blob), blob, version


def function_bytes(fn: Callable[..., Any], *, remember: bool = False) -> bytes:
    """Return a function's pickle, including what it uses of local modules; see `seal_function`.

    Raises
    ------
    NotPicklable
        As `sealed_function`.
    """
    return seal_function(fn, version=exact_version, fingerprint=fingerprint, remember=remember)


def code_record(version: CodeVersion, blob: bytes) -> dict[str, Any]:
    """Return a code version as the queue keeps it."""
    return {
        "name": version.name,
        "hash": version.hash,
        "short": version.short,
        "source": version.source,
        "cell": version.cell,
        "blob": blob,
        "parts": version.parts,
    }


class Uncomparable(DqlabWarning):
    """The function of the attached run reads a value that was compared only by its type or by samples."""


def tell_uncertain(run: str, version: CodeVersion) -> None:
    """Warn about values that may have changed since the run was made without changing its code version."""
    for values, problem in ((version.uncertain, "cannot compare {}"), (version.sampled, "compared {} by 64 MB of it")):
        if values:
            named, them = _named(values)
            text = f"run {run!r}: {problem.format(named)}: use on_existing='new' if {them} changed."
            frame = sys._getframe(level_of_user() - 1)
            # Each time: `warnings.warn` warns once a line, and a cell is run again because something changed.
            warnings.warn_explicit(text, Uncomparable, frame.f_code.co_filename, frame.f_lineno, registry={})


def _named(values: tuple[str, ...]) -> tuple[str, str]:
    names = [f"`{value.split(' of ')[0]}`" for value in values]
    return ", ".join(dict.fromkeys(names)), "it" if len(names) == 1 else "one of them"
