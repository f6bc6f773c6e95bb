"""Runs of one shard whose consumers cannot keep results for now, and which of them say so.

A consumer that cannot say any more, since it died or was retired, is forgotten after a while: it has to say it again.
"""

from __future__ import annotations

__all__ = ["LASTS", "Holds"]

LASTS = 30.0
"""Seconds that a word of a consumer counts."""


class Holds:
    """Why runs are held up, by run and consumer. `now` is seconds on any clock that does not go back."""

    def __init__(self) -> None:
        self._why: dict[bytes, dict[str, tuple[str, float]]] = {}

    def note(self, run: bytes, consumer: str, why: str, now: float) -> str:
        """Note what a consumer says, "" that it can go on; return why the run is held up now."""
        told = self._why.setdefault(run, {})
        if why:
            told[consumer] = why, now
        else:
            told.pop(consumer, None)
        return self.why(run, now)

    def why(self, run: bytes, now: float) -> str:
        """Return why a run is held up; "" when it is not."""
        told = self._why.get(run, {})
        for consumer in [consumer for consumer, (_, at) in told.items() if now - at >= LASTS]:
            del told[consumer]
        if not told:
            self._why.pop(run, None)
            return ""
        return next(iter(told.values()))[0]

    def forget(self, consumers: list[str]) -> None:
        """Forget what consumers that are gone have said."""
        for told in self._why.values():
            for consumer in consumers:
                told.pop(consumer, None)

    @property
    def runs(self) -> set[bytes]:
        """The runs of which a consumer has said so."""
        return set(self._why)
