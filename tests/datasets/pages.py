"""Rows in memory as the source of a table, and the comparison of what comes back with what went in."""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dqlab.datasets.rows import Rows, Shape


class Pages:
    """Values in pages, as the source of a table."""

    name = "numbers"
    declared: Sequence[Mapping[str, Any]] = ()

    @property
    def lined(self) -> bool:
        return self.lineage is not None

    def __init__(
        self,
        values: Sequence[Any],
        keys: Sequence[Any] | None = None,
        *,
        page: int = 400,
        reasons: Sequence[str | None] | None = None,
        lineage: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        self.values, self.keys, self.page = list(values), keys, page
        self.lineage = lineage
        self.reasons = reasons
        self.given = 0
        """Rows that were given, in all readings."""

    @property
    def reasoned(self) -> bool:
        return self.reasons is not None

    def count(self) -> int:
        return len(self.values)

    def now(self) -> Pages:
        return self

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        stop = len(self.values) if most is None else min(most, len(self.values))
        for at in range(0, stop, self.page):
            values = self.values[at : at + self.page]
            keys = None if self.keys is None else self.keys[at : at + self.page]
            reasons = None if self.reasons is None else list(self.reasons[at : at + self.page])
            self.given += len(values)
            page = slice(at, at + len(values))
            lineage = None if self.lineage is None else {name: all[page] for name, all in self.lineage.items()}
            yield Rows(range(at, at + len(values)), keys, values, reasons, lineage)


def rows_of(values: Sequence[Any], keys: Sequence[Any] | None = None, *, first: int = 0) -> Rows:
    return Rows(range(first, first + len(values)), keys, list(values))


def batch_of(values: Sequence[Any], keys: Sequence[Any] | None = None) -> Any:
    """Return all of a few values as one batch."""
    (batch,) = Shape().batches(rows_of(values, keys), widen=True)
    return batch


def column(values: Sequence[Any]) -> tuple[str, list[Any], list[Any]]:
    """Return what becomes of a column ``a`` of these values: its type, its values, and the rest of each row."""
    batch = batch_of([{"a": value} for value in values])
    return str(batch.schema.field("a").type), batch["a"].to_pylist(), batch["_rest"].to_pylist()


def same(came: Any, went: Any) -> bool:
    """Return whether a value of a column is the one that went in; a list of numpy and a tuple are lists."""
    if hasattr(went, "tolist"):
        went = went.tolist()
    if isinstance(went, float) and math.isnan(went):
        return isinstance(came, float) and math.isnan(came)
    if isinstance(went, list | tuple):
        return isinstance(came, list) and len(came) == len(went) and all(map(same, came, went))
    if isinstance(went, dict):
        names = came.keys() | went.keys() if isinstance(came, dict) else set()
        return isinstance(came, dict) and all(same(came.get(name), went.get(name)) for name in names)
    if isinstance(went, datetime.datetime) and isinstance(came, datetime.datetime):
        if went.tzinfo is None or came.tzinfo is None:
            return came == went and came.tzinfo is went.tzinfo
        # Times that clocks skip or show twice equal none of another zone in Python; the moment is what counts.
        return came.astimezone(datetime.UTC) == went.astimezone(datetime.UTC)
    number = int | float
    if isinstance(went, number) and not isinstance(went, bool):
        return isinstance(came, number) and not isinstance(came, bool) and came == went
    return type(came) is type(went) and bool(came == went)


def in_json(value: Any) -> Any:
    """Return what the documentation says that a value is in the rest."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        told = "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        return value if math.isfinite(value) else told
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, list | tuple | set | frozenset):
        return [in_json(each) for each in value]
    if isinstance(value, dict):
        names = {name if isinstance(name, str) else str(name) for name in value}
        if len(names) < len(value):
            return [[in_json(name), in_json(each)] for name, each in value.items()]
        return {str(name): in_json(each) for name, each in value.items()}
    if isinstance(value, decimal.Decimal | datetime.timedelta | uuid.UUID | complex):
        return str(value)
    assert isinstance(value, datetime.date | datetime.time), value
    return value.isoformat()
