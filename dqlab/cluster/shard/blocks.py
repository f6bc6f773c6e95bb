"""Keeps which runs of a shard are held up, because consumers cannot keep results, and by whom.

A consumer repeats its report, and a report expires: so the report of a dead or retired consumer does not stay.
"""

from __future__ import annotations

LASTS = 30.0
"""Seconds after which a consumer's report expires."""


class Blocks:
    """The reasons why runs are held up, by run and consumer, with times of any monotonic clock."""

    def __init__(self) -> None:
        self._why: dict[bytes, dict[str, tuple[str, float]]] = {}

    def note(self, run: bytes, consumer: str, why: str, now: float) -> str:
        """Note why a consumer cannot keep results, or "" that it can, and return why the run is held up now."""
        reported = self._why.setdefault(run, {})
        if why:
            reported[consumer] = why, now
        else:
            reported.pop(consumer, None)
        return self.why(run, now)

    def why(self, run: bytes, now: float) -> str:
        """Return why a run is held up, or ""."""
        reported = self._why.get(run, {})
        for each in [each for each, (_, at) in reported.items() if now - at >= LASTS]:
            del reported[each]
        if not reported:
            self._why.pop(run, None)
            return ""
        return next(iter(reported.values()))[0]

    def forget(self, consumers: list[str]) -> None:
        """Forget the reports of consumers that are gone."""
        for reported in self._why.values():
            for each in [each for each in reported if each in consumers]:
                del reported[each]

    @property
    def runs(self) -> set[bytes]:
        """Runs for which a consumer has reported a reason."""
        return set(self._why)
