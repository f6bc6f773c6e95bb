"""Patterns such as ``data/**/*.txt``, and walking the folders they can match.

Owns the meaning of a pattern, the same for local and remote folders. Knows nothing of documents.

In one part of a path, ``*``, ``?`` and ``[...]`` match as in a shell; ``**`` matches any number of
folders, none included, and as the last part every file below. Names that begin with a dot are only
matched by a part that does too. Files come in the order of their relative paths, compared as
strings, and only the names of one folder per level are held at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from dqlab.documents.places import Folder, FolderEntry, LocalFolder, RemoteFolder, local_path
from dqlab.errors import BadOption, FolderUnreadable, in_words

__all__ = ["MAGIC", "FoundFile", "Pattern", "parse"]

MAGIC = re.compile(r"[*?\[]")
"""What makes a path a pattern."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that matches: its path relative to the folder (with "/"), and how to examine it."""

    path: str
    entry: FolderEntry


class Pattern:
    """The part of a pattern below the folder where listing starts.

    Parameters
    ----------
    text : str
        Parts separated by "/".
    """

    def __init__(self, text: str) -> None:
        self._parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in self._parts:
            raise BadOption(option="pattern", value=text, problem="'..' can only stand before the first wildcard.")
        if self._parts[-1:] == ["**"]:
            self._parts.append("*")
        self._matches = [re.compile(translate(part)).match for part in self._parts]

    def walk(self, folder: Folder, enter: Callable[[str], bool] = lambda name: True) -> Iterator[FoundFile]:
        """Yield the matching files below a folder.

        Parameters
        ----------
        folder : Folder
            Where the pattern starts.
        enter : callable
            Whether to enter folders of this name.
        """
        return self._walk(folder, _entries(folder), "", self._reach({0}), enter)

    def matches(self, path: str) -> bool:
        """Return whether a relative path, with "/" between its parts, matches."""
        here = self._reach({0})
        for name in path.split("/"):
            here = self._step(here, name)
            if not here:
                return False
        return len(self._parts) in here

    def _walk(
        self, folder: Folder, entries: Iterator[FolderEntry], path: str, here: set[int], enter: Callable[[str], bool]
    ) -> Iterator[FoundFile]:
        for entry in entries:
            below = self._step(here, entry.name)
            if not entry.is_folder:
                if len(self._parts) in below:
                    yield FoundFile(path + entry.name, entry)
            elif below - {len(self._parts)} and enter(entry.name):
                try:
                    inner = folder.below(entry.name)
                    inside = _entries(inner) if inner is not None else iter(())
                except (FileNotFoundError, NotADirectoryError):
                    continue  # removed since its parent was listed
                if inner is not None:
                    yield from self._walk(inner, inside, f"{path}{entry.name}/", below, enter)

    def _step(self, here: set[int], name: str) -> set[int]:
        """Return the positions in the pattern after one more name, from those before it."""
        after = set()
        for position in here - {len(self._parts)}:
            part = self._parts[position]
            if name.startswith(".") and not part.startswith("."):
                continue
            if part == "**":
                after.add(position)
            elif self._matches[position](name):
                after.add(position + 1)
        return self._reach(after)

    def _reach(self, positions: set[int]) -> set[int]:
        """Add the positions that `**` reaches by matching nothing."""
        reached = set(positions)
        for position, part in enumerate(self._parts):
            if part == "**" and position in reached:
                reached.add(position + 1)
        return reached


def parse(text: str, storage: str = "") -> tuple[Folder, Pattern]:
    """Split a path or URL with wildcards into the folder before the first of them and the rest.

    `storage` is the name of the options that a URL's file system is opened with.

    Raises
    ------
    BadOption
        The rest contains "..", or there is no wildcard and all of it is a folder.
    """
    local = _local(text)
    if local is not None:
        head, tail = _split(local)
        folder: Folder = LocalFolder(head)
        whole: Folder = LocalFolder(local)
    else:
        path_at = text.index("://") + 3
        # In zip://**/*.txt::s3://bucket/texts.zip the pattern is what stands in the first URL.
        chain_at = text.find("::", path_at)
        url, rest = (text, "") if chain_at < 0 else (text[:chain_at], text[chain_at:])
        head, tail = _split(url[path_at:])
        folder = RemoteFolder(url[:path_at] + head, rest, storage)
        whole = RemoteFolder(url, rest, storage)
    if MAGIC.search(tail) is None and whole.exists():
        problem = f"that is a folder. Use {text.rstrip('/') + '/**'!r} for all files in it."
        raise BadOption(option="pattern", value=text, problem=problem)
    return folder, Pattern(tail)


def _local(text: str) -> str | None:
    if local_path(text) is None:
        return None
    path = re.sub(r"^(?:file|local)://", "", text, flags=re.IGNORECASE).replace(os.sep, "/")
    return f"{Path.home().as_posix()}{path[1:]}" if path.startswith("~/") else path


def _split(path: str) -> tuple[str, str]:
    magic = MAGIC.search(path)
    cut = path.rfind("/", 0, magic.start() if magic else None) + 1
    return path[:cut], path[cut:]


def _entries(folder: Folder) -> Iterator[FolderEntry]:
    try:
        return folder.entries()
    except PermissionError as error:
        raise FolderUnreadable(folder=folder.where, reason=in_words(error)) from error
