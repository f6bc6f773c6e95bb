"""Warns a caller that waits without a limit for what is paused."""

from __future__ import annotations

import time
import warnings

from dqlab.errors import DqlabWarning
from dqlab.user_frames import level_of_user

__all__ = ["Standstill", "name_pause"]

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

    @property
    def begun(self) -> bool:
        """Whether a warning may be due soon."""
        return self._since is not None and not self._silent

    def look(self, why: str) -> None:
        """Warn when a pause has held everything up for a while; `why` names it, "" when something moves."""
        now = time.monotonic()
        if not why:
            self._since = None
        elif self._since is None:
            self._since = now
        elif not self._silent and now - self._since >= LATE:
            self._silent = True
            text = f"{self._what} stands still, and this waits without a limit.{why} Ctrl-C stops the wait alone."
            warnings.warn(text, DqlabWarning, stacklevel=level_of_user())
