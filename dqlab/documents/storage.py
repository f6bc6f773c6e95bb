"""Where documents are stored: on this machine, or behind fsspec with the options that users give for it.

Owns how a path or URL is opened, what identifies a version of a file, which file of each storage was read last, and
`StoredAt`, a URL that carries the name of its options. Only a URL makes it import fsspec. Options travel once with the
function of a run, whose references have only their name (`naming`, `learn`), and with each reference that travels
otherwise. They contain no secrets: they name the environment variable, or the entry of Dask's config, that holds a
secret where a document is opened.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from dqlab.config import entry
from dqlab.documents.kept_open import let_go
from dqlab.documents.parts import Reference
from dqlab.documents.servers import ServerBusy, ServerSilent, answered, causes, is_refusal, refusal_in
from dqlab.errors import (
    BadOption,
    DocumentChanged,
    DocumentError,
    DqlabError,
    ExtraMissing,
    UsageError,
    WrongKind,
    in_words,
)
from dqlab.imports import import_whole
from dqlab.texts import one_line

T = TypeVar("T")
_ENDLESS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
IN_MEMORY = 16 << 20
"""Bytes; a larger file of unknown length is kept in a temporary file instead of memory."""
_PIECE = 1 << 16
SILENCE = 20.0
"""Seconds without data from a web server after which reading fails; listing one file may take this time twice."""
_URL = re.compile(r"(?:[a-z][a-z0-9+._-]*::)*[a-z][a-z0-9+._-]*://", re.ASCII | re.IGNORECASE)
_UNEVEN = re.compile(r"/(?:[/.]|\Z)")
"""What a `Path` may leave out of a path."""
_LOCAL_URL = re.compile(r"(?:file|local)://", re.IGNORECASE)
_ETAGS = ("ETag", "etag", "md5Hash", "CRC")
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
_SECRET = re.compile(
    r"secret|passw|passphrase|token|credential|connection_string|private|sas|account_key|access_key|authorization|cookie"
)
"""Matches names of options that hold a secret, in lower case, together with `_KEYS`."""
_KEYS = frozenset({"key", "auth", "pwd", "api_key", "apikey", "client_id_key"})
_PLAIN = frozenset({"anon", "cloud", "google_default", "cache", "browser", ""})
"""Words that gcsfs accepts in place of a token, and that are not secrets."""
_FROM = ("env:", "config:")
_LOGIN = re.compile(r"(?<=://)[^/?#@]*:[^/?#@]+(?=@)")
"""The name and password in a URL; a "/" in a password would end the host, so it is written "%2F"."""

_spelled: dict[str, str] = {}
"""Options by name, as JSON: of a dict, or of the name of a section of Dask's config."""
_secrets: set[str] = set()
"""Secrets that were looked up here, also earlier ones: what was opened with one may repeat it in an error."""


class StoredAt(str):
    """A URL that carries the name of the options for its file system, and otherwise behaves as a str."""

    # It equals the same URL of another store, so whatever is kept by place uses `place_of` as its key.
    __slots__ = ("storage",)
    storage: str

    def __new__(cls, url: str, storage: str) -> StoredAt:
        """Join a URL and the name of its options."""
        made = super().__new__(cls, url)
        made.storage = storage
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        spelled = _spelled.get(self.storage)
        if spelled is None or self.storage in getattr(_pickled, "by_name", ()):
            return named, (str(self), self.storage)
        return stored, (str(self), spelled)


_pickled = threading.local()
"""`by_name`: names of options that do not travel with the references that this thread pickles."""


def naming(seal: Callable[[Any], T], options: Sequence[str]) -> Callable[[Any], T]:
    """Return `seal` with these options pickled by name only, since readers get them through `learn`."""
    if not options:
        return seal
    names = frozenset(_name_of(option) for option in options)

    def sealed(value: Any) -> T:
        _pickled.by_name = names
        try:
            return seal(value)
        finally:
            _pickled.by_name = ()  # the input itself may pickle references in this thread, for any reader

    return sealed


def learn(options: Iterable[str]) -> None:
    """Remember options that travelled apart from their references."""
    for spelled in options:
        _learn(spelled)


