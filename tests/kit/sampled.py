"""What runs in part each time, and as a whole with the slow tests: costly families, and examples of properties."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["examples", "mostly_slow"]

ALL = os.environ.get("DQLAB_EXAMPLES") == "all"
"""Whether each property is tried with all its examples; `make test-slow` does."""


def examples(number: int) -> int:
    """Return how many examples of a property to try: a quarter of them, but for the slow tests."""
    return number if ALL else max(10, number // 4)


def mostly_slow(members: Iterable[Any], *each_time: Any) -> list[Any]:
    """Return parameters in their order, those that do not run `each_time` marked as slow.

    A member that is a tuple has a value for each of several parameters.
    """
    members = list(members)
    unknown = [one for one in each_time if one not in members]
    assert each_time, "name a member that runs each time"
    assert not unknown, f"{unknown} are not among {members}"
    slow = pytest.mark.slow
    return [
        one if one in each_time else pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=slow)
        for one in members
    ]
