"""A caller's waits: how long they last, the warning when one stands still, and the lines that go on after Ctrl-C."""

from __future__ import annotations

import sys
import time
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dqlab.errors import CallTimeout, DqlabWarning
from dqlab.errors.rendering import interruptible
from dqlab.notebook import in_script, shell
from dqlab.texts import as_word
from dqlab.user_frames import level_of_user, names_of_user

if TYPE_CHECKING:
    from dqlab.cluster.transport.handle import Handle
    from dqlab.cluster.transport.link import Link

__all__ = [
    "ENDS_WITH_SCRIPT",
    "GRACE",
    "Deadline",
    "Standstill",
    "expects_workers",
    "name_pause",
    "reading",
    "ways_back",
]

GRACE = 0.5
"""Seconds beyond a caller's limit to wait for the last answer."""


class Deadline:
    """The end of a wait that begins now.

    Parameters
    ----------
    limit : float or None
        Seconds; None = no end.
    """

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._end = None if limit is None else time.monotonic() + limit

    @property
    def left(self) -> float | None:
        """Seconds left, not below 0; None = no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return self.left == 0.0

    @property
    def patience(self) -> float | None:
        """Seconds to wait for the answer to a call made now."""
        left = self.left
        return None if left is None else left + GRACE

    def within(self, seconds: float) -> float:
        """Return `seconds`, or the seconds left if those are fewer."""
        left = self.left
        return seconds if left is None else min(seconds, left)


ASKED = 2.0
"""Seconds that the scheduler may take to answer whether workers are expected back."""


async def expects_workers(link: Link) -> bool:
    """Return whether workers that died a moment ago may still be replaced; then a queue without consumers is served."""
    try:
        return bool(await link.scheduler("dq_missing", timeout=ASKED))
    except CallTimeout:
        return False


LATE = 5.0
"""Seconds without progress after which a warning names the pause."""


def name_pause(run: str, queue: str, *, run_paused: bool, queue_paused: bool) -> str:
    """Return which pauses hold a run of a queue up, and the lines that end them; "" for none."""
    said = ""
    if run_paused:
        said += f" The run is paused: run.resume() continues it (in a notebook: %dq resume {run})."
    if queue_paused:
        line = f"lab.queue({queue!r}).resume()"
        said += f" Queue {queue!r} is paused: {line} continues it (in a notebook: %dq resume {queue})."
    return said


class Standstill:
    """What one wait has found out about pauses; warns once.

    Parameters
    ----------
    what : str
        What is waited for, as a sentence begins.
    limit : float or None
        Seconds that the wait lasts at most: its error names the pause then, and nothing is warned of.
    """

    def __init__(self, what: str, limit: float | None) -> None:
        self._what, self._silent = what, limit is not None
        self._since: float | None = None
        self._unanswered: float | None = None

    @property
    def begun(self) -> bool:
        """Whether a warning may be due soon."""
        return self._since is not None and not self._silent

    def unanswered(self, queue: str) -> None:
        """Warn when calls to the queue have got no answer in their time for a while: no worker may be left to hold it.

        One call is lost while a shard is made again, which ends by itself.
        """
        now = time.monotonic()
        if self._unanswered is None:
            self._unanswered = now
        elif now - self._unanswered >= LATE and not self._silent:
            self._warn(
                f" No worker process answers for queue {queue!r}: it goes on when one is there that can hold it. "
                "lab.stats() shows the workers, and what stands in the way (in a notebook: %dq status)."
            )

    def look(self, why: str) -> None:
        """Warn when a pause has held everything up for a while; `why` names it, "" when something moves."""
        now, self._unanswered = time.monotonic(), None
        if not why:
            self._since = None
        elif self._since is None:
            self._since = now
        elif not self._silent and now - self._since >= LATE:
            self._warn(why)

    def _warn(self, why: str) -> None:
        self._silent = True
        text = f"{self._what} stands still, and this waits without a limit.{why} Ctrl-C stops the wait alone."
        warnings.warn(text, DqlabWarning, stacklevel=level_of_user())


ENDS_WITH_SCRIPT = "Its cluster ends with this script."
"""Follows what was interrupted on a cluster that the script has started; closing that reports what remains."""


def reading(name: str, handle: Handle) -> AbstractContextManager[None]:
    """Report on Ctrl-C, while results of a run are read, that the run was left as it is."""
    ends = handle.link.embedded and in_script()
    again = ENDS_WITH_SCRIPT if ends else "The same line reads them again."
    return interruptible(f"no longer reading results of run {name!r}, which was left as it is. {again}")


def ways_back(run: object, name: str, link: Link) -> tuple[str, str]:
    """Return a line that waits for a run, and one that cancels it, as they work where the user waited.

    They name the user's own variable for the run, else one of its lab, else `%dq` where that is loaded; else they
    connect by address, as they do in a script: its variables end with it.
    """
    names = {each: value for each, value in names_of_user().items() if not each.startswith("_")}
    kept = {} if in_script() else names
    own = [each for each, value in kept.items() if value is run]
    labs = [each for each, value in kept.items() if _is_lab_on(value, link)]
    magics = getattr(shell(), "find_line_magic", None)
    if own:
        found = own[0]
    elif labs:
        found = f"{labs[0]}.attach({name!r})"
    elif magics is not None and magics("dq"):
        return f"%dq wait {as_word(name)}", f"%dq cancel {as_word(name)} -y"
    else:
        package = next((each for each, value in names.items() if _is_package(value)), "dq")
        found = f"{package}.connect({link.address!r}).attach({name!r})"
    return f"{found}.wait()", f"{found}.cancel()"


def _is_lab_on(value: Any, link: Link) -> bool:
    kind = type(value)  # a proxy may raise anything when it is asked
    if kind.__module__ != "dqlab.lab" or kind.__name__ != "Lab" or value.closed:
        return False
    return value.session.link.client is link.client


def _is_package(value: Any) -> bool:
    return type(value) is type(sys) and value.__name__ == "dqlab"
