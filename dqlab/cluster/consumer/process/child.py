"""The process that runs one slot's messages, which `child_handle.Child` starts by ``python -m``.

It takes a turn, reads that turn's message, runs it, reports its outcome, and takes the next turn; see `pipes`. It ends
with its slot, when its pipes end, or with the thread that started it (`platforms.die_with`).
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import resource
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, Self

from dqlab import platforms
from dqlab.cluster.consumer.process.pipes import TURN, LastWords, Record, Records, Say, record
from dqlab.cluster.consumer.running.chunk import UNDECIDED, Done
from dqlab.cluster.consumer.running.execution import Origin, Work, fail_all, run_calls
from dqlab.cluster.consumer.running.functions import FunctionCache, Objects, SetupFailed, halted
from dqlab.cluster.consumer.running.here import Queued, end_if_forked
from dqlab.cluster.consumer.running.one_batch import OneBatch, one_by_one, opened_parcel
from dqlab.cluster.transport.wire import unpack
from dqlab.documents import Document, formats
from dqlab.documents.ahead import ReadAhead
from dqlab.documents.document import reading_ahead
from dqlab.frame import Kind, Outcome

_READ = 1 << 16
IDLE_MS = 1000
"""Milliseconds without a message after which documents that were read ahead are released."""


class Turns(Queued):
    """The messages of this process, one at a time."""

    waits = True
    cancelled = frozenset[int]()

    # The first three are descriptors of pipes, the fourth of the file to which this process prints.
    def __init__(self, turns: int, orders: int, outcomes: int, printed: int, words: LastWords) -> None:
        self._turns, self._orders, self._outcomes, self._words = turns, orders, outcomes, words
        self._printed = printed
        self._poll = select.poll()
        self._poll.register(turns, select.POLLIN)
        self._records, self._read = Records(), deque[Record]()
        self._ahead: Record | None = None
        """A message that has arrived and belongs to the next function."""
        self._payload = b""
        self._function: Record | None = None
        self.positions, self.keys = deque[int](maxlen=1), deque[str | int | None](maxlen=1)
        """The turn and the key of the message whose result comes next into `payloads`."""
        self.payloads = _Results(self)
        self.todo = self.done = self  # up to the first message of another function
        self.ended = dict[int, float]()
        self._taken = 0.0
        self._idle: float | None = None
        """Milliseconds without a message after which this process ends."""
        self.versions, self.spent, self.once = {}, {}, {}
        self._run, self._coming, self._asked = b"", deque[bytes](), False
        """The run and its next messages as the slot has announced them, and whether it was asked to announce."""
        self._reads: ReadAhead | None = None
        self._objects = Objects()

    def live(self) -> None:
        """Run messages until the slot closes its end, then raise SystemExit."""
        hello, _ = unpack(self._next_record().body)
        _restore_environment(hello["pythonpath"])
        self._idle = hello["idle"] and 1000 * hello["idle"]
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
                if self.kind is not Kind.CALL:
                    work = self._objects.ready(meta["hash"], work, 0.0)
                if meta["rows"]:
                    work = replace(work, rows=True)
                if self.kind is Kind.VALUE:
                    work = opened_parcel(work, origin, self._before_call)
                elif work.plan is not None and work.plan.batch is not None:
                    work = one_by_one(work)
            except BaseException as raised:  # noqa: BLE001 - users' imports run here; each message reports the failure
                error = raised
            self._say(record(Say.OPENED, printed=self._position(), seconds=self._objects.seconds(meta["hash"])))
            if isinstance(error, SetupFailed):
                # Once, and it ends: the slot gives back the other messages, and a later try needs a new process.
                self.append((self.popleft(), UNDECIDED, halted(error, origin), None))
                raise SystemExit
            if error is not None:
                fail_all(self, error, origin)
            else:
                run_calls(self, self._noting(work), origin)

    def _before_call(self, one: OneBatch, places: list[int]) -> None:
        """Restart the slot's clock: limits count per call, and the first one began when the process was ready."""
        self._say(record(Say.OPENED))
        if len(one.messages()) == 1 and self.running is not None:  # its key, in case it kills this process
            with suppress(Exception):
                value = pickle.loads(one.messages()[0])
                self._words.note(self.running, str(getattr(value, "key", "")))

    def close(self) -> None:
        """End the objects made for its function."""
        self._objects.close()

    # --- as a chunk -------------------------------------------------------------------------

    def messages(self) -> Self:
        """Return the bytes of the message that was taken last, by turn."""
        return self

    def opening(self) -> tuple[Callable[[Any], Any], Self]:
        """Return the function that opens these bytes, and them."""
        return pickle.loads, self

    def read_on(self, document: Document) -> None:
        """Begin to read the documents that follow one behind a URL."""
        # The slot may take back messages that it has announced. What was read for them is released with the next
        # announcement or by age, and no other message ever gets it.
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
        """Release documents that were read ahead, before another function or a pause."""
        self._coming.clear()
        if self._reads is not None:
            self._reads.clear()

    def pay(self, index: int, amounts: Mapping[str, float]) -> None:
        """Report at once what a message has spent: it may kill this process later."""
        self._say(record(Say.BESIDE, index, pickle.dumps((amounts, {}))))

    def keep(self, index: int, answers: Mapping[bytes, bytes]) -> None:
        """Report at once an answer that a message keeps."""
        super().keep(index, answers)
        self._say(record(Say.BESIDE, index, pickle.dumps(({}, answers))))

    def note_step(self, index: int, number: int, total: int) -> None:
        """Note how far the function is in its document, for the slot."""
        self._words.note_step(index, number % (1 << 32), total % (1 << 32))

    def _announced(self, body: bytes) -> None:
        """Note the next messages that the slot has announced."""
        meta, parts = unpack(body)
        if meta["run"] != self._run or meta["asks"]:  # another run: nothing that was read for the last one may stay
            self.rest()
            self._reads = None
        self._run, self._coming, self._asked = meta["run"], deque(map(bytes, parts)), not meta["asks"]

    def popleft(self) -> int:
        """Take the next message, or raise IndexError if it is another function's."""
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
        """Report the outcome of a message."""
        # Before the next turn is taken: should that message kill this process, the slot has all earlier outcomes and
        # charges the right one.
        end_if_forked()
        turn, outcome, payload, key = done
        self._payload = b""
        took, version = self.ended.pop(turn, self._taken) - self._taken, self.versions.pop(turn, "")
        self.once.pop(turn, None)
        printed = self._position()
        self._say(
            record(Say.OUTCOME, turn, payload, outcome=outcome, key=key, version=version, seconds=took, printed=printed)
        )

    def _position(self) -> int:
        """Return how many bytes this process, and what it has started, have printed until now."""
        return os.lseek(self._printed, 0, os.SEEK_CUR)

    # --- pipes ------------------------------------------------------------------------------

    def _next_message(self) -> Record:
        """Wait for a turn and return its message, noting functions and announcements before it."""
        # The turn first: it is the right to begin the message. Messages whose turn was taken back are skipped.
        turn = self._next_turn()
        while True:
            given = self._next_record()
            if given.say == Say.FUNCTION:
                self._function = given
            elif given.say == Say.COMING:
                self._announced(given.body)
            elif given.turn == turn and given.say == Say.BESIDE:
                self.once = {turn: pickle.loads(given.body)}
            elif given.turn == turn:
                return given

    def _next_turn(self) -> int:
        while True:
            try:
                turn = os.read(self._turns, TURN.size)
            except BlockingIOError:  # the slot, which shares this pipe's end and its settings, must not block
                if self._reads is not None and not self._poll.poll(IDLE_MS):
                    self.rest()
                if not self._poll.poll(self._idle):
                    raise SystemExit from None
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
        """Return a function that first notes its document's key in case it kills this process."""
        if self.kind is not Kind.ELEMENT:
            return work
        call, note = work.call, self._words.note
        formats.note_page = self._words.note_page

        def noted(value: Any) -> Any:
            if type(value) is Document and self.running is not None:
                note(self.running, str(value.key))
            return call(value)

        return replace(work, call=noted)


