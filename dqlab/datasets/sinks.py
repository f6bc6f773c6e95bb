"""Where the rows of a run are written: what users pass as ``sink=``, and which run a folder belongs to.

Owns the kinds of sinks as they travel in a run's record; `sink_parts` turns rows into files. Loads no pyarrow: `check`
requires it when a run is mapped.
"""

from __future__ import annotations

import errno
import json
import os
import pickle
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from dqlab.datasets import needs_pyarrow
from dqlab.documents.storage import StoredAt, check_options, check_url, local_path, redacted, remote, storage_of, stored
from dqlab.errors import BadOption, DqlabError, UsageError, in_words
from dqlab.numbers import many
from dqlab.numbers import size as size_of
from dqlab.texts import one_line

WRITING = ".part.writing-"
"""Prefix of files that are being written, and of those that a killed process left."""
_OF_NAMES = {
    errno.EEXIST,
    errno.EILSEQ,
    errno.EINVAL,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.ENOTEMPTY,
}
"""Errors of a file system that accepts other files, but none under this name."""


class NameRefused(OSError):
    """A file was written, but cannot have its name."""


class Target:
    """A folder that one run writes into."""

    def __init__(self, where: str) -> None:
        self.where = where  # an absolute path or a URL; a `StoredAt` carries the options to open it
        self._local = None if storage_of(where) else local_path(where)
        self._opened: tuple[Any, str] | None = None

    def __repr__(self) -> str:
        return f"<Target {str(self.where)!r}>"

    def path(self, name: str) -> str:
        """Return the path or URL of a file, for messages."""
        return str(Path(self._local) / name) if self._local is not None else f"{str(self.where).rstrip('/')}/{name}"

    def make(self) -> None:
        """Create the folder, if its storage has folders."""
        with self._system() as (system, root):
            system.makedirs(root, exist_ok=True)

    def write(self, name: str, data: bytes | memoryview, *, lasting: bool = True, flushed: bool = True) -> None:
        """Write a file whole, in place of an existing one, or raise `NameRefused` if only its name is the problem."""
        # Without `lasting`, the name is on the disk only after the next `sync`. Without `flushed`, the system writes
        # the bytes later: a power failure may lose them, the death of a process does not. If this raises, there is no
        # new file under the name.
        if self._local is None:
            with self._system() as (system, root):
                system.pipe_file(f"{root}/{name}", bytes(data))
            return
        final = Path(self._local) / name
        made = self._written(data, flushed=flushed)
        try:
            made.replace(final)
        except OSError as error:
            made.unlink(missing_ok=True)
            if error.errno in _OF_NAMES:
                raise NameRefused(error.errno, error.strerror, str(final)) from error
            raise
        if lasting and flushed:
            self.sync()

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless it exists, and return whether it was written."""
        if self._local is None:
            with self._system() as (system, root):
                path = f"{root}/{name}"
                if system.exists(path):
                    return False
                try:
                    system.pipe_file(path, data, mode="create")
                except FileExistsError:
                    return False
                except (TypeError, ValueError, NotImplementedError):  # this file system, or its version, lacks the mode
                    system.pipe_file(path, data)
                # Read back: without that mode, another process may have written at the same time, and the last wins.
                return bool(system.cat_file(path) == data)
        try:
            with (Path(self._local) / name).open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        self.sync()
        return True

    def read(self, name: str) -> bytes:
        """Return the bytes of a file, or raise `FileNotFoundError`."""
        with self._system() as (system, root):
            data: bytes = system.cat_file(f"{root}/{name}")
            return data

    def delete(self, name: str) -> None:
        """Delete a file if it exists."""
        with self._system() as (system, root), suppress(FileNotFoundError):
            system.rm_file(f"{root}/{name}")

    def names(self) -> list[str]:
        """Return the names in the folder, sorted, or nothing if there is no folder."""
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file in the folder, by name."""
        sizes = dict[str, int]()
        with suppress(FileNotFoundError):  # there is no folder
            if self._local is not None:
                for each in os.scandir(self._local):
                    with suppress(FileNotFoundError):  # it got its final name meanwhile
                        sizes[each.name] = each.stat().st_size
                return sizes
            with self._system() as (system, root):
                system.invalidate_cache()
                sizes = {
                    str(each["name"]).rstrip("/").rpartition("/")[2]: each["size"] or 0
                    for each in system.ls(root, detail=True)
                }
                sizes.pop("", None)
        return sizes

    def remove(self) -> None:
        """Remove the folder itself if it is local and empty."""
        if self._local is not None:
            with suppress(OSError):
                Path(self._local).rmdir()

    def _written(self, data: bytes | memoryview, *, flushed: bool = True) -> Path:
        """Return a file under a temporary name with these bytes, synced to the disk if `flushed`."""
        assert self._local is not None
        made = Path(self._local) / f"{WRITING}{uuid.uuid4().hex}"
        try:
            with made.open("xb") as file:
                file.write(data)
                file.flush()
                if flushed:
                    os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                made.unlink(missing_ok=True)
            raise
        return made

    def sync(self) -> None:
        """Sync the names of all files to the disk."""
        if self._local is None:
            return
        descriptor = os.open(self._local, os.O_RDONLY)
        try:
            with suppress(OSError):  # not every file system syncs folders
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _system(self) -> Iterator[tuple[Any, str]]:
        with redacted():
            if self._opened is None:
                import fsspec

                system, root = remote(self.where) if self._local is None else (fsspec.filesystem("file"), self._local)
                self._opened = system, root.rstrip("/")
            yield self._opened


