"""Folders here and behind fsspec, patterns such as ``data/**/*.txt``, and the files that these match.

Owns what a folder contains, in which order, and the meaning of a pattern, which is the same for local and remote
folders. Knows nothing of documents.

In one part of a path, ``*``, ``?`` and ``[...]`` match as in a shell; ``**`` matches any number of folders, also none,
and as the last part every file below. Names that begin with a dot match only a part that does so, too. Files are listed
in the order of their relative paths, compared as strings; only the names of one folder per level are held at a time.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from fnmatch import translate
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from dqlab.documents.servers import is_cut_off
from dqlab.documents.storage import (
    Stamp,
    asked,
    connected,
    local_path,
    local_stamp,
    located,
    place_of,
    reconnect,
    remote,
    remote_stamp,
    stamp_of,
    words_of_server,
)
from dqlab.errors import BadOption, DqlabError, FileUnreadable, InputNotFound, InputUnreadable, in_words

_BUCKETS = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Schemes of object stores."""


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """One name in a folder."""

    name: str
    is_folder: bool
    stamp: Callable[[], Stamp]
    """Examines the file; raises OSError when it is gone."""


class LocalFolder:
    """A folder of this machine, whose links are followed unless they lead to a folder that is being listed."""

    sized = True

    def __init__(self, path: str, above: frozenset[tuple[int, int]] = frozenset()) -> None:
        self.where = str(Path(path).absolute())
        self._above = above  # identities of the folders that contain this one

    def exists(self) -> bool:
        """Return whether it exists and is a folder."""
        return Path(self.where).is_dir()

    def entries(self) -> Iterator[FolderEntry]:
        """Return files and folders, sorted by paths below them, without sockets, pipes, devices and dangling links."""
        # Must raise here what reading the folder raises, not while it is iterated: see `Pattern._walk`. Folders are
        # sorted with a trailing slash, like the paths below them: "a.txt" sorts before "a/b", though after "a".
        with os.scandir(self.where) as scan:
            names = sorted(
                f"{entry.name}/" if is_folder else entry.name
                for entry in scan
                if (is_folder := _is_folder(entry)) is not None
            )
        return (FolderEntry(name.rstrip("/"), name.endswith("/"), partial(self._stamp, name)) for name in names)

    def _stamp(self, name: str) -> Stamp:
        return local_stamp(os.stat(os.path.join(self.where, name)))

    def below(self, name: str) -> LocalFolder | None:
        """Return the folder of that name, or None if a link leads back to a folder that contains it."""
        above = self._above | {_identity(self.where)}
        folder = str(Path(self.where, name))
        return None if _identity(folder) in above else LocalFolder(folder, above)

    def at(self, path: str) -> str:
        """Return the absolute path of a file below."""
        return self.where.rstrip(os.sep) + os.sep + path.replace("/", os.sep)


