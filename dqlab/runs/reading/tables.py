"""A run's results as a table: `Run.table`, `query`, `join`, `to_parquet` and `publish`.

Owns which results a table has at an instant, and the facts in the manifest of a published run; `dqlab.datasets` makes
and writes the rows.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from dqlab.datasets import needs_pyarrow
from dqlab.datasets.sinks import extent
from dqlab.documents import Document, Documents, Labelled
from dqlab.documents.parts import Inline, Line, Row
from dqlab.errors import BadOption, DocumentError, DqlabWarning
from dqlab.runs.compare.accepting import mixed
from dqlab.runs.reading.results import ResultRows, Results
from dqlab.runs.submit.elements import key_of, repeats
from dqlab.runs.waiting import reading
from dqlab.user_frames import level_of_user

if TYPE_CHECKING:
    import pandas as pd

    from dqlab.datasets.files import Published
    from dqlab.datasets.rows import Rows
    from dqlab.datasets.table import RunTable
    from dqlab.runs.run import Run

PAGE = 1_000
"""Documents of an input in one batch of rows."""

Errors = Literal["raise", "skip"]


class RunTables:
    """Returns or writes the results of a run as a table."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def table(self) -> RunTable:
        """Return the results as a lazy table."""
        needs_pyarrow()
        from dqlab.datasets.table import RunTable

        return RunTable(RunRows(self._run), self._place)

    def _place(self) -> str:
        reader = self._run.reader()
        return "" if reader is None else extent(reader.sink, self._run.id.hex())

    def query(self, sql: str, errors: Errors = "raise", timeout: float | str | None = None) -> pd.DataFrame:
        """Wait for the run, then return the rows that a query selects."""
        if not isinstance(sql, str):  # before a wait that may take hours
            raise BadOption(option="sql", value=sql, problem="is not a query. Write one: 'select * from results'.")
        table = self._waited(errors, timeout)
        from dqlab.datasets.table import query

        with self._reading():
            found: pd.DataFrame = query(table, sql, self._input())
        return found

    def join(
        self, df: pd.DataFrame, on: str = "key", errors: Errors = "raise", timeout: float | str | None = None
    ) -> pd.DataFrame:
        """Wait for the run, then return a table with the results beside its rows."""
        needs_pyarrow()
        from dqlab.datasets.joining import joined

        _check_errors(errors)
        results = self._run.results(errors, timeout)
        with self._reading():
            beside: pd.DataFrame = joined(df, results.to_frame(), on, self._run.name)
        return beside

    def to_parquet(
        self, path: str | os.PathLike[str], errors: Errors = "raise", timeout: float | str | None = None
    ) -> str:
        """Wait for the run, then write its results as Parquet and return the path."""
        needs_pyarrow()
        from dqlab.datasets.files import local_target, write_parquet

        local_target(path)  # before a wait that may take hours
        table = self._waited(errors, timeout)
        with self._reading():
            return str(write_parquet(table, path, self._identity()))

    def publish(self, path: str | os.PathLike[str], timeout: float | str | None = None) -> Published:
        """Wait for the run, then write everything that others need into a folder."""
        needs_pyarrow()
        from dqlab.datasets.files import local_target, publish

        local_target(path)
        table = self._waited("skip", timeout)
        with self._reading():
            published = publish(table, self._run.failures(), path, self._identity(), self._facts)
        if several := mixed(self._run._progress()):
            said = f"the results of run {self._run.name!r} are of several code versions: {several}. Column _code says "
            warnings.warn(f"{said}which made a row.", DqlabWarning, stacklevel=level_of_user())
        return published

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._run.name, self._run.handle)

    def _waited(self, errors: Errors, timeout: float | str | None) -> RunTable:
        needs_pyarrow()
        _check_errors(errors)
        results = self._run.results(errors, timeout)
        assert isinstance(results, Results)
        return results.table()

    def _identity(self) -> Any:
        from dqlab.datasets.files import Identity

        return Identity(self._run.name, self._run.id.hex())

    def _input(self) -> RunTable | str:
        """Return the run's input as a table, or the reason why this process cannot read it."""
        from dqlab.datasets.table import RunTable

        if self._run.submitter is None:
            return "another process mapped them"
        elements = self._run.submitter.elements
        if not repeats(elements):
            return f"they came from {type(elements).__name__}, which can be read only once"
        return RunTable(InputRows(self._run.name, elements))

    def _facts(self) -> Mapping[str, Any]:
        """Return the facts about the run for its manifest."""
        progress = self._run._progress()
        record, counts = progress.record, progress.counts
        codes = [{part: code[part] for part in ("name", "short", "hash", "source")} for code in record.codes]
        elements = None if self._run.submitter is None else self._run.submitter.elements
        states = ("acked", "dead", "cancelled", "lost")
        return {
            "run": {
                "queue": self._run.handle.name,
                "started": _moment(record.lane.started),
                "ended": _moment(record.lane.ended),
            },
            "code": codes,
            "input": {
                "documents": progress.total,
                "digest": record.digest,
                "listing": elements.source_label if isinstance(elements, Documents) else None,
            },
            "counts": {state: getattr(counts, state) for state in states},
        }


