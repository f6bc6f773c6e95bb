"""What a listing reads from, each time it is iterated: a pattern, a window on another source.

Owns the two steps of listing: naming a document, which is cheap, and looking at it, which costs a
stat or more. Counting and skipping take only the first. Knows nothing of how listings are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Protocol

from dqlab.documents.document import Document
from dqlab.documents.pattern import Found, Pattern
from dqlab.documents.places import Folder
from dqlab.errors import FolderNotFound

__all__ = ["Glob", "Look", "Source", "Window"]

Look = Callable[[], Document | None]
"""Looks at one document; None when it is gone since it was named."""


class Source(Protocol):
    """Names documents, read again each time."""

    @property
    def label(self) -> str:
        """The call that made it, for people; costs nothing."""
        ...

    @property
    def repeats(self) -> bool:
        """Whether it can be read more than once."""
        ...

    def looks(self) -> Iterator[Look]:
        """Name the documents; errors that concern all of them are raised here."""
        ...


class Glob:
    """The files below a folder that match a pattern.

    Parameters
    ----------
    folder, pattern : Folder, Pattern
        Where to start, and what matches below it.
    label : str
        The call that made it.
    enter : callable
        Whether to look into folders of this name.
    finish : callable
        Completes a document when it is looked at; may open it.

    Raises
    ------
    FolderNotFound
        The folder does not exist; also raised by `looks`, should it be gone by then.
    """

    repeats = True

    def __init__(
        self,
        folder: Folder,
        pattern: Pattern,
        label: str,
        *,
        enter: Callable[[str], bool] = lambda name: True,
        finish: Callable[[Document], Document] = lambda document: document,
    ) -> None:
        self.label = label
        self._folder, self._pattern, self._enter, self._finish = folder, pattern, enter, finish
        self._check()

    def looks(self) -> Iterator[Look]:
        """Name the matching files, in the order of their keys."""
        self._check()
        return (partial(self._look, found) for found in self._pattern.walk(self._folder, self._enter))

    def _look(self, found: Found) -> Document | None:
        try:
            version, size = found.entry.stamp()
            return self._finish(Document(found.path, version, self._folder.at(found.path), size))
        except FileNotFoundError:
            return None

    def _check(self) -> None:
        if not self._folder.exists():
            raise FolderNotFound(folder=self._folder.where)


class Window:
    """Part of another source, by position.

    Parameters
    ----------
    source : Source
        What is listed.
    start, stop, step : int
        As in a slice, none of them negative; `stop` None for all.
    """

    def __init__(self, source: Source, start: int, stop: int | None, step: int) -> None:
        self._source, self._start, self._stop, self._step = source, start, stop, step

    @property
    def label(self) -> str:
        """The source's label and the slice."""
        ends = f"{self._start or ''}:{'' if self._stop is None else self._stop}"
        return f"{self._source.label}[{ends}{'' if self._step == 1 else f':{self._step}'}]"

    @property
    def repeats(self) -> bool:
        """Whether the source can be read more than once."""
        return self._source.repeats

    def looks(self) -> Iterator[Look]:
        """Name the documents inside; those before are named too, but not looked at."""
        return islice(self._source.looks(), self._start, self._stop, self._step)
