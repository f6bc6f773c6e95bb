"""How much of a run's input a queue holds, as the run record keeps it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from dqlab.rules.ranges import Ranges

__all__ = ["Submitted"]

_ENDLESS = 1 << 62


@dataclass(frozen=True)
class Submitted:
    """What a queue holds of an input.

    Attributes
    ----------
    through : int
        Elements from the first on.
    digest : str
        Theirs.
    beyond : Ranges
        Ordinals behind a gap: one shard refused a frame, others took later ones.
    end_digest : str
        Digest of all elements before the end of those, "" when nobody recorded it.
    """

    through: int = 0
    digest: str = ""
    beyond: Ranges = field(default_factory=Ranges)
    end_digest: str = ""

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Return what stands in a run record, or in the order that sets it."""
        if "+" in record["digest"]:
            return cls._of_text(record)
        beyond = Ranges((lo, hi) for lo, hi in record.get("beyond", ()))
        return cls(record["submitted"], record["digest"], beyond, record.get("end_digest", ""))

    @classmethod
    def _of_text(cls, record: dict[str, Any]) -> Self:
        """Read a record of a log from before gaps had fields: they stand in the text of the digest."""
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
        """Return it with ordinals that shards hold too: who died while submitting did not record the last ones."""
        held = Ranges([*self.held, *came])
        later = Ranges(held.within(self.through, _ENDLESS))
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