CLAIM = "_dqlab.json"
"""The file that names the run of a folder."""
ROWS = 100_000
_PLACES = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("key", "ordinal")


class SinkTaken(UsageError):
    """The place of a sink contains something else than rows of this run, and is left unchanged."""

    text = "{path!r} has {what}, so run {run!r} cannot write its rows there. Nothing was submitted. {steps}"


class SinkUnreachable(DqlabError, OSError):
    """The folder of a sink is not the one that the run was given; an OSError, so that it is tried again."""

    text = (
        "{path!r} cannot be used from {where}: {reason}. Nothing is lost, and what waits for it is tried again. All "
        "workers and the notebook need the same folder there: a shared file system, or a bucket."
    )


@runtime_checkable
class OwnSink(Protocol):
    """The methods that make an object of your own a sink. It is pickled with the run, and unpickled on each consumer.

    The pickle stays in the log of the queue, so it must not contain secrets: look them up in `open`, in the environment
    of the process.

    One consumer opens, writes and commits each part, in a separate thread. If a method raises, the consumer retries the
    whole part from `open` on; meanwhile the run waits and shows the reason. Parts of deliveries that do not count may
    be committed, too, but no result refers to them.
    """

    def open(self, part: str) -> Any:
        """Begin a part, whose name is unique in the run; return the object that `write` and `commit` get."""
        ...

    def write(self, part: Any, rows: list[dict[str, Any]]) -> None:
        """Write rows, each with its ``value`` and its lineage.

        The lineage is ``_key``, ``_ordinal``, ``_version``, ``_code``, ``_seconds``, ``_attempts``, ``_consumer`` and
        ``_at``; and ``_part`` for rows that a function has yielded.
        """
        ...

    def commit(self, part: Any) -> str | None:
        """Make the part permanent; return its name if that differs from the name it was opened with.

        Add a method ``read(part)`` to make the run's results and tables readable: it returns the values of the part of
        that name, in the order of its rows.
        """
        ...


