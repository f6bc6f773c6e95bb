"""What stands in for `datasets.Dataset`, which is not among what tests install."""

from __future__ import annotations

from typing import Any

__all__ = ["Dataset"]


class Dataset:
    """Names, a length, slices as dicts of lists; `read` has which slices of which columns were taken."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns, self.read = columns, []
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def select_columns(self, names: list[str]) -> Dataset:
        chosen = Dataset({name: self._columns[name] for name in names})
        chosen.read = self.read
        return chosen

    def __getitem__(self, rows: slice) -> dict[str, list[Any]]:
        self.read.append((rows.start, rows.stop, tuple(self.column_names)))
        return {name: values[rows] for name, values in self._columns.items()}
