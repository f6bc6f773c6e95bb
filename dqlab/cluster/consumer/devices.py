"""Which devices of its machine a slot's process sees, and the most that one slot can take of devices and resources.

Slots have numbers, by which they share the devices: without a word between them, none is above its share. A mask that
a batch system or a user has set is what there is to share.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from pathlib import Path

from dqlab.cluster.transport.isolation import GPUS
from dqlab.cluster.transport.protocol import job_of

MASK = "CUDA_VISIBLE_DEVICES"
"""Environment variable with the devices that a process sees, by index or uuid; CUDA reads it once."""
FILES = Path("/dev")
"""Where the system has a file for each device."""
_NONE = re.compile(r"-\d+|NoDevFiles|none|void", re.IGNORECASE)
"""What CUDA, Slurm and containers write for no device; CUDA ignores what follows."""


class Turn:
    """The right to a slot's devices, for one of its processes at a time: single messages have one, and batches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._close: Callable[[], None] | None = None

    def __enter__(self) -> Turn:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def take(self, close: Callable[[], None]) -> None:
        """End the process that had the devices last, unless `close` ends the same."""
        # From the thread of another process, which does nothing with its own meanwhile: it waits for its turn.
        if self._close is not None and self._close != close:
            self._close()
        self._close = close


@dataclass(frozen=True)
class Equipment:
    """What one slot may use of its machine."""

    devices: tuple[str, ...] = ()
    """The devices that its worker sees."""
    number: int = 0
    """Its number among all slots that share these devices."""
    has: Mapping[str, float] = field(default_factory=dict)
    """The most that one message may need of each resource, and of devices as `GPUS`."""
    turn: Turn = field(default_factory=Turn)

    @classmethod
    def of(cls, devices: Sequence[str], number: int, resources: Mapping[str, float], place: int) -> Equipment:
        """Return that of a slot in this place among those of a worker with these resources."""
        has = {name: amount / (place + 1) for name, amount in resources.items()}
        return cls(tuple(devices), number, has | ({GPUS: most_of(len(devices), number)} if devices else {}))

    def mask(self, gpus: float) -> str:
        """Return the mask of a process that takes so many devices, or such a share of one."""
        return ",".join(share_of(self.devices, self.number, gpus))


def share_of(devices: Sequence[str], number: int, gpus: float) -> tuple[str, ...]:
    """Return the devices of a slot that can take so many, see `most_of`.

    Examples
    --------
    >>> [share_of("abcd", number, 2) for number in (0, 1)]
    [('a', 'b'), ('c', 'd')]
    >>> [share_of("ab", number, 0.5) for number in range(4)]
    [('a',), ('b',), ('a',), ('b',)]
    """
    if gpus < 1:
        return (devices[number % len(devices)],)
    return tuple(devices[number * int(gpus) : (number + 1) * int(gpus)])


def most_of(devices: int, number: int) -> float:
    """Return how many devices, or which share of one, a slot with this number can take at most.

    Examples
    --------
    >>> [most_of(2, number) for number in range(5)]
    [2, 1, 0.5, 0.5, 0.3333333333333333]
    """
    return devices // (number + 1) if number < devices else 1 / (number // devices + 1)


def of_mask(mask: str) -> list[str]:
    """Return the devices of a mask, up to the first that is none."""
    found: list[str] = []
    for name in map(str.strip, mask.split(",")):
        if not name or _NONE.fullmatch(name) or name in found:
            break
        found.append(name)
    return found


def devices_here() -> list[str]:
    """Return the devices that this process may use: those of its mask, else those of the machine."""
    if MASK in os.environ:
        return of_mask(os.environ[MASK])
    there = (path.name.removeprefix("nvidia") for path in FILES.glob("nvidia[0-9]*"))
    return sorted(filter(str.isdecimal, there), key=int)


class Numbers:
    """Numbers that no other slot of a queue has on this machine, until they are given back or this process ends."""

    def __init__(self, n: int, queue: str, scheduler: str) -> None:
        self.taken: list[int] = []
        self._held: list[socket.socket] = []
        # Sockets without a file: the system frees them with the process, and nothing is left to clean up. Jobs on one
        # node may call different devices by the same name.
        group = repr((scheduler, queue, job_of(os.environ), os.environ.get(MASK), os.getuid()))
        name, numbers = blake2b(group.encode(), digest_size=12).hexdigest(), count()
        while len(self.taken) < n:
            number, held = next(numbers), socket.socket(socket.AF_UNIX)
            try:
                held.bind(f"\0dqlab-gpus-{name}-{number}")
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    held.close()
                    continue  # any other one: a system without such sockets, where each consumer counts for itself
            self._held.append(held)
            self.taken.append(number)

    def give_back(self) -> None:
        """Let others have these numbers."""
        for held in self._held:
            held.close()