class _Placed:
    """What sinks of files in a folder have in common."""

    store = ""
    """The directory of the run's queue where that is known; "" for a transient queue."""
    kind = name = ""
    rows = 1_000
    path: Any
    storage_options: Any
    _where: str

    def _locate(self, path: Any) -> None:
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        if not isinstance(text, str) or not text.strip():
            raise BadOption(option="sink", value=path, problem="has no path. Name a folder, such as 'out/', or a URL.")
        check_url(text)
        storage = check_options(self.storage_options)
        local = local_path(str(Path(text).expanduser()) if text.startswith("~") else text)
        where = local if local is not None else text.rstrip("/")
        object.__setattr__(self, "path", text)
        object.__setattr__(self, "storage_options", None)
        object.__setattr__(self, "_where", StoredAt(where, storage) if storage else where)

    @property
    def target(self) -> Target:
        """The folder."""
        return Target(self._where)

    def record(self) -> dict[str, Any]:
        """Return the sink as plain data."""
        where = self._where
        spelled = where.__reduce__()[1][1] if isinstance(where, StoredAt) else ""
        return {"kind": self.kind, "rows": self.rows, "name": self.name, "where": str(where), "storage": spelled}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the sink of a record."""
        made, where, name = cls.__new__(cls), record["where"], record.get("name", "")
        found = {
            "path": f"{where.rstrip('/')}/{name}" if name else where,
            "rows": record.get("rows", cls.rows),
            "name": name,
            "store": record.get("store", ""),
            "storage_options": None,
            "_where": stored(where, record["storage"]) if record["storage"] else where,
        }
        for field_of, value in found.items():
            object.__setattr__(made, field_of, value)
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, repr=False)
class Parquet(_Placed):
    """Rows as Parquet files in a folder, with the columns of `Run.table`.

    A result that is no plain data fails its document with `ResultRefused`.

    Parameters
    ----------
    path : str or path
        The folder, which must be empty, new, or of the same run; or its URL. All workers and the notebook must reach
        it.
    rows : int, default 100,000
        Maximum rows of a file. Files are smaller at the beginning of a run, and if functions are slow: consumers write
        a row a second after it was made, and in a long run some seconds after it.
    storage_options : dict or str, optional
        Options of the file system behind a URL, as for `Documents`: secrets are "env:NAME" or "config:NAME".

    Examples
    --------
    >>> run = lab.map(extract, papers, sink=dq.Parquet("out/"))  # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    rows: int = ROWS
    storage_options: Any = None
    kind = "parquet"

    def __post_init__(self) -> None:
        self._locate(self.path)
        if type(self.rows) is not int or self.rows < 1:
            raise BadOption(option="rows", value=self.rows, problem="is how many rows at most, 1 or more.")

    def check(self) -> None:
        """Raise `ExtraMissing` if a package that it needs is not installed."""
        needs_pyarrow()


@dataclass(frozen=True, repr=False)
class Files(_Placed):
    """Each result, a text or bytes, as a separate file, named after its document; others fail their document.

    Parameters
    ----------
    path : str or path
        The folder and the name, with ``{key}`` or ``{ordinal}`` in the name: ``"txt/{key}.txt"``. In keys, slashes,
        backslashes and control characters are escaped, as "%2F", and "%" as "%25", so that all files are in one folder.
        A dot at the beginning of a name, a dot or a space at its end, and the first character of "_dqlab.json" in upper
        or lower case are escaped, too. An empty name becomes "%". A name of more than 200 bytes is cut, and ends in a
        digest. Keys of a run must be unique: of two documents with the same key, only one file remains; if a file
        system ignores case, the same applies to "A" and "a". If its file cannot have its name, for example because a
        folder has it, only that document fails, with `ResultRefused`. Texts are written as UTF-8.
    storage_options : dict or str, optional
        See `Parquet`.

    Examples
    --------
    >>> run = lab.map(text_of, papers, sink=dq.Files("txt/{key}.txt"))  # doctest: +SKIP
    """

    path: str | os.PathLike[str]
    storage_options: Any = None
    name: str = field(init=False, default="")
    kind = "files"

    def __post_init__(self) -> None:
        text = os.fspath(self.path) if isinstance(self.path, str | os.PathLike) else ""
        folder, _, name = str(text).rpartition("/")
        fields = _PLACES.findall(name)
        problem = ""
        if not fields:
            problem = "names no document: put {key} or {ordinal} into the name, as in 'txt/{key}.txt'."
        elif unknown := [each for each in fields if each not in _FIELDS]:
            problem = f"has {{{unknown[0]}}}, and knows {{key}} and {{ordinal}} alone."
        elif _PLACES.search(folder):
            problem = "has a place in the name of its folder; all files go into one."
        if problem:
            raise BadOption(option="sink", value=self.path, problem=problem)
        self._locate(folder or ".")
        object.__setattr__(self, "path", text)
        object.__setattr__(self, "name", name)

    def check(self) -> None:
        """Do nothing, because no package is needed."""


