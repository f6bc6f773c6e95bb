"""One failure: the record of an exception, its bytes, and whether a retry can help.

Owns the user's part of a traceback, and the fingerprint that makes failures one class. Standard library only. It knows
no retries or states: the rules decide what is dead and what is retried.
"""

from __future__ import annotations

import json
import linecache
import os
import re
import traceback
from bdb import BdbQuit
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from itertools import islice
from pathlib import Path, PurePath
from types import CodeType, TracebackType
from typing import NamedTuple, Self

from dqlab.errors import FrameCorrupt, MessageError
from dqlab.texts import brief, kept, restored, said_by
from dqlab.user_frames import is_own, is_users

NO_ERROR = "NoAnswer"
"""The name where there was no exception: see `dqlab.failures.classes.NO_ANSWER`."""
_MAX_MESSAGE = 2_000
_MAX_TRACEBACK = 16 * 1024
_FUTILE = (
    *(NameError, SyntaxError, ImportError, AttributeError, MessageError),
    *(FileNotFoundError, IsADirectoryError, NotADirectoryError, UnicodeError, EOFError, BdbQuit),
)
"""Mistakes in the code, documents that are missing or cannot be decoded, questions to a user (`input`, `breakpoint`),
and the message errors, such as `Reject`: the next delivery fails the same way."""
_MISTAKES = (
    *(TypeError, KeyError, IndexError, ZeroDivisionError, OverflowError),
    *(AssertionError, NotImplementedError, RecursionError),
)
"""Mistakes too if a line of the user's own raised them. In a library, they may come from a service or another thread;
so may a user's or a library's class that is derived from them. `ValueError` is not one: parsers of answers raise it."""
_OF_ENVIRONMENT = (
    "consumers have the environment variables that were set when they were started, as by dq.connect. Give the value "
    "to the function, or set it before you connect."
)
_OF_FOLDER = (
    "a relative path goes from the folder in which the consumer was started, {folder}; os.chdir after dq.connect does "
    "not change it. Give an absolute path"
)
_SIGNATURE = re.compile(
    r"\(\) (missing \d+ required|takes (no|at least|at most|exactly|from|\d)|got (an unexpected|multiple values|some))"
    r"| expected (at (most|least) )?\d+ arguments?, got|needs an argument$|is an invalid keyword argument for"
)
"""Python's wording for a call that does not fit a signature."""
_TYPES = {"key": str | None, "when": int | float, "seconds": int | float, "after": int | float, "cut": int}
_BARE = ("builtins", "__main__", "__mp_main__")
"""Modules that tracebacks leave out."""
_MAX_FRAMES = 1_000
_MAX_NAME = 300
_MAX_CAUSES = 5
_MAX_MEMBERS = 50
_VARYING = re.compile(r"0x[0-9a-fA-F]+|(?<=['\"])[^'\"\s]*[/\\][^'\"\s]*(?=['\"])|\b\d+(?:[._]\d+)*")


