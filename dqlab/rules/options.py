"""The options of a queue, which its lanes may override."""

from __future__ import annotations

from dataclasses import dataclass, field

from dqlab.config import check_count, check_timeout
from dqlab.errors import BadOption
from dqlab.rules.retry import Retry


@dataclass(frozen=True)
class QueueOptions:
    """Options of a queue, checked when they are made."""

    visibility_timeout: float = 60.0
    """Seconds a lease lasts unless it is renewed."""
    max_deliveries: int = 5
    """Deliveries that count and end without an exception, after which a message becomes a dead letter: its consumer
    died, or its lease ended, while it ran there as a suspect."""
    retry: Retry = field(default_factory=Retry)
    """What happens after exceptions, and how many there may be."""
    maxsize: int | None = 100_000
    """Most messages (ready + delayed + leased) of one lane; None = no limit."""
    max_bytes: int | None = 1 << 30
    """The same for the bytes of their payloads."""

    def __post_init__(self) -> None:
        check_timeout("visibility_timeout", self.visibility_timeout)
        check_count("max_deliveries", self.max_deliveries)
        if self.maxsize is not None:
            check_count("maxsize", self.maxsize)
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)
        if not isinstance(self.retry, Retry):
            raise BadOption(option="retry", value=self.retry, problem="a dq.Retry(...).")
