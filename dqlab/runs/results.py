"""Results of a run, in document order, fetched a page at a time."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

from dqlab.cluster.handle import Handle
from dqlab.cluster.results import PAGE_VALUES
from dqlab.cluster.sealed import open_value
from dqlab.frame import Settlement

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results", "open_settlements"]

Row = tuple[int, Any, Any]


def open_settlements(parts: Sequence[memoryview]) -> list[Row]:
    """Return (ordinal, key, value) of each result in pages of settlements; key None means the ordinal."""
    rows: list[Row] = []
    for part in parts:
        settlement = Settlement.decode(part)
        values = map(open_value, settlement.entries())
        if settlement.key_lengths is None:
            rows += [(ordinal, ordinal, value) for ordinal, value in zip(settlement.ordinals(), values, strict=True)]
        else:
            keys = (settlement.key(i) or ordinal for i, ordinal in enumerate(settlement.ordinals()))
            rows += zip(settlement.ordinals(), keys, values, strict=True)
    return rows


class Results(Sequence[Any]):
    """A lazy sequence of a run's values, in document order.

    Holds one page of at most 1,000 values or 4 MiB; indexing and slicing fetch what they need,
    iterating fetches the next page while the current one is read.

    Parameters
    ----------
    covered : sequence of (int, int)
        Half-open ranges of ordinals that have results, ascending.
    failures : mapping of int to object, optional
        What to put at ordinals without a result (``errors="return"``).
    """

    def __init__(
        self, name: str, handle: Handle, run: bytes, covered: Sequence[tuple[int, int]], failures: dict[int, Any] | None = None
    ) -> None:
        self.name = name
        self._handle, self._run, self._failures = handle, run, failures or {}
        merged = sorted([*covered, *((ordinal, ordinal + 1) for ordinal in self._failures)])
        self._ranges = _join(merged)
        self._starts = list(accumulate((hi - lo for lo, hi in self._ranges), initial=0))
        self._page: dict[int, tuple[Any, Any]] = {}

    def __repr__(self) -> str:
        return f"<Results of {self.name!r}: {len(self):,} values>"

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            wanted = range(*index.indices(len(self)))
            if not wanted:
                return []
            low, high = min(wanted), max(wanted) + 1
            values = [value for _, value in self._rows(low, high)]
            return [values[i - low] for i in wanted]
        at = range(len(self))[index]
        ordinal = self._ordinal(at)
        if ordinal not in self._page:
            self._page = {row[0]: row[1:] for row in self._fetch(ordinal, self._range_end(at))}
        return self._page[ordinal][1]

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._rows(0, len(self)))

    def keys(self) -> Iterator[Any]:
        """Yield the key of each value: the document's key, or its position in the input."""
        return (key for key, _ in self._rows(0, len(self)))

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) in document order."""
        return self._rows(0, len(self))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame indexed by key; values that are dicts become its columns.

        Raises
        ------
        ImportError
            pandas is not installed (it is in the extra ``lab``).
        """
        import pandas as pd

        keys, values = [], []
        for key, value in self.items():
            keys.append(key)
            values.append(value)
        index = pd.Index(keys, name="key")
        if values and all(isinstance(value, dict) for value in values):
            return pd.DataFrame.from_records(values, index=index)
        column = pd.Series(values, index=index, name="value", dtype=object).infer_objects()
        return column.to_frame()

    # --- fetching ---------------------------------------------------------------------------

    def _ordinal(self, at: int) -> int:
        span = bisect_right(self._starts, at) - 1
        return self._ranges[span][0] + at - self._starts[span]

    def _range_end(self, at: int) -> int:
        return self._ranges[bisect_right(self._starts, at) - 1][1]

    def _rows(self, low: int, high: int) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) of positions [low, high), one page ahead of the reader."""
        spans = self._spans(low, high)
        ahead = None
        for lo, hi in spans:
            while lo < hi:
                page = ahead.result() if ahead is not None else None
                ahead = None
                rows = self._fetch(lo, hi) if page is None else self._opened(page, lo)
                lo = rows[-1][0] + 1
                if lo < hi:
                    ahead = self._handle.link.start(self._ask(lo, min(hi, lo + PAGE_VALUES)))
                for _, key, value in rows:
                    yield key, value

    def _spans(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        for (lo, hi), start in zip(self._ranges, self._starts, strict=False):
            first, last = max(low, start), min(high, start + hi - lo)
            if first < last:
                yield lo + first - start, lo + last - start

    def _fetch(self, lo: int, hi: int) -> list[Row]:
        return self._opened(self._handle.link.sync(self._ask(lo, min(hi, lo + PAGE_VALUES))), lo)

    def _opened(self, answers: list[memoryview], lo: int) -> list[Row]:
        rows = open_settlements(answers)
        if self._failures:
            rows += [(o, getattr(f, "key", None) or o, f) for o, f in self._failures.items() if lo <= o < lo + PAGE_VALUES]
        rows.sort(key=lambda row: row[0])
        kept = [row for at, row in enumerate(rows) if row[0] == lo + at]
        return kept

    async def _ask(self, lo: int, hi: int) -> list[memoryview]:
        meta = {"run": self._run, "lo": lo, "hi": hi}
        answers = await asyncio.gather(*(self._handle.ask(at, "page", meta) for at in range(len(self._handle.refs))))
        return [part for _, parts in answers for part in parts]


def _join(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for lo, hi in ranges:
        if joined and lo <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(hi, joined[-1][1]))
        else:
            joined.append((lo, hi))
    return joined
