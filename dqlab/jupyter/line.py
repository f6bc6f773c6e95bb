"""One line while it is carried out, and the state between two lines; the lab does the work.

A line has the notebook's names for its words, its variables and its output. Between lines there are the lab in use, and
the run that a line means when it names none.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dqlab.connecting import connect, opened, opened_by_map
from dqlab.documents.listing import Documents
from dqlab.errors import DqlabError, DqlabWarning, RunNotFound, UsageError
from dqlab.jupyter.messages import said_of
from dqlab.jupyter.wrapping import fitted, say
from dqlab.keywords import nearest
from dqlab.lab import Lab
from dqlab.live.display import watch
from dqlab.runs.code.sealing import Explanation
from dqlab.runs.pool import QueuePool
from dqlab.runs.run import Run
from dqlab.stats import Counts
from dqlab.store.values import Compacted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_FILES = re.compile(r"[^()\s]*[*/\\][^()]*")
"""File names, which users write where documents are expected: `split` has removed their quotes."""


def own_names(shell: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that users made, without those that IPython defined at its start."""
    hidden = shell.user_ns_hidden
    return {name: value for name, value in names.items() if value is not hidden.get(name, hidden)}


@dataclass(frozen=True)
class Line:
    """The notebook, as one line sees it."""

    shell: Any
    session: ShellSession
    names: Mapping[str, Any]
    """Variables, with those of the function that runs the line."""
    queue: str
    """Name of the queue where a line names none."""
    settings: Any
    """The defaults of lines, as ``%config DQMagics`` has them."""

    @property
    def lab(self) -> Lab:
        """The lab in use."""
        return self.session.lab(self.names)

    @property
    def cell(self) -> int:
        """Number of the cell that runs."""
        # Not execution_count: IPython 9 increments it before a cell runs, IPython 8 after it.
        return int(self.shell.displayhook.prompt_count)

    def say(self, sentence: str) -> None:
        """Print one line, which stays in the notebook when live outputs are gone."""
        say(sentence)

    def said(self, held: Run | QueuePool, sentence: str) -> None:
        """Print one line about a run or queue, which is then not displayed below."""
        self.session.said(held)
        self.say(sentence)

    def store(self, variable: str, value: object) -> None:
        """Set a variable of the notebook."""
        self.shell.push({variable: value}, interactive=False)

    def replace(self, old: object, new: object) -> None:
        """Rebind the user's variables that hold `old` to `new`."""
        names = [name for name, held in self.shell.user_ns.items() if held is old and not name.startswith("_")]
        self.shell.push(dict.fromkeys(names, new), interactive=False)

    def evaluate(self, expression: str, what: str, fits: Callable[[Any], bool] = lambda value: True) -> Any:
        """Return an expression's value, or raise `UsageError` that names `what` and a near variable that `fits`."""
        # In the notebook's own namespace, as a cell would; with a function's locals, in a copy of both.
        try:
            return eval(expression, dict(self.names) if self._inside() else self.shell.user_ns)
        except Exception as error:
            unknown = error.name if isinstance(error, NameError) else None
            near = nearest(unknown, self._own(fits)) if unknown else ""
            hint = f" Did you mean {near}?" if near else " Nothing was done."
            raise UsageError(reason=f"{what} {expression}: {type(error).__name__}: {error}.{hint}") from error

    def documents(self, expression: str, what: str = "--over") -> Any:
        """Return an expression's value, or the files that it names."""
        try:
            return self.evaluate(expression, what)
        except UsageError as error:
            if isinstance(error.__cause__, NameError | SyntaxError) and _FILES.fullmatch(expression):
                return Documents.from_glob(expression)
            raise

    def function(self, word: str | None) -> Callable[..., Any]:
        """Return the function that a word names, or raise `UsageError`."""
        if word is None:
            raise UsageError(
                reason="which function? Name it: %dq submit FUNC --over ..., or put %%dq submit --over ... "
                "above a cell that defines it."
            )
        function: Callable[..., Any] = self.evaluate(word, "function", callable)
        if not callable(function):
            raise UsageError(reason=f"{word} is a {type(function).__name__}, not a function. Nothing was done.")
        return function

    def target(self, word: str | None) -> Any:
        """Return the value of a variable or of an expression in braces, or else the word, to connect to."""
        if word is None:
            return None
        if word.startswith("{") and word.endswith("}"):
            return self.evaluate(word[1:-1], "target")
        return self.names.get(word, word)

    def run(self, word: str | None) -> Run:
        """Return the run that a word names, or the last one, or raise `RunNotFound` with the existing runs."""
        if word is None:
            return self.session.last_run(self.lab)
        held = self.names.get(word)
        return held if isinstance(held, Run) else self.session.undecided(self.lab.session.runs.named(word))

    def run_or_queue(self, word: str | None) -> Run | QueuePool:
        """Return the run that a word names, else the open queue of that name, or raise `RunNotFound`."""
        held = self.names.get(word) if word is not None else None
        if isinstance(held, QueuePool):
            return held
        try:
            return self.run(word)
        except RunNotFound:
            if word not in self.lab.queue_names():
                raise
            return self.lab.queue(word)

    def pool(self, word: str | None) -> QueuePool:
        """Return the queue that a word names or the default queue, open or in the store, or raise `UsageError`."""
        held = self.names.get(word) if word is not None else None
        if isinstance(held, QueuePool):
            return held
        name, known = word or self.queue, self.lab.queue_names()
        if name not in known:
            near = nearest(name, known)
            hint = f"Did you mean {near}?" if near else f"There are: {', '.join(known) or 'none'}."
            raise UsageError(reason=f"there is no queue {name!r}. {hint} Nothing was done.")
        return self.lab.queue(name)

    def _own(self, fits: Callable[[Any], bool]) -> list[str]:
        """Return the user's variables that fit, without those that IPython defined at its start."""
        mine = own_names(self.shell, self.names)
        return [name for name, value in mine.items() if not name.startswith("_") and fits(value)]

    def _inside(self) -> bool:
        return self.names is not self.shell.user_ns


