"""The files that a pattern or a list of paths names, for documents that are parts of files.

Owns finding them again each time, in order, and what errors about them tell. Knows nothing of what is in them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dqlab.documents.pattern import MAGIC, parse
from dqlab.documents.places import local_path, stamp_of
from dqlab.documents.storage import located
from dqlab.errors import BadOption, DqlabError, ExtraMissing, FolderUnreadable, NoFiles, in_words

__all__ = ["Files", "ListedFile"]


class ListedFile(NamedTuple):
    """A file as it was listed: `name` begins the keys of its documents."""

    name: str
    where: str
    version: str


class Files:
    """Files by a pattern, or one by one; found again each time they are iterated.

    Parameters
    ----------
    given : str, path, or iterable of them
        Paths, fsspec URLs and patterns as `Documents.from_glob` takes them. An iterator is read at once: paths are few
        beside the documents in them.
    form : str
        What they hold, for errors.
    storage : str
        The name of the options that file systems of URLs are opened with.

    Raises
    ------
    BadOption
        It is none of these, or names a folder.
    FolderUnreadable
        A folder cannot be listed by this user.
    NoFiles
        Nothing matches.
    ExtraMissing
        The file system behind a URL is not installed.
    """

    def __init__(self, given: Any, form: str, storage: str = "") -> None:
        self._form, self._storage = form, storage
        self._one = one = isinstance(given, str | os.PathLike)
        if not one and (isinstance(given, bytes) or not isinstance(given, Iterable)):
            problem = "is not a path, a pattern, or a list of them. Nothing was listed."
            raise BadOption(option="files", value=given, problem=problem)
        self._given = [_text(each) for each in ([given] if one else given)]
        self.label = repr(self._given[0]) if one else f"<{len(self._given):,} files>"
        self.first = next(iter(self), None)
        if self.first is None:
            hint = "a relative path starts at the current directory" if one else "the list names no file"
            raise NoFiles(pattern=self._given[0] if one else self.label, hint=hint)

    def __iter__(self) -> Iterator[ListedFile]:
        for text in self._given:
            try:
                yield from self._named(text)
            except (DqlabError, GeneratorExit):
                raise
            except ImportError as error:
                what = f"files of {text.partition('://')[0]}://"
                package = _package_in(error)
                raise ExtraMissing(what=what, missing=package, python=sys.executable, install=package) from error
            except PermissionError as error:
                raise FolderUnreadable(folder=str(error.filename or text), reason=in_words(error)) from error
            except Exception as error:
                problem = f"cannot be listed: {in_words(error)}. Check its scheme, host and path. Nothing was listed."
                raise BadOption(option="files", value=text, problem=problem) from error

    def _named(self, text: str) -> Iterator[ListedFile]:
        local = local_path(text)
        if local is not None:
            local = str(Path(local).expanduser()) if text.startswith("~/") else local
            if Path(local).is_file():  # also one whose name has brackets in it
                yield ListedFile(self._name(text), local, stamp_of(local).version)
                return
        if MAGIC.search(text) is None and (local is None or not Path(local).is_dir()):
            try:
                where = local or located(text, self._storage)
                version = stamp_of(where).version
            except FileNotFoundError:
                raise NoFiles(pattern=text, hint="a relative path starts at the current directory") from None
            yield ListedFile(self._name(text), where, version)
            return
        folder, below = parse(text, self._storage)
        if not folder.exists():
            raise NoFiles(pattern=text, hint=f"there is no folder {folder.where!r}")
        for found in below.walk(folder):
            try:
                yield ListedFile(found.path, folder.at(found.path), found.entry.stamp().version)
            except FileNotFoundError:
                continue  # gone since its folder was listed

    def _name(self, text: str) -> str:
        """Return what a path is called: one by its name, as a pattern does; several as they were given."""
        text = text.replace(os.sep, "/")
        return text.rpartition("/")[2] if self._one else text


def _text(each: Any) -> str:
    if not isinstance(each, str | os.PathLike):
        problem = f"is a {type(each).__name__}, not a path or URL. Nothing was listed."
        raise BadOption(option="files", value=each, problem=problem)
    return os.fspath(each)


def _package_in(error: ImportError) -> str:
    """Return the package that is missing: fsspec's sentence is "Install s3fs to access S3"."""
    words = str(error).split()
    at = next((at for at, word in enumerate(words[:-1]) if word.lower() == "install"), None)
    return error.name or (words[at + 1].strip("'\"`.,") if at is not None else in_words(error))
