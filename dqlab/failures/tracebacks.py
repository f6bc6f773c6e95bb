"""What is recorded of an exception: its name, its text, the user's part of its traceback, its fingerprint.

Knows nothing of messages or records. An exception's own code (``__str__``, notes) may raise; nothing
here does.
"""

from __future__ import annotations

import linecache
import re
import traceback
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from types import TracebackType
from typing import NamedTuple

from dqlab.texts import brief, kept, said_by
from dqlab.user_frames import is_own, is_users

__all__ = ["class_name", "fingerprint", "innermost", "message", "text", "users_part"]

_MAX_FRAMES = 1_000
_MAX_NAME = 300
_MAX_CAUSES = 5
_MAX_MEMBERS = 50
_VARYING = re.compile(r"0x[0-9a-fA-F]+|(?<=['\"])[^'\"\s]*[/\\][^'\"\s]*(?=['\"])|\b\d[\d_.]*")


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
    """Return a traceback without its first `skip` frames; None means all leading frames of dqlab itself."""
    if skip is None:
        while trace is not None and is_own(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        return trace
    for _ in range(skip):
        trace = trace.tb_next if trace is not None else None
    return trace


def innermost(trace: TracebackType | None) -> str:
    """Return "function:line" of the last frame outside of libraries, else of the last; "" without frames."""
    frames = list(_frames(trace))
    users = [frame for frame in frames if frame.is_users] or frames
    return f"{brief(users[-1].function, _MAX_NAME)}:{users[-1].line}" if users else ""


def fingerprint(exception: BaseException, trace: TracebackType | None) -> str:
    """Return eight hex digits from classes, function names and source lines, causes included.

    Addresses, numbers and paths in the lines are masked; file names and line numbers do not count.
    """
    parts = []
    for depth, (cause, part) in enumerate(_causes(exception, trace)):
        parts += [f"cause {depth}", class_name(type(cause)), *sorted({class_name(kind) for kind in _members(cause)})]
        # A set in order: the depth of a recursion does not distinguish kinds. Where the source
        # is missing (a notebook's cell, in another process) the line's place in its function serves.
        parts += dict.fromkeys(
            f"{frame.function}: {_VARYING.sub('<n>', frame.text) or frame.offset}" for frame in _frames(part)
        )
    return blake2b(kept("\n".join(parts)), digest_size=4).hexdigest()


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


def class_name(kind: type[BaseException]) -> str:
    """Return a class's name as Python's own tracebacks write it."""
    try:
        name, module = kind.__qualname__, kind.__module__
        told = name if module in ("builtins", "__main__") else f"{module}.{name}"
        return brief(str.__str__(told), _MAX_NAME)
    except BaseException:  # noqa: BLE001 - a metaclass may return anything, or raise
        return brief(type.__dict__["__name__"].__get__(kind), _MAX_NAME)


def message(exception: BaseException) -> str:
    """Return the text of an exception, or a note that it has none because it raised."""
    return said_by(exception)


def text(exception: BaseException, trace: TracebackType | None) -> str:
    """Return the traceback as Python prints it: causes, groups, notes and repeated frames included."""
    try:
        told = traceback.TracebackException(type(exception), exception, trace, limit=-_MAX_FRAMES, compact=True)
        return "".join(told.format())
    except BaseException as error:  # noqa: BLE001 - formatting runs the user's code
        reason = f"its traceback cannot be shown: {class_name(type(error))}"
        return f"{class_name(type(exception))}: {message(exception)}\n({reason})\n"
