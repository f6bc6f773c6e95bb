"""What went wrong: a record per failed delivery, and exact counts per class of failures.

Owns the failure record, its bytes, and the table of failure classes of one lane. Standard library
only. Knows nothing of retries or states: the rules decide what is dead and what is retried.
Two failures are of one class when their fingerprints are equal.
"""

from __future__ import annotations

import json
import re
from bdb import BdbQuit
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

from dqlab.errors import FrameCorrupt, MessageError
from dqlab.failures import tracebacks
from dqlab.texts import brief, kept, restored

__all__ = ["NO_ERROR", "Failure", "FailureClass", "FailureClasses", "OtherClasses", "retryable", "shown_name"]

NO_ERROR = "NoAnswer"
"""In place of an exception's name where there was none; see `dqlab.failures.records.NO_ANSWER`."""
_MAX_MESSAGE = 2_000
_MAX_TRACEBACK = 16 * 1024
_MAX_SAMPLE = 300
_NO_SAMPLE = ("", "", "", None)
_FUTILE = (
    *(NameError, SyntaxError, ImportError, AttributeError, MessageError),
    *(FileNotFoundError, IsADirectoryError, NotADirectoryError, UnicodeError, EOFError, BdbQuit),
)
"""Mistakes in the code, and documents that are missing or cannot be decoded: the next delivery fails the same way."""
_NO_LINE = "EOF when reading a line"
"""Text of Python's own `EOFError` of `input`."""
_NO_KEYBOARD = "a consumer has no keyboard."
_SIGNATURE = re.compile(
    r"\(\) (missing \d+ required|takes (no|at least|at most|exactly|from|\d)|got (an unexpected|multiple values|some))"
    r"| expected (at (most|least) )?\d+ arguments?, got|needs an argument$|is an invalid keyword argument for"
)
"""Python's wording for a call that does not fit a signature."""
_TYPES = {"key": str | None, "when": int | float, "seconds": int | float}


