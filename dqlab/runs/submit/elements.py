"""The elements of an input as they were when it was mapped: a user may change a list before it is read."""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

from dqlab.documents import Documents
from dqlab.errors import InputResized

__all__ = ["as_mapped", "length_of", "watched"]

_LASTING = (tuple, range, frozenset)
_DICTS: tuple[Any, ...] = ({}, OrderedDict())
_VIEWS = [type(view) for each in _DICTS for view in (each.keys(), each.values(), each.items())]
_COPIED = (list, deque, set, *_VIEWS)
"""Builtin types whose copy costs one reference per element. Copies of others may load elements, or never end."""


def as_mapped(elements: Iterable[Any]) -> Iterable[Any]:
    """Return a copy of a builtin container, safe from later changes, and anything else as it is."""
    if type(elements) in _COPIED:
        return tuple(elements)
    if type(elements) in (array, bytearray):
        return elements[:]  # type: ignore[index, no-any-return]
    return elements


def length_of(elements: Iterable[Any]) -> int | None:
    """Return how many elements there are; None if that is unknown, slow to compute or cannot change."""
    if type(elements) in _LASTING or isinstance(elements, Iterator | Documents):
        return None
    if hasattr(elements, "__dask_graph__"):  # it would compute them
        return None
    try:
        return len(elements)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - it has none, or its own code fails
        return None


def watched(elements: Iterable[Any], had: int | None) -> Iterable[Any]:
    """Return the elements, or a generator that also checks that their number has not changed.

    Parameters
    ----------
    had : int or None
        What `length_of` returned when they were mapped.

    Raises
    ------
    InputResized
        While they are iterated: there are fewer, or more.
    """
    return elements if had is None else _counted(elements, had)


def _counted(elements: Iterable[Any], had: int) -> Iterator[Any]:
    exact, read = isinstance(elements, Sequence | Set), 0
    for element in elements:
        if read == had and exact and length_of(elements) != had:
            raise InputResized(had=had, read="more")
        read += 1
        yield element
    # A length may be an estimate, what is left, or wrong. One that changed and was not the number read shows it.
    if read != had and length_of(elements) != had:
        raise InputResized(had=had, read=f"{read:,}")
