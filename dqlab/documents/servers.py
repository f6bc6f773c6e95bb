"""What an error of a server means: it has no such file, refuses it, is busy or silent, or ended a transfer early.

Owns the statuses of HTTP that pass, and the errors for files that a retry may give. Knows classes of
other libraries by their names, to import none of them.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from socket import gaierror
from typing import Any, NamedTuple

from dqlab.errors import in_words
from dqlab.texts import one_line

LONGEST_WAIT = 6 * 3600.0
"""Seconds, at most, that a server may ask to wait; the same as in urllib3."""
_CUT_OFF = re.compile(
    "ChunkedEncodingError|Client(Connection|Payload)Error|Connection(Closed|Reset)Error|"
    "IncompleteReadError|ProtocolError|ReadTimeoutError|ResponseStreamingError|"
    "ServiceResponseError|TimeoutError"
)
"""Errors of aiohttp, botocore, urllib3, requests and azure-core when a transfer ends early."""

_AWAY = re.compile(
    r"APIConnectionError|APITimeoutError|ClientConnect\w*Error|Connect(Error|Timeout)|ConnectionError|"
    r"NetworkError|ReadTimeout|RemoteProtocolError|ServerDisconnectedError|ServerTimeoutError|Timeout|TransportError"
)
"""Errors of httpx, aiohttp, requests, openai and anthropic when a service cannot be reached or does not answer."""
_UNTIL_MENDED = ("insufficient_quota", "billing_hard_limit_reached", "invalid_api_key", "billing_not_active")
"""Codes in answers of services that stay until somebody pays or gives another key."""
_SAID = 120
"""Most characters of what a service said."""

_RESET = re.compile(r"(x-|anthropic-)?rate-?limit(-\w+)*-reset(-\w+)*")
"""Headers in use that say when a limit is reset; "remaining" in place of "reset" says what is left of it until then."""
_SPAN = re.compile(r"(?=\d)(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_EPOCH = 1e9
"""Numbers above this are seconds since 1970, others seconds from now."""

_CLASSES = re.compile(r"\w*(Auth|Credential|Refresh|Token)\w*Error")
"""Errors of the packages of services when they cannot get credentials, by name to avoid importing these."""


class ServerBusy(OSError):
    """A server that does not give a file now, and may give it later."""

    after = 0.0
    """Seconds that it asks to wait, at least."""


class ServerSilent(ServerBusy, TimeoutError):
    """A server did not answer in time."""


_BUSY = (
    "the server of {where!r} does not give it now: {said}. Nothing of it was read. Functions try "
    "again as often as retry= says: allow more retries, or map with fewer consumers."
)
_SILENT = (
    "the server of {where!r} did not answer in time. Nothing of it was read. Look at the server, or "
    "wait longer: storage_options={{'client_kwargs': {{'timeout': 120}}}}, then try again."
)
_MISSING = (
    "{where!r} cannot be opened: its server says {said}. Nothing of it was read. Check the URL, and who may read it."
)


@contextmanager
def answered(where: str) -> Iterator[None]:
    """Raise `ServerSilent`, `ServerBusy` or `FileNotFoundError` for a server that gives no file."""
    try:
        yield
    except ServerBusy:
        raise
    except Exception as error:
        # fsspec raises FileNotFoundError for all that keeps a web server from describing a file.
        missing = isinstance(error, FileNotFoundError)
        answer = error.__cause__ or error if missing else error
        if isinstance(answer, TimeoutError):
            raise ServerSilent(_SILENT.format(where=str(where))) from error
        status = _status(answer)
        said = one_line(f"{status} {getattr(answer, 'message', '')}" if status else in_words(answer), 200)
        if is_cut_off(error):
            busy = ServerBusy(_BUSY.format(where=str(where), said=said))
            busy.after = _asked_wait(getattr(answer, "headers", None))
            raise busy from error
        if status in (404, 410) or (missing and status):
            raise FileNotFoundError(_MISSING.format(where=str(where), said=said)) from error
        raise


def _status(error: object) -> int:
    """Return the status of HTTP that an error stands for, or 0."""
    answer = getattr(error, "response", None)  # of httpx and requests, and of the clients of models
    # Lazily, and "code" last: of aiohttp it is deprecated, and warns.
    of = ((error, "status"), (error, "status_code"), (answer, "status_code"), (answer, "status"), (error, "code"))
    found = (getattr(each, name, None) for each, name in of)
    return next((each for each in found if isinstance(each, int) and 400 <= each < 600), 0)


class Refused(NamedTuple):
    """A service does not answer a call now."""

    after: float
    """Seconds for which it asks to wait; 0 where it does not say, infinite where a user has to do something."""
    said: str


def refused_call(error: BaseException) -> Refused | None:
    """Return how a service refused a call of a function, or None for any other error."""
    # `ServerBusy` is about the function's document: `answered` has judged it already.
    for each in () if isinstance(error, ServerBusy) else causes(error):
        status = _status(each)
        if not status:
            continue
        said = one_line(f"{status} {in_words(each)}", _SAID)
        if status in (401, 402) or _code(each) in _UNTIL_MENDED:
            return Refused(math.inf, said)
        headers = getattr(each, "headers", None) or getattr(getattr(each, "response", None), "headers", None)
        after = _asked_wait(headers) or (_reset(headers) if status == 429 else 0.0)
        if status == 429 or (status == 503 and after):
            return Refused(after, said)
        return None
    return None


def _code(error: BaseException) -> object:
    """Return the code of a client of models for a refusal, such as "insufficient_quota"."""
    return None if hasattr(error, "status") else getattr(error, "code", None)


def what_passes(error: BaseException) -> str:
    """Return in a word what an error says of a service that is away for now, such as "503", or "" for other errors."""
    for cause in causes(error):
        status = _status(cause)
        if _passes(status):
            return str(status)
        if isinstance(cause, ConnectionError | TimeoutError | gaierror) or is_named(cause, _AWAY):
            return type(cause).__name__.encode("ascii", "replace").decode()
    return ""


def _passes(status: int) -> bool:
    """Return whether the same request may be answered otherwise later."""
    return status in (408, 425, 429) or (status >= 500 and status not in (501, 505))


def _asked_wait(headers: Any) -> float:
    """Return the seconds in a header Retry-After, which names them or a date, or 0."""
    with suppress(AttributeError, TypeError, ValueError, OverflowError):  # no headers, or no time
        if (exact := headers.get("retry-after-ms")) is not None:
            return min(max(0.0, float(exact) / 1000), LONGEST_WAIT)
        asked = headers.get("Retry-After").strip()
        seconds = float(asked) if asked.isdecimal() else parsedate_to_datetime(asked).timestamp() - time.time()
        return min(max(0.0, seconds), LONGEST_WAIT)
    return 0.0


def asked_wait(answer: Any) -> float:
    """Return the seconds for which an answer, or an error that has one, asks to wait, or 0 where it does not say."""
    of = [answer, getattr(answer, "response", None)]
    headers = next((found for each in of if (found := getattr(each, "headers", None)) is not None), answer)
    return _asked_wait(headers) or _reset(headers)


def _reset(headers: Any) -> float:
    """Return the longest seconds until a limit is reset of which nothing is left, or 0."""
    with suppress(AttributeError, TypeError, ValueError):  # no headers
        named = {str(name).lower(): str(value).strip() for name, value in headers.items()}
        resets = [name for name in named if _RESET.fullmatch(name)]
        spent = [named[each] for each in resets if named.get(each.replace("reset", "remaining"), "0") in ("0", "0.0")]
        return min(max(map(_until, spent), default=0.0), LONGEST_WAIT)
    return 0.0


def _until(reset: str) -> float:
    """Return the seconds until a reset, which is told as a time, as seconds, or as "6m0s", or 0 for anything else."""
    if found := _SPAN.fullmatch(reset):
        return sum(float(n or 0) * unit for n, unit in zip(found.groups(), (3600.0, 60.0, 1.0, 0.001), strict=True))
    with suppress(ValueError, OverflowError):
        if not _NUMBER.fullmatch(reset):
            return max(0.0, datetime.fromisoformat(reset.replace("Z", "+00:00")).timestamp() - time.time())
        seconds = float(reset)
        return max(0.0, seconds - time.time()) if seconds > _EPOCH else seconds
    return 0.0


def is_cut_off(error: BaseException) -> bool:
    """Return whether an error, or a cause of it, may pass: the server is busy, silent, or hung up."""
    return any(_passes(_status(cause)) or is_named(cause, _CUT_OFF) for cause in causes(error))


def is_named(error: BaseException, names: re.Pattern[str]) -> bool:
    """Return whether names match the class of an error, or one of its base classes, in whole."""
    return any(names.fullmatch(kind.__name__) for kind in type(error).__mro__)


def causes(error: BaseException) -> list[BaseException]:
    """Return an error and its causes."""
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and not any(at is each for each in seen):
        seen.append(at)
        at = at.__cause__ or at.__context__
    return seen


def is_refusal(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that the right to read was refused."""
    with suppress(Exception):  # attributes of foreign exceptions may be properties that raise
        return refusal_in(error) is not None
    return False


def refusal_in(error: BaseException) -> BaseException | None:
    """Return the error, or the cause of it, that means a refusal."""
    for at in causes(error):
        if isinstance(at, PermissionError) or is_named(at, _CLASSES):
            return at
        if any(_is_status(getattr(at, name, None)) for name in ("status", "status_code", "code")):
            return at
        answer = getattr(at, "response", None)  # of botocore, which s3fs does not translate whole
        if isinstance(answer, dict) and _is_status((answer.get("ResponseMetadata") or {}).get("HTTPStatusCode")):
            return at
    return None


def _is_status(value: object) -> bool:
    return isinstance(value, int | str) and str(value) in {"401", "403"}
