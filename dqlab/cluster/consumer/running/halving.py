"""The rules of a batch, without I/O: what is called again after an exception, which result is whose, and how many."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from dqlab.errors import ResultRefused
from dqlab.imports import loaded
from dqlab.numbers import many
from dqlab.plan import AUTO, Batch

SMALLER, WHOLE = "smaller", "whole"
"""What a call raised where that is no fingerprint: it asks for smaller batches; it is about all its documents alike."""


@dataclass(frozen=True, slots=True)
class Call:
    """Call the function with the documents at these places."""

    places: list[int]


@dataclass(frozen=True, slots=True)
class Blame:
    """Fail the documents at these places with what the last call that raised has raised."""

    places: list[int]


class InARow(NamedTuple):
    """How many documents, each called alone, raised the same, with no call in between that succeeded."""

    fingerprint: str = ""
    n: int = 0

    def after(self, raised: str, documents: int) -> InARow:
        """Return the same after a call with so many documents."""
        if not raised:
            return InARow()
        if documents > 1 or raised in (SMALLER, WHOLE):
            return self
        return InARow(raised, self.n + 1 if raised == self.fingerprint else 1)

    @property
    def hopeless(self) -> bool:
        """Whether all documents are taken to raise this: with a wrong key, more calls would tell nothing."""
        return self.n >= HOPELESS


HOPELESS = 8
"""Where half of the documents fail, one row in 256 is as long. From then on a batch fails with its first document."""
FEW = 3
"""Documents that are called one by one."""


class Halving:
    """One batch on its way through its calls."""

    def __init__(self, n: int, row: InARow) -> None:
        self.row, self._n = row, n
        self.again: list[int] = []
        """Places whose documents were not called without the one to blame: they go into the next batch."""

    def steps(self) -> Generator[Call | Blame, str]:
        """Yield what to do; a call is answered by the fingerprint of what it raised, or "" if it succeeded."""
        groups = [list(range(self._n))]
        if self.row.hopeless and self._n > 1:
            known = self.row.fingerprint
            raised = yield from self._call([0])
            if raised == known:
                yield Blame(groups[0])
                return
            if raised:
                yield Blame([0])
            groups = [groups[0][1:]]
        while groups:
            group = groups.pop()
            raised = yield from self._call(group)
            if raised == SMALLER and len(group) > 1:
                groups += [group[len(group) // 2 :], group[: len(group) // 2]]
            elif raised and (raised in (SMALLER, WHOLE) or len(group) == 1):
                yield Blame(group)
            elif raised:
                yield from self._culprit(group, raised)
        self.again.sort()

    def _call(self, places: list[int]) -> Generator[Call | Blame, str, str]:
        raised = yield Call(places)
        self.row = self.row.after(raised, len(places))
        return raised

    def _culprit(self, suspects: list[int], first: str) -> Generator[Call | Blame, str]:
        """Find a document to blame for what a group has raised, in about log2 n calls."""
        # Halves that succeed are done, and a half whose other one succeeded is not called as a whole. What lies beside
        # the halves that raised was never called without the one to blame, and costs no call of its own: it goes into
        # the next batch.
        few, compared = len(suspects) <= FEW, False
        while len(suspects) > FEW:
            half, rest = suspects[: len(suspects) // 2], suspects[len(suspects) // 2 :]
            raised = yield from self._call(half)
            if not raised:
                suspects = rest
                continue
            # Do documents outside the half that raised raise the same alone?
            while raised == first and rest and not compared:
                probe = rest.pop()
                same = yield from self._call([probe])
                if same:
                    yield Blame([probe])
                if self.row.hopeless:
                    yield Blame(half + rest)
                    return
                compared = same != first
            compared = True
            self.again += rest
            suspects = half
        while suspects:
            one, suspects = suspects[:1], suspects[1:]
            if (yield from self._call(one)):
                yield Blame(one)
                if not few:
                    self.again += suspects
                    return


def shares(result: Any, names: Sequence[Any]) -> Sequence[Any]:
    """Return the result of each document of a batch, or raise ResultRefused; `names` are the documents' keys."""
    n, kind = len(names), type(result)
    found: Sequence[Any] | None = None
    if issubclass(kind, Mapping):
        with suppress(TypeError):  # a document need not be hashable
            if len(result) == n and all(name in result for name in names):
                return [result[name] for name in names]
        columns = {column: _rows(values) for column, values in result.items()}
        if columns and all(values is not None and len(values) == n for values in columns.values()):
            return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        what = f"a dict of {many(len(result), 'entry')}"
    elif hasattr(kind, "to_pylist") or hasattr(kind, "to_dict"):  # tables of Arrow and pandas
        found = result.to_pylist() if hasattr(kind, "to_pylist") else result.to_dict("records")
        what = f"a table of {many(len(result), 'row')}"
    else:
        found = _rows(result)
        what = many(len(found), "result") if found is not None else f"a value of type {kind.__name__}"
    if found is not None and len(found) == n:
        return found
    raise ResultRefused(
        reason=f"the function got a batch of {many(n, 'document')} and returned {what}. Nothing of that call was "
        "kept. Return one result for each document, in their order, as a list or an array; or a dict of columns that "
        "long, or a dict by the documents' keys."
    )


def _rows(values: Any) -> Sequence[Any] | None:
    """Return the rows of a list or an array, or None for anything else."""
    if isinstance(values, list | tuple) and not hasattr(values, "_fields"):
        return values
    if hasattr(values, "detach"):  # a tensor: a row of it would be pickled with all the others
        values = values.detach().cpu().numpy()
    shape = getattr(values, "shape", None)
    if not isinstance(shape, tuple) or not shape:
        return None
    if len(shape) == 1:
        return list(values.tolist())
    numpy = loaded("numpy")
    # Views of it, one for each row: each is copied once, when it is sealed.
    return values if numpy is not None and type(values) is numpy.ndarray else [values[row] for row in range(shape[0])]


FIRST, ON_GPU = 16, 32
"""Sizes with which "auto" begins."""
LARGEST, BETTER, LONG_S = 4096, 1.1, 5.0
"""Where "auto" stops: at a size, at less gain in documents per second, and at calls as long as this."""
CALLS, ENOUGH_S = 3, 1.0
"""Calls, or seconds in them, after which a size is judged."""


class Size:
    """The size of a function's batches in one slot."""

    def __init__(self, batch: Batch, *, gpu: bool = False) -> None:
        first = ON_GPU if gpu else FIRST
        self.now = first if batch.size == AUTO else int(batch.size)
        self._climbs = batch.size == AUTO and not gpu
        self._calls = self._documents = 0
        self._seconds = self._before = 0.0

    def ran(self, documents: int, seconds: float) -> None:
        """Note a call that succeeded, and climb if full batches of this size bring more documents through."""
        if not self._climbs or documents < self.now:
            return
        self._calls += 1
        self._documents += documents
        self._seconds += seconds
        if self._calls < CALLS and self._seconds < ENOUGH_S:
            return
        rate = self._documents / max(self._seconds, 1e-9)
        if rate < BETTER * self._before:
            self.now, self._climbs = self.now // 2, False
        elif self.now >= LARGEST or self._seconds / self._calls > LONG_S:
            self._climbs = False
        else:
            self.now, self._before = 2 * self.now, rate
        self._calls = self._documents = self._seconds = 0

    def shrink(self, documents: int) -> None:
        """Note that so many documents were too many, and climb no more."""
        self.now, self._climbs = max(1, min(self.now, documents) // 2), False
