"""Documents behind URLs are read before their function asks for them, so that it does not wait for the network.

Owns how many of a slot's next documents are read ahead, what is kept of them, and when that stops. Knows neither how a
document is read nor how messages are queued.
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
"""Documents that are read ahead at first, and when their function waits for them all the same."""
LARGEST = 16 << 20
"""Bytes of a document above which it is left to its function, which may need some of them only."""
HELD = 64 << 20
"""Bytes that are held of documents that were read and not asked for yet."""
UNREAD = 3
"""Documents in a row that their function did not read, after which nothing is read ahead."""
FRESH_S = 10.0
"""Seconds after which a document that was read ahead is read again: it may have changed meanwhile. It is not held much
longer, whatever its function does: its message may have been taken away."""

_here = threading.local()


class ReadAhead:
    """Reads the next documents of a slot, and holds what it has read.

    Parameters
    ----------
    read : callable
        Returns the bytes of a document, or None for one that is larger than `LARGEST`.
    begin : callable
        Begins to read a document without a thread, and returns what will have its bytes; None where that cannot be.
    """

    def __init__(
        self,
        read: Callable[[Reference], bytes | None],
        begin: Callable[[Reference], Future[bytes] | None] = lambda document: None,
    ) -> None:
        self._read, self._begin = read, begin
        self._upcoming: Callable[[int], Iterable[Reference]] = lambda most: ()
        self._fetches: dict[Hashable, Future[bytes | None]] = {}
        self._begun: dict[Hashable, float] = {}
        self._run = b""
        self._process = os.getpid()
        self._depth = FEWEST
        self._current: Hashable = None
        self._unread = self._reading = 0
        self._letting_go = False
        """A thread waits to let go of what gets too old."""
        self._lock, self._counting = threading.RLock(), threading.Lock()
        """More documents may arrive, and be looked at, while the slot's thread takes one. The second one is for
        `_reading` alone."""

    @classmethod
    def of_thread(
        cls,
        run: bytes,
        upcoming: Callable[[int], Iterable[Reference]],
        read: Callable[[Reference], bytes | None],
        begin: Callable[[Reference], Future[bytes] | None] = lambda document: None,
    ) -> ReadAhead:
        """Return what this thread reads ahead, from here on of other documents.

        Parameters
        ----------
        run : bytes
            The run whose documents they are: what was read for another one is let go.
        upcoming : callable
            Returns up to so many of the documents that come next.
        """
        ahead = _of_here()
        if ahead is None:
            ahead = _here.ahead = cls(read, begin)
        with ahead._lock:
            if ahead._run != run:
                ahead._fetches.clear()
                ahead._unread = 0
            ahead._run, ahead._upcoming = run, upcoming
        return ahead

    def begin(self, document: Reference) -> None:
        """Note which document runs now, and begin to read those that come next."""
        with self._lock:
            before, self._current = self._current, _name(document)
            if before in self._fetches:  # its function has returned
                del self._fetches[before]
                self._unread += 1
        self.look()

    def look(self) -> None:
        """Begin to read what comes next; more may have arrived. Any thread may call it."""
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
        # Without the lock: opening a file system may wait for its loop.
        for each, fetch in beginning:
            self._fetch(each, fetch)

    def take(self, document: Reference) -> bytes | None:
        """Return the bytes of the document that runs, waiting for them; None where it has to be read as ever."""
        with self._lock:
            name = _name(document)
            if name == self._current:
                self._unread = 0
            fetch, begun = self._fetches.pop(name, None), self._begun.get(name, 0.0)
            if fetch is None:
                return None
            if fetch.done() and time.monotonic() - begun > FRESH_S:
                return None
            if not fetch.done():  # the function waits: more of them have to be on their way
                self._depth = min(MOST, self._depth + 1)
        try:
            return fetch.result()
        except Exception:  # noqa: BLE001 - it is read again, and raises in the function's own call
            return None

    def clear(self) -> None:
        """Let go of all that was read; what is being read ends by itself."""
        with self._lock:
            self._fetches.clear()

    def rest(self) -> None:
        """Let go of what was read, unless more documents come; what is being read ends by itself."""
        with self._lock:
            if not any(True for _ in self._upcoming(1)):
                self._fetches.clear()

    def _has_room(self) -> bool:
        held = sum(len(fetch.result() or b"") for fetch in self._fetches.values() if _succeeded(fetch))
        return held < HELD and self._reading < 2 * MOST

    def _fetch(self, document: Reference, fetch: Future[bytes | None]) -> None:
        """Read a document; where that cannot be begun, its function reads it."""
        fetch.add_done_callback(self._note_read)
        try:
            begun = self._begin(document)
            if begun is None:
                self._in_thread(document, fetch)
            else:
                begun.add_done_callback(partial(_pass_on, fetch))
            self._let_go_later()
        except Exception:  # noqa: BLE001 - no thread to be had, or what the function itself meets
            if not fetch.done():
                fetch.set_result(None)

    def _in_thread(self, document: Reference, fetch: Future[bytes | None]) -> None:
        """Read in a thread of its own: a server that does not answer would hold up a pool, and a process that ends."""

        def read() -> None:
            try:
                data = self._read(document)
            except BaseException as error:  # noqa: BLE001 - raised where it is taken
                fetch.set_exception(error)
            else:
                fetch.set_result(data)

        threading.Thread(target=read, name="dqlab-ahead", daemon=True).start()

    def _note_read(self, fetch: Future[bytes | None]) -> None:
        with self._counting:  # not the lock: this runs on the loop of a file system, which must not wait for a slot
            self._reading -= 1

    def _let_go_later(self) -> None:
        """Have a thread let go of what gets too old, unless one does."""
        with self._lock:
            if self._letting_go:
                return
            self._letting_go = True
        try:
            threading.Thread(target=self._let_go_in_time, name="dqlab-ahead-ages", daemon=True).start()
        except RuntimeError:  # the next one tries again
            self._letting_go = False

    def _let_go_in_time(self) -> None:
        """Let go of documents that are too old to be given out, until none is held."""
        while True:
            time.sleep(FRESH_S / 2)
            with self._lock:
                late = time.monotonic() - FRESH_S
                for name in [name for name, fetch in self._fetches.items() if fetch.done()]:
                    if self._begun.get(name, 0.0) < late:
                        del self._fetches[name]
                if not self._fetches:
                    self._letting_go = False
                    return


def taken(document: Reference) -> bytes | None:
    """Return the bytes of a document if they were read ahead for this thread, None otherwise; they are there once."""
    ahead = _of_here()
    return None if ahead is None else ahead.take(document)


def _of_here() -> ReadAhead | None:
    """Return what this thread reads ahead; in a process that was forked nothing does."""
    ahead: ReadAhead | None = getattr(_here, "ahead", None)
    return ahead if ahead is not None and ahead._process == os.getpid() else None


def _name(document: Reference) -> Hashable:
    return place_of(document.where), document.version, document.part


def _is_far(document: Reference) -> bool:
    """Return whether a document waits for a network, and is read as a whole: records and pages share their file."""
    return (
        local_path(document.where) is None
        and (document.part is None or isinstance(document.part, Member))
        and (document.size is None or document.size <= LARGEST)
    )


def _pass_on(fetch: Future[bytes | None], begun: Future[bytes]) -> None:
    """End a fetch as what was begun for it has ended; one that was cancelled gives nothing."""
    if begun.cancelled():
        fetch.set_result(None)
    elif (error := begun.exception()) is not None:
        fetch.set_exception(error)
    else:
        fetch.set_result(begun.result())


def _succeeded(fetch: Future[bytes | None]) -> bool:
    return fetch.done() and fetch.exception() is None
