"""`%dq` and `%%dq`: the entry of a line, its completion while it is written, and the exit of its errors.

A wrong line and an error of dqlab are shown as one sentence, since our own frames would not help a user; the traceback
of a user's own code stands above it. `grammar` owns what may be written, and `commands` what it does.

Completion calls no queue and no network, since it runs at every press of the key: it offers only the runs that this lab
knows already.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import ModuleType
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
from dqlab.jupyter.grammar import COMMANDS, Command, find, overview, split
from dqlab.jupyter.line import Line, ShellSession, own_names
from dqlab.jupyter.source import define
from dqlab.lab import Lab
from dqlab.live.display import Mode, mode, set_mode
from dqlab.runs.failures import FIELDS
from dqlab.runs.pool import QueuePool
from dqlab.runs.run import Run

if TYPE_CHECKING:
    from IPython.core.completer import CompletionContext, SimpleMatcherResult
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
            if cell is not None and (not command.takes_cell or options.fn is not None):
                reason = "only %%dq submit and %%dq compare take a cell, and the last function of it. Write one %."
                raise UsageError(reason=reason)
        if cell is not None:  # only now that the line is known to be valid: the cell may take hours
            options.fn, options.defined = define(self._shell, cell), True
        with _said_of_cell("The cell was run; nothing was submitted." if cell is not None else ""):
            value = ACTIONS[command.name](line, options)
        return value if options.out is None else line.store(options.out, value)

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


_LINE = re.compile(r"\s*(?:[\w.]+\s*=\s*)?(?P<percents>%%?)dq\s+(?P<rest>.*)", re.DOTALL)

_Matcher = Callable[["CompletionContext"], "SimpleMatcherResult"]


def candidates(text: str, names: Mapping[str, Any], lab: Lab | None) -> tuple[list[str], str] | None:
    """Return the words that may stand at the end of a line, and the partial word before them, or None outside `%dq`."""
    line = _LINE.fullmatch(text)
    if line is None:
        return None
    *words, begun = re.split(r"\s+", line["rest"])
    if not words:
        found: Iterable[str] = ["submit"] if line["percents"] == "%%" else COMMANDS
    elif words[0] not in COMMANDS:
        found = []
    else:
        found = _inside(COMMANDS[words[0]], words[1:], begun, names, lab)
    return [word for word in found if word.startswith(begun)], begun


def _inside(command: Command, words: list[str], begun: str, names: Mapping[str, Any], lab: Lab | None) -> Iterable[str]:
    before = command.options.get(words[-1]) if words else None
    if before is not None and before.nargs != 0:
        return _values(before, names, lab)
    if begun.startswith("-"):
        return [flag for flag in command.options if flag not in words]
    at = _position(command, words)
    if at < len(command.words):
        return _values(command.words[at], names, lab)
    return [flag for flag in command.options if flag not in words and flag.startswith("--")]


def _position(command: Command, words: list[str]) -> int:
    """Return how many words are neither options nor their values."""
    count, taken = 0, False
    for word in words:
        option = command.options.get(word)
        count += option is None and not taken
        taken = option is not None and option.nargs != 0
    return count


def _values(action: argparse.Action, names: Mapping[str, Any], lab: Lab | None) -> Iterable[str]:
    """Return what may stand for a word or an option's value, by its kind in the grammar."""

    def held(fits: Callable[[Any], bool]) -> set[str]:
        # A copy: a thread of the user may add names meanwhile. `fits` looks at classes only: a value's own methods may
        # do anything, at every press of the key.
        return {name for name, value in list(names.items()) if not name.startswith("_") and fits(value)}

    known = (lab, lab.seen) if lab else ()
    runs = {run.name for each in known for run in each.runs}
    queues = {queue.name for each in known for queue in each.queues}
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    match action.metavar:
        case "TARGET":
            from distributed import Client
            from distributed.deploy.cluster import Cluster

            found = held(lambda value: isinstance(value, Lab | Client | Cluster))
        case "FUNC":
            found = held(lambda value: callable(value) and not isinstance(value, type))
        case "EXPR":
            plain = (str, bytes, ModuleType, type)
            found = held(lambda value: hasattr(type(value), "__iter__") and not isinstance(value, plain))
        case "QUEUE":
            found = queues
        case "RUN":
            found = runs | held(lambda value: isinstance(value, Run))
        case "RUN|QUEUE":
            found = runs | queues | held(lambda value: isinstance(value, Run | QueuePool))
        case "FILTER":
            found = set(FIELDS.kinds)
        case "NAME=VALUE":
            found = {"queue=", *(f"display={mode}" for mode in Mode)}
        case _:
            found = set()
    return sorted(found)


def matcher(names: Callable[[], Mapping[str, Any]], lab: Callable[[], Lab | None]) -> _Matcher:
    """Return a matcher for IPython that suppresses all other words in a line of `%dq`."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher(identifier="dqlab.dq", priority=1000)  # type: ignore[untyped-decorator]
    def match(context: CompletionContext) -> SimpleMatcherResult:
        found = candidates(context.text_until_cursor, names(), lab())
        if found is None:
            return {"completions": []}
        words, begun = found
        completions = [SimpleCompletion(text=word) for word in words]
        return {"completions": completions, "matched_fragment": begun, "suppress": True}

    return match  # type: ignore[no-any-return]
