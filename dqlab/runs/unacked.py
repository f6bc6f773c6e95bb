"""Leases as people look at them: who holds what, and since when."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Unacked"]


@dataclass(frozen=True)
class Unacked:
    """Messages one consumer slot holds under one lease. Times in seconds.

    Attributes
    ----------
    run : str or None
        The run's name; None for plain puts.
    held, ends_in : float
        Since delivery, and until the lease ends unless it is renewed.
    """

    run: str | None
    consumer: str
    messages: int
    held: float
    ends_in: float
