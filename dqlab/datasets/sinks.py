"""Where the rows of a run are written: what users name as ``sink=``, and which run a folder belongs to.

Owns the kinds of sinks as they travel in a run's record. How rows become files is the business of `sink_parts`. Loads
no pyarrow: `check` asks for it where a run is mapped.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from dqlab.datasets import needs_pyarrow
from dqlab.datasets.sink_targets import WRITING, Target
from dqlab.documents.storage import StoredAt, check_options, check_url, local_path, stored
from dqlab.errors import BadOption, DqlabError, UsageError, in_words
from dqlab.numbers import many
from dqlab.numbers import size as size_of
from dqlab.texts import one_line

__all__ = [
    "CLAIM",
    "JSONL",
    "Files",
    "OwnSink",
    "Owner",
    "Parquet",
    "Sink",
    "SinkTaken",
    "SinkUnreachable",
    "as_sink",
    "check_free",
    "claim",
    "extent",
    "let_go",
    "owner_of",
    "prefix_of",
    "same_sink",
    "sink_named",
    "sink_of",
    "target_of",
    "was_dropped",
]

CLAIM = "_dqlab.json"
"""The file with the run that a folder belongs to."""
ROWS = 100_000
_PLACES = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("key", "ordinal")


class SinkTaken(UsageError):
    """The place of a sink has something else than rows of this run, which is left as it is."""

    text = "{path!r} has {what}, so run {run!r} cannot write its rows there. Nothing was submitted. {steps}"


class SinkUnreachable(DqlabError, OSError):
    """The folder of a sink is not the one that the run was given; an OSError, so it is tried again."""

    text = (
        "{path!r} cannot be reached from {where}: {reason}. Nothing is lost, and it is tried again. All workers and "
        "the notebook need the same folder there: a shared file system, or a bucket."
    )


@runtime_checkable
class OwnSink(Protocol):
    """What an object of your own has to be a sink. It is pickled with the run, and opened on each consumer.

    The pickle stays in the log of the queue: have it look secrets up in `open`, in the environment of its process.

    Each part is opened, written and committed by one consumer, in a thread that does nothing else. What raises is tried
    again, the whole part from `open` on, while the run is held up and shows the reason. Parts of deliveries that do not
    count stay unreferenced: they were committed, and no result refers to them.
    """

    def open(self, part: str) -> Any:
        """Begin a part, by a name that is unique in the run; return what the other two get."""
        ...

    def write(self, part: Any, rows: list[dict[str, Any]]) -> None:
        """Write rows: each has its ``value``, and its lineage.

        That is ``_key``, ``_ordinal``, ``_version``, ``_code``, ``_seconds``, ``_attempts``, ``_consumer`` and ``_at``.
        """
        ...

    def commit(self, part: Any) -> str | None:
        """Make the part last; return a name for it, if it is to be read by another one than it was opened with.

        With a method ``read(part)``, which returns the values of the part of that name in the order of its rows, the
        run's results and tables can be read; it is asked for nothing else.
        """
        ...


class _Placed:
    """What sinks have in common that are files in a folder."""

    path: Any
    storage_options: Any
    _where: str

    def _locate(self, path: Any) -> None:
        if not isinstance(path, str | os.PathLike):
            raise BadOption(option="sink", value=path, problem="has no path. Name a folder, such as 'out/', or a URL.")
        text = os.fspath(path)
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
        """Its folder."""
        return Target(self._where)

    def _placed(self) -> dict[str, Any]:
        where = self._where
        spelled = where.__reduce__()[1][1] if isinstance(where, StoredAt) else ""
        return {"where": str(where), "storage": spelled}

    def _found(self, record: Mapping[str, Any]) -> None:
        where = record["where"]
        object.__setattr__(self, "path", where)
        object.__setattr__(self, "storage_options", None)
        object.__setattr__(self, "_where", stored(where, record["storage"]) if record["storage"] else where)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, repr=False)
class Parquet(_Placed):
    """Rows as Parquet files in a folder, with the columns of `Run.table`.

    Parameters
    ----------
    path : str or path
        The folder, which must be empty, new, or of the same run; or its URL. All workers and the notebook must reach
        it.
    rows : int, default 100,000
        Maximum rows of a file. Files are smaller at the beginning of a run, and if functions are slow: consumers write
        a row at most about a second after it was made.
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
        """Raise `ExtraMissing` where what it needs is not installed."""
        needs_pyarrow()

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"kind": self.kind, "rows": self.rows, **self._placed()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return what `record` was made of."""
        made = cls(".", rows=record["rows"])
        made._found(record)
        return made


@dataclass(frozen=True, repr=False)
class JSONL(Parquet):
    """Rows as lines of JSON in files of a folder; values that JSON cannot express become text, as in ``_rest``.

    Parameters
    ----------
    path : str or path
        See `Parquet`.
    rows : int, default 100,000
        Maximum lines of a file.
    storage_options : dict or str, optional
        See `Parquet`.
    """

    kind = "jsonl"

    def check(self) -> None:
        """Return: nothing has to be installed."""


@dataclass(frozen=True, repr=False)
class Files(_Placed):
    """Each result, a text or bytes, as a separate file, named after its document.

    Parameters
    ----------
    path : str or path
        The folder and the name, with ``{key}`` or ``{ordinal}`` in the name: ``"txt/{key}.txt"``. In keys, slashes,
        backslashes and control characters are escaped, as "%2F", and "%" as "%25", so that all files are in one folder;
        so are a dot at the beginning of a name, a dot or a space at its end, and the first character of
        "_dqlab.json", in any case. An empty name becomes "%". A name of more than 200 bytes is cut, and ends in a
        digest. Keys of a run must be unique: of two documents with one key, only one file stays, and where a file
        system ignores case, also of "A" and "a". A document fails alone, with `NameNotForSink`, if its file cannot
        have its name, such as that of a folder. Texts are written as UTF-8.
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
    rows = 1_000

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
        """Return: nothing has to be installed."""

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"kind": self.kind, "name": self.name, **self._placed()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return what `record` was made of."""
        made = cls(f"./{record['name']}")
        made._found(record)
        object.__setattr__(made, "path", f"{record['where'].rstrip('/')}/{record['name']}")
        return made


@dataclass(frozen=True, repr=False)
class Own:
    """A sink of the user's own; it travels sealed."""

    sealed: bytes
    name: str
    kind = "own"
    rows = ROWS

    def __repr__(self) -> str:
        return f"<sink {self.name}>"  # what it holds may be secret

    def __str__(self) -> str:
        return self.name

    def check(self) -> None:
        """Return: it was pickled."""

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"kind": self.kind, "name": self.name, "sealed": self.sealed}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Return what `record` was made of."""
        return cls(record["sealed"], record["name"])

    def opened(self) -> Any:
        """Return the user's object; raises whatever opening it raises."""
        return pickle.loads(self.sealed)


