"""What a live view needs of the thing it shows, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from dqlab.stats import RunStats

__all__ = ["RunSource"]


class RunSource(Protocol):
    """A run that can be watched; `Run` is one."""

    @property
    def name(self) -> str:
        """The run's name."""
        ...

    def stats(self, *, timeout: float | None = None) -> RunStats:
        """Return the run's newest statistics.

        Parameters
        ----------
        timeout : float or None
            Seconds to wait for an answer.

        Raises
        ------
        SchedulerGone, ActorGone, CallTimeout
            No answer. A view keeps what it showed, says since when, and asks again.
        """
        ...

    def pause(self) -> Any:
        """Stop leasing."""
        ...

    def resume(self) -> Any:
        """Lease again."""
        ...

    def cancel(self) -> Any:
        """Cancel what is left."""
        ...

    def failures(self) -> Sequence[Any]:
        """Return the dead documents: key, error, message, at, deliveries, version, traceback."""
        ...
