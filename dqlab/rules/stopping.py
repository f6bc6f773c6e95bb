"""When a shard pauses a run because its documents fail: a verdict on what the shard knows."""

from __future__ import annotations

from dataclasses import dataclass

from dqlab.config import check_count
from dqlab.errors import BadOption

AUTO = 100
"""Documents that have failed, if none has succeeded, at which a run pauses itself unless a user says otherwise."""
FEWEST = 200
"""Documents that have ended before a share of them is judged: of a few, any share may fail by chance."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The failures at which a run pauses itself."""

    limit: int | float
    """Documents, or as a float their share of those that have ended."""
    despite: bool
    """Also if others have succeeded."""

    def due(self, *, dead: int, acked: int) -> bool:
        """Return whether so many documents have failed for good, beside those that have succeeded."""
        if isinstance(self.limit, float):
            return dead + acked >= FEWEST and dead >= self.limit * (dead + acked)
        return dead >= self.limit and (self.despite or not acked)

    def over(self, *, acked: int) -> bool:
        """Return whether it can never be due any more."""
        return acked > 0 and not self.despite


def as_stop(given: object) -> Stop | None:
    """Return what a user's `stop_if` means, or raise `BadOption`."""
    if given is None:
        return None
    if given == "auto":
        return Stop(AUTO, despite=False)
    if isinstance(given, float) and 0.0 < given < 1.0:
        return Stop(given, despite=True)
    if isinstance(given, int) and not isinstance(given, bool):
        check_count("stop_if", given)
        return Stop(given, despite=True)
    problem = (
        "is a number of documents, their share, as 0.05 for 5 %, 'auto', or None for never. Nothing was submitted."
    )
    raise BadOption(option="stop_if", value=given, problem=problem)