@dataclass(frozen=True, repr=False)
class Own:
    """A user's own sink, which travels pickled."""

    sealed: bytes
    name: str
    kind = "own"
    rows = ROWS

    def __repr__(self) -> str:
        return f"<sink {self.name}>"  # what it holds may be secret

    def __str__(self) -> str:
        return self.name

    def check(self) -> None:
        """Do nothing, because the object was pickled already."""

    def record(self) -> dict[str, Any]:
        """Return the sink as plain data."""
        return {"kind": self.kind, "name": self.name, "sealed": self.sealed}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return the sink of a record."""
        return cls(record["sealed"], record["name"])

    def opened(self) -> Any:
        """Return the user's object, or raise any error of unpickling it."""
        return pickle.loads(self.sealed)


Sink: TypeAlias = Parquet | Files | Own
# Records of runs contain these kinds and the fields of `record`, so keep their names.
_KINDS: dict[str, type[Any]] = {each.kind: each for each in (Parquet, Files, Own)}


def sink_of(record: Mapping[str, Any]) -> Sink:
    """Return the sink of a run's record, or raise `UsageError` for a kind that this version does not have."""
    if record["kind"] not in _KINDS:
        raise UsageError(
            reason=f"the rows of this run are {record['kind']} files in {record.get('where', '')}, which only an "
            "earlier version of dqlab reads. They are unchanged; any program that reads this format can read them"
        )
    made: Sink = _KINDS[record["kind"]].of(record)
    return made


def as_sink(given: Any, seal: Any) -> Sink:
    """Return the sink for a ``sink=`` argument, with a user's own object pickled by `seal`."""
    if isinstance(given, Parquet | Files):
        return given
    if isinstance(given, str | os.PathLike):
        return Parquet(os.fspath(given))
    missing = [name for name in ("open", "write", "commit") if not callable(getattr(given, name, None))]
    if missing or isinstance(given, type):
        problem = "is a class; pass an instance." if isinstance(given, type) else f"has no {missing[0]}()."
        ways = "A sink is a folder, a URL, dq.Parquet, dq.Files, or an object with open, write and commit."
        raise BadOption(option="sink", value=one_line(repr(type(given)), 80), problem=f"{problem} {ways}")
    return Own(seal(given), type(given).__name__)


def sink_named(word: str) -> Sink:
    """Return the sink for a word of a magic, `Files` if it has ``{key}`` or ``{ordinal}``, else `Parquet`."""
    return Files(word) if _PLACES.search(word) else Parquet(word)


