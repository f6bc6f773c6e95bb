"""Admits messages to a worker process: those of all its slots, of any queue, or one suspect alone.

A process that dies does not report which message killed it. A message that ran alone in it is known to be the reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from weakref import WeakKeyDictionary

__all__ = ["Occupancy", "Stay", "occupancy"]


class Stay:
    """A chunk's place in the process, from its request to run until its end."""

    def __init__(self, occupancy: Occupancy, *, alone: bool) -> None:
        self.alone, self.inside = alone, False
        """Whether nothing may run beside the chunk, and whether it may run now."""
        self._occupancy = occupancy
        self._admitted: asyncio.Event | None = None

    async def admitted(self, seconds: float) -> bool:
        """Wait at most `seconds` for admission, and return whether the chunk may run."""
        if not self.inside:
            self._admitted = self._admitted or asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._admitted.wait(), seconds)
        return self.inside

    def admit(self) -> None:
        """Let the chunk run."""
        self.inside = True
        if self._admitted is not None:
            self._admitted.set()

    def share(self) -> None:
        """Let others run beside the chunk from now on."""
        self.alone = False
        self._occupancy.look()

    def leave(self) -> None:
        """Make room for others."""
        self._occupancy.left(self)


class Occupancy:
    """Admits chunks in the order of their requests."""

    # Used in one event loop, so it needs no lock.

    def __init__(self) -> None:
        self.slots = 0
        """Slots that run in the process."""
        self._inside: set[Stay] = set()
        self._waiting: deque[Stay] = deque()

    def enter(self, *, alone: bool = False) -> Stay:
        """Return a new place, which may be admitted at once."""
        stay = Stay(self, alone=alone)
        self._waiting.append(stay)
        self.look()
        return stay

    @property
    def wanted(self) -> bool:
        """Whether a chunk waits to run."""
        return bool(self._waiting)

    def look(self) -> None:
        """Admit the chunks that may run now."""
        # In order: if others passed a chunk that is to run alone, it would wait as long as there is work.
        while self._waiting:
            first = self._waiting[0]
            if self._inside and (first.alone or any(stay.alone for stay in self._inside)):
                return
            self._waiting.popleft()
            self._inside.add(first)
            first.admit()

    def left(self, stay: Stay) -> None:
        """Remove a stay and admit the chunks that waited for it."""
        self._inside.discard(stay)
        if stay in self._waiting:
            self._waiting.remove(stay)
        self.look()


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Occupancy] = WeakKeyDictionary()


def occupancy() -> Occupancy:
    """Return the occupancy of this process."""
    # One for each event loop: all actors of a worker share its loop, and a worker is a process, but in tests.
    return _by_loop.setdefault(asyncio.get_running_loop(), Occupancy())