@dataclass(frozen=True, slots=True)
class Failure:
    """One delivery that ended in an exception."""

    error: str
    """Class of the exception as Python's tracebacks name it, qualified unless built in or of ``__main__``."""
    message: str
    """Its text, at most 2,000 characters."""
    traceback: str
    """The user's part, at most 16 KiB, cut in the middle."""
    at: str
    """Innermost frame of the user as "function:line", or "" for none."""
    fingerprint: str
    """Eight hex digits, equal for failures of one class on any document, machine or line."""
    key: str | None
    code: str
    """Short code version of the function."""
    consumer: str
    worker: str
    when: float
    """When it failed, in seconds since 1970-01-01 UTC."""
    seconds: float
    """Time spent in the function."""
    after: float = 0.0
    """Seconds for which the server of its document asked to wait."""
    kinds: str = ""
    """Its classes, the nearest first, as `kinds_of` writes them."""
    printed: str = ""
    """What the message had printed, at most 16 KiB."""
    cut: int = 0
    """Bytes of that which are left out in its middle."""
    passing: str = ""
    """What passes by itself where a server was away, in a few ASCII letters, such as "503"; "" for other failures."""

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
        after: float = 0.0,
        passing: str = "",
    ) -> Self:
        """Record an exception without its first `skip` frames, the executor's, or with None without those of dqlab."""
        # An exception's own code (`__str__`, notes, a metaclass) may raise; none of these helpers lets that out.
        trace = users_part(exception.__traceback__, skip)
        return cls(
            error=class_name(type(exception)),
            message=brief(_explained(exception, trace), _MAX_MESSAGE),
            traceback=_without_middle(traceback_text(exception, trace), _MAX_TRACEBACK),
            at=innermost(trace),
            fingerprint=fingerprint(exception, trace),
            key=key,
            code=code,
            consumer=consumer,
            worker=worker,
            when=when,
            seconds=seconds,
            after=after,
            kinds=kinds_of(exception),
            passing=passing,
        )

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        return kept(json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")))

    @classmethod
    def from_bytes(cls, record: bytes | memoryview) -> Self:
        """Return the record that `to_bytes` wrote, or raise `FrameCorrupt`."""
        try:
            entries = {"after": 0.0, "kinds": "", "printed": "", "cut": 0, "passing": ""} | json.loads(
                restored(bytes(record))
            )
            # A newer version may have written more fields. A new field needs a default here: records in logs lack it.
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
    """Return the name of an exception's class for display and for filters, for errors of dqlab without their module."""
    return error.rpartition(".")[2] if error.startswith("dqlab.") else error


def _explained(exception: BaseException, trace: TracebackType | None) -> str:
    """Return the text of an exception, with a hint where its cause cannot be seen from the function."""
    said = said_by(exception)
    # Exact classes: a user's subclass has words of its own.
    if type(exception) is KeyError and _last_code(trace) is type(os.environ).__getitem__.__code__:
        return f"{said}: {_OF_ENVIRONMENT}"
    if type(exception) is FileNotFoundError and isinstance(exception.filename, str):
        path = exception.filename
        if path and "://" not in path and not PurePath(path).is_absolute():
            with suppress(OSError):  # its folder was removed
                return f"{said}; {_OF_FOLDER.format(folder=Path.cwd())}"
    return said


def _last_code(trace: TracebackType | None) -> CodeType | None:
    """Return the code of the innermost frame, which is not the user's own where a library raised."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code if trace is not None else None


def retryable(exception: BaseException) -> bool:
    """Return False for failures that would repeat with the same code and document."""
    return not all(isinstance(each, _FUTILE) or _is_mistake(each) for each in _leaves(exception))


def kinds_of(exception: BaseException) -> str:
    """Return the names of an exception's classes, the nearest first; of a group, a line for each of its members."""
    # A failure that is not retried gets a "!", and no classes above the one that is the reason.
    lines = []
    with suppress(BaseException):  # a metaclass, or `__class__`, may return anything, or raise
        for leaf in islice(_leaves(exception), _MAX_MEMBERS):
            kinds: tuple[type, ...] = type(leaf).__mro__[:-1]
            futile = next((at for at, kind in enumerate(kinds) if kind in _FUTILE), 0 if _is_mistake(leaf) else None)
            names = " ".join(map(path_of, kinds if futile is None else kinds[: futile + 1]))
            lines.append(names if futile is None else f"!{names}")
        return "\n".join(lines)
    return ""


def _leaves(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, or the members of a group: it is worth a retry if one of them is."""
    members = [exception]
    while members:  # not by recursion: groups may hold groups, a thousand deep
        member = members.pop()
        if isinstance(member, BaseExceptionGroup):
            members += member.exceptions
        else:
            yield member


def _is_mistake(exception: BaseException) -> bool:
    # Exact classes: see `_MISTAKES`.
    if type(exception) is TypeError and _SIGNATURE.search(said_by(exception)) is not None:
        return True
    code = _last_code(exception.__traceback__)
    return type(exception) in _MISTAKES and code is not None and is_users(code.co_filename)


def _without_middle(text: str, limit: int) -> str:
    encoded = kept(text)
    if len(encoded) <= limit:
        return text
    mark = f"\n... {len(encoded) - limit:,} bytes left out ...\n"
    half = (limit - len(mark)) // 2
    ends = (part.decode(errors="ignore") for part in (encoded[:half], encoded[-half:]))  # without halves of characters
    return mark.join(ends)


# --- what a traceback shows ---


class _Frame(NamedTuple):
    function: str
    file: str
    line: int
    offset: int
    text: str

    @property
    def is_users(self) -> bool:
        return is_users(self.file)


def _frames(trace: TracebackType | None) -> Iterator[_Frame]:
    for frame, line in islice(traceback.walk_tb(trace), _MAX_FRAMES):
        code = frame.f_code
        text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        yield _Frame(code.co_name, code.co_filename, line, line - code.co_firstlineno, text)


def users_part(trace: TracebackType | None, skip: int | None) -> TracebackType | None:
    """Return a traceback without its first `skip` frames, or with None without the leading frames of dqlab."""
    if skip is None:
        while trace is not None and is_own(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        return trace
    for _ in range(skip):
        trace = trace.tb_next if trace is not None else None
    return trace


def innermost(trace: TracebackType | None) -> str:
    """Return "function:line" of the last frame outside libraries, else of the last frame, or "" without frames."""
    frames = list(_frames(trace))
    users = [frame for frame in frames if frame.is_users] or frames
    return f"{brief(users[-1].function, _MAX_NAME)}:{users[-1].line}" if users else ""


def fingerprint(exception: BaseException, trace: TracebackType | None) -> str:
    """Return eight hex digits from the exception's classes, function names and source lines, causes included."""
    # Without file names, line numbers and what varies in a line: an edited cell or another machine gives the same
    # class.
    # Records in logs keep their fingerprints: a change here puts later failures of the same kind into new classes.
    parts = []
    for depth, (cause, part) in enumerate(_causes(exception, trace)):
        parts += [f"cause {depth}", class_name(type(cause)), *sorted({class_name(kind) for kind in _members(cause)})]
        # A set in order: the depth of a recursion does not distinguish classes. Where the source is missing (a
        # notebook's cell, in another process), the line's offset in its function replaces it.
        parts += dict.fromkeys(
            f"{frame.function}: {_VARYING.sub('<n>', frame.text) or frame.offset}" for frame in _frames(part)
        )
    return blake2b(kept("\n".join(parts)), digest_size=4).hexdigest()


def common_message(one: str, other: str) -> str:
    """Return the first message with ``<n>`` for words that differ in addresses, numbers or paths alone."""
    mine, others = one.split(" "), other.split(" ")
    pairs = [(a, b) if a == b else (_masked(a), _masked(b)) for a, b in zip(mine, others, strict=False)]
    if len(mine) != len(others) or any(a != b for a, b in pairs):
        return one  # they differ in more than that, and have nothing in common
    return " ".join(a for a, _ in pairs)


def _masked(word: str) -> str:
    return "<n>" if "/" in word or "\\" in word else _VARYING.sub("<n>", word)


def _causes(
    exception: BaseException, trace: TracebackType | None
) -> Iterator[tuple[BaseException, TracebackType | None]]:
    yield exception, trace
    for _ in range(_MAX_CAUSES):
        if exception.__cause__ is None:
            return
        exception = exception.__cause__
        yield exception, exception.__traceback__


def _members(exception: BaseException) -> Iterator[type[BaseException]]:
    if isinstance(exception, BaseExceptionGroup):
        yield from (type(member) for member in exception.exceptions[:_MAX_MEMBERS])


def class_name(kind: type) -> str:
    """Return a class's name as Python's own tracebacks write it."""
    with suppress(BaseException):  # a metaclass may return anything, or raise
        name, module = kind.__qualname__, kind.__module__
        full = name if module in _BARE else f"{module}.{name}"
        return brief(str.__str__(full), _MAX_NAME)
    return brief(type.__dict__["__name__"].__get__(kind), _MAX_NAME)


def path_of(kind: type) -> str:
    """Return a class's name with its module, the same for the user's script in every process."""
    module, name = kind.__module__, class_name(kind)
    return f"{'builtins' if module == 'builtins' else '__main__'}.{name}" if module in _BARE else name


def traceback_text(exception: BaseException, trace: TracebackType | None) -> str:
    """Return the traceback as Python prints it, with causes, groups, notes and repeated frames."""
    try:
        described = traceback.TracebackException(type(exception), exception, trace, limit=-_MAX_FRAMES, compact=True)
        return "".join(described.format())
    except BaseException as error:  # noqa: BLE001 - formatting runs the user's code
        reason = f"its traceback cannot be shown: {class_name(type(error))}"
        return f"{class_name(type(exception))}: {said_by(exception)}\n({reason})\n"
