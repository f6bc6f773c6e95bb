"""How often, and after how long, a failed message is retried; and `Later`, by which a function asks for a delay."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from dqlab.config import check_count, seconds
from dqlab.errors import BadOption, DqlabError

__all__ = ["Later", "Retry"]

_MAX_DOUBLINGS = 64
SHORTEST = 0.1
"""Least seconds for which a function may send its message away: one without a delay would come back in a hot loop."""
_LONGEST = 30 * 24 * 3600.0
"""Most seconds for which a function may send its message away: longer than that, its wait would go unnoticed."""


# Functions that raise it by this name, `from dqlab import Later`, lie in logs of queues: it stays in this module.
class Later(DqlabError):
    """Raise it in a function to get the message again later; this is not a failure, and does not count.

    For a busy service that reports when to retry: the consumer runs other messages until then. With `early_ack` the
    message is dead instead, because it is never redelivered.

    Parameters
    ----------
    delay : float or str
        Seconds, or "30s", at most 30 days; the message is not delivered again earlier. Less than 0.1 s counts as 0.1 s.

    Raises
    ------
    BadOption
        Not a duration, below zero, or above 30 days.

    Examples
    --------
    >>> raise Later("30s")
    Traceback (most recent call last):
    dqlab.rules.retry.Later: not now; try again in 30 s
    """

    text = "not now; try again in {seconds:g} s"

    def __init__(self, delay: float | str) -> None:
        found = seconds(delay, name="delay")
        if found > _LONGEST:
            raise BadOption(option="delay", value=delay, problem="is more than 30 days.")
        super().__init__(seconds=max(SHORTEST, found))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fields['seconds']!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fields["seconds"],)


@dataclass(frozen=True)
class Retry:
    """Retries after exceptions, with exponential backoff.

    Parameters
    ----------
    retries : int, default 3
        Deliveries after the first exception; 0 sends a message to the dead letters at its first exception.
    backoff : float or str, default 1 s
        Longest delay before the first retry; doubles for each further one. Seconds, or "500ms".
    max_backoff : float or str, default 5 min
        No delay is longer.
    jitter : bool, default True
        Draw each delay from 0 to its bound, so that messages that failed together do not return together
        (full jitter; M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).

    Raises
    ------
    BadOption
        A negative or fractional number of retries, or something that is not a duration.
    """

    retries: int = 3
    backoff: float | str = 1.0
    max_backoff: float | str = 300.0
    jitter: bool = True

    def __post_init__(self) -> None:
        check_count("retries", self.retries, least=0)
        object.__setattr__(self, "backoff", seconds(self.backoff, name="backoff"))
        object.__setattr__(self, "max_backoff", seconds(self.max_backoff, name="max_backoff"))

    def delay(self, exceptions: int, random: Random) -> float:
        """Return the seconds to wait before retry number `exceptions`, counted from 1."""
        doublings = min(max(exceptions - 1, 0), _MAX_DOUBLINGS)
        bound = min(float(self.max_backoff), float(self.backoff) * 2.0**doublings)
        return random.uniform(0.0, bound) if self.jitter else bound
