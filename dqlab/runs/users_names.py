"""Lines that reach a run, by the names that the user has for it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dqlab.errors.rendering import interruptible
from dqlab.notebook import in_script, shell
from dqlab.texts import as_word
from dqlab.user_frames import names_of_user

if TYPE_CHECKING:
    from dqlab.cluster.transport.handle import Handle
    from dqlab.runs.run import Run

__all__ = ["ENDS_WITH_SCRIPT", "reading", "ways_back"]

ENDS_WITH_SCRIPT = "Its cluster ends with this script."
"""Follows what was interrupted on a cluster that the script has started; closing that reports what remains."""


def reading(name: str, handle: Handle) -> AbstractContextManager[None]:
    """Report on Ctrl-C, while results of a run are read, that the run was left as it is."""
    ends = handle.link.embedded and in_script()
    again = ENDS_WITH_SCRIPT if ends else "The same line reads them again."
    return interruptible(f"no longer reading results of run {name!r}, which was left as it is. {again}")


def ways_back(run: Run) -> tuple[str, str]:
    """Return a line that waits for a run, and one that cancels it, as they work where the user waited.

    They name the user's own variable for the run, else one of its lab, else `%dq` where that is loaded; else they
    connect by address, as they do in a script: its variables end with it.
    """
    names = {name: value for name, value in names_of_user().items() if not name.startswith("_")}
    kept = {} if in_script() else names
    own = [name for name, value in kept.items() if value is run]
    labs = [name for name, value in kept.items() if _is_lab_of(value, run)]
    magics = getattr(shell(), "find_line_magic", None)
    if own:
        found = own[0]
    elif labs:
        found = f"{labs[0]}.attach({run.name!r})"
    elif magics is not None and magics("dq"):
        return f"%dq wait {as_word(run.name)}", f"%dq cancel {as_word(run.name)} -y"
    else:
        package = next((name for name, value in names.items() if _is_package(value)), "dq")
        found = f"{package}.connect({run.handle.link.address!r}).attach({run.name!r})"
    return f"{found}.wait()", f"{found}.cancel()"


def _is_lab_of(value: Any, run: Run) -> bool:
    kind = type(value)  # a proxy may raise anything when it is asked
    if kind.__module__ != "dqlab.lab" or kind.__name__ != "Lab" or value.closed:
        return False
    return value.session.link.client is run.handle.link.client


def _is_package(value: Any) -> bool:
    return type(value) is type(sys) and value.__name__ == "dqlab"
