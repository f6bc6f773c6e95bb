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
from functools import partial

from dqlab.documents.parts import Member, Reference
from dqlab.documents.storage import local_path, place_of

__all__ = ["LARGEST", "MOST", "ReadAhead", "taken"]

FEWEST, MOST = 2, 8
"""Documents that are read ahead at first, and at most; a function that still waits raises the number by one."""
LARGEST = 16 << 20
"""Bytes; larger documents are left to their function, which may need only a part of them."""
HELD = 64 << 20
"""Bytes held of documents that were read ahead and not taken yet; above that, no further reading begins."""
UNREAD = 3
"""Documents in a row that their function did not read, after which reading ahead stops."""
FRESH_S = 10.0
"""Seconds after which a document that was read ahead is stale, because the file may have changed, and is read again.
Its bytes are dropped soon after that, because its message may have moved to another consumer."""

_here = threading.local()


class ReadAhead:
    """Reads the next documents of a slot ahead, and holds their bytes until they are taken."""

    def __init__(
        self,
        read: Callable[[Reference], bytes | None],
        begin: Callable[[Reference], Future[bytes] | None] = lambda document: None,
    ) -> None:
        # `read` returns None for a document larger than LARGEST. `begin` reads without a thread, and returns None
        # where that is impossible.
        self._read, self._begin = read, begin
        self._upcoming: Callable[[int], Iterable[Reference]] = lambda most: ()
        self._fetches: dict[Hashable, Future[bytes | None]] = {}
        self._begun: dict[Hashable, float] = {}
        self._run = b""
        self._process = os.getpid()
        self._depth = FEWEST
        self._current: Hashable = None
        self._unread = self._reading = 0
        self._dropping = False
        """Whether a thread is running that drops stale documents."""
        self._lock, self._counting = threading.RLock(), threading.Lock()
        """`_lock` guards the fetches: `look` may run in another thread while the slot's thread takes a document.
        `_counting` guards `_reading` alone."""

    @classmethod
    def of_thread(
        cls,
        run: bytes,
        upcoming: Callable[[int], Iterable[Reference]],
        read: Callable[[Reference], bytes | None],
        begin: Callable[[Reference], Future[bytes] | None] = lambda document: None,
    ) -> ReadAhead:
        """Return the `ReadAhead` of this thread, from now on for the documents of `run` that `upcoming` yields."""
        ahead = _ahead_of_thread()
        if ahead is None:
            ahead = _here.ahead = cls(read, begin)
        with ahead._lock:
            if ahead._run != run:
                # Nobody will take the previous run's documents, and whether its function read them says nothing here.
                ahead._fetches.clear()
                ahead._unread = 0
            ahead._run, ahead._upcoming = run, upcoming
        return ahead

    def begin(self, document: Reference) -> None:
        """Note which document runs now, and begin to read the ones after it."""
        with self._lock:
            before, self._current = self._current, _name(document)
            if before in self._fetches:  # its function returned without reading it
                del self._fetches[before]
                self._unread += 1
        self.look()

    def look(self) -> None:
        """Begin to read the next documents, from any thread, whenever more may have arrived."""
        beginning: list[tuple[Reference, Future[bytes | None]]] = []
        with self._lock:
            if self._unread >= UNREAD:
                self._fetches.clear()
                return
            coming = {_name(each): each for each in self._upcoming(self._depth) if _is_far(each)}
            for name in [name for name in self._fetches if name != self._current and name not in coming]:
                del self._fetches[name]
            for name, each in coming.items():
                if name not in self._fetches and name != self._current and self._has_room():
                    self._begun[name], self._fetches[name] = time.monotonic(), Future()
                    beginning.append((each, self._fetches[name]))
                    with self._counting:
                        self._reading += 1
            self._begun = {name: self._begun[name] for name in self._fetches}
        # Outside the lock: opening a file system may wait for its event loop, and `take` must not wait for that.
        for each, fetch in beginning:
            self._fetch(each, fetch)

    def take(self, document: Reference) -> bytes | None:
        """Wait for the bytes of the running document and return them, or None if its function must read it as usual."""
        with self._lock:
            name = _name(document)
            if name == self._current:
                self._unread = 0
            fetch, begun = self._fetches.pop(name, None), self._begun.get(name, 0.0)
            if fetch is None:
                return None
            if fetch.done() and time.monotonic() - begun > FRESH_S:
                return None
            if not fetch.done():  # the function waits, so reading further ahead pays off
                self._depth = min(MOST, self._depth + 1)
        try:
            return fetch.result()
        except Exception:  # noqa: BLE001 - the function reads it again, and raises in its own call
            return None

    def clear(self) -> None:
        """Drop everything that was read, and leave reads in progress to end by themselves."""
        with self._lock:
            self._fetches.clear()

    def rest(self) -> None:
        """Drop everything that was read if no more documents come, and leave reads in progress to end by themselves."""
        with self._lock:
            if not any(True for _ in self._upcoming(1)):
                self._fetches.clear()

    def _has_room(self) -> bool:
        held = sum(len(fetch.result() or b"") for fetch in self._fetches.values() if _succeeded(fetch))
        return held < HELD and self._reading < 2 * MOST

    def _fetch(self, document: Reference, fetch: Future[bytes | None]) -> None:
        """Begin to read a document, or leave it to its function where that fails."""
        fetch.add_done_callback(self._note_read)
        try:
            begun = self._begin(document)
            if begun is None:
                self._in_thread(document, fetch)
            else:
                begun.add_done_callback(partial(_pass_on, fetch))
            self._start_dropping()
        except Exception:  # noqa: BLE001 - no thread is available, or an error that the function itself will meet
            if not fetch.done():
                fetch.set_result(None)

    def _in_thread(self, document: Reference, fetch: Future[bytes | None]) -> None:
        """Read a document in a new thread."""

        def read() -> None:
            try:
                data = self._read(document)
            except BaseException as error:  # noqa: BLE001 - raised where it is taken
                fetch.set_exception(error)
            else:
                fetch.set_result(data)

        # Not in a pool: a server that does not answer would block the pool, and a pool would block the exit of the
        # process.
        threading.Thread(target=read, name="dqlab-ahead", daemon=True).start()

    def _note_read(self, fetch: Future[bytes | None]) -> None:
        with self._counting:  # not the lock: this runs on the loop of a file system, which must not wait for a slot
            self._reading -= 1

    def _start_dropping(self) -> None:
        """Start a thread that drops stale documents, unless one is running."""
        with self._lock:
            if self._dropping:
                return
            self._dropping = True
        try:
            threading.Thread(target=self._drop_stale, name="dqlab-ahead-ages", daemon=True).start()
        except RuntimeError:  # no thread is available; the next fetch tries again
            self._dropping = False

    def _drop_stale(self) -> None:
        """Drop documents that are too old to be taken, until none is held."""
        while True:
            time.sleep(FRESH_S / 2)
            with self._lock:
                late = time.monotonic() - FRESH_S
                for name in [name for name, fetch in self._fetches.items() if fetch.done()]:
                    if self._begun.get(name, 0.0) < late:
                        del self._fetches[name]
                if not self._fetches:
                    self._dropping = False
                    return