class ShellSession:
    """The lab and the run that lines of one shell refer to."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        display: Any = shell.display_formatter
        self._formatter = display.ipython_display_formatter
        self._texts = display.formatters["text/plain"]
        self._lab: Lab | None = None
        self._made: Lab | None = None
        """The lab that a line has made, which the next line that makes one closes."""
        self._submitted: tuple[Run, Run] | None = None
        """The run of the last submission by a line, and the newest run of its lab at that time."""
        self._undecided: dict[str, Run] = {}
        """By name, the runs for which a cell has other code and no choice was made."""
        self._shown: list[object] = []
        self._show_themselves: dict[type, Callable[[Any], object] | None] = {}
        self._format = warnings.formatwarning

    # --- lab and run ------------------------------------------------------------------------

    def lab(self, names: Mapping[str, Any]) -> Lab:
        """Return the lab of the last `connect`, or the only one in a variable, or raise `UsageError`."""
        if self._lab is not None and not self._lab.closed:
            return self._lab
        labs = [(name, lab) for name, lab in names.items() if isinstance(lab, Lab) and not lab.closed]
        # IPython keeps displayed values under names of its own, such as _23: those count where there is no other.
        named = [(name, lab) for name, lab in labs if not name.startswith("_")] or labs
        held = {id(lab): (name, lab) for name, lab in named}
        if not held and (mapped := opened_by_map()) is not None:
            return mapped
        if not held:
            raise UsageError(reason="no lab is open. Start one with: %dq connect -o lab")
        if len(held) > 1:
            variables = sorted(name for name, _ in held.values())
            raise UsageError(
                reason=f"several labs are open: {', '.join(variables)}. Say which: %dq connect {variables[0]}"
            )
        return next(lab for _, lab in held.values())

    def use(self, lab: Lab) -> None:
        """Use this lab from now on."""
        self._lab, self._submitted = lab, None

    def connect(self, target: Any, timeout: float | str | None, **given: Any) -> tuple[Lab, Lab | None]:
        """Use a lab, as `dqlab.connect` makes it, and return it with the lab that a line made before, to be closed."""
        # Only one lab made by lines is open at a time: no variable may hold the last one, and nobody could close it.
        # Checked before anything is started: closing that lab must not end unfinished work.
        known = opened(target, **given)
        before = self._made if self._made is not None and not self._made.closed else None
        if before is not None and before is not known:
            _check_idle(before)
        lab = connect(target, timeout=timeout, **given)
        if lab is not known:
            self._made = lab
        self.use(lab)
        return lab, before if before is not lab and before is not None and not before.closed else None

    def submitted(self, lab: Lab, run: Run) -> None:
        """Note the run of the latest submission, which may be an older run that was attached to."""
        self._submitted = (run, lab.runs[-1])
        if run.doubt is not None:
            self._undecided[run.name] = run
        else:
            self.keep(run.name)

    def keep(self, name: str) -> None:
        """Take the run of that name as it is, even if a cell has other code for it."""
        self._undecided.pop(name, None)

    def undecided(self, found: Run) -> Run:
        """Return the run as the cell has it that was mapped with other code, or `found` once its user has chosen."""
        asked = self._undecided.get(found.name)
        return asked if asked is not None and asked.id == found.id else found

    def last_run(self, lab: Lab) -> Run:
        """Return the run that was submitted last, here or in Python, or raise `UsageError` for none."""
        runs = lab.runs
        if not runs:
            raise UsageError(reason="this lab has made no run yet. Make one with %dq submit, or name one that exists.")
        if self._submitted is not None and self._submitted[1] is runs[-1]:  # no call in Python has made a run since
            return self._submitted[0]
        return runs[-1]

    # --- showing ----------------------------------------------------------------------------

    def start(self) -> None:
        """Intercept the display of values at the end of a cell."""
        for kind in (Run, QueuePool):
            self._show_themselves[kind] = self._formatter.for_type(kind, partial(self._show_unless_shown, kind))
        for fits in (Compacted, Explanation):
            self._texts.for_type(fits, _fitted)
        self._shell.events.register("post_run_cell", self._forget)
        self._format, warnings.formatwarning = warnings.formatwarning, self._formatted

    def stop(self) -> None:
        """Restore the shell."""
        if warnings.formatwarning == self._formatted:  # otherwise another function wraps ours and calls it
            warnings.formatwarning = self._format
        for fits in (Compacted, Explanation):
            self._texts.pop(fits, None)
        for kind, show in self._show_themselves.items():
            if show is not None:
                self._formatter.for_type(kind, show)
        self._shell.events.unregister("post_run_cell", self._forget)

    def show(self, run: Run) -> None:
        """Show a run while it runs, once in this cell."""
        watch(run)
        self._shown.append(run)

    def said(self, held: Run | QueuePool) -> None:
        """Do not display this value again in this cell, since a line has reported it."""
        self._shown.append(held)

    def _formatted(
        self, message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        """Return a warning as it is printed below a cell, for our own warnings without the line of dqlab's source."""
        if issubclass(category, DqlabWarning):
            return f"{message}\n"
        return self._format(message, category, filename, lineno, line)

    def _show_unless_shown(self, kind: type, held: Any) -> None:
        if any(held is shown for shown in self._shown):
            return
        show = self._show_themselves.get(kind)
        if show is None:
            raise NotImplementedError  # makes IPython try the next formatter
        show(held)

    def _forget(self, _: object = None) -> None:
        self._shown.clear()


def _fitted(value: object, printer: Any, _: object) -> None:
    """Print a value in lines that fit into a terminal."""
    printer.text(fitted(repr(value)))


def _check_idle(lab: Lab) -> None:
    """Raise `UsageError` if closing a lab would end unfinished work."""
    # On any cluster: the input of a run is read in this process, and ends with the lab.
    busy = [f"run {run.name}" for run in lab.runs if run.submitter is not None and not run.submitter.finished.is_set()]
    for pool in lab.queues if lab.embedded and not busy else ():
        with suppress(DqlabError):  # gone with all that it held
            if Counts(**pool.counts()).left:
                runs = [run for run in lab.runs if run.queue == pool.name and not run.done]
                busy += [f"run {run.name} ({said_of(run.stats())})" for run in runs] or [f"queue {pool.name}"]
    if busy:
        raise UsageError(
            reason=f"{', '.join(busy)} in lab {lab.name!r} is not done; the lab stays open and no new one was started. "
            "Wait for it with %dq wait, then connect again. Or give it up with %dq close."
        )
