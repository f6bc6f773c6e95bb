"""Warns when the class of the elements is sent along with each of them, as a class of a notebook is."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from enum import Enum
from typing import Any

from dqlab.cluster.transport.sealed import SealError, seal_value
from dqlab.errors import DqlabWarning
from dqlab.numbers import size
from dqlab.user_frames import level_of_user

WORTH = 5_000
"""Elements from which on the classes cost about a second, here and on the consumers."""
_MAIN = ("__main__", "__mp_main__")


class ClassTravels(DqlabWarning):
    """The elements are objects of a class of the notebook, which is sent along with each of them."""


_warned: set[str] = set()
"""Classes that the user was warned about."""


def tell_class(elements: Iterable[Any]) -> None:
    """Warn once about a class of the notebook when many of its objects are mapped."""
    # Only these have a first element that can be looked at: reading an iterator would consume it.
    if not isinstance(elements, tuple | list) or len(elements) < WORTH:
        return
    kind = type(elements[0])
    if kind.__module__ not in _MAIN or issubclass(kind, Enum) or kind.__qualname__ in _warned:
        return
    try:
        each = size(len(seal_value(elements[0])))
    except SealError:  # the submission raises it, with the element's position
        return
    _warned.add(kind.__qualname__)
    name = kind.__qualname__
    text = (
        f"the {len(elements):,} elements are objects of {name}, a class of this notebook, which travels with each of "
        f"them ({each}); plain values are sent a hundred times faster. Put {name} into a module that the consumers "
        "can import, or pass plain values, such as vars(element) or dataclasses.asdict(element), and make the object "
        "in the function."
    )
    warnings.warn(text, ClassTravels, stacklevel=level_of_user())