class RemoteFolder:
    """A folder behind fsspec."""

    def __init__(self, url: str, rest: str = "", storage: str = "") -> None:
        # Of a chained URL, `url` ends before the first "::" after the path, and `rest` begins with it. `storage` is the
        # name of the options for the file system.
        self._url, self._rest, self._storage = url, rest, storage
        self._connect()

    def _connect(self) -> None:
        with asked(self.where):
            self._system, self._path = remote(self.where)

    @property
    def where(self) -> str:
        """The whole URL."""
        return located(self._url + self._rest, self._storage)

    @property
    def sized(self) -> bool:
        """Whether all its files are listed with their size, as in a bucket, but not by every web server."""
        return self._url.partition("://")[0].lower() in _BUCKETS

    def exists(self) -> bool:
        """Return whether it exists and is a folder, asking the store with renewed credentials rather than a cache."""
        if self.is_seen():
            return True
        reconnect(self.where)  # some file systems report a refusal as a missing file
        return self._exists()

    def is_seen(self) -> bool:
        """Return whether the store shows it as a folder, asking a second time only if the store refuses the first."""
        return connected(self.where, self._exists)

    def _exists(self) -> bool:
        self._connect()  # a listing lives long, and its options may stand for other credentials by now
        with asked(self.where):
            self._system.invalidate_cache()
            try:
                listed = self._system.ls(self._path, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return False
            # Not `isdir` at once: several file systems take a refusal for a folder that is not there.
            return any(not self._is_itself(info) for info in listed) or bool(self._system.isdir(self._path))

    def _is_itself(self, info: Mapping[str, Any]) -> bool:
        # A file is listed as itself, and so is the empty object that marks a folder in an object store.
        return bool(info["name"].rstrip("/") == self._path.rstrip("/"))

    def entries(self) -> Iterator[FolderEntry]:
        """Return files and folders from one listing of the store."""
        found = []
        with asked(self.where):
            listed = self._system.ls(self._path, detail=True)
            self._system.invalidate_cache(self._path)  # or it would keep the listings of all folders
        for info in listed:
            if not self._is_itself(info):
                name, is_folder = info["name"].rstrip("/").rpartition("/")[2], info["type"] == "directory"
                found.append(FolderEntry(name, is_folder, partial(remote_stamp, info)))
        return iter(sorted(found, key=lambda entry: f"{entry.name}/" if entry.is_folder else entry.name))

    def below(self, name: str) -> RemoteFolder:
        """Return the folder of that name."""
        # Copy instead of opening the URL, which would open an archive again for each folder in it. Stores have no links
        # that could form a cycle.
        inner = copy(self)
        inner._url = _join(self._url, name)
        inner._path = _join(self._path, name) if self._path else name
        return inner

    def at(self, path: str) -> str:
        """Return the URL of a file below."""
        return located(_join(self._url, path) + self._rest, self._storage)


class RemoteFile(RemoteFolder):
    """Looks up one file behind fsspec, because many servers give files without listing folders."""

    def __init__(self, url: str, rest: str, storage: str, name: str) -> None:
        super().__init__(url, rest, storage)
        self._name = name

    def _exists(self) -> bool:
        self._connect()
        return next(self.entries(), None) is not None or super()._exists()

    def entries(self) -> Iterator[FolderEntry]:
        """Return the file if it exists."""
        with asked(self.where):
            self._system.invalidate_cache()
            try:
                info = self._system.info(_join(self._path, self._name) if self._path else self._name)
            except FileNotFoundError:
                return iter(())
        return iter((FolderEntry(self._name, info["type"] == "directory", partial(remote_stamp, info)),))


Folder: TypeAlias = LocalFolder | RemoteFolder


def _join(url: str, path: str) -> str:
    return url + path if url.endswith("/") else f"{url}/{path}"


def _identity(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_dev, status.st_ino


def _is_folder(entry: os.DirEntry[str]) -> bool | None:
    """Return whether an entry is, or links to, a folder (True) or a file (False), or None for anything else."""
    try:
        return entry.is_dir() or (False if entry.is_file() else None)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link to itself
            return None
        raise


# --- patterns ---


_MAGIC = re.compile(r"[*?\[]")
"""Characters that make a path a pattern."""
_WITH_QUERY = re.compile(r"(https?://[^*?\[]*)\?", re.IGNORECASE)
"""A URL of a web server with a query, which begins at the first "?" and may contain any character."""


def has_wildcards(text: str) -> bool:
    """Return whether a path or URL is a pattern."""
    return _MAGIC.search(text) is not None and _WITH_QUERY.match(text) is None


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that matches a pattern."""

    path: str
    """Relative to the folder, with "/"."""
    entry: FolderEntry


class Pattern:
    """The part of a pattern below the folder where listing starts, split at "/"."""

    def __init__(self, text: str, hidden: tuple[str, ...] = (".",)) -> None:
        # `hidden` begins names that only a part beginning with it matches.
        self._hidden = hidden
        self._parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in self._parts:
            raise BadOption(option="pattern", value=text, problem="'..' can only stand before the first wildcard.")
        if self._parts[-1:] == ["**"]:
            self._parts.append("*")
        self._matches = [re.compile(translate(part)).match for part in self._parts]

    @classmethod
    def of_name(cls, name: str) -> Pattern:
        """Return a pattern that matches only the file of this name, whatever characters the name has."""
        pattern = cls("")
        pattern._parts, pattern._matches = [name], [re.compile(re.escape(name)).fullmatch]
        return pattern

    def walk(self, folder: Folder, enter: Callable[[str], bool] = lambda name: True) -> Iterator[FoundFile]:
        """Yield the matching files below a folder, entering only folders whose names `enter` accepts."""
        return self._inside(folder, "", self._reach({0}), enter)

    def matches(self, path: str) -> bool:
        """Return whether a relative path, with "/", matches."""
        here = self._reach({0})
        for name in path.split("/"):
            here = self._step(here, name)
            if not here:
                return False
        return len(self._parts) in here

    def _inside(self, folder: Folder, path: str, here: set[int], enter: Callable[[str], bool]) -> Iterator[FoundFile]:
        """Return the matching files of a folder, once its first listing has been read."""
        try:
            entries = folder.entries()
        except PermissionError as error:
            raise _folder_unreadable(folder.where, error) from error
        return self._walk(folder, entries, path, here, enter)

    def _walk(
        self, folder: Folder, entries: Iterator[FolderEntry], path: str, here: set[int], enter: Callable[[str], bool]
    ) -> Iterator[FoundFile]:
        for entry in entries:
            below = self._step(here, entry.name)
            if not entry.is_folder:
                if len(self._parts) in below:
                    yield FoundFile(path + entry.name, entry)
            elif below - {len(self._parts)} and enter(entry.name):
                # `_inside` lists the folder here, within the `try`. Iterating it is outside: an error of the caller, or
                # of a folder further down, must not be mistaken for a removed folder.
                try:
                    inner = folder.below(entry.name)
                    inside = iter(()) if inner is None else self._inside(inner, f"{path}{entry.name}/", below, enter)
                except (FileNotFoundError, NotADirectoryError):
                    continue  # removed since its parent was listed
                yield from inside

    def _step(self, here: set[int], name: str) -> set[int]:
        """Return the positions in the pattern after one more name."""
        after = set()
        for position in here - {len(self._parts)}:
            part = self._parts[position]
            if name.startswith(self._hidden) and not part.startswith(name[0]):
                continue
            if part == "**":
                after.add(position)
            elif self._matches[position](name):
                after.add(position + 1)
        return self._reach(after)

    def _reach(self, positions: set[int]) -> set[int]:
        """Add the positions that `**` reaches by matching no folder."""
        reached = set(positions)
        # In ascending order, so that "**/**" reaches two positions further.
        for position, part in enumerate(self._parts):
            if part == "**" and position in reached:
                reached.add(position + 1)
        return reached


def parse(text: str, storage: str = "", hidden: tuple[str, ...] = (".",)) -> tuple[Folder, Pattern]:
    """Split a path or URL at its first wildcard into the folder before it and the pattern below."""
    local = _local(text)
    if local is not None:
        head, tail = _split(local)
        folder: Folder = LocalFolder(head)
    else:
        path_at = text.index("://") + 3
        # In zip://**/*.txt::s3://bucket/texts.zip the pattern is in the first URL.
        chain_at = text.find("::", path_at)
        url, rest = (text, "") if chain_at < 0 else (text[:chain_at], text[chain_at:])
        if (web := _WITH_QUERY.match(text)) is not None:
            return _of_web(text, web[1].rindex("/") + 1, storage)
        head, tail = _split(url[path_at:])
        folder = RemoteFolder(url[:path_at] + head, rest, storage)
    if _MAGIC.search(tail) is None:
        # It is usually a file, so do not ask the store twice whether it is a folder (`is_seen`, not `exists`).
        if LocalFolder(local).exists() if local is not None else RemoteFolder(url, rest, storage).is_seen():
            below = f"{text}NAME/**" if text.endswith("://") else f"{text.rstrip('/')}/**"
            problem = f"that is a folder. Use {below!r} for all files in it."
            raise BadOption(option="pattern", value=text, problem=problem)
        if local is None and tail:
            folder = RemoteFile(url[:path_at] + head, rest, storage, tail)
    return folder, Pattern(tail, hidden)


def _of_web(url: str, cut: int, storage: str) -> tuple[Folder, Pattern]:
    return RemoteFile(url[:cut], "", storage, url[cut:]), Pattern.of_name(url[cut:])


def _local(text: str) -> str | None:
    if local_path(text) is None:
        return None
    path = re.sub(r"^(?:file|local)://", "", text, flags=re.IGNORECASE).replace(os.sep, "/")
    return f"{Path.home().as_posix()}{path[1:]}" if path.startswith("~/") else path


def _split(path: str) -> tuple[str, str]:
    magic = _MAGIC.search(path)
    cut = path.rfind("/", 0, magic.start() if magic else None) + 1
    return path[:cut], path[cut:]


# --- files of a pattern, or of a list ---


class ListedFile(NamedTuple):
    """A file as it was listed."""

    name: str
    """Begins the keys of its documents."""
    where: str
    version: str


class Files:
    """Files by pattern or one by one, found again on each iteration, each of them once."""

    def __init__(self, given: Any, form: str, storage: str = "", hidden: tuple[str, ...] = (".",)) -> None:
        # `form` names in errors what the files contain; `storage` names the options for the file systems of URLs;
        # `hidden` is as in `Pattern`.
        self._form, self._storage, self._hidden = form, storage, hidden
        self._one = one = isinstance(given, str | os.PathLike)
        if not one and (isinstance(given, bytes) or not isinstance(given, Iterable)):
            problem = "is not a path, a pattern, or a list of them. Nothing was listed."
            raise BadOption(option="files", value=given, problem=problem)
        # Read an iterator of paths now, so that the files can be listed again; paths are few compared with rows.
        self._given = [_text(each) for each in ([given] if one else given)]
        self.label = repr(self._given[0]) if one else f"<{len(self._given):,} files>"
        first = next(iter(self), None)
        if first is None:
            hint = "a relative path starts at the current directory" if one else "the list names no file"
            raise _no_files(self._given[0] if one else self.label, hint)
        self.first = first

    def __iter__(self) -> Iterator[ListedFile]:
        places, several = set[Hashable](), len(self._given) > 1
        for text in self._given:
            try:
                for name, where, stamp in self._named(text):
                    place = place_of(where) if local_path(where) is None else os.path.normpath(where)
                    if place in places:
                        continue
                    if several:
                        places.add(place)
                    try:
                        version = stamp().version
                    except FileNotFoundError:
                        continue  # removed since its folder was listed
                    yield ListedFile(name, where, version)
            except (DqlabError, GeneratorExit):
                raise
            except PermissionError as error:
                raise _folder_unreadable(str(error.filename or text), error) from error
            except Exception as error:
                if is_cut_off(error):
                    reason, hint = words_of_server(error), FileUnreadable.OF_SERVER
                    raise FileUnreadable(where=text, form=self._form, reason=reason, hint=hint) from error
                problem = f"cannot be listed: {in_words(error)}. Check its scheme, host and path. Nothing was listed."
                raise BadOption(option="files", value=text, problem=problem) from error

    def names(self) -> Iterator[str]:
        """Yield names with the folders of all files, without examining a file."""
        for text in self._given:
            below = _split(text)[1]
            if "/" in below or below == "**":
                yield from (name for name, _, _ in self._named(text))
            else:  # without wildcards, or in the last part alone: its folders are those of all its files
                yield self._name(text)

    def _named(self, text: str) -> Iterator[tuple[str, str, Callable[[], Stamp]]]:
        local = local_path(text)
        if local is not None:
            local = str(Path(local).expanduser()) if text.startswith("~/") else local
            if Path(local).is_file():  # first, because its name may have brackets, and then is not a pattern
                yield self._name(text), local, partial(stamp_of, local)
                return
            if Path(local).exists() and not Path(local).is_dir():  # opening a pipe would wait for its writer
                problem = "is neither a file nor a folder. Nothing was listed. Write what it gives to a file first."
                raise BadOption(option="files", value=text, problem=problem)
        if not has_wildcards(text) and (local is None or not Path(local).is_dir()):
            where = local or located(text, self._storage)
            yield self._name(text), where, partial(self._stamp, text, where)
            return
        folder, below = parse(text, self._storage, self._hidden)
        if not folder.exists():
            raise _no_files(text, f"there is no folder {folder.where!r}")
        for found in below.walk(folder):
            where = folder.at(found.path)
            yield self._name_of(text, found.path, where), where, found.entry.stamp

    def _stamp(self, text: str, where: str) -> Stamp:
        try:
            return connected(where, partial(stamp_of, where))
        except FileNotFoundError:
            raise _no_files(text, "a relative path starts at the current directory") from None

    def _name(self, text: str) -> str:
        """Return the name of a path that was given, without folders if it is the only one."""
        text = text.replace(os.sep, "/")
        if self._one and (web := _WITH_QUERY.match(text)) is not None:
            text = web[1]
        return text.rpartition("/")[2] if self._one else text

    def _name_of(self, pattern: str, path: str, where: str) -> str:
        """Return the name of a file that a pattern matched."""
        if self._one:
            return path
        # With the pattern's folder: two patterns may match the same relative path in different folders.
        return str(where) if local_path(where) is None else _split(pattern.replace(os.sep, "/"))[0] + path


def _text(each: Any) -> str:
    if not isinstance(each, str | os.PathLike):
        problem = f"is a {type(each).__name__}, not a path or URL. Nothing was listed."
        raise BadOption(option="files", value=each, problem=problem)
    return os.fspath(each)


def _no_files(pattern: str, hint: str) -> InputNotFound:
    return InputNotFound(reason=f"no file matches {pattern!r}. Nothing was listed. Check the path: {hint}.")


def _folder_unreadable(folder: str, error: Exception) -> InputUnreadable:
    left = "The listing ends there, and no document in that folder was listed."
    hint = "Get the permission to read it, or leave it out with a narrower pattern; then run this again"
    return InputUnreadable(what=f"folder {folder!r}", reason=in_words(error), left=left, hint=hint)
