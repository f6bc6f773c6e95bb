"""One line while it is carried out: the notebook's names for its words, its variables and its output.

The lab does the work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dqlab.documents.listing import Documents
from dqlab.errors import RunNotFound, UsageError
from dqlab.jupyter.session import ShellSession
from dqlab.jupyter.wrapping import fitted, width_here
from dqlab.keywords import nearest
from dqlab.lab import Lab
from dqlab.runs.pool import QueuePool
from dqlab.runs.run import Run

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
        width = width_here()
        print(sentence if width is None else fitted(sentence, width))  # noqa: T201 - this is the output of the magic

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
