"""State between two lines: the lab in use, and the run that a line means when it names none.

Also keeps a run that a line has shown from being displayed again at the end of its cell.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from dqlab.connecting import connect, opened, opened_by_map
from dqlab.errors import DqlabError, DqlabWarning, UsageError
from dqlab.jupyter.messages import said_of
from dqlab.jupyter.wrapping import fitted
from dqlab.lab import Lab
from dqlab.live.display import watch
from dqlab.runs.code.sealing import Explanation
from dqlab.runs.pool import QueuePool
from dqlab.runs.run import Run
from dqlab.stats import Counts
from dqlab.store.values import Compacted

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


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

    def connect(
        self,
        target: Any,
        *,
        n: int | None = None,
        store: str | None = None,
        name: str | None = None,
        timeout: float | str | None = None,
    ) -> tuple[Lab, Lab | None]:
        """Use a lab, and return it with the lab that a line made before, for the caller to close."""
        # Only one lab made by lines is open at a time: no variable may hold the last one, and nobody could close it.
        # Checked before anything is started: closing that lab must not end unfinished work.
        known = opened(target, n=n, store=store, name=name)
        before = self._made if self._made is not None and not self._made.closed else None
        if before is not None and before is not known:
            _check_idle(before)
        lab = connect(target, n=n, store=store, name=name, timeout=timeout)
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


def _fitted(value: object, printer: Any, cycle: bool) -> None:  # noqa: FBT001 - as IPython calls it
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
