"""`MergedResults`: one value for each document that was split, merged from the values of its parts.

Owns which results belong to one document, as their keys show; `Results` fetches the values.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from dqlab.errors import BadOption, PartsMissing, ResultUnreadable
from dqlab.imports import import_whole
from dqlab.numbers import many
from dqlab.runs.objects import StaysHere
from dqlab.runs.reading.results import InPlace, Labels, Results, Values, frame_of_pairs

if TYPE_CHECKING:
    import pandas as pd

_PART = re.compile(r"#p([1-9][0-9]*)-([1-9][0-9]*)of([1-9][0-9]*)$")
"""What `Documents.split` adds to the key of a document: "a.pdf#p1-40of57"."""


def check_merge(merge: object) -> None:
    """Raise `BadOption` for a `merge` that cannot be called."""
    if merge is not None and not callable(merge):
        problem = "is not a function of a list, the values of a document's parts in the order of its pages."
        raise BadOption(option="merge", value=merge, problem=problem)


@dataclass(slots=True)
class _Whole:
    """One document, with the positions of its parts among the results."""

    key: Any
    pages: int = 0
    """Pages of the document; 0 if it was not split."""
    firsts: list[int] = field(default_factory=list)
    """The first page of each part."""
    had: int = 0
    """Pages that the known parts have together."""
    at: array[int] = field(default_factory=lambda: array("Q"))
    """Position of each part among the results, in the order of `firsts`."""
    lacks: bool = False
    """A part has no result."""

    @property
    def is_short(self) -> bool:
        """Whether the run has only some of the document's parts."""
        # Without this check, the parts that are there would merge into a value that looks complete.
        return not self.lacks and self.had < self.pages

    def ordered(self) -> list[int]:
        """Return the positions in the order of pages."""
        return [at for _, at in sorted(zip(self.firsts, self.at, strict=True))]


class MergedResults(Values, StaysHere):
    """A lazy sequence with one value for each document, in document order; what `run.results(merge=...)` returns.

    A document stands where its first part stands; documents that were split have keys of their own. If a part has no
    result, the document has no value: with ``errors="return"`` it has what replaces the first such part, with
    ``errors="skip"`` it is left out. If the run does not have all of its parts, a `PartsMissing` replaces the document
    in the same way.

    Parameters
    ----------
    results : Results
        Values of parts, with failures in their places unless `errors` is "raise".
    merge : callable
        Takes a list, the values of a document's parts in the order of its pages; returns the value of the document.
    errors : {"raise", "skip", "return"}
        As for `run.results`.
    """

    _way_out = "take along list(results)"

    def __init__(self, results: Results, merge: Callable[[list[Any]], Any], errors: str) -> None:
        self.name, self._results, self._merge, self._errors = results.name, results, merge, errors
        wholes = list(_wholes(results.replaced_keys()))
        self._short = [each for each in wholes if each.is_short]
        if self._short and errors == "raise":
            raise self._missing(self._short[0])
        self._wholes = [each for each in wholes if errors != "skip" or not (each.lacks or each.is_short)]
        self._labels = Labels(len(self._wholes))

    def __repr__(self) -> str:
        parts = many(sum(len(each.at) for each in self._wholes), "part")
        return f"<Results of {self.name!r}: {many(len(self), 'document')} from {parts}>"

    def __len__(self) -> int:
        return len(self._wholes)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._fetched(whole) for whole in self._wholes[index]]
        return self._fetched(self._wholes[self._labels.at(index)])

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def keys(self) -> Iterator[Any]:
        """Yield the key of each document, as it was before it was split."""
        return self._labels.keys(whole.key for whole in self._wholes)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) in document order, reading the results once."""
        # Parts of several documents may alternate: keep each value only until its document is complete.
        wanted = {at for whole in self._wholes for at in whole.at}
        values, held = enumerate(self._results), dict[int, Any]()
        for whole in self._wholes:
            while any(at not in held for at in whole.at):
                at, value = next(values)
                if at in wanted:
                    held[at] = value
            yield whole.key, self._value(whole, [held.pop(at) for at in whole.ordered()])

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each document; see `Results.to_frame`."""
        import_whole("pandas")
        return frame_of_pairs(self.items(), len(self), InPlace.is_one if self._errors == "return" else None)

    def _fetched(self, whole: _Whole) -> Any:
        return self._value(whole, [self._results[at] for at in whole.ordered()])

    def _value(self, whole: _Whole, values: list[Any]) -> Any:
        """Return the merged value of a document, or the reason why it has none."""
        if whole.is_short:
            return self._missing(whole)
        bad = next((value for value in values if InPlace.is_one(value)), None)
        if bad is not None:
            if isinstance(bad, ResultUnreadable) and self._errors != "return":
                raise bad.with_traceback(None)
            return bad
        try:
            return self._merge(values)
        except Exception as error:
            error.add_note(f"merge= was called with {many(len(values), 'value')} of document {whole.key!r}")
            raise

    def _missing(self, whole: _Whole) -> PartsMissing:
        documents = [each.key for each in self._short]
        return PartsMissing(
            run=self.name,
            document=whole.key,
            had=whole.had,
            pages=whole.pages,
            count=len(documents),
            documents=documents,
        )


def _wholes(keys: Iterator[tuple[Any, Any]]) -> Iterable[_Whole]:
    """Return the documents of results, given for each result its key and what replaces the result, or None."""
    wholes = dict[Any, _Whole]()
    before: _Whole | None = None
    unknown = False
    for at, (key, instead) in enumerate(keys):
        part = _PART.search(key) if isinstance(key, str) else None
        if part is None:
            whole = wholes[at] = _Whole(key, firsts=[1], lacks=instead is not None)
        else:
            name, (first, last, pages) = key[: part.start()], map(int, part.groups())
            whole = wholes.setdefault((name, pages), _Whole(name, pages))
            if first in whole.firsts:
                problem = f"cannot tell the parts of several documents with the key {name!r} apart. Read run.results()."
                raise BadOption(option="merge", value=key, problem=problem)
            whole.firsts.append(first)
            whole.had += last + 1 - first
            whole.lacks |= instead is not None or (unknown and first > 1)
        whole.at.append(at)
        # A cancelled or lost result may have only an ordinal as its key. Then it may be a part of the document before
        # it or after it: both count as incomplete, since a merged value without that part would look complete.
        unknown = instead is not None and not isinstance(key, str)
        if unknown and before is not None and before.pages:
            before.lacks = True
        before = whole
    return wholes.values()
