"""Heartbeats of the workers that host queues: a worker that sends none any more hangs. Pure.

Workers that run users' functions are not watched. Native code that holds the interpreter's lock may silence them
for seconds; a dead connection or an expired lease shows when what their consumers hold is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["LOOK_EVERY", "Beat", "patience"]

LOOK_EVERY = 0.2
"""Seconds between two checks for silent workers."""
LATE = 0.2
"""Seconds that a check may be late; after more, silence means nothing: this process read no messages."""
SILENCE = 1.2
"""Least seconds of silence after which a worker hangs: two beats are missing, and the third is due."""
TRANSIENT_SILENCE = 15.0
"""The same for a worker with a transient shard: ending it loses what the shard holds, waiting does not."""
OPENING_SILENCE = 15.0
"""The same for a worker that opens a shard: a long checkpoint is unpacked in pieces that hold the GIL."""
PAUSES = 3
"""A worker hangs when it has been silent for so many of the longest pauses that it has lately made between two
beats. On an overloaded machine all pauses are long, and ending a worker that is only slow does not help."""
FORGET = 0.98
"""What is left of the longest pause with each beat: half of it after 14 s."""
NEW = 10
"""Beats of a worker that is new: it imports, and opens logs."""
NEW_SILENCE = 6.0
"""Seconds of silence that a new worker is allowed."""


@dataclass(slots=True)
class _Pulse:
    """When the last beat of a worker came, monotonic seconds; how many came, and its longest recent pause."""

    heard: float
    beats: int = 0
    longest: float = 0.0

    def silence(self, least: float) -> float:
        """Return for how many seconds it may be silent."""
        return max(least, PAUSES * self.longest, NEW_SILENCE if self.beats < NEW else 0.0)


class Beat:
    """When the beats of each worker came; times are monotonic seconds."""

    def __init__(self) -> None:
        self._pulses: dict[str, _Pulse] = {}
        self._looked: float | None = None

    def heard(self, worker: str, now: float) -> None:
        """Record a beat; ignore it from a worker that is not watched."""
        pulse = self._pulses.get(worker)
        if pulse is not None:
            pulse.longest = max(FORGET * pulse.longest, now - pulse.heard)
            pulse.beats += 1
            pulse.heard = now

    def silent(self, watched: Mapping[str, float], now: float) -> dict[str, float]:
        """Return the workers that have been silent for too long, and for how long.

        Parameters
        ----------
        watched : mapping of str to float
            Least silence allowed to each worker, seconds. Others are forgotten; a new one counts as if a beat came now.
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
    """Return the least silence that each worker is allowed.

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