@dataclass(frozen=True, slots=True)
class Failure:
    """One delivery that ended in an exception.

    Attributes
    ----------
    error : str
        Class of the exception as Python's own tracebacks name it: qualified, unless built in or of ``__main__``.
    message : str
        Its text, at most 2,000 characters.
    traceback : str
        The user's part, at most 16 KiB; cut in the middle.
    at : str
        "function:line" of the innermost frame that is the user's; "" when none is.
    fingerprint : str
        Eight hex digits, equal for failures of one kind whatever the document, machine or line numbers.
    key : str or None
        The document's key.
    code : str
        Short code version of the function.
    consumer, worker : str
        Where it ran.
    when : float
        Seconds since 1970-01-01 UTC.
    seconds : float
        Time spent in the function.
    """

    error: str
    message: str
    traceback: str
    at: str
    fingerprint: str
    key: str | None
    code: str
    consumer: str
    worker: str
    when: float
    seconds: float

    @classmethod
    def from_exception(
        cls,
        exception: BaseException,
        *,
        when: float,
        seconds: float,
        skip: int | None = None,
        key: str | None = None,
        code: str = "",
        consumer: str = "",
        worker: str = "",
    ) -> Self:
        """Record an exception; never raises, whatever the exception's own code does.

        Parameters
        ----------
        skip : int, optional
            Leading frames of its traceback that are the executor's, not the user's; by default those of dqlab.
        when, seconds, key, code, consumer, worker
            See the attributes.
        """
        trace = tracebacks.users_part(exception.__traceback__, skip)
        return cls(
            error=tracebacks.class_name(type(exception)),
            message=brief(_explained(exception), _MAX_MESSAGE),
            traceback=_without_middle(tracebacks.text(exception, trace), _MAX_TRACEBACK),
            at=tracebacks.innermost(trace),
            fingerprint=tracebacks.fingerprint(exception, trace),
            key=key,
            code=code,
            consumer=consumer,
            worker=worker,
            when=when,
            seconds=seconds,
        )

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        return kept(json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")))

    @classmethod
    def from_bytes(cls, record: bytes | memoryview) -> Self:
        """Return the record that `to_bytes` wrote; fields that this version does not know are left out.

        Raises
        ------
        FrameCorrupt
            The bytes are not such a record.
        """
        try:
            entries = json.loads(restored(bytes(record)))
            values = {field.name: entries[field.name] for field in fields(cls)}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise FrameCorrupt(kind="failure record", reason=reason, size=len(record)) from error
        wrong = [name for name, value in values.items() if not isinstance(value, _TYPES.get(name, str))]
        if wrong:
            reason = f"wrong type of {', '.join(wrong)}"
            raise FrameCorrupt(kind="failure record", reason=reason, size=len(record))
        return cls(**values)


def shown_name(error: str) -> str:
    """Return the name of an exception's class for display, and for comparison in filters.

    Errors of dqlab go by their bare name, whichever of its modules defines them.
    """
    return error.rpartition(".")[2] if error.startswith("dqlab.") else error


def _explained(exception: BaseException) -> str:
    """Return the text of an exception, with the cause where a function has asked a user who is not there."""
    said = tracebacks.message(exception)
    if type(exception) is EOFError and said == _NO_LINE:
        return f"{said}: {_NO_KEYBOARD} Ask before the run, and give the answer to the function in place of input()."
    if type(exception) is BdbQuit and not said:
        return f"{_NO_KEYBOARD} Call the function here with one document to debug it, or leave breakpoint() out."
    return said


def retryable(exception: BaseException) -> bool:
    """Return False for failures that would repeat with the same code and document.

    Those are unknown names and attributes, calls that do not fit a signature, syntax and import errors, files that
    are missing, text that cannot be decoded, questions to a user (`input`, `breakpoint`), and the message errors:
    `Reject`, values that are not calls, results too large or not picklable. A group is worth a retry when one of its
    members is.
    """
    members = [exception]
    while members:  # not by recursion: groups may hold groups, a thousand deep
        member = members.pop()
        if isinstance(member, BaseExceptionGroup):
            members += member.exceptions
        elif type(member) is TypeError:
            if _SIGNATURE.search(tracebacks.message(member)) is None:
                return True
        elif not isinstance(member, _FUTILE):
            return True
    return False


def _without_middle(text: str, limit: int) -> str:
    encoded = kept(text)
    if len(encoded) <= limit:
        return text
    mark = f"\n... {len(encoded) - limit:,} bytes left out ...\n"
    half = (limit - len(mark)) // 2
    stop, start = half, len(encoded) - half
    while _inside(encoded[stop]):
        stop -= 1
    while _inside(encoded[start]):
        start += 1
    return restored(encoded[:stop]) + mark + restored(encoded[start:])


def _inside(byte: int) -> bool:
    """Return whether a byte of UTF-8 is not the first one of its character."""
    return byte & 0xC0 == 0x80


# --- classes --------------------------------------------------------------------------------


class FailureClass(NamedTuple):
    """Failures of one class that still stand; `error`, `message`, `at` and `key` are one of theirs.

    `dead` and `retrying` count messages, `failed` all deliveries that ended so; `first` and `last` are seconds since
    1970-01-01 UTC, 0 where that is not known; `codes` are the short code versions of the functions that failed.
    """

    fingerprint: str
    error: str
    message: str
    at: str
    dead: int
    retrying: int
    first: float
    last: float
    key: str | None
    failed: int = 0
    codes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return self._asdict()


class OtherClasses(NamedTuple):
    """Sums of what is not shown: how many classes, and how many of their messages are dead or will be retried."""

    classes: int
    dead: int
    retrying: int


@dataclass(slots=True, eq=False)
class _Row:
    fingerprint: str
    first: float
    last: float
    dead: int = 0
    retrying: int = 0
    failed: int = 0
    sample: tuple[str, str, str, str | None] = _NO_SAMPLE
    """error, message, at, key"""
    parts: dict[str, _Part] = field(default_factory=dict)
    """Those of each code version."""

    @property
    def count(self) -> int:
        return self.dead + self.retrying

    def public(self) -> FailureClass:
        error, message, at, key = self.sample
        counts = self.dead, self.retrying, self.first, self.last
        return FailureClass(self.fingerprint, error, message, at, *counts, key, self.failed, tuple(self.parts))


@dataclass(slots=True, eq=False)
class _Part:
    """The messages of one class whose last failure was that of one code version."""

    row: _Row
    code: str
    count: int = 0


class FailureClasses:
    """The failed messages of one lane, counted by class; every count is exact.

    Parameters
    ----------
    described : int
        Classes that keep a sample and can be shown; the largest at the time of their last failure.

    Attributes
    ----------
    failed : int
        Deliveries that failed, over all classes and all time.
    """

    def __init__(self, described: int = 64) -> None:
        self._limit = described
        self.failed = 0
        self._described: dict[str, _Row] = {}
        self._bare: dict[str, _Row] = {}
        self._dead: dict[int, _Part] = {}
        self._retrying: dict[int, _Part] = {}

    def __len__(self) -> int:
        """Return the number of classes with messages that are dead or will be retried."""
        return len(self._bare) + sum(row.count > 0 for row in self._described.values())

    @property
    def dead(self) -> int:
        """Messages that are dead, over all classes."""
        return len(self._dead)

    @property
    def retrying(self) -> int:
        """Messages that failed and will be delivered again, over all classes."""
        return len(self._retrying)

    def add(self, failure: Failure, *, dead: bool, ordinal: int) -> None:
        """Count the failure of a message; one that failed before moves to this failure's class."""
        mark = failure.fingerprint
        row = self._described.get(mark) or self._bare.get(mark) or _Row(mark, failure.when, failure.when)
        row.last = max(row.last, failure.when)
        row.failed += 1
        self.failed += 1
        if dead:
            row.dead += 1
        else:
            row.retrying += 1
        part = row.parts.setdefault(failure.code, _Part(row, failure.code))
        part.count += 1
        self._take_off(self._dead, ordinal)
        self._take_off(self._retrying, ordinal)
        (self._dead if dead else self._retrying)[ordinal] = part
        self._seat(row, failure)

    def settled_well(self, first: int, n: int = 1) -> None:
        """Forget messages that are acked, cancelled or purged; those that never failed are skipped.

        Parameters
        ----------
        first, n : int
            Ordinal of the first of `n` neighbours.
        """
        for states in (self._dead, self._retrying):
            for ordinal in _present(states, first, n):
                self._take_off(states, ordinal)

    def retried(self, first: int, n: int = 1) -> None:
        """Forget dead messages that a user retries; the others among these neighbours stay."""
        for ordinal in _present(self._dead, first, n):
            self._take_off(self._dead, ordinal)

    def top(self, n: int = 8) -> tuple[FailureClass, ...]:
        """Return at most `n` classes, the most dead first, then the most retrying, then the latest."""
        rows = [row for row in self._described.values() if row.count]
        rows.sort(key=lambda row: (-row.dead, -row.retrying, -row.last, row.fingerprint))
        return tuple(row.public() for row in rows[:n])

    def other(self, n: int = 8) -> OtherClasses:
        """Return the sums of what `top(n)` leaves out."""
        shown = self.top(n)
        dead, retrying = sum(row.dead for row in shown), sum(row.retrying for row in shown)
        return OtherClasses(len(self) - len(shown), self.dead - dead, self.retrying - retrying)

    def _take_off(self, states: dict[int, _Part], ordinal: int) -> None:
        part = states.pop(ordinal, None)
        if part is None:
            return
        row = part.row
        part.count -= 1
        if not part.count:
            del row.parts[part.code]
        if states is self._dead:
            row.dead -= 1
        else:
            row.retrying -= 1
        if not row.count:
            self._bare.pop(row.fingerprint, None)

    def _seat(self, row: _Row, failure: Failure) -> None:
        """Keep a sample of a row's failures if the row is among the largest."""
        mark = row.fingerprint
        if mark in self._described:
            return
        if len(self._described) >= self._limit:
            smallest = min(self._described.values(), key=lambda other: (other.count, other.last))
            if smallest.count >= row.count:
                self._bare[mark] = row
                return
            del self._described[smallest.fingerprint]
            smallest.sample = _NO_SAMPLE
            if smallest.count:
                self._bare[smallest.fingerprint] = smallest
        self._bare.pop(mark, None)
        row.sample = (
            failure.error,
            brief(failure.message, _MAX_SAMPLE),
            failure.at,
            failure.key and brief(failure.key, _MAX_SAMPLE),
        )
        self._described[mark] = row


def _present(states: dict[int, _Part], first: int, n: int) -> list[int]:
    if n < len(states):
        return [ordinal for ordinal in range(first, first + n) if ordinal in states]
    return [ordinal for ordinal in states if first <= ordinal < first + n]
