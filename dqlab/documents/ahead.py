"""Reads documents behind URLs before their function asks for them, so that the function does not wait for the network.

Owns how many of a slot's next documents are read ahead, what is kept of them, and when reading ahead stops. Does not
know how a document is read or how messages are queued.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import Future
from contextlib import suppress

from dqlab.documents.parts import Member, Reference
from dqlab.documents.storage import local_path, note_read, place_of

MOST = 8
"""Documents that are read ahead, at most."""
LARGEST = 8 << 20
"""Bytes; larger documents are left to their function, which may need only a part of them."""
UNREAD = 3
"""Documents in a row that their function did not read, after which reading ahead stops."""
FRESH_S = 10.0
"""Seconds after which a document that was read ahead is read again, because the file may have changed."""

_here = threading.local()


class ReadAhead:
    """Reads the next documents of a slot ahead, and holds their bytes until they are taken."""

    def __init__(self, read: Callable[[Reference], bytes]) -> None:
        self._read = read
        self._upcoming: Callable[[int], Iterable[Reference]] = lambda most: ()
        self._fetches: dict[Hashable, tuple[float, Future[bytes]]] = {}
        """When each reading began, and what it gives."""
        self._run = b""
        self._process = os.getpid()
        self._current: Hashable = None
        self._unread = 0
        self._lock = threading.Lock()
        """Guards all of these: `look` may run in another thread while the slot's thread takes a document."""

    @classmethod
    def of_thread(
        cls, run: bytes, upcoming: Callable[[int], Iterable[Reference]], read: Callable[[Reference], bytes]
    ) -> ReadAhead:
        """Return the `ReadAhead` of this thread, from now on for the documents of `run` that `upcoming` yields."""
        ahead = _ahead_of_thread()
        if ahead is None:
            ahead = _here.ahead = cls(read)
        with ahead._lock:
            if ahead._run != run:
                # Nobody will take the previous run's documents, and whether its function read them says nothing here.
                ahead._fetches, ahead._unread = {}, 0
            ahead._run, ahead._upcoming = run, upcoming
        return ahead

    def begin(self, document: Reference) -> None:
        """Note which document runs now, and begin to read the ones after it."""
        with self._lock:
            if self._fetches.pop(self._current, None) is not None:  # its function returned without reading it
                self._unread += 1
            self._current = _name(document)
        self.look()

    def look(self) -> None:
        """Begin to read the next documents, from any thread, whenever more may have arrived."""
        with self._lock:
            upcoming = self._upcoming(MOST) if self._unread < UNREAD else ()
            coming = {_name(each): each for each in upcoming if _is_far(each)}
            before = self._fetches
            self._fetches = {name: before.get(name) or self._fetch(each) for name, each in coming.items()}
            if self._current in before:
                self._fetches[self._current] = before[self._current]

    def take(self, document: Reference) -> bytes | None:
        """Wait for the bytes of the running document and return them, or None if its function must read it as usual."""
        name = _name(document)
        with self._lock:
            if name == self._current:
                self._unread = 0
            begun, fetch = self._fetches.pop(name, (0.0, None))
        if fetch is None or (fetch.done() and time.monotonic() - begun > FRESH_S):
            return None
        with suppress(Exception):  # the function reads it again, and raises in its own call
            return fetch.result()
        return None

    def clear(self) -> None:
        """Drop everything that was read, and leave reads in progress to end by themselves."""
        with self._lock:
            self._fetches = {}

    def rest(self) -> None:
        """Drop everything that was read if no more documents come."""
        if not any(True for _ in self._upcoming(1)):
            self.clear()

    def _fetch(self, document: Reference) -> tuple[float, Future[bytes]]:
        """Begin to read a document in a new thread."""
        fetch = Future[bytes]()

        def read() -> None:
            try:
                fetch.set_result(self._read(document))
            except BaseException as error:  # noqa: BLE001 - raised where it is taken
                fetch.set_exception(error)

        try:
            # Not in a pool: a server that does not answer would block the pool, and a pool would block the exit of the
            # process.
            threading.Thread(target=read, name="dqlab-ahead", daemon=True).start()
        except RuntimeError as error:  # no thread is available
            fetch.set_exception(error)
        return time.monotonic(), fetch


def taken(document: Reference) -> bytes | None:
    """Return a document's bytes once if they were read ahead for this thread, noting that its storage gave them."""
    ahead = _ahead_of_thread()
    data = None if ahead is None else ahead.take(document)
    if data is not None:
        note_read(document.where)
    return data


def _ahead_of_thread() -> ReadAhead | None:
    """Return what this thread reads ahead, or None, also in a forked process."""
    ahead: ReadAhead | None = getattr(_here, "ahead", None)
    # A forked child inherits futures that no thread will ever complete, and perhaps a held lock.
    return ahead if ahead is not None and ahead._process == os.getpid() else None


def _name(document: Reference) -> Hashable:
    return place_of(document.where), document.version, document.part


def _is_far(document: Reference) -> bool:
    """Return whether a document is behind a network, is read whole, and is small."""
    return (
        # Rows, records and page ranges share their file, which stays open between them: reading one ahead would fetch
        # the whole file for each.
        local_path(document.where) is None
        and (document.part is None or isinstance(document.part, Member))
        and document.size is not None
        and document.size <= LARGEST
    )