def taken(document: Reference) -> bytes | None:
    """Return the bytes of a document that was read ahead for this thread, once, or None."""
    ahead = _ahead_of_thread()
    return None if ahead is None else ahead.take(document)


def _ahead_of_thread() -> ReadAhead | None:
    """Return what this thread reads ahead, or None, also in a forked process."""
    ahead: ReadAhead | None = getattr(_here, "ahead", None)
    # A forked child inherits futures that no thread will ever complete, and perhaps a held lock.
    return ahead if ahead is not None and ahead._process == os.getpid() else None


def _name(document: Reference) -> Hashable:
    return place_of(document.where), document.version, document.part


def _is_far(document: Reference) -> bool:
    """Return whether a document is behind a network and is read whole."""
    return (
        # Rows, records and page ranges share their file, which stays open between them: reading one ahead would fetch
        # the whole file for each.
        local_path(document.where) is None
        and (document.part is None or isinstance(document.part, Member))
        and (document.size is None or document.size <= LARGEST)
    )


def _pass_on(fetch: Future[bytes | None], begun: Future[bytes]) -> None:
    """Complete a fetch with the outcome of the read that was begun for it, or with None if that was cancelled."""
    if begun.cancelled():
        fetch.set_result(None)
    elif (error := begun.exception()) is not None:
        fetch.set_exception(error)
    else:
        fetch.set_result(begun.result())


def _succeeded(fetch: Future[bytes | None]) -> bool:
    return fetch.done() and fetch.exception() is None
