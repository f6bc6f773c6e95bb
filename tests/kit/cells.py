"""Functions of tests, as a notebook has them."""

from __future__ import annotations

from types import FunctionType
from typing import Any, TypeVar

Made = TypeVar("Made", bound=Any)


def of_a_cell(made: Made) -> Made:
    """Let a function or a class travel by value: one that is sent by name has each process import its test's module.

    With that come pytest and Dask, a second of a core for each process of messages.
    """
    parts = [part for part in vars(made).values() if isinstance(part, FunctionType)] if isinstance(made, type) else []
    for part in (made, *parts):
        part.__module__ = "__main__"
    return made