def spelled_out(names: Iterable[str]) -> list[str]:
    """Return options as text, from their names, sorted, without options that are unknown here."""
    return sorted(_spelled[name] for name in set(names) if name in _spelled)


def named(url: str, name: str) -> StoredAt:
    """Join a URL and the name of its options, as pickles of a run's references do."""
    return StoredAt(url, name)


def stored(url: str, spelled: str) -> StoredAt:
    """Join a URL and its options as text, as pickles of other references do."""
    return StoredAt(url, _learn(spelled))


def storage_of(where: object) -> str:
    """Return the name of a URL's options, or "" if it has none."""
    return where.storage if type(where) is StoredAt else ""


def place_of(where: str) -> Hashable:
    """Return a key that differs for the same URL in different stores."""
    return (where, where.storage) if type(where) is StoredAt else where


def located(where: str, storage: str) -> str:
    """Return a URL with the name of its options, if it has any."""
    return StoredAt(where, storage) if storage else where


def check_url(where: str) -> None:
    """Refuse a URL with a password, because the log of a queue keeps references, and so their URLs."""
    if "@" in where and _LOGIN.search(where) is not None:
        raise UsageError(
            reason=f"the URL {_LOGIN.sub('***', where)} has a password in it, and URLs of documents are kept in the "
            "log of a queue. Nothing was listed. Take name and password out of the URL, set the password in the "
            "environment of workers and of this notebook, and name its variable: "
            "storage_options={'username': '...', 'password': 'env:STORAGE_PASSWORD'}."
        )


def check_options(options: Any) -> str:
    """Check a user's options, remember them in this process, and return their name, or "" for none."""
    if options is None:
        return ""
    if isinstance(options, str):
        if not options.strip():
            problem = "is empty. Name a section of Dask's config, or pass a dict."
            raise BadOption(option="storage_options", value=options, problem=problem)
        plain: Any = options
    elif isinstance(options, Mapping):
        plain = _checked(options, "")
        if not plain:
            return ""
    else:
        problem = f"is a {type(options).__name__}, not a dict, nor a name in Dask's config. Nothing was listed."
        raise BadOption(option="storage_options", value="...", problem=problem)
    # Sorted, because the name is a hash of this text, and equal options must have equal names.
    return _learn(json.dumps(plain, sort_keys=True, separators=(",", ":")))


def _learn(spelled: str) -> str:
    """Remember options as text, and return their name."""
    name = _name_of(spelled)
    _spelled[name] = spelled
    return name


def _name_of(spelled: str) -> str:
    # References in logs contain such names: with another digest, their options would be unknown.
    return blake2b(spelled.encode(), digest_size=6).hexdigest()


