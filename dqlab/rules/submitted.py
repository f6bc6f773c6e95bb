"""How much of a run's input a queue holds, as kept in the run record."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from dqlab.rules.ranges import ENDLESS, Ranges


@dataclass(frozen=True)
class Submitted:
    """The part of an input that a queue holds."""

    through: int = 0
    """How many elements it holds from the first on, without a gap."""
    digest: str = ""
    """Digest of these elements."""
    beyond: Ranges = field(default_factory=Ranges)
    """Ordinals after a gap: one shard refused a frame, others accepted later ones."""
    end_digest: str = ""
    """Digest of all elements before the end of `beyond`, "" when it was not recorded."""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Read it from a run record, or from the order that sets it."""
        if "+" in record["digest"]:
            return cls._of_text(record)
        beyond = Ranges((lo, hi) for lo, hi in record.get("beyond", ()))
        return cls(record["submitted"], record["digest"], beyond, record.get("end_digest", ""))

    @classmethod
    def _of_text(cls, record: dict[str, Any]) -> Self:
        """Read a record of an older log, which has gaps in the text of the digest."""
        digest, end_digest, *spans = record["digest"].split("+")
        beyond = Ranges((int(lo), int(hi)) for lo, hi in (span.split("-") for span in spans))
        return cls(record["submitted"], digest, beyond, end_digest)

    def record(self) -> dict[str, Any]:
        """Return the fields of the run record."""
        return {
            "submitted": self.through,
            "digest": self.digest,
            "beyond": list(self.beyond),
            "end_digest": self.end_digest,
        }

    def extended(self, came: Iterable[tuple[int, int]]) -> Self:
        """Add ordinals that shards hold too."""
        # A client that died while submitting did not record the last ones. The digest of the end covers them only if
        # they do not move it.
        held = Ranges([*self.held, *came])
        later = Ranges(held.within(self.through, ENDLESS))
        end = max((hi for _, hi in later), default=0)
        return type(self)(self.through, self.digest, later, self.end_digest if end == self.end else "")

    @property
    def held(self) -> list[tuple[int, int]]:
        """All ordinals the queue holds, as half-open ranges."""
        return [(0, self.through), *self.beyond]

    @property
    def end(self) -> int:
        """One more than the last ordinal the queue holds."""
        return max(hi for _, hi in self.held)
