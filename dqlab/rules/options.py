"""What can be chosen about a queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from dqlab.config import check_count, check_timeout
from dqlab.errors import BadOption
from dqlab.rules.retry import Retry

__all__ = ["QueueOptions"]


@dataclass(frozen=True)
class QueueOptions:
    """Options of a queue; a lane may override them.

    Parameters
    ----------
    visibility_timeout : float, default 60
        Seconds a lease lasts unless it is renewed.
    max_deliveries : int, default 5
        Deliveries that count and end without an exception, after which a message becomes a dead letter: it ran alone in
        its process when its consumer died or its lease ended.
    retry : Retry
        What happens after exceptions, and how many there may be.
    maxsize : int or None, default 100,000
        Most messages (ready + delayed + leased) of one lane; None = no limit.
    max_bytes : int or None, default 1 GiB
        The same for the bytes of their payloads.

    Raises
    ------
    BadOption
        A limit below 1, or a timeout that is not positive and finite.
    """

    visibility_timeout: float = 60.0
    max_deliveries: int = 5
    retry: Retry = field(default_factory=Retry)
    maxsize: int | None = 100_000
    max_bytes: int | None = 1 << 30

    def __post_init__(self) -> None:
        check_timeout("visibility_timeout", self.visibility_timeout)
        check_count("max_deliveries", self.max_deliveries)
        if self.maxsize is not None:
            check_count("maxsize", self.maxsize)
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)
        if not isinstance(self.retry, Retry):
            raise BadOption(option="retry", value=self.retry, problem="a dq.Retry(...).")