def same_sink(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Return whether two records are for the same place, or for objects of a user's own with the same class."""
    if one is None or other is None:
        return one is other
    parts = ("kind", "where", "storage", "name")
    return all(one.get(part) == other.get(part) for part in parts)


# --- whose a folder is ---------------------------------------------------------------------------


def target_of(sink: Sink) -> Target | None:
    """Return the folder of a sink, or None for a user's own."""
    return None if isinstance(sink, Own) else sink.target


class Owner(NamedTuple):
    """The run that a folder belongs to."""

    run: str
    """Empty, as `id`, if the file that names the run is damaged."""
    id: str
    dropped: bool = False
    """Whether its files are being deleted; a consumer deletes what it writes from now on."""
    store: str = ""
    """The directory of its queue, "" for a transient queue and for a folder of an earlier version."""


def owner_of(target: Target) -> Owner | None:
    """Return the run that a folder belongs to, or None if no file names one."""
    try:
        named = json.loads(target.read(CLAIM))
        dropped, store = named.get("dropped") is True, str(named.get("store", ""))
        return Owner(str(named["run"]), str(named["id"]), dropped, store)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return Owner("", "")


def was_dropped(owner: Owner | None) -> bool:
    """Return whether the run of a claimed folder was dropped with its files, or is being dropped."""
    return owner is None or owner.dropped


def check_owner(sink: Parquet | Files, id: str, there: Owner | None, here: str) -> None:
    """Raise `SinkUnreachable` unless the folder is that of a run which is not being dropped, in the run's own store."""
    # `here` names this process. A copy of a store has the same runs, and knows nothing of later rows of the other one.
    reason = ""
    if there is None:
        reason = "it is not there, or has no _dqlab.json"
    elif there.id != id:
        reason = "it belongs to another run"
    elif there.dropped:
        reason = "its run was dropped, and its files are being deleted"
    elif there.store and sink.store and there.store != sink.store:
        reason = f"it belongs to the queue in {there.store}, not to {sink.store}; after a move, correct _dqlab.json"
    if reason:
        raise SinkUnreachable(path=str(sink.target.where), where=here, reason=reason)


def claim(sink: Sink, run: str, id: str, store: str = "") -> bool:
    """Give the folder of a sink to a run, and return whether this is new, or raise `SinkTaken`."""
    target = target_of(sink)
    if target is None:
        return False
    try:
        target.make()
        check_free(target, run, id)
        if target.create(CLAIM, _claim_of(sink, Owner(run, id, store=store))):
            return True
        check_free(target, run, id)  # another process created the file just now; for this run that is fine
    except OSError as error:
        what = f"no place for it ({getattr(error, 'strerror', None) or in_words(error)})"
        steps = "Make it writable, or choose another path."
        raise SinkTaken(run=run, path=str(target.where), what=what, steps=steps) from error
    return False


def _claim_of(sink: Sink, owner: Owner) -> bytes:
    """Return the contents of the file that names the run of a folder."""
    named = {"dqlab": "rows of a run; see run.drop(data=True)", "sink": sink.kind, **owner._asdict()}
    return json.dumps({name: each for name, each in named.items() if each}).encode() + b"\n"


def check_free(target: Target, run: str, id: str) -> None:
    """Raise `SinkTaken` unless a folder is empty or belongs to this run."""
    there = owner_of(target)
    if there is not None:
        if there.id == id:
            return
        what = f"rows of run {there.run!r}" if there.run != run else "rows of another run of that name"
        steps = (
            f"Choose another path; or delete them first: lab.attach({there.run!r}).drop(data=True) while that run "
            "exists, else the folder."
        )
        raise SinkTaken(run=run, path=str(target.where), what=what, steps=steps)
    # Ignore unfinished files, which a killed process may have left.
    if foreign := next((name for name in target.names() if name != CLAIM and not name.startswith(WRITING)), None):
        what = f"{foreign!r}, which is not of this run"
        raise SinkTaken(run=run, path=str(target.where), what=what, steps="Choose an empty folder, or a new one.")


def let_go(sink: Sink, id: str, files: Iterable[str] = ()) -> int:
    """Delete a run's files and claim in the folder of its sink, and return how many files that were."""
    if isinstance(sink, Own):
        return 0
    target = sink.target
    there = owner_of(target)
    if there is None or there.id != id:
        return 0
    check_owner(sink, id, there._replace(dropped=False), "here")
    # Mark the claim first: consumers then delete what they write after the listing below. Delete the claim last: after
    # a crash at any line the folder still belongs to its run, and this can be called again. Files of other programs
    # stay. Names of `Files` do not show who wrote them, so `files` has those that results refer to.
    target.write(CLAIM, _claim_of(sink, there._replace(dropped=True)))
    its = set(files)
    gone = [
        name
        for name in target.names()
        if name.startswith(WRITING) or (name in its if isinstance(sink, Files) else _belongs(sink, id, name))
    ]
    for name in gone:
        target.delete(name)
    target.delete(CLAIM)
    target.remove()
    return len(gone)


def extent(sink: Sink, id: str) -> str:
    """Return how many files a run has in its sink, their size and place, in words, or "" for a user's own sink."""
    target = target_of(sink)
    if target is None:
        return ""
    sizes = [size for name, size in target.sizes().items() if _belongs(sink, id, name)]
    return f"{many(len(sizes), 'file')}, {size_of(sum(sizes))}, in {target.where}"


def _belongs(sink: Sink, id: str, name: str) -> bool:
    if not isinstance(sink, Files):
        return name.startswith(prefix_of(id))
    pattern = "".join(".+" if at % 2 else re.escape(piece) for at, piece in enumerate(_PLACES.split(sink.name)))
    return name != CLAIM and re.fullmatch(pattern, name) is not None


def prefix_of(id: str) -> str:
    """Return the beginning of the names of a run's parts."""
    return f"{id[:8]}-"