def _checked(options: Mapping[Any, Any], above: str) -> dict[str, Any]:
    """Return options as plain data, without a secret's value in any error."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        called = f"{above}{name}"
        if not isinstance(name, str):
            problem = "has a name that is not a string. Nothing was listed."
            raise BadOption(option="storage_options", value=called, problem=problem)
        if isinstance(value, Mapping):
            found[name] = _checked(value, f"{called}.")
        elif _is_secret(name) and not (
            value is None
            or isinstance(value, bool)
            or (isinstance(value, str) and (value in _PLAIN or value.startswith(_FROM)))
        ):
            variable = re.sub(r"\W", "_", name).upper()
            raise UsageError(
                reason=f"storage_options[{called!r}] holds a secret, and options are kept in the log of a queue. "
                "Nothing was listed. Set the secret in the environment of workers and of this notebook, and name its "
                f"variable: storage_options={{{called!r}: 'env:{variable}'}}; or name an entry of Dask's "
                "config: 'config:NAME'."
            )
        elif value is None or isinstance(value, str | int | float | bool):
            found[name] = value
        elif isinstance(value, list | tuple) and all(isinstance(each, str | int | float | bool) for each in value):
            found[name] = list(value)
        else:
            problem = (
                f"storage_options[{called!r}] is a {type(value).__name__}; options travel as text, numbers and truth "
                "values. Nothing was listed."
            )
            raise BadOption(option="storage_options", value=called, problem=problem)
    return found


def _is_secret(name: str) -> bool:
    name = name.lower()
    return name in _KEYS or _SECRET.search(name) is not None


# --- where documents are opened ---


def _resolved(storage: str) -> dict[str, Any]:
    """Return options with the secrets that this process has now, or raise `DocumentError`."""
    if not storage:
        return {}
    if storage not in _spelled:
        raise DocumentError(
            reason=f"the storage_options that this document is opened with are not known {_here()}: a run's messages "
            "have their name alone. Nothing was read. Attach to the run first, lab.attach(name), or list the document "
            "again with its storage_options."
        )
    options: dict[str, Any] | str = json.loads(_spelled[storage])
    if isinstance(options, str):
        found = entry(options)
        if not isinstance(found, Mapping):
            raise _unset(f"{options!r} as a section of Dask's config", f"Set dask.config {options}")
        options = dict(found)
    return _with_values(options)


def _with_values(options: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        found[name] = _with_values(value) if isinstance(value, Mapping) else _value(value)
        is_secret = _is_secret(name) or str(value).startswith(_FROM)
        # Hiding "1" or "no" would garble any text.
        if is_secret and isinstance(found[name], str) and len(found[name]) > 3 and found[name] not in _PLAIN:
            _secrets.add(found[name])
    return found


def _value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("env:"):
        name = value.removeprefix("env:")
        if name not in os.environ:
            raise _unset(f"the variable {name}", f"Set {name} where workers start")
        return os.environ[name]
    if isinstance(value, str) and value.startswith("config:"):
        name = value.removeprefix("config:")
        found = entry(name)
        if found is None:
            variable = "DASK_" + name.upper().replace(".", "__").replace("-", "_")
            raise _unset(f"{name!r} of Dask's config", f"Set it in the configuration of workers, or as {variable}")
        return found
    return value


def _unset(what: str, hint: str) -> DocumentError:
    left = "Nothing was read there, and no result is lost."
    return DocumentError(reason=f"{what} is not set {_here()}. {left} {hint}, then retry.")


def _here() -> str:
    import socket

    return f"in process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def redacted() -> Iterator[None]:
    """Raise errors without the secrets that this process has looked up, which some file systems repeat."""
    try:
        yield
    except Exception as error:
        texts = ["\n".join([str(cause), *getattr(cause, "__notes__", ())]) for cause in causes(error)]
        if isinstance(error, DqlabError) or all(without_secrets(text) == text for text in texts):
            raise
        # The text of the error and of its first cause; `from None` below drops the chain, which contains the secrets.
        text = f"{texts[0]} ({texts[-1]})" if texts[0] != texts[-1] else texts[0]
        kind = type(error) if type(error) in (PermissionError, FileNotFoundError, OSError) else OSError
        raise kind(without_secrets(text)) from None


@contextmanager
def asked(where: str) -> Iterator[None]:
    """Raise errors of a file system as `answered` and `redacted` do."""
    with answered(where), redacted():
        yield


def without_secrets(text: str) -> str:
    """Return a text without the secrets that this process has looked up."""
    for secret in sorted(_secrets, key=len, reverse=True):  # one may be part of another
        text = text.replace(secret, "***")
    return text


class Guarded(io.RawIOBase):
    """A stream that reads from another one inside a guard that changes the errors of each read."""

    def __init__(
        self,
        stream: BinaryIO,
        guard: Callable[[], AbstractContextManager[None]],
        given: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()
        # `guard` returns a context manager for one read or seek; `given` is called after a read that returned data.
        self._stream, self._guard, self._given = stream, guard, given

    @property
    def details(self) -> Any:
        """What a file system knows of its file, or None for other streams."""
        return getattr(self._stream, "details", None)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return whether the stream inside can seek."""
        return self._stream.seekable()

    def tell(self) -> int:
        """Return the position."""
        return self._stream.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position, which restarts a compressed stream if it is before the current one."""
        with self._guard():
            return self._stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or the rest."""
        with self._guard():
            data = self._stream.read(size)
        if data:
            self._given()
        return data

    def readall(self) -> bytes:
        """Read the rest."""
        return self.read()

    def readinto(self, buffer: Any) -> int:
        """Read what is available, at most one buffer."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readline(self, size: int | None = -1) -> bytes:
        """Read one line."""
        # The inherited method reads byte by byte; `readline` of file systems accepts no size.
        if size is not None and size >= 0:
            return super().readline(size)
        with self._guard():
            line = self._stream.readline()
        if line:
            self._given()
        return line

    def close(self) -> None:
        """Close the stream inside."""
        if not self.closed:
            try:
                self._stream.close()
            finally:
                super().close()


# --- opening ---


def local_path(place: str) -> str | None:
    """Return the absolute path of a path or file:// URL, or None for any other URL, checked for passwords."""
    if place.startswith("/") and os.sep == "/" and _UNEVEN.search(place) is None:
        return place  # as nearly always, in a tenth of the time of a `Path`
    if (local := _LOCAL_URL.match(place)) and "::" not in place:
        return str(Path(place[local.end() :]).absolute())
    if _URL.match(place) is None:
        return str(Path(place).absolute())
    check_url(place)
    return None


