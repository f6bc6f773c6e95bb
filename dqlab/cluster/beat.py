"""Whether the workers that host queues are still alive: each says so all the time, and who falls silent hangs.

Workers that run users' functions are not watched. Native code that holds the interpreter's lock may silence them
for seconds, and of what their consumers hold a dead connection or an expired lease tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["BEAT_EVERY", "LOOK_EVERY", "Beat", "patience"]

BEAT_EVERY = 0.4
"""Seconds between two beats of a worker."""
LOOK_EVERY = 0.2
"""Seconds between two looks at who was heard."""
LATE = 0.2
"""Seconds that a look may be late; after more, silence says nothing: it was this process that did not listen."""
SILENCE = 1.0
"""Seconds of silence after which a worker hangs: two beats and some more."""
TRANSIENT_SILENCE = 15.0
"""The same of a worker with a transient shard: to end it loses what that holds, to wait does not."""


class Beat:
    """When each worker was heard last; times are monotonic seconds."""

    def __init__(self) -> None:
        self._heard: dict[str, float] = {}
        self._looked: float | None = None

    def heard(self, worker: str, now: float) -> None:
        """Take in a beat."""
        self._heard[worker] = now

    def silent(self, watched: Mapping[str, float], now: float) -> dict[str, float]:
        """Return who has been silent for longer than it may, and for how long.

        Parameters
        ----------
        watched : mapping of str to float
            Seconds that each worker may be silent. Others are forgotten; a new one is counted as heard now.
        """
        late = self._looked is not None and now - self._looked > LOOK_EVERY + LATE
        self._looked = now
        heard = {} if late else self._heard
        self._heard = {worker: heard.get(worker, now) for worker in watched}
        return {worker: now - at for worker, at in self._heard.items() if now - at > watched[worker]}


def patience(shards: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Return the silence that each worker is allowed, from the address and durability of each shard."""
    found: dict[str, float] = {}
    for address, durable in shards:
        found[address] = max(found.get(address, 0.0), SILENCE if durable else TRANSIENT_SILENCE)
    return found
