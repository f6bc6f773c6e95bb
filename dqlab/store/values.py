"""Facts about a store for clients, which open none: the most that it keeps, and the outcome of a compaction."""

from __future__ import annotations

from dataclasses import dataclass

from dqlab.log.records import MAX_BODY
from dqlab.numbers import many

MAX_FUNCTION = MAX_BODY - (1 << 20)
"""Most bytes of a function: its record also holds the order that brings it."""
MAX_RESULT = MAX_BODY - (4 << 20)
"""Most bytes of a result: its record also holds its document's key and the rest of its settlement."""


@dataclass(frozen=True, slots=True, repr=False)
class Compacted:
    """The outcome of a compaction."""

    bytes_before: int = 0
    """Size of the directory, as `bytes_after`."""
    bytes_after: int = 0
    seconds: float = 0.0

    def __add__(self, other: Compacted) -> Compacted:
        """Return the sum."""
        return Compacted(
            self.bytes_before + other.bytes_before,
            self.bytes_after + other.bytes_after,
            max(self.seconds, other.seconds),  # shards are compacted side by side
        )

    def __str__(self) -> str:
        """Return one sentence."""
        size = f"{_megabytes(self.bytes_before)} MB before, {_megabytes(self.bytes_after)} MB after"
        return f"{size}; {self.seconds:.1f} s"

    def __repr__(self) -> str:
        return f"<Compacted: {self}>"


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.1f}" if nbytes >= 50_000 else f"{nbytes / 1e6:.3f}"


def too_large(size: int, largest: str = "") -> str:
    """Return why a function of so many bytes cannot be kept, with the largest of its values."""
    return (
        f"the function is {many(size, 'byte')} with the values it captures{largest}, a durable queue keeps functions "
        f"of up to {MAX_FUNCTION:,}. It was not queued, and nothing else changed. Load large values inside the "
        "function, from a file, or use a transient queue."
    )
