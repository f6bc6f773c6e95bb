"""`%dq` and `%%dq`: the entry of a line, and the exit of its errors.

A wrong line and an error of dqlab are shown as one sentence, since our own frames would not help a user; the traceback
of a user's own code stands above it. `grammar` owns what may be written, and `commands` what it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError as ShownInOneLine
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
    output_can_be_silenced,
)
from traitlets import CaselessStrEnum, Unicode, default, observe

from dqlab.errors import DqlabError, UsageError
from dqlab.errors.rendering import StoppedWaiting, rendered
from dqlab.jupyter.commands import ACTIONS
from dqlab.jupyter.completion import matcher
from dqlab.jupyter.grammar import find, overview, split
from dqlab.jupyter.line import Line, own_names
from dqlab.jupyter.session import ShellSession
from dqlab.jupyter.source import define
from dqlab.lab import Lab
from dqlab.live.display import Mode, mode, set_mode

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_HELP = ("-h", "--help")
_NOTHING = (" Nothing was done.", " Nothing was submitted.")
"""Endings of errors, which a sentence on whether the cell was run replaces."""


@contextmanager
def _said_of_cell(sentence: str) -> Iterator[None]:
    """Add to a refusal whether the cell was run, since its definitions exist then."""
    try:
        yield
    except UsageError as error:
        if not sentence:
            raise
        said = str(error)
        for ending in _NOTHING:
            said = said.removesuffix(ending)
        stop = "" if said.endswith((".", "?")) else "."
        raise ShownInOneLine(f"{said}{stop} {sentence}") from None


@magics_class
class DQMagics(Magics):
    """The magic `%dq`, with the settings of `%config DQMagics`."""

    queue = Unicode("default", help="Queue that %dq submit uses where none is named.").tag(config=True)
    display = CaselessStrEnum([str(each) for each in Mode], help="How runs are shown.").tag(config=True)

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell: Any = shell  # the base class declares that its own may be None
        self.session = ShellSession(shell)
        self._matcher = matcher(lambda: own_names(self._shell, self._shell.user_ns), self._known_lab)

    def start(self) -> None:
        """Register completion, and intercept the display of values."""
        self.session.start()
        self._shell.Completer.custom_matchers.append(self._matcher)

    def stop(self) -> None:
        """Restore the shell."""
        self.session.stop()
        self._shell.Completer.custom_matchers.remove(self._matcher)
        self._shell.configurables.remove(self)

    @output_can_be_silenced
    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def dq(self, line: str, cell: str | None = None, local_ns: dict[str, Any] | None = None) -> Any:
        """Carry out one line."""
        try:
            return self._carry_out(line, cell, local_ns)
        except UsageError as error:
            raise ShownInOneLine(str(error)) from None
        except StoppedWaiting:  # rendered as one line already
            raise
        except (DqlabError, KeyboardInterrupt) as error:
            vars(error)["_render_traceback_"] = partial(rendered, error, frames=False)  # for IPython's showtraceback
            raise

    dq.__doc__ = overview()  # `%dq?` shows it to users

    def _carry_out(self, text: str, cell: str | None, local_ns: dict[str, Any] | None) -> Any:
        words = split(text.rstrip().removesuffix(";"))  # a final ";" is for IPython, which then displays nothing
        names = self._names(local_ns)
        line = Line(self._shell, self.session, names, self.queue, self)
        if not words or words[0] in _HELP:
            return line.say(overview())
        with _said_of_cell("The cell was not run." if cell is not None else ""):
            command = find(words[0])
            if any(word in _HELP for word in words[1:]):
                return line.say(command.help())
            options = command.parse(words[1:])
            if cell is not None and (not command.takes_cell or options.function is not None):
                reason = "only %%dq submit and %%dq compare take a cell, and the last function of it. Write one %."
                raise UsageError(reason=reason)
        if cell is not None:  # only now that the line is known to be valid: the cell may take hours
            options.function, options.defined = define(self._shell, cell), True
        with _said_of_cell("The cell was run; nothing was submitted." if cell is not None else ""):
            value = ACTIONS[command.name](line, options)
        if getattr(options, "out", None) is None:
            return value
        return line.store(options.out, value)

    def _names(self, local_ns: dict[str, Any] | None) -> dict[str, Any]:
        user_ns: dict[str, Any] = self._shell.user_ns
        return user_ns if local_ns is None or local_ns is user_ns else {**user_ns, **local_ns}

    def _known_lab(self) -> Lab | None:
        try:
            return self.session.lab(self._shell.user_ns)
        except UsageError:
            return None

    @default("display")
    def _display_now(self) -> str:
        return str(mode())

    @observe("display")
    def _choose_display(self, change: dict[str, Any]) -> None:
        set_mode(change["new"])
