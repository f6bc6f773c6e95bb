"""Runs of one shard whose consumers cannot keep results, or read documents, for now; and which consumers those are.

A report counts for a while, so that of a consumer that died or was retired does not stay: it has to be repeated.
"""

from __future__ import annotations

from dqlab.cluster.transport.blocking import Blocked

__all__ = ["LASTS", "Blocks"]

LASTS = 30.0
"""Seconds that a report of a consumer counts."""


class Blocks:
    """Why runs are held up, by run and consumer. `now` is seconds on any clock that does not go back."""

    def __init__(self) -> None:
        self._why: dict[bytes, dict[tuple[str, Blocked], tuple[str, float]]] = {}

    def note(self, run: bytes, consumer: str, why: str, now: float, what: Blocked = Blocked.RESULTS) -> str:
        """Note why a consumer cannot do something, "" when it can; return why the run is held up now."""
        reported = self._why.setdefault(run, {})
        if why:
            reported[consumer, what] = why, now
        else:
            reported.pop((consumer, what), None)
        return self.why(run, now)

    def why(self, run: bytes, now: float) -> str:
        """Return why a run is held up; "" when it is not."""
        reported = self._why.get(run, {})
        for each in [each for each, (_, at) in reported.items() if now - at >= LASTS]:
            del reported[each]
        if not reported:
            self._why.pop(run, None)
            return ""
        return next(iter(reported.values()))[0]

    def others(self, run: bytes, consumer: str, what: Blocked) -> bool:
        """Return whether another consumer has reported that."""
        return any(each[0] != consumer and each[1] == what for each in self._why.get(run, ()))

    def forget(self, consumers: list[str]) -> None:
        """Forget the reports of consumers that are gone."""
        for reported in self._why.values():
            for each in [each for each in reported if each[0] in consumers]:
                del reported[each]

    @property
    def runs(self) -> set[bytes]:
        """The runs that a consumer has reported."""
        return set(self._why)
