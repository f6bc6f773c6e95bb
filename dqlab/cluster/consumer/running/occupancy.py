"""What runs in a worker process at a time: messages of all its slots, of any queue, or one suspect alone.

A process that dies does not report what it died of. What ran alone in it is known to be the reason.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from weakref import WeakKeyDictionary

__all__ = ["Occupancy", "Stay", "occupancy"]


class Stay:
    """A chunk's place in the process, from the moment it asks to run until it has ended.

    Attributes
    ----------
    alone : bool
        Nothing runs beside it.
    inside : bool
        It may run now.
    """

    def __init__(self, occupancy: Occupancy, *, alone: bool) -> None:
        self.alone, self.inside = alone, False
        self._occupancy = occupancy
        self._admitted: asyncio.Event | None = None

    async def admitted(self, seconds: float) -> bool:
        """Return whether it may run, after at most `seconds`."""
        if not self.inside:
            self._admitted = self._admitted or asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._admitted.wait(), seconds)
        return self.inside

    def admit(self) -> None:
        """Let it run."""
        self.inside = True
        if self._admitted is not None:
            self._admitted.set()

    def share(self) -> None:
        """Let others run beside it from now on."""
        self.alone = False
        self._occupancy.look()

    def leave(self) -> None:
        """Make room: it has ended, or is not to run."""
        self._occupancy.left(self)


class Occupancy:
    """Admits chunks in the order in which they ask. Used in one event loop, so no lock is needed.

    Attributes
    ----------
    slots : int
        Slots that run in the process.
    """

    def __init__(self) -> None:
        self.slots = 0
        self._inside: set[Stay] = set()
        self._waiting: deque[Stay] = deque()

    def enter(self, *, alone: bool = False) -> Stay:
        """Ask to run; the answer may be admitted at once."""
        stay = Stay(self, alone=alone)
        self._waiting.append(stay)
        self.look()
        return stay

    @property
    def wanted(self) -> bool:
        """Whether any wait to run."""
        return bool(self._waiting)

    def look(self) -> None:
        """Admit those that may run now."""
        # In order: were later ones admitted past one that is to be alone, it would wait as long as there is work.
        while self._waiting:
            first = self._waiting[0]
            if self._inside and (first.alone or any(stay.alone for stay in self._inside)):
                return
            self._waiting.popleft()
            self._inside.add(first)
            first.admit()

    def left(self, stay: Stay) -> None:
        """Forget a stay, and admit those that waited for it."""
        self._inside.discard(stay)
        if stay in self._waiting:
            self._waiting.remove(stay)
        self.look()


_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Occupancy] = WeakKeyDictionary()


def occupancy() -> Occupancy:
    """Return the one of this process: all actors of a worker share its event loop."""
    return _by_loop.setdefault(asyncio.get_running_loop(), Occupancy())