def _check_errors(errors: str) -> None:
    if errors not in ("raise", "skip"):
        problem = "is 'raise' or 'skip' here; run.results(errors='return').to_arrow() has failures among its rows."
        raise BadOption(option="errors", value=errors, problem=problem)


class RunRows:
    """The `dqlab.datasets.table.Source` of a run, with the results that it has at each reading."""

    reasoned, lined = False, True

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def name(self) -> str:
        """Name of the run."""
        return self._run.name

    @property
    def declared(self) -> Sequence[Mapping[str, Any]]:
        """Columns that code versions declare."""
        return self.now().declared

    def count(self) -> int:
        """Return how many results the run has now."""
        return len(self._run.results_now())

    def now(self) -> ResultRows:
        """Return a source that keeps the results of this instant."""
        return ResultRows(self._run.results_now())

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        """Yield pages of the results of this instant."""
        return self.now().rows(most)


class InputRows:
    """The `dqlab.datasets.table.Source` of a run's input, with facts about documents and the columns of rows."""

    reasoned = lined = False
    declared: Sequence[Mapping[str, Any]] = ()

    def __init__(self, name: str, elements: Any) -> None:
        self.name, self._elements = name, elements

    def count(self) -> int:
        """Return how many elements there are, or 0 if only reading them would show it."""
        return len(self._elements) if hasattr(self._elements, "__len__") else 0

    def now(self) -> InputRows:
        """Return itself."""
        return self

    def rows(self, most: int | None = None) -> Iterator[Rows]:
        """Yield pages of documents."""
        from dqlab.datasets.rows import Rows

        values: list[Any] = []
        keys: list[Any] = []
        at = 0
        for ordinal, element in enumerate(self._elements):
            keys.append(key_of(element, ordinal))
            values.append(_facts_of(element))
            if len(values) == PAGE:
                yield Rows(range(at, ordinal + 1), keys, values)
                at, values, keys = ordinal + 1, [], []
        if values:
            yield Rows(range(at, at + len(values)), keys, values)


def _facts_of(element: Any) -> Any:
    """Return the row of an element of an input."""
    if type(element) is Labelled:
        return element.value
    if type(element) is not Document:
        return element
    if isinstance(element.part, Row | Line | Inline):
        facts: dict[Any, Any] = {"version": element.version, "path": element.where}
        with suppress(DocumentError):  # a line that is not JSON has no columns, and is among the failures
            row = element.row
            # The row first and on top: a column named "version" or "path" stays the user's.
            facts = {**row, **{name: fact for name, fact in facts.items() if name not in row}}
        return facts
    return {"size": element.size, "pages": element.n_pages, "version": element.version, "path": element.where}


def _moment(at: float | None) -> str | None:
    """Return seconds since 1970 UTC as text in ISO 8601."""
    return None if at is None else datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="seconds")
