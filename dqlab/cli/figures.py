"""What a played notebook achieved. Imported by the notebook's kernel, so it imports nothing that takes time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dqlab.stats import RunStats

__all__ = ["Figures", "tell"]


class _Document(Protocol):
    @property
    def page_count(self) -> int | None: ...


class _Run(Protocol):
    def stats(self) -> RunStats: ...

    def results(self, *, errors: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class Figures:
    """What a played notebook achieved.

    Attributes
    ----------
    documents, pages : int
        Size of its input.
    answered : int
        Documents that ended with a result.
    retried : int
        Documents that failed first.
    seconds : float
        From the start of the run to its end.
    """

    documents: int
    pages: int
    answered: int
    retried: int
    seconds: float

    @classmethod
    def of(cls, docs: Iterable[_Document], run: _Run, retried: int) -> Figures:
        """Count in the names that the notebook leaves behind."""
        pages = [document.page_count or 0 for document in docs]
        answered = len(run.results(errors="skip"))
        return cls(len(pages), sum(pages), answered, retried, run.stats().elapsed)

    @property
    def missing(self) -> int:
        """Documents without a result."""
        return self.documents - self.answered

    def __str__(self) -> str:
        rate = self.pages / self.seconds if self.seconds > 0 else 0.0
        return (
            f"demo: {self.documents} documents, {self.pages} pages, {self.retried} failed then retried, "
            f"{rate:.0f} pages/s"
        )


def tell(docs: Iterable[_Document], run: _Run, retried: int) -> None:
    """Print the figures as JSON; called in the notebook's kernel, while the run still answers."""
    print(json.dumps(asdict(Figures.of(docs, run, retried))))
