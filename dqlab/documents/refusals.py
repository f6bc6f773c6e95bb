"""Storage that refuses what it gave before: expired credentials, found out from errors and by trying.

Owns which errors of a file system are refusals, which are those of a server that ends a transfer early, which file of
each storage was read last in this process, and trying one again. A refused file alone says little, since it may be
forbidden for good; one that was read before says that the credentials are what is refused. Knows nothing of messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from dqlab.documents.kept_open import let_go
from dqlab.documents.storage import ServerSilent, local_path, located, open_binary, storage_of, without_secrets
from dqlab.errors import DqlabError, in_words
from dqlab.texts import one_line

__all__ = [
    "connected",
    "is_cut_off",
    "is_of_server",
    "is_refusal",
    "is_silent",
    "last_read",
    "note_read",
    "reconnect",
    "refuses",
    "root_of",
    "words_of_refusal",
    "words_of_server",
]

T = TypeVar("T")

ROOTS = 16
"""Storages whose file that was read last is known."""
_STATUS = frozenset({401, 403})
_CODES = frozenset(
    {
        "AccessDenied",
        "AuthenticationFailed",
        "AuthorizationFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
"""What S3 and its relatives answer; an expired token has the status 400 there."""
_CLASSES = frozenset(
    {
        "ClientAuthenticationError",
        "CredentialRetrievalError",
        "NoCredentialsError",
        "RefreshError",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedSSOTokenError",
    }
)
"""Errors of libraries that fetch credentials, of botocore, google-auth and azure-core."""
_QUERY = re.compile(r"\?[^\s'\"]+")
"""What follows the path of a URL, which may be a signature."""
_ROOT = re.compile(r"[^:/]+://[^/?#]*")

_read: dict[str, str] = {}
"""By storage, the file that was read last."""
_latest = ""


def is_refusal(error: BaseException) -> bool:
    """Return whether an error, or one that it came from, is a refusal of the right to read."""
    try:
        return _refusal_in(error) is not None
    except Exception:  # noqa: BLE001 - attributes of an exception are its own code
        return False


def _refusal_in(error: BaseException) -> BaseException | None:
    for at in _chain(error):
        if isinstance(at, PermissionError) or not _CLASSES.isdisjoint(kind.__name__ for kind in type(at).__mro__):
            return at
        if any(_is_status(getattr(at, name, None)) for name in ("status", "status_code", "code")):
            return at
        answer = getattr(at, "response", None)
        if isinstance(answer, dict) and _is_refused(answer):
            return at
    return None


_CUT_OFF = frozenset(
    {
        "ChunkedEncodingError",
        "ClientPayloadError",
        "ConnectionClosedError",
        "ConnectionResetError",
        "IncompleteReadError",
        "ProtocolError",
        "ReadTimeoutError",
        "ResponseStreamingError",
        "ServerDisconnectedError",
        "ServiceResponseError",
        "TimeoutError",
    }
)
"""Errors of aiohttp, botocore, urllib3, requests and azure-core where a server ends a transfer early, or is silent."""


def is_cut_off(error: BaseException) -> bool:
    """Return whether a server ended a transfer early, or did not answer, by an error or one that it came from."""
    return any(not _CUT_OFF.isdisjoint(kind.__name__ for kind in type(each).__mro__) for each in _chain(error))


def is_silent(error: BaseException) -> bool:
    """Return whether a server did not answer in time, by an error or one that it came from."""
    return any(isinstance(each, TimeoutError) for each in _chain(error))


def is_of_server(error: BaseException, where: str) -> bool:
    """Return whether reading a file fails for its server or the way there: it is neither refused, nor gone."""
    if local_path(where) is not None or is_refusal(error):
        return False
    mine = DqlabError, MemoryError, ImportError, IsADirectoryError
    return is_cut_off(error) or not isinstance(error, (*mine, FileNotFoundError))


_WRAPPERS = (FileNotFoundError, TimeoutError, ServerSilent)
"""What others raise around the error of a server."""


def words_of_server(error: BaseException, where: str) -> str:
    """Return in words what a server did, without secrets."""
    found = next((each for each in _chain(error) if type(each) not in _WRAPPERS), error)
    return one_line(without_secrets(in_words(found), where), 200)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those that it came from."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and not any(at is each for each in seen):
        seen.append(at)
        at = at.__cause__ or at.__context__
    return seen


def _is_status(value: object) -> bool:
    return isinstance(value, int | str) and str(value) in {"401", "403"}


def _is_refused(answer: dict[str, Any]) -> bool:
    code = (answer.get("Error") or {}).get("Code")
    return code in _CODES or (answer.get("ResponseMetadata") or {}).get("HTTPStatusCode") in _STATUS


def root_of(where: str) -> str:
    """Return which storage a URL belongs to: its scheme, its host or bucket, and the name of its options."""
    found = _ROOT.match(where.rpartition("::")[2])
    return f"{storage_of(where)} {found[0] if found else where}"


def note_read(where: str) -> None:
    """Note that a file behind a URL was read here just now."""
    global _latest
    if where is _latest:  # records of one file come by the million
        return
    _latest, root = where, root_of(where)
    if root not in _read and len(_read) >= ROOTS:
        with suppress(StopIteration, KeyError, RuntimeError):  # other threads read too
            del _read[next(iter(_read))]
    _read[root] = where


def last_read() -> dict[str, list[str]]:
    """Return, by storage, the URL that was read last in this process and the name of its options."""
    return {root: [str(where), storage_of(where)] for root, where in list(_read.items())}


def refuses(url: str, storage: str = "") -> str:
    """Return in words why a storage refuses a file now; "" where it gives its first byte, or has another reason.

    Opened connections and files are let go before, also those of others: they may hold credentials that were renewed.
    """
    where = located(url, storage)
    if local_path(url) is not None:
        return ""
    try:
        reconnect(where)
        with open_binary(where) as stream:
            stream.read(1)
    except Exception as error:  # noqa: BLE001 - what else is wrong is met where the file is read
        return words_of_refusal(error, where)
    return ""


def words_of_refusal(error: BaseException, where: str) -> str:
    """Return in words why a storage refuses something, without secrets; "" where the error has another reason."""
    found = _refusal_in(error)
    return "" if found is None else one_line(_QUERY.sub("?...", without_secrets(in_words(found), where)), 200)


def connected(where: str, ask: Callable[[], T]) -> T:
    """Return what a storage answers; where it refuses, connect to it again and ask once more.

    fsspec keeps connections, with the credentials that they began with, for all that is listed and read in a process.
    """
    try:
        return ask()
    except Exception as error:
        if local_path(where) is not None or not is_refusal(error):
            raise
    reconnect(where)
    return ask()


def reconnect(where: str) -> None:
    """Let go of what was opened here, and of connections to the storage of a URL: the next one has new credentials."""
    import fsspec

    let_go()
    for part in where.split("::"):  # of a chain, each: the lowest one has the credentials
        with suppress(ImportError, ValueError):  # met where it is opened
            fsspec.get_filesystem_class(part.partition("://")[0]).clear_instance_cache()
