"""How tests are shared among the processes that run them: mixed, and in small pieces.

Two processors are busy throughout when tests that compute run beside tests that wait for a cluster, and when no
tester ends minutes after the others. Files whose fixtures are made once for a file stay whole; others are cut into
pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["FROZEN", "mixed", "scheduler"]

FROZEN = pytest.StashKey[int]()
"""How many objects the collector of a tester leaves alone once all tests are collected."""

ROOT = Path(__file__).parents[2]
PIECE = 10
"""Tests of a piece."""
WHOLE = {"browser", "hpc"}
"""Directories whose files stay whole: their `conftest.py` makes what takes long."""
ONCE = ('scope="module"', 'scope="class"')


@cache
def _whole(path: str) -> str | None:
    """Return the unit to which all tests of a file belong, if they should stay together.

    So do cells of a notebook, what shares fixtures that are made once for a file, and what shares a browser.
    """
    file = ROOT / path
    if file.name.startswith("test_browser"):
        return f"{file.parent}/test_browser*"
    if file.suffix != ".py" or WHOLE & set(file.parts):
        return path
    text = file.read_text(encoding="utf-8")
    return path if any(each in text for each in ONCE) else None


def _units(ids: Iterable[str]) -> list[str]:
    """Return for each id of a test the name of the unit that one tester runs."""
    seen: Counter[str] = Counter()
    units = []
    for each in ids:
        path = each.partition("::")[0]
        units.append(_whole(path) or f"{path}:{seen[path] // PIECE}")
        seen[path] += 1
    return units


def mixed(items: list[pytest.Item], kind: dict[Path, int]) -> list[pytest.Item]:
    """Return tests in an order in which each part has as much of each kind as any other.

    Kinds are small numbers; what has a smaller one ends earlier, so that no file that takes minutes is the last.
    """
    units: dict[str, list[pytest.Item]] = {}
    for item, unit in zip(items, _units(item.nodeid for item in items), strict=True):
        units.setdefault(unit, []).append(item)
    kinds: dict[int, list[list[pytest.Item]]] = {}
    for unit in units.values():
        kinds.setdefault(kind[unit[0].path], []).append(unit)
    placed = [
        ((at + 0.5) / len(alike) * min(1.0, 0.6 + 0.2 * number), number, at, unit)
        for number, alike in kinds.items()
        for at, unit in enumerate(alike)
    ]
    return [item for *_, unit in sorted(placed, key=lambda each: each[:3]) for item in unit]


def scheduler(config: pytest.Config, log: Any) -> Any:
    """Return what gives each tester that has nothing left the next unit."""
    from xdist.scheduler import LoadScopeScheduling

    class Mixed(LoadScopeScheduling):
        """Units in the order of `mixed`."""

        _unit: dict[str, str]

        def schedule(self) -> None:
            if self.collection is None:
                ids = next(iter(self.registered_collections.values()))
                self._unit = dict(zip(ids, _units(ids), strict=True))
            super().schedule()

        def _split_scope(self, nodeid: str) -> str:
            return self._unit[nodeid]

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            unit = self._unit[self.registered_collections[node][item_index]]
            if all(self.assigned_work[node][unit].values()):  # else all that was done is counted for each test
                del self.assigned_work[node][unit]

    return Mixed(config, log)