Sink: TypeAlias = Parquet | Files | Own
_KINDS: dict[str, type[Any]] = {each.kind: each for each in (Parquet, JSONL, Files, Own)}


def sink_of(record: Mapping[str, Any]) -> Sink:
    """Return the sink that a run's record has."""
    made: Sink = _KINDS[record["kind"]].of(record)
    return made


def as_sink(given: Any, seal: Any) -> Sink:
    """Return what a user gives as ``sink=``: one of ours, a folder or URL for Parquet, or an object of the user's own.

    Parameters
    ----------
    given : object
    seal : callable
        Returns an object as bytes that any process can open; an error of its own otherwise.
    """
    if isinstance(given, Parquet | Files):
        return given
    if isinstance(given, str | os.PathLike):
        return Parquet(os.fspath(given))
    missing = [name for name in ("open", "write", "commit") if not callable(getattr(given, name, None))]
    if missing or isinstance(given, type):
        problem = "is a class; pass an instance." if isinstance(given, type) else f"has no {missing[0]}()."
        ways = "A sink is a folder, a URL, dq.Parquet, dq.JSONL, dq.Files, or an object with open, write and commit."
        raise BadOption(option="sink", value=one_line(repr(type(given)), 80), problem=f"{problem} {ways}")
    return Own(seal(given), type(given).__name__)


