"""Whether the workers that host queues are still alive: each says so all the time, and who falls silent hangs.

Workers that run users' functions are not watched. Native code that holds the interpreter's lock may silence them
for seconds, and of what their consumers hold a dead connection or an expired lease tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["BEAT_EVERY", "LOOK_EVERY", "Beat", "patience"]

BEAT_EVERY = 0.4
"""Seconds between two beats of a worker."""
LOOK_EVERY = 0.2
"""Seconds between two looks at who was heard."""
LATE = 0.2
"""Seconds that a look may be late; after more, silence says nothing: it was this process that did not listen."""
SILENCE = 1.2
"""Least seconds of silence after which a worker hangs: two beats are missing, and the third is due."""
TRANSIENT_SILENCE = 15.0
"""The same of a worker with a transient shard: to end it loses what that holds, to wait does not."""
OPENING_SILENCE = 15.0
"""The same of a worker that opens a shard: a long checkpoint is unpacked in pieces that hold the interpreter's lock."""
PAUSES = 3
"""A worker hangs when it has been silent for so many of the longest pauses that it has lately made between two
beats. On a machine with too much to do all pauses are long, and nobody is helped by ending who is only slow."""
FORGET = 0.98
"""What is left of the longest pause with each beat: half of it after 14 s."""
NEW = 10
"""Beats of a worker that is new: it imports, and opens logs."""
NEW_SILENCE = 6.0
"""Seconds of silence that it is allowed meanwhile."""


@dataclass(slots=True)
class _Pulse:
    """When a worker was heard last, monotonic seconds; how often, and its longest pause lately."""

    heard: float
    beats: int = 0
    longest: float = 0.0

    def silence(self, least: float) -> float:
        """Return the seconds that it may be silent."""
        return max(least, PAUSES * self.longest, NEW_SILENCE if self.beats < NEW else 0.0)


class Beat:
    """When each worker was heard; times are monotonic seconds."""

    def __init__(self) -> None:
        self._pulses: dict[str, _Pulse] = {}
        self._looked: float | None = None

    def heard(self, worker: str, now: float) -> None:
        """Take in a beat; of a worker that is not watched it says nothing."""
        pulse = self._pulses.get(worker)
        if pulse is not None:
            pulse.longest = max(FORGET * pulse.longest, now - pulse.heard)
            pulse.beats += 1
            pulse.heard = now

    def silent(self, watched: Mapping[str, float], now: float) -> dict[str, float]:
        """Return who has been silent for longer than it may, and for how long.

        Parameters
        ----------
        watched : mapping of str to float
            Seconds that each worker may be silent at least. Others are forgotten; a new one is counted as heard now.
        """
        late = self._looked is not None and now - self._looked > LOOK_EVERY + LATE
        self._looked = now
        self._pulses = {worker: self._pulses.get(worker) or _Pulse(now) for worker in watched}
        if late:
            for pulse in self._pulses.values():
                pulse.heard = now
        return {
            worker: now - pulse.heard
            for worker, pulse in self._pulses.items()
            if now - pulse.heard > pulse.silence(watched[worker])
        }


def patience(shards: Iterable[tuple[str, bool]], opening: Iterable[str] = ()) -> dict[str, float]:
    """Return the silence that each worker is allowed at least.

    Parameters
    ----------
    shards : iterable of (str, bool)
        Address and durability of each shard.
    opening : iterable of str
        Addresses of workers that open a shard.
    """
    found = dict.fromkeys(opening, OPENING_SILENCE)
    for address, durable in shards:
        found[address] = max(found.get(address, 0.0), SILENCE if durable else TRANSIENT_SILENCE)
    return found
