"""How far a function is in its document, as `dqlab.track` counts it and views show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import length_hint
from typing import TypeVar

from dqlab.cluster.consumer.running.execution import alone, message_here
from dqlab.documents.pdf import Page
from dqlab.errors import BadOption

T = TypeVar("T")


def track(iterable: Iterable[T], total: int | None = None) -> Iterator[T]:
    """Yield the items of an iterable, and show in views of the run how far its function is in its document.

    Views name the documents that run for long, as do `unacked` and `attention`: with this they also say "page 12 of
    300". Outside a message of a run it only yields the items.

    Parameters
    ----------
    iterable : iterable
        Such as the pages of a document.
    total : int, optional
        How many items there are. Default: its length, where it has one; for pages of a PDF, the pages of the file.

    Yields
    ------
    object
        The items.

    Raises
    ------
    BadOption
        `total` is not a number, or below 0.

    Examples
    --------
    >>> def read(document):
    ...     return [page.text() for page in dq.track(document.pages())]
    """
    if total is not None and (type(total) is not int or total < 0):
        raise BadOption(option="total", value=total, problem="is how many items there are, 0 or more.")
    return _tracked(iterable, length_hint(iterable) if total is None else total)


def _tracked(iterable: Iterable[T], total: int) -> Iterator[T]:
    here = message_here() or alone()
    try:
        for number, item in enumerate(iterable, 1):
            if here is not None and here[1] is not None:
                step = (item.number, item.of) if isinstance(item, Page) else (number, total)
                here[0].note_step(here[1], *step)
            yield item
    finally:
        if here is not None and here[1] is not None:
            here[0].note_step(here[1], 0, 0)
