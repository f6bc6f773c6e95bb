"""What users say about the order of their runs, as the share that shards give them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from datetime import time as time_of_day
from typing import Any

from dqlab.config import seconds
from dqlab.errors import BadOption
from dqlab.rules.sharing import Share

LONGEST = 366 * 86400.0
_WRITTEN = "is a datetime, or written like '18:00' or '2026-11-30 18:00'."


def share_of(weight: float, priority: int, delay: float | str | None, at: str | datetime | None) -> Share | None:
    """Return what a run gets of the consumers' time, None if that is as usual, or raise BadOption."""
    if delay is not None and at is not None:
        raise BadOption(option="delay", value=delay, problem="says the same as `at`: give one of them.")
    now, starts, given = time.time(), 0.0, delay if at is None else at
    if delay is not None:
        starts = now + seconds(delay, name="delay")
    elif at is not None:
        starts = moment_of(at, now, "at")
    if given is not None and not now <= starts <= now + LONGEST:
        problem = "has to be within a year from now." if starts > now else "is in the past; now is the default."
        raise BadOption(option="delay" if at is None else "at", value=str(given), problem=problem)
    share = Share(weight, priority, starts if starts > now else 0.0)
    return None if share == Share() else share


def moment_of(at: Any, now: float, option: str) -> float:
    """Return seconds since 1970 of a datetime, or of what is written as one or as the next such time of day."""
    try:
        if isinstance(at, datetime):
            return at.timestamp()
        if ":" in at[:3]:
            today = datetime.fromtimestamp(now).astimezone().date()
            day = datetime.combine(today, time_of_day.fromisoformat(at.rjust(5, "0")))
            return (day if day.timestamp() > now else day + timedelta(days=1)).timestamp()
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, TypeError, OverflowError, OSError):
        raise BadOption(option=option, value=at, problem=_WRITTEN) from None
