"""Waits of a user's call: their time limit, the warning when nothing moves."""

from __future__ import annotations

import time
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from dqlab.errors import CallTimeout, DqlabWarning
from dqlab.errors.rendering import interruptible
from dqlab.notebook import in_script
from dqlab.user_frames import level_of_user

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link
    from dqlab.cluster.transport.queue_calls import Handle

GRACE = 0.5
"""Seconds that the last answer may take beyond the caller's time limit."""


class Deadline:
    """The end of a wait that begins now and lasts `limit` seconds, or for ever if it is None."""

    def __init__(self, limit: float | None) -> None:
        self.limit = limit
        self._end = None if limit is None else time.monotonic() + limit

    @property
    def left(self) -> float | None:
        """Seconds left, at least 0, or None without a limit."""
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
        """Return `seconds`, or the seconds left if they are fewer."""
        left = self.left
        return seconds if left is None else min(seconds, left)


ASKED = 2.0
"""Seconds that the scheduler may take to answer whether workers are expected back."""


async def expects_workers(link: Link) -> bool:
    """Return whether workers that died a moment ago may still be replaced."""
    # Ask before raising that nobody serves a queue: consumers start again on the workers that replace dead ones.
    try:
        return bool(await link.scheduler("dq_missing", timeout=ASKED))
    except CallTimeout:
        return False


LATE = 5.0
"""Seconds without progress before a warning names the pause."""
STALLED_AFTER = 5.0
"""Seconds without any consumer before a wait fails, unless workers that died may still be replaced."""


def name_pause(run: str, queue: str, *, run_paused: bool, queue_paused: bool) -> str:
    """Return which pauses stop a run and which lines end them, or "" if nothing is paused."""
    said = ""
    if run_paused:
        said += f" The run is paused: run.resume() continues it (in a notebook: %dq resume {run})."
    if queue_paused:
        line = f"lab.queue({queue!r}).resume()"
        said += f" Queue {queue!r} is paused: {line} continues it (in a notebook: %dq resume {queue})."
    return said


def no_answer(queue: str) -> str:
    """Return why a wait whose limit has expired knows of no progress."""
    return (
        f"a shard of queue {queue!r} does not answer. It hangs, or is just being opened by another worker; "
        "lab.doctor() shows what is wrong."
    )


class Standstill:
    """What one wait has seen of a queue in which nothing moves: whether it may go on, and its only warning."""

    def __init__(self, what: str, limit: float | None) -> None:
        # `what` begins the warning's sentence. A wait with a limit never warns: the error at its end names the pause.
        self._what, self._silent = what, limit is not None
        self._since: float | None = None
        self._alone_since: float | None = None
        self._unanswered: float | None = None

    @property
    def begun(self) -> bool:
        """Whether nothing moves, so that a warning or an error may be due soon."""
        return self._alone_since is not None or (self._since is not None and not self._silent)

    @property
    def patience(self) -> float:
        """Seconds until nobody has served the queue for too long."""
        now = time.monotonic()
        return max(0.0, (self._alone_since or now) + STALLED_AFTER - now)

    def unanswered(self, queue: str) -> None:
        """Warn when calls to the queue have timed out for a while, perhaps because no worker is left to hold it."""
        # Never at the first one: a call also times out while a shard is recreated, which ends by itself.
        now = time.monotonic()
        if self._unanswered is None:
            self._unanswered = now
        elif now - self._unanswered >= LATE and not self._silent:
            self._warn(
                f" No worker process answers for queue {queue!r}: it goes on when one is there that can hold it. "
                "lab.stats() shows the workers, and what stands in the way (in a notebook: %dq status)."
            )

    def look(self, why: str, *, alone: bool = False) -> float:
        """Warn when a pause, named by `why`, has stopped everything for a while; with "", something moves.

        `alone`: something is left and nobody serves it. Return the seconds since when, once they are too many, else 0.
        """
        now, self._unanswered = time.monotonic(), None
        self._alone_since = (self._alone_since or now) if alone else None
        if not why:
            self._since = None
        elif self._since is None:
            self._since = now
        elif not self._silent and now - self._since >= LATE:
            self._warn(why)
        lonely = now - (self._alone_since or now)
        return lonely if lonely >= STALLED_AFTER else 0.0

    def _warn(self, why: str) -> None:
        self._silent = True
        text = f"{self._what} makes no progress, and this wait has no limit.{why} Ctrl-C stops only the wait."
        warnings.warn(text, DqlabWarning, stacklevel=level_of_user())


ENDS_WITH_SCRIPT = "Its cluster ends with this script."
"""Ends the message of a wait that Ctrl-C interrupts in a script with its own cluster.

The script cannot repeat the line; closing the cluster reports what remains.
"""


def reading(name: str, handle: Handle) -> AbstractContextManager[None]:
    """Report on Ctrl-C, while results of a run are read, that the run is unchanged."""
    ends = handle.link.embedded and in_script()
    again = ENDS_WITH_SCRIPT if ends else "The same line reads them again."
    return interruptible(f"no longer reading results of run {name!r}, which was left as it is. {again}")
