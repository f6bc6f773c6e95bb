"""Notices that a notebook has redefined the function of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from dqlab.notebook import running_cell
from dqlab.runs.code.versions import code_version

__all__ = ["Redefined"]


class Redefined:
    """The function that the notebook has under a name now, while its code is not a run's newest.

    A version is computed once for each definition and each cell that was run: a large value takes a while to read,
    and a view looks once a second.
    """

    def __init__(self) -> None:
        self._looked: tuple[int, int | None, str] | None = None
        self._function: object = None
        """Kept, so that its id is not given to another one."""
        self._found: Callable[..., Any] | None = None

    def newer(self, name: str, short: str) -> Callable[..., Any] | None:
        """Return the function, if its version does not start with `short`; None also where none can be compared."""
        function = getattr(sys.modules.get("__main__"), name, None) if name.isidentifier() else None
        looked = id(function), running_cell(), short
        if looked != self._looked:
            self._looked, self._function, self._found = looked, function, _if_other(function, short)
        return self._found


def _if_other(function: Any, short: str) -> Callable[..., Any] | None:
    if not short or not callable(function) or isinstance(function, type):
        return None
    with suppress(Exception):  # what a function reads may raise anything when it is compared
        return function if code_version(function).short != short else None
    return None
