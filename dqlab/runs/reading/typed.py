"""Results whose class a return annotation names: their columns, and objects in place of their rows, by code version."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.sealed import open_here
from dqlab.datasets.schemas import Typed
from dqlab.datasets.yielded import Yielded
from dqlab.rules.book import CodeRecord

if TYPE_CHECKING:
    from dqlab.runs.reading.results import OpenedStretch


class TypedCodes:
    """The classes of a run's results, by code version."""

    def __init__(self) -> None:
        self._records: dict[str, Mapping[str, Any] | None] = {}
        self._opened: dict[str, Typed | None] = {}

    def note(self, codes: Iterable[CodeRecord]) -> TypedCodes:
        """Learn the code versions of the run, and return itself."""
        self._records = {code["short"]: code.get("returns") for code in codes}
        return self

    @property
    def columns(self) -> list[Mapping[str, Any]]:
        """Columns of `datasets.schemas` for each code version that declares some."""
        return [record["columns"] for record in self._records.values() if record is not None]

    def knows(self, stretches: Iterable[OpenedStretch]) -> bool:
        """Return whether all code versions that made some results are known."""
        return all(stretch.lineage is None or stretch.lineage.code in self._records for stretch in stretches)

    def objects(self, stretch: OpenedStretch) -> OpenedStretch:
        """Return results with objects in place of rows."""
        make = self.maker(stretch)
        return stretch if make is None else stretch.of(list(map(make, stretch.values)))

    def maker(self, stretch: OpenedStretch) -> Callable[[Any], Any] | None:
        """Return what makes objects of rows, or None where results are as the function returned them."""
        code = None if stretch.lineage is None else stretch.lineage.code
        record = self._records.get(code) if code is not None else None
        if record is None or code is None:
            return None
        if code not in self._opened:
            self._opened[code] = _opened(record["sealed"])
        typed = self._opened[code]
        if typed is None:
            return None
        value = typed.value
        return lambda row: Yielded(map(value, row)) if type(row) is Yielded else value(row)


def _opened(sealed: bytes) -> Typed | None:
    """Return a class of fields, that of the notebook if it has one with equal columns, or None if it is not here."""
    with suppress(Exception):  # opening a class imports users' modules
        typed: Typed = open_here(sealed)["returns"]
        kind = typed.kind
        mine = getattr(sys.modules.get("__main__"), kind.__qualname__, None) if kind.__module__ == "__main__" else None
        other = Typed(mine) if isinstance(mine, type) else typed
        return other if other.fields == typed.fields else typed
    return None
