"""The process that runs one slot's messages, started by `SlotProcess`: ``python -m`` and the name of this module.

It takes a turn, reads that message, runs it, reports its outcome, and takes the next; see `pipes`.
It ends when its slot does: see `platforms.die_with`, and its pipes end.
What functions print goes to the worker's stderr, since descriptor 1 is no longer the pipe.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import select
import sys
import time
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Self

from dqlab import platforms
from dqlab.cluster.consumer.process.pipes import TURN, LastWords, Record, Records, Say, record
from dqlab.cluster.consumer.running.chunk import Done
from dqlab.cluster.consumer.running.execution import Origin, Work, end_if_forked, fail_all, run_calls
from dqlab.cluster.consumer.running.functions import FunctionCache
from dqlab.cluster.transport.wire import unpack
from dqlab.documents import Document, pdf
from dqlab.documents.ahead import ReadAhead
from dqlab.documents.document import reading_ahead
from dqlab.frame import Kind

__all__ = ["Turns", "main"]

_READ = 1 << 16
IDLE_MS = 1000
"""Milliseconds without a message after which nothing that was read ahead is held."""


class Turns:
    """The messages of this process, in the shape that `run_calls` knows: one is here at a time.

    Parameters
    ----------
    turns, orders, outcomes : int
        Descriptors of the three pipes.
    """

    stopped = False
    waits = True
    cancelled: Collection[int] = frozenset()

    def __init__(self, turns: int, orders: int, outcomes: int, words: LastWords) -> None:
        self._turns, self._orders, self._outcomes, self._words = turns, orders, outcomes, words
        self._poll = select.poll()
        self._poll.register(turns, select.POLLIN)
        self._records, self._read = Records(), deque[Record]()
        self._ahead: Record | None = None
        """A message that is here and belongs to the next function."""
        self._payload = b""
        self._function: Record | None = None
        self.running: int | None = None
        self.document: tuple[int, str] | None = None
        self.kind = Kind.ELEMENT
        self.began, self.ended = 0.0, dict[int, float]()
        self._taken = 0.0
        self.versions: dict[int, str] = {}
        self._run, self._coming, self._asked = b"", deque[bytes](), False
        """Whose messages these are and what comes next, as the slot has announced it; whether it was asked to."""
        self._reads: ReadAhead | None = None

    def live(self) -> None:
        """Run messages until the slot closes its end; raises `SystemExit` then."""
        hello, _ = unpack(self._next_record().body)
        _restore_environment(hello["pythonpath"])
        origin, functions = Origin(**hello["origin"]), FunctionCache()
        self._say(record(Say.READY))
        while True:
            self._ahead = self._ahead or self._next_message()
            assert self._function is not None, "a function comes before its messages"
            meta, parts = unpack(self._function.body)
            self._function, self.kind = None, Kind(meta["kind"])
            sys.path[:] = meta["path"]
            error: BaseException | None = None
            try:
                work = functions.open(meta["hash"], bytes(parts[0]))
                if meta["rows"]:
                    work = replace(work, rows=True)
            except BaseException as raised:  # noqa: BLE001 - users' imports run here; each message reports the failure
                error = raised
            self._say(record(Say.OPENED))
            if error is not None:
                fail_all(self, error, origin)
            else:
                run_calls(self, self._noting(work), origin)

    # --- as a chunk -------------------------------------------------------------------------

    @property
    def todo(self) -> Self:
        """What is left to run, until a message of another function comes."""
        return self

    @property
    def done(self) -> Self:
        """Where outcomes are put."""
        return self

    def messages(self) -> Self:
        """Return what holds the bytes of the message that was taken last."""
        return self

    def read_on(self, document: Document) -> None:
        """Begin to read what comes behind a document that is far away.

        The slot may take back what it has announced: what was read of it goes with the next announcement, or when it
        gets too old, and is given to no other message.
        """
        if not self._asked:
            self._asked = True
            self._say(record(Say.WANTS))
            return
        if self._payload in self._coming:
            while self._coming.popleft() != self._payload:
                pass
        if self._reads is None:
            self._reads = reading_ahead(self._run, lambda most: list(islice(self._coming, most)), document)
        self._reads.begin(document)

    def rest(self) -> None:
        """Let go of what was read ahead: messages of another function come next, or none for now."""
        self._coming.clear()
        if self._reads is not None:
            self._reads.clear()

    def _announced(self, body: bytes) -> None:
        """Take in what comes next; of another run, nothing that was read before may be left."""
        meta, parts = unpack(body)
        if meta["run"] != self._run or meta["asks"]:
            self.rest()
            self._reads = None
        self._run, self._coming, self._asked = meta["run"], deque(map(bytes, parts)), not meta["asks"]

    def popleft(self) -> int:
        """Take the next message.

        Raises
        ------
        IndexError
            It is another function's.
        SystemExit
            There are no more messages.
        """
        message, self._ahead = self._ahead or self._next_message(), None
        if self._function is not None:
            self._ahead = message
            raise IndexError
        self._payload = message.body
        self._taken = time.perf_counter()
        return message.turn

    def __getitem__(self, turn: int) -> bytes:
        return self._payload

    def append(self, done: Done) -> None:
        """Report the outcome of a message, in one piece, before the next is taken."""
        end_if_forked()
        turn, outcome, payload, key = done
        self._payload = b""
        took, version = self.ended.pop(turn, self._taken) - self._taken, self.versions.pop(turn, "")
        self._say(record(Say.OUTCOME, turn, payload, outcome=outcome, key=key, version=version, seconds=took))

    # --- pipes ------------------------------------------------------------------------------

    def _next_message(self) -> Record:
        """Wait for a turn, then for its message; on the way there may be a function."""
        turn = self._next_turn()
        while True:
            given = self._next_record()
            if given.say == Say.FUNCTION:
                self._function = given
            elif given.say == Say.COMING:
                self._announced(given.body)
            elif given.turn == turn:
                return given

    def _next_turn(self) -> int:
        while True:
            try:
                turn = os.read(self._turns, TURN.size)
            except BlockingIOError:  # the slot's end must not block, and both share that setting
                if not self._poll.poll(IDLE_MS if self._reads is not None else None):
                    self.rest()
                    self._poll.poll()
                continue
            if not turn:
                raise SystemExit
            number: int = TURN.unpack(turn)[0]
            return number

    def _next_record(self) -> Record:
        while not self._read:
            data = os.read(self._orders, _READ)
            if not data:
                raise SystemExit
            self._records.feed(data)
            self._read.extend(self._records.take())
        return self._read.popleft()

    def _say(self, said: bytes) -> None:
        left = memoryview(said)
        while left:
            left = left[os.write(self._outcomes, left) :]

    def _noting(self, work: Work) -> Work:
        """Return a function that first notes its document's key, in case it kills this process."""
        if self.kind is not Kind.ELEMENT:
            return work
        call, note = work.call, self._words.note
        pdf.note_page = self._words.note_page

        def noted(value: Any) -> Any:
            if type(value) is Document and self.running is not None:
                note(self.running, str(value.key))
            return call(value)

        return replace(work, call=noted)


def _restore_environment(pythonpath: str | None) -> None:
    """Restore the worker's environment for users' functions: it was changed only to find dqlab."""
    if pythonpath is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = pythonpath


def _expect_the_worst(words: LastWords) -> None:
    """Write a crash report for the slot, leave no core, and be killed first when the machine runs out of memory."""
    faulthandler.enable(words.fd, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    platforms.die_first()


def _own_pipes() -> tuple[int, int]:
    """Return private descriptors of the two record pipes; 0 is empty then, and 1 goes where 2 goes."""
    orders, outcomes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return orders, outcomes


def main(turns: int, words: int, parent: int) -> None:
    """Run messages until the slot closes its end."""
    platforms.die_with(parent)
    last = LastWords(words)
    _expect_the_worst(last)
    with suppress(BrokenPipeError):  # the slot is gone in the middle of a sentence
        Turns(turns, *_own_pipes(), last).live()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