def copied(stream: BinaryIO, in_memory: int) -> BinaryIO:
    """Return a copy of a stream, in memory or, if it has more bytes, in an unnamed temporary file."""
    copy = tempfile.SpooledTemporaryFile(in_memory)  # noqa: SIM115 - for its reader
    try:
        shutil.copyfileobj(stream, copy, _PIECE)
        copy.seek(0)
    except BaseException:
        copy.close()
        raise
    return cast(BinaryIO, copy)


def open_binary(where: str) -> BinaryIO:
    """Open a path or URL for reading, or raise an `ImportError` that names the package its file system needs."""
    path = local_path(where)
    if path is not None:
        # Look first: opening a pipe waits for a writer, for ever if none comes, and some devices never end.
        if (kind := _ENDLESS.get(stat.S_IFMT(os.stat(path).st_mode))) is not None:
            raise WrongKind(key=where, kind=kind, asked="reading", instead="a regular file with what it gives")
        return Path(path).open("rb")
    with asked(where):
        system, path = remote(where)
        stream = cast(BinaryIO, Guarded(system.open(path, "rb"), partial(asked, where), partial(note_read, where)))
    details = getattr(stream, "details", None)
    if isinstance(details, Mapping) and details.get("size", 0) is None:
        # Of a file whose server states no length, since archives and Parquet files seek in it. The buffer closes the
        # copy with its last reference.
        with stream:
            return cast(BinaryIO, io.BufferedReader(cast(Any, copied(stream, IN_MEMORY))))
    if not system.cachable:
        # An archive closes itself and its members when it is no longer referenced, so the stream's finalizer refers to
        # it.
        weakref.finalize(stream, _keep_alive, system)
    return stream


def _keep_alive(system: object) -> None:
    """Do nothing, because the finalizer only keeps the file system alive until now."""


def remote(url: str) -> tuple[Any, str]:
    """Return the file system behind a URL, and the path in it."""
    import_whole("fsspec.core")  # only here: local documents do not need it
    import fsspec.core

    storage = storage_of(url)
    options = _resolved(storage) if storage else {}
    try:
        if _WEB.match(url) is not None:
            options = _of_web(url, options)
        if (bucket := _OF_BUCKET.match(url)) is not None:
            system = fsspec.filesystem(bucket[1].lower(), **options)
            return system, system._strip_protocol(str(url))
        # str(), because a StoredAt would bring its options a second time, and compiled code wants exact strings.
        system, path = fsspec.core.url_to_fs(str(url), **options)
    except ImportError as error:
        package, scheme = _package_in(error), url.rpartition("::")[2].partition("://")[0]
        raise ExtraMissing.of(error, package, what=f"files of {scheme}://", extra=_EXTRAS.get(package)) from error
    return system, path


_OF_BUCKET = re.compile(r"(s3a?|gs|gcs|az|abfss?)://.*::(?!.*://)", re.ASCII | re.IGNORECASE | re.DOTALL)
"""The URL of an object whose key contains "::", which fsspec would take for a chained URL."""
_WEB = re.compile(r"(?:.*::)?(https?)://(?!.*::)", re.ASCII | re.IGNORECASE | re.DOTALL)
_ENCODED = re.compile(r"https?://(?!.*::)[^?]*\.(?:gz|tgz|zst)(?:\?.*)?\Z", re.ASCII | re.IGNORECASE | re.DOTALL)
"""URLs of compressed files: a web server may declare the compression as the encoding of its response, which clients
undo."""


