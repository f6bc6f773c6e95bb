"""Lets one suspect at a time run in a worker's own process, over all its slots and queues.

A process that dies does not report which message killed it: of two suspects in it, one would be blamed for the other.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

_raised: WeakKeyDictionary[asyncio.AbstractEventLoop, set[tuple[bytes, int]]] = WeakKeyDictionary()
_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def needs_worker() -> set[tuple[bytes, int]]:
    """Return the suspects, by run and id, that raised in a process of their own, which may lack what the worker has."""
    return _raised.setdefault(asyncio.get_running_loop(), set())


def turn_of_suspects() -> asyncio.Lock:
    """Return the lock that a suspect holds while it runs in this process."""
    # One for each event loop: all actors of a worker share its loop, and a worker is a process, but in tests.
    return _by_loop.setdefault(asyncio.get_running_loop(), asyncio.Lock())
