"""Judges how large a function is as it is sent, before anything of its run is there."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from dqlab.cluster.transport.sealed import SealError, seal_value
from dqlab.errors import DqlabWarning, FunctionTooLarge
from dqlab.numbers import size as size_text
from dqlab.store.journal import MAX_FUNCTION
from dqlab.user_frames import level_of_user

__all__ = ["HeavyFunction", "check_weight"]

HEAVY = 50_000_000
"""Bytes above which a function is warned about: each shard keeps it, and each consumer's process has a copy."""


class HeavyFunction(DqlabWarning):
    """The function takes large values along to its consumers."""


def check_weight(name: str, nbytes: int, values: Iterable[tuple[str, Any]], *, durable: bool) -> None:
    """Refuse a function that a durable queue cannot keep; warn of one that is large.

    Parameters
    ----------
    name : str
        The function's.
    nbytes : int
        Size of its blob.
    values : iterable of tuple of str and object
        What it reads, by name; see `version_and_values`.

    Raises
    ------
    FunctionTooLarge
        Shards would refuse it, but only when its run has its name.
    """
    if durable and nbytes > MAX_FUNCTION:
        raise FunctionTooLarge(size=nbytes, limit=MAX_FUNCTION, largest=_largest(values))
    if nbytes > HEAVY:
        text = (
            f"{name} is {size_text(nbytes)} as it is sent, with the values that it reads{_largest(values)}. Each "
            "process of consumers gets a copy. Load it there instead: a function with @functools.cache loads it once "
            "in each."
        )
        warnings.warn(text, HeavyFunction, stacklevel=level_of_user())


def _largest(values: Iterable[tuple[str, Any]]) -> str:
    """Return which value is the largest, in words; "" where none can be measured."""
    sizes: dict[str, int] = {}
    for name, value in values:
        if issubclass(type(value), FunctionType | type | ModuleType):
            continue
        try:
            sizes[name] = len(seal_value(value))
        except SealError:
            continue
    if not sizes:
        return ""
    name = max(sizes, key=lambda each: sizes[each])
    return f"; the largest is `{name}`, {size_text(sizes[name])}"