def _of_web(url: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return options that bound the wait for a web server, and make files arrive as they are stored."""
    import fsspec
    from fsspec.implementations.http import HTTPFileSystem

    scheme = cast(re.Match[str], _WEB.match(url))[1].lower()
    if fsspec.get_filesystem_class(scheme) is not HTTPFileSystem:
        return options
    if "::" in url:  # the options belong to the first URL of the chain, and those of the others are nested by scheme
        return {**options, scheme: _bounded(options.get(scheme) or {})}
    options = _bounded(options)
    return options if _ENCODED.match(url) is None else _undecoded(options)


def _bounded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that limit how long a server may send nothing, instead of the time for a whole file."""
    import aiohttp

    client = dict(options.get("client_kwargs") or {})
    # aiohttp's own default, 300 s for the whole transfer, would end the download of a large file.
    seconds = client.get("timeout", SILENCE)
    if isinstance(seconds, int | float):
        client["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)
    return {**options, "client_kwargs": client}


def _undecoded(options: dict[str, Any]) -> dict[str, Any]:
    """Return options with which a compressed file arrives as it is stored."""
    # "identity", so that the server does not compress it a second time.
    headers = {"Accept-Encoding": "identity", **(options.get("headers") or {})}
    return {"auto_decompress": False, **options, "headers": headers}


_EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure", "aiohttp": "documents"}
"""Extras of dqlab that install a package of a file system."""


def _package_in(error: ImportError) -> str:
    """Return the missing package from an ImportError, or its text."""
    cause = error.__cause__
    name = error.name or (cause.name if isinstance(cause, ImportError) else None)
    if name:
        return name.partition(".")[0]
    return in_words(error)


# --- versions ---


class Stamp(NamedTuple):
    """What identifies a version of a file."""

    version: str
    size: int | None
    """Bytes; None when unknown."""


UNKNOWN = Stamp("", None)
"""The stamp of a file that this process cannot examine."""


def stamp_of_open(where: str, stream: BinaryIO) -> Stamp:
    """Return the stamp of a stream of `open_binary`, or UNKNOWN if it has none."""
    if local_path(where) is not None:
        return local_stamp(os.fstat(stream.fileno()))
    # Files of S3 have `details` since they were opened; other file systems may request them. Files of a cache such as
    # `simplecache::` have the stamp of the copy.
    details = getattr(stream, "details", None)
    return remote_stamp(details) if isinstance(details, Mapping) else UNKNOWN


def stamp_of(where: str) -> Stamp:
    """Examine a file without opening it, with one request if it is remote, and with the errors of `open_binary`."""
    path = local_path(where)
    if path is not None:
        return local_stamp(os.stat(path))
    with asked(where):
        system, path = remote(where)
        return remote_stamp(system.info(path))


def local_stamp(status: os.stat_result) -> Stamp:
    """Return what identifies a version of a local file."""
    return Stamp(f"{status.st_size}-{status.st_mtime_ns}", status.st_size)


def remote_stamp(info: Mapping[str, Any]) -> Stamp:
    """Return what identifies a version of a file, from the information that its file system lists."""
    size = info.get("size")
    for name in _ETAGS:
        if info.get(name):
            return Stamp(str(info[name]).strip('"'), size)
    for name in _TIMES:
        if info.get(name):
            return Stamp(f"{size}-{_instant(info[name])}", size)
    return Stamp("" if size is None else str(size), size)


def _instant(when: Any) -> str:
    # A store may give seconds in a listing and a datetime for a single file; both must give the same text.
    if isinstance(when, int | float):
        when = datetime.fromtimestamp(when, UTC)
    return when.isoformat() if isinstance(when, datetime) else str(when)


_ETAG = re.compile(r"[0-9a-f]{32}(?:-\d+)?")
"""The version of an object of S3: an MD5, with a number for multipart uploads. Versions of other stores are not
compared, because the precision of their times differs between a listing and a single object."""


def has_etag(reference: Reference) -> bool:
    """Return whether a document's version is the ETag from its listing."""
    return reference.size is not None and _ETAG.fullmatch(reference.version) is not None


def check_stamp(reference: Reference, now: str) -> None:
    """Raise `DocumentChanged` if the stamp of a file differs from its listing, unless a user made the version."""
    was = reference.version
    # A version from a listing begins with the listed size; a user's own, such as "2024-01", does so only by chance.
    if was == now or reference.size is None:
        return
    if re.fullmatch(rf"{reference.size}-(-?\d+)", was) or (has_etag(reference) and _ETAG.fullmatch(now)):
        raise DocumentChanged(document=reference.key, was=was, now=now)


# --- storage that refuses ---


ROOTS = 16
"""Storages, at most, whose last file is remembered."""
_QUERY = re.compile(r"\?[^\s'\"]+")
"""The query of a URL, which may contain a signature."""
_ROOT = re.compile(r"[^:/]+://[^/?#]*")

_read: dict[str, str] = {}
"""The file that was read last, by storage."""
_latest = ""


def is_of_server(error: BaseException, where: str) -> bool:
    """Return whether reading a file fails due to its server or the network, and not because it is refused or gone."""
    if local_path(where) is not None or is_refusal(error):
        return False
    mine = DqlabError, MemoryError, ImportError, IsADirectoryError
    return not isinstance(error, (*mine, FileNotFoundError))


_WRAPPERS = (FileNotFoundError, TimeoutError, ServerBusy, ServerSilent)
"""Errors that wrap the error of a server, and say less than it does."""


def words_of_server(error: BaseException) -> str:
    """Return the text of a server's error, without secrets."""
    found = next((cause for cause in causes(error) if type(cause) not in _WRAPPERS), error)
    return one_line(without_secrets(in_words(found)), 200)


def root_of(where: str) -> str:
    """Return what identifies the storage of a URL, its scheme, its host or bucket, and the name of its options."""
    found = _ROOT.match(where.rpartition("::")[2])
    return f"{storage_of(where)} {found[0] if found else where}"


def note_read(where: str) -> None:
    """Note that a file behind a URL was read here just now."""
    global _latest
    if where is _latest:  # `is`, which is fast, and because the same URL of another store is equal
        return
    _latest, root = where, root_of(where)
    if root not in _read and len(_read) >= ROOTS:
        with suppress(StopIteration, KeyError, RuntimeError):  # without a lock: another thread may change it meanwhile
            del _read[next(iter(_read))]
    _read[root] = where


def read_before(where: str) -> list[str]:
    """Return the URL of the file that this process read last from the storage of another, and its options' name."""
    before = _read.get(root_of(where))
    return [] if before is None else [str(before), storage_of(before)]


def refuses(where: str) -> str:
    """Return why a storage refuses a file now, or "" if it gives its first byte or fails for another reason."""
    try:
        reconnect(where)  # open connections and files may hold credentials that were renewed meanwhile
        with open_binary(where) as stream:
            stream.read(1)
    except Exception as error:  # noqa: BLE001 - reading the file raises any other error
        return words_of_refusal(error)
    return ""


def words_of_refusal(error: BaseException) -> str:
    """Return why a storage refuses something, without secrets, or "" if the error has another reason."""
    found = refusal_in(error)
    return "" if found is None else one_line(_QUERY.sub("?...", without_secrets(in_words(found))), 200)


def connected(where: str, ask: Callable[[], T]) -> T:
    """Return a storage's answer, and ask once more over a new connection if it refuses."""
    try:
        return ask()
    except Exception as error:
        if local_path(where) is not None or not is_refusal(error):
            raise
    # fsspec keeps connections for the life of a process, with the credentials that they began with.
    reconnect(where)
    return ask()


def reconnect(where: str) -> None:
    """Drop everything that is open here, and the connections to the storage of a URL, so that new credentials apply."""
    import fsspec

    let_go()
    for part in where.split("::"):  # each URL of a chain, because the last one has the credentials
        with suppress(ImportError, ValueError):  # opening it raises the same error
            fsspec.get_filesystem_class(part.partition("://")[0]).clear_instance_cache()
