"""Storage that refuses what it allowed before: finds expired credentials from errors, and by trying again.

Owns which errors of a file system are refusals, which file of each storage this process read last, and trying one
again. A refusal of one file proves little, since it may be forbidden for good; a refusal of a file that was read before
means that the credentials are refused. Knows nothing of messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from dqlab.documents.kept_open import let_go
from dqlab.documents.servers import ServerBusy, ServerSilent, causes, is_named
from dqlab.documents.storage import local_path, open_binary, storage_of, without_secrets
from dqlab.errors import DqlabError, in_words
from dqlab.texts import one_line

__all__ = [
    "connected",
    "is_of_server",
    "is_refusal",
    "note_read",
    "read_before",
    "reconnect",
    "refuses",
    "root_of",
    "words_of_refusal",
    "words_of_server",
]

T = TypeVar("T")

ROOTS = 16
"""Storages, at most, whose last file is remembered."""
_CLASSES = re.compile(r"\w*(Auth|Credential|Refresh|Token)\w*Error")
"""Errors of the packages of services when they cannot get credentials, by name to avoid importing these."""
_QUERY = re.compile(r"\?[^\s'\"]+")
"""The query of a URL, which may contain a signature."""
_ROOT = re.compile(r"[^:/]+://[^/?#]*")

_read: dict[str, str] = {}
"""The file that was read last, by storage."""
_latest = ""


def is_refusal(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that the right to read was refused."""
    try:
        return _refusal_in(error) is not None
    except Exception:  # noqa: BLE001 - attributes of foreign exceptions may be properties that raise
        return False


def _refusal_in(error: BaseException) -> BaseException | None:
    for at in causes(error):
        if isinstance(at, PermissionError) or is_named(at, _CLASSES):
            return at
        if any(_is_status(getattr(at, name, None)) for name in ("status", "status_code", "code")):
            return at
        answer = getattr(at, "response", None)  # of botocore, which s3fs does not translate whole
        if isinstance(answer, dict) and _is_status((answer.get("ResponseMetadata") or {}).get("HTTPStatusCode")):
            return at
    return None


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
    found = next((each for each in causes(error) if type(each) not in _WRAPPERS), error)
    return one_line(without_secrets(in_words(found)), 200)


def _is_status(value: object) -> bool:
    return isinstance(value, int | str) and str(value) in {"401", "403"}


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
    found = _refusal_in(error)
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
