"""How long a caller waits: its deadline, and a warning when it has none and waits for what is paused."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING

from dqlab.errors import CallTimeout, DqlabWarning
from dqlab.user_frames import level_of_user

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link

__all__ = ["GRACE", "Deadline", "Standstill", "expects_workers", "name_pause"]


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