def sink_named(word: str) -> Sink:
    """Return the sink that a word of a line stands for: files where it has ``{key}`` or ``{ordinal}``, else Parquet."""
    return Files(word) if _PLACES.search(word) else Parquet(word)


def same_sink(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> bool:
    """Return whether two records are of one place; objects of a user's own are compared by their class."""
    if one is None or other is None:
        return one is other
    parts = ("kind", "where", "storage", "name")
    return all(one.get(part) == other.get(part) for part in parts)


# --- whose a folder is ---------------------------------------------------------------------------


def target_of(sink: Sink) -> Target | None:
    """Return the folder of a sink; None of one of the user's own."""
    return None if isinstance(sink, Own) else sink.target


class Owner(NamedTuple):
    """The run that a folder belongs to.

    Attributes
    ----------
    run, id : str
        Both "" where the file that names them is damaged.
    dropped : bool
        Its files are being deleted: what a consumer writes from now on, it deletes itself.
    """

    run: str
    id: str
    dropped: bool = False


def owner_of(target: Target) -> Owner | None:
    """Return the run that a folder belongs to; None where no file names one. Raises OSError."""
    try:
        named = json.loads(target.read(CLAIM))
        return Owner(str(named["run"]), str(named["id"]), dropped=named.get("dropped") is True)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return Owner("", "")


def was_dropped(owner: Owner | None) -> bool:
    """Return whether the run of a folder that was claimed has been dropped with its files, or is being dropped."""
    return owner is None or owner.dropped


def claim(sink: Sink, run: str, id: str) -> bool:
    """Make the folder of a sink that of a run; return whether it was not yet.

    Raises
    ------
    SinkTaken
        It is another run's, or has other files, or cannot be written.
    """
    target = target_of(sink)
    if target is None:
        return False
    try:
        target.make()
        check_free(target, run, id)
        if target.create(CLAIM, _claim_of(sink, Owner(run, id))):
            return True
        check_free(target, run, id)  # another one was faster, unless it was this run
    except OSError as error:
        what = f"no place for it ({getattr(error, 'strerror', None) or in_words(error)})"
        steps = "Make it writable, or choose another path."
        raise SinkTaken(run=run, path=str(target.where), what=what, steps=steps) from error
    return False


def _claim_of(sink: Sink, owner: Owner) -> bytes:
    """Return the bytes of the file that names the run of a folder."""
    named = {"dqlab": "rows of a run; see run.drop(data=True)", "run": owner.run, "id": owner.id, "sink": sink.kind}
    return json.dumps(named | ({"dropped": True} if owner.dropped else {})).encode() + b"\n"


def check_free(target: Target, run: str, id: str) -> None:
    """Refuse a folder that is not this run's and not empty."""
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
    if foreign := next((name for name in target.names() if name != CLAIM and not name.startswith(WRITING)), None):
        what = f"{foreign!r}, which is not of this run"
        raise SinkTaken(run=run, path=str(target.where), what=what, steps="Choose an empty folder, or a new one.")


def let_go(sink: Sink, id: str, files: Iterable[str] = ()) -> int:
    """Delete what a run has written into the folder of its sink, and its claim; return how many files that were.

    Files that another program has put there stay. Raises OSError.

    Parameters
    ----------
    files : iterable of str
        Of `Files`: the names of those that its results refer to. Which others it has written, no name shows.
    """
    target = target_of(sink)
    if target is None:
        return 0
    there = owner_of(target)
    if there is None or there.id != id:
        return 0
    # First, since what a consumer writes behind the listing is not deleted here. The file itself goes last: killed at
    # any line of this, the folder is that of its run, and this can be called again.
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
    """Return how many files a run has in its sink, their size and where they are, in words.

    Files that were merged into others and not deleted yet count too. "" for a sink of the user's own.
    """
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
    """Return what the names of a run's parts begin with."""
    return f"{id[:8]}-"
