"""Results of a run, in document order, fetched a page at a time."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import TYPE_CHECKING, Any, overload

from dqlab.cluster.handle import Handle
from dqlab.cluster.results import PAGE_VALUES
from dqlab.cluster.sealed import open_value
from dqlab.documents import label_of
from dqlab.errors import MessageNotFound
from dqlab.frame import Settlement
from dqlab.runs.frames import frame_of, index_of
from dqlab.runs.in_place import InPlace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Results", "Stretch", "open_settlements"]

READ_AHEAD = 2
"""Calls under way while values are read: an answer takes longer to come than to open."""
READ_VALUES = 4 * PAGE_VALUES
"""Values in one call while all are read in turn: a call costs a millisecond of CPU, whatever it carries."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Results with neighbouring ordinals. `keys` is None when the ordinals are the keys."""

    ordinal: int
    values: list[Any]
    keys: list[Any] | None = None

    @property
    def end(self) -> int:
        """The ordinal behind the last one."""
        return self.ordinal + len(self.values)

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Yield (key, value)."""
        keys = self.keys if self.keys is not None else range(self.ordinal, self.end)
        return zip(keys, self.values, strict=True)


def open_settlements(parts: Sequence[bytes | memoryview]) -> list[Stretch]:
    """Return what is in pages of settlements, by ordinal."""
    found: list[Stretch] = []
    for part in parts:
        settlement = Settlement.decode(part)
        values = [open_value(entry) for entry in settlement.entries()]
        keys = None
        if settlement.key_lengths is not None:
            texts = [settlement.key(at) for at in range(settlement.count)]
            keys = [label_of(text) if text else at for text, at in zip(texts, settlement.ordinals(), strict=True)]
        at = 0
        for piece in settlement.pieces:
            stop = at + piece.n
            found.append(Stretch(piece.ordinal, values[at:stop], keys and keys[at:stop]))
            at = stop
    found.sort(key=lambda stretch: stretch.ordinal)
    return found


class Results(Sequence[Any]):
    """A lazy sequence of a run's values, in document order.

    Holds one page of at most 1,000 values or 4 MiB; indexing and slicing fetch what they need,
    iterating fetches the next page while the current one is read.

    Parameters
    ----------
    covered : sequence of (int, int)
        Half-open ranges of ordinals that have results, ascending.
    instead : InPlace, optional
        What to put at ordinals without a result (``errors="return"``).
    gone : callable, optional
        Raises why results are missing that were there.
    """

    def __init__(
        self,
        name: str,
        handle: Handle,
        run: bytes,
        covered: Sequence[tuple[int, int]],
        instead: InPlace | None = None,
        gone: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._handle, self._run, self._instead = handle, run, instead
        merged = sorted([*covered, *((at, at + 1) for at in (instead.ordinals if instead is not None else ()))])
        self._ranges = _join(merged)
        self._starts = list(accumulate((hi - lo for lo, hi in self._ranges), initial=0))
        self._page: list[Stretch] = []
        self._gone = gone

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
            values = [value for stretch in self._read(low, high) for value in stretch.values]
            return [values[i - low] for i in wanted]
        at = range(len(self))[index]
        ordinal = self._ordinal(at)
        if not any(stretch.ordinal <= ordinal < stretch.end for stretch in self._page):
            self._page = self._fetch(at, min(len(self), at + PAGE_VALUES))
        stretch = next(stretch for stretch in self._page if stretch.ordinal <= ordinal < stretch.end)
        return stretch.values[ordinal - stretch.ordinal]

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(stretch.values for stretch in self._read(0, len(self)))

    def keys(self) -> Iterator[Any]:
        """Yield the key of each value: the document's key, or its position in the input."""
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) in document order."""
        return chain.from_iterable(stretch.items() for stretch in self._read(0, len(self)))

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame indexed by key; values that are dicts become its columns.

        Rows of values that are None are empty then, and so are those of documents without a result, which
        `errors="return"` lists: why they have none stands in a column ``error``.

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
        index = index_of(keys)
        failed = [self._instead is not None and self._instead.is_one(value) for value in values]
        reasons = [str(value) if bad else None for value, bad in zip(values, failed, strict=True)]
        told = [{} if bad or value is None else value for value, bad in zip(values, failed, strict=True)]
        if all(isinstance(value, dict) for value in told) and any(isinstance(value, dict) for value in values):
            frame: pd.DataFrame = frame_of(told, index)
            if self._instead:
                frame["error" if "error" not in frame else "dqlab_error"] = pd.Series(reasons, index, dtype=object)
            return frame
        column = pd.Series(values, index=index, name="value", dtype=object)
        with suppress(UnicodeEncodeError):  # text that is not valid Unicode stays an object
            column = column.infer_objects()
        return column.to_frame()

    # --- fetching ---------------------------------------------------------------------------

    def _ordinal(self, at: int) -> int:
        span = bisect_right(self._starts, at) - 1
        return self._ranges[span][0] + at - self._starts[span]

    def _read(self, low: int, high: int) -> Iterator[Stretch]:
        """Yield the results at positions [low, high), asking for the next pages while one is read."""
        link = self._handle.link
        wanted = ((at, min(high, at + READ_VALUES)) for at in range(low, high, READ_VALUES))
        asked = deque((at, stop, link.start(self._ask(at, stop))) for at, stop in islice(wanted, READ_AHEAD))
        while asked:
            at, stop, future = asked.popleft()
            page = self._opened(link.result(future), at, stop)
            asked.extend((at, stop, link.start(self._ask(at, stop))) for at, stop in islice(wanted, 1))
            yield from page
            while (at := at + sum(len(stretch.values) for stretch in page)) < stop:  # the page was cut at 4 MiB
                page = self._fetch(at, stop)
                yield from page

    def _fetch(self, at: int, stop: int) -> list[Stretch]:
        return self._opened(self._handle.link.sync(self._ask(at, stop)), at, stop)

    def _opened(self, parts: list[memoryview], at: int, stop: int) -> list[Stretch]:
        """Return a page's results from position `at` on, up to the first one that is missing from it."""
        page = open_settlements(parts)
        if self._instead is not None:
            # A page is cut at 4 MiB: failures behind it come with the next one, and some of them when there is none.
            end = page[-1].end if page else self._ordinal(min(stop, at + PAGE_VALUES) - 1) + 1
            near = self._instead.between(self._ordinal(at), end)
            page += [Stretch(f.ordinal, [f], None if f.key == f.ordinal else [f.key]) for f in near]
            page.sort(key=lambda stretch: stretch.ordinal)
        kept = []
        for stretch in page:
            if at == stop or stretch.ordinal != self._ordinal(at):
                break
            kept.append(stretch)
            at += len(stretch.values)
        if not kept:
            if self._gone is not None:
                self._gone()
            raise MessageNotFound(queue=self._handle.name, id=self._ordinal(at))
        return kept

    async def _ask(self, at: int, stop: int) -> list[memoryview]:
        """Ask for the results at positions [at, stop); what lies between them has none."""
        meta = {"run": self._run, "lo": self._ordinal(at), "hi": self._ordinal(stop - 1) + 1}
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
