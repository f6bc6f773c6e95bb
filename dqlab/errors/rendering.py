"""How a notebook shows an error of dqlab or an interrupted wait: the user's own frames and the sentence.

IPython calls `_render_traceback_` where an exception has it; the exception keeps its whole traceback for ``%tb`` and
``%debug``. A script shows the same from its first `connect` on, and everything with ``python -X dev``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from dqlab.notebook import shell
from dqlab.user_frames import is_own, is_users


def rendered(error: BaseException, *, frames: bool = True) -> list[str]:
    """Return an error as IPython shows it, with the user's part of its causes and, with `frames`, of the cell."""
    show: Callable[..., list[str]] = shell().InteractiveTB.structured_traceback
    if sys.exc_info()[1] is not error:  # not being raised: %tb asks later, for everything
        return show(type(error), error, error.__traceback__)
    with _users_part(error):
        trace = error.__traceback__ if frames else None
        if trace is None and error.__cause__ is None and error.__context__ is None:
            return [f"{type(error).__name__}: {error}".removesuffix(": ")]
        return show(type(error), error, trace, tb_offset=0)


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of dqlab and of the libraries that call dqlab or that it calls."""
    kept: list[TracebackType] = []
    ours = True  # a library's frame belongs to the last known side; IPython's, at the start, are not the user's
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_own(file) or _is_made(trace):
            ours = True
        elif is_users(file):
            ours = False
        if not ours:
            kept.append(trace)
        trace = trace.tb_next
    users: TracebackType | None = None
    for part in reversed(kept):
        users = TracebackType(users, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return users


def _is_made(trace: TracebackType) -> bool:
    """Return whether a library generated a frame's code (a dataclass's ``__init__``), unlike that of `python -c`."""
    frame = trace.tb_frame
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__") != "__main__"


@contextmanager
def _users_part(error: BaseException) -> Iterator[None]:
    """Reduce an error's chain, during the block, to exceptions with frames of the user."""
    # IPython and `sys.excepthook` print the exceptions themselves, so these are changed, and restored for %tb.
    chain = _chain(error)
    before = [(each.__cause__, each.__context__, each.__suppress_context__, each.__traceback__) for each in chain]
    try:
        for each in chain:
            each.__traceback__ = _users_frames(each.__traceback__)
        shown = [each for each in chain if each is error or each.__traceback__ is not None]
        for each, origin in zip(shown, [*shown[1:], None], strict=True):
            has_cause = each.__cause__ is not None
            each.__cause__, each.__context__ = origin if has_cause else None, origin
            each.__suppress_context__ = has_cause
        yield
    finally:
        for each, (cause, context, suppressed, trace) in zip(chain, before, strict=True):
            each.__cause__, each.__context__ = cause, context
            each.__suppress_context__, each.__traceback__ = suppressed, trace


def _chain(error: BaseException) -> list[BaseException]:
    """Return an error and those that led to it, as far as Python shows them."""
    chain: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and not any(following is each for each in chain):  # a chain may be a circle
        chain.append(following)
        cause = following.__cause__
        following = cause if cause is not None or following.__suppress_context__ else following.__context__
    return chain


class StoppedWaiting(KeyboardInterrupt):
    """Ctrl-C during a wait, as a `KeyboardInterrupt` that reports in one line how the work goes on."""

    def _render_traceback_(self) -> list[str]:
        """Render for IPython, which calls it by this name."""
        if sys.exc_info()[1] is not self:  # called later, by %tb
            return rendered(self)
        return [f"Interrupted: {self}".removesuffix(": ")]


@contextmanager
def interruptible(text: str | Callable[[], str]) -> Iterator[None]:
    """Report on Ctrl-C what continues and what to do next, instead of fifty lines of traceback."""
    _trim_tracebacks()
    try:
        yield
    except StoppedWaiting:
        raise
    except KeyboardInterrupt as interrupt:
        if interrupt.args:  # a block inside this one has reported already
            raise
        said = text if isinstance(text, str) else text()
        # Python ends a script by SIGINT, as shells expect, only for a KeyboardInterrupt itself and not for a subclass.
        raise KeyboardInterrupt(said) if shell() is None else StoppedWaiting(said) from None


def _trim_tracebacks() -> None:
    """Make Python print only the user's frames where dqlab's error, or Ctrl-C, ends a script."""
    # An exception gets its frames while it passes them: nothing below the user's code can trim it.
    before = sys.excepthook
    if getattr(before, "trims", False) or shell() is not None or sys.flags.dev_mode:
        return
    from dqlab.errors import DqlabError  # it imports this module

    def trimmed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not (isinstance(error, KeyboardInterrupt | DqlabError) and _is_through_us(trace)):
            before(kind, error, trace)
            return
        with _users_part(error):
            before(kind, error, error.__traceback__)

    vars(trimmed)["trims"] = True
    sys.excepthook = trimmed


def _is_through_us(trace: TracebackType | None) -> bool:
    while trace is not None:
        if is_own(trace.tb_frame.f_code.co_filename):
            return True
        trace = trace.tb_next
    return False
