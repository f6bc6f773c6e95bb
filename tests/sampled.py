"""Families of tests that start much for each member: some members run each time, all of them with the slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["mostly_slow"]


def mostly_slow(members: Iterable[Any], *each_time: Any) -> list[Any]:
    """Return parameters in their order, those that do not run `each_time` marked as slow."""
    members = list(members)
    unknown = [one for one in each_time if one not in members]
    assert each_time, "name a member that runs each time"
    assert not unknown, f"{unknown} are not among {members}"
    return [one if one in each_time else pytest.param(one, marks=pytest.mark.slow) for one in members]