class _Results:
    """The column of results of this process."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def append(self, payload: bytes) -> None:
        """Report the result of the message that was noted last."""
        turns = self._turns
        turns.append((turns.positions[0], Outcome.ACK, payload, turns.keys[0]))


def _restore_environment(pythonpath: str | None) -> None:
    """Restore the worker's PYTHONPATH, which was changed to find dqlab, for users' functions."""
    if pythonpath is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = pythonpath


def _expect_the_worst(words: LastWords) -> None:
    """Write crash reports for the slot, leave no core, and be killed first when the machine runs out of memory."""
    faulthandler.enable(words.fd, all_threads=False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    platforms.die_first()


def _own_pipes(printed: int) -> tuple[int, int]:
    """Move the two record pipes to private descriptors and return these."""
    # Users' functions and their children may read 0 and write 1 and 2: then 0 is empty, and the slot reads the others.
    orders, outcomes = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    for standard in (1, 2):
        os.dup2(printed, standard)
    platforms.unbuffer_c()
    return orders, outcomes


def main(turns: int, words: int, printed: int, parent: int) -> None:
    """Run messages until the slot closes its end."""
    platforms.die_with(parent)
    last = LastWords(words)
    _expect_the_worst(last)
    here = Turns(turns, *_own_pipes(printed), printed, last)
    try:
        with suppress(BrokenPipeError):  # the slot has ended while a record was written
            here.live()
    finally:
        here.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
