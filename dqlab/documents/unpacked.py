"""What `Documents.from_archive` lists: members of one archive, or of all archives that match a pattern.

Owns the keys of members and what matches them. The archives are read by `archives`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial

from dqlab.documents.archives import FoundMember, members
from dqlab.documents.document import Document
from dqlab.documents.folders import MAGIC, Folder, Pattern, parse
from dqlab.documents.sources import Look
from dqlab.errors import ArchiveNotFound, BadOption, FolderNotFound

__all__ = ["Unpacked"]


class Unpacked:
    """The members of archives that match a pattern.

    Parameters
    ----------
    archive : str or path
        One archive, or a pattern of archives: a path or an fsspec URL.
    pattern : str
        What matches members.
    storage : str
        The name of options of file systems.

    Raises
    ------
    ArchiveNotFound
        There is no such archive; also raised by `looks` if it is gone by then.
    FolderNotFound
        The folder before the first wildcard does not exist.
    BadOption
        One of them is not a pattern, or the file system cannot be listed.
    """

    repeats = True

    def __init__(self, archive: str | os.PathLike[str], pattern: str, storage: str = "") -> None:
        if not isinstance(archive, str | os.PathLike) or not isinstance(os.fspath(archive), str):
            raise BadOption(option="archive", value=archive, problem="is not a path or URL of an archive.")
        if not isinstance(pattern, str) or not pattern:
            raise BadOption(option="pattern", value=pattern, problem="is not a pattern of names, such as '**/*.html'.")
        self._archive, self._text = os.fspath(archive), pattern
        self._pattern = Pattern(pattern)
        self._several = MAGIC.search(self._archive) is not None
        self._folder, self._archives = _parsed(self._archive, storage)
        self._check()

    @property
    def label(self) -> str:
        """The call that made it."""
        more = "" if self._text == "**" else f", {self._text!r}"
        return f"Documents.from_archive({self._archive!r}{more})"

    def looks(self) -> Iterator[Look]:
        """Name the matching members, archive by archive, in the order in which they are packed."""
        self._check()
        return self._looks()

    def _looks(self) -> Iterator[Look]:
        found_any = False
        for found in self._archives.walk(self._folder):
            found_any = True
            where = self._folder.at(found.path)
            prefix = f"{found.path}/" if self._several else ""
            for member in members(where):
                if self._pattern.matches(member.path):
                    yield partial(_document, where, prefix, member)
        if not (found_any or self._several):
            raise ArchiveNotFound(archive=self._archive)

    def _check(self) -> None:
        if not self._folder.exists():
            raise FolderNotFound(folder=self._folder.where)
        if not self._several and next(self._archives.walk(self._folder), None) is None:
            raise ArchiveNotFound(archive=self._archive)


def _parsed(archive: str, storage: str) -> tuple[Folder, Pattern]:
    try:
        return parse(archive, storage)
    except BadOption as error:
        if "folder" in str(error.problem):
            problem = "that is a folder. Use Documents.from_glob for the files in it."
            raise BadOption(option="archive", value=archive, problem=problem) from None
        raise


def _document(where: str, prefix: str, member: FoundMember) -> Document:
    return Document(prefix + member.path, member.version, where, member.size, part=member.member)
