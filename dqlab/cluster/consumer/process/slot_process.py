"""A slot's messages in a process of its own: given ahead, watched, and charged one at a time when it dies.

The slot's thread gives the process a few messages ahead and blocks on its pipes, so outcomes come back
without a detour through the event loop. A message that takes long holds up none behind it: what the process
has not begun is taken back, and the loop may give it to others.
"""

from __future__ import annotations

import re
import signal
import time
import traceback
from collections import deque
from dataclasses import replace
from hashlib import blake2b

from dqlab.cluster.consumer.process.child_handle import Child
from dqlab.cluster.consumer.process.pipes import Record, Say
from dqlab.cluster.consumer.running.chunk import UNDECIDED, Chunk, Done, Undecided
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.transport.isolation import Isolation, size
from dqlab.cluster.transport.wire import unpack
from dqlab.documents.ahead import MOST
from dqlab.errors import DqlabError, MemoryLimit, MessageTimeout, ProcessDied
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.texts import kept
from dqlab.user_frames import is_own, is_users

__all__ = ["SlotProcess"]

LOOK_S = 0.05
"""Seconds between two checks of memory, and of what is cancelled."""
STILL_S = 0.03
"""Seconds without an outcome after which what has not begun is taken back."""
QUICK_S = 0.01
"""Messages given ahead become twice as many when half of them take less than this."""
NAP_S = 0.0005, 0.01
"""Shortest and longest time in which outcomes may pile up: to wake for each costs as much as a short function."""
AHEAD_MOST = 256
AHEAD_BYTES = 1 << 20
_OUTCOMES: dict[int, Outcome | Undecided] = {int(outcome): outcome for outcome in (*Outcome, UNDECIDED)}
STARTING_S = 60.0
OPENING_S = 60.0
"""Seconds that a function may take to be opened, where messages have a timeout: its imports come once."""
FRUITLESS = 3
"""Processes in a row that end before they begin a message, until the next message is charged with it."""
FULL = 0.75
"""Share of the memory limit above which an idle process is replaced, before a message pays for earlier ones."""


class SlotProcess:
    """Runs chunks in a process that starts with the first, serves all, and is replaced when it has ended.

    Attributes
    ----------
    stopping : bool
        The slot gives up: kill what runs. Set by any thread.
    child : Child or None
        The process, None before the first chunk and after it was ended.
    ahead : int
        Messages to give ahead.
    fruitless : int
        Processes in a row that ended before they began a message.
    renewed : float
        When credentials were renewed here; a process that is older has those of before. Seconds of `time.monotonic`.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin, self.stopping = origin, False
        self.child: Child | None = None
        self.ahead, self.fruitless = 1, 0
        self.renewed = 0.0
        self._turn = 0

    def run(self, chunk: Chunk, blob: bytes) -> None:
        """Run what is left of a chunk, of a function as `pack_function` packs it; returns when nothing is."""
        limits = Isolation.of(chunk.process) or Isolation()
        child = self.child
        if child is not None and (
            child.started < self.renewed or not (child.alive and self._has_memory(child, limits))
        ):
            self.close()
        _Passage(self, chunk, blob, limits).run()

    def memory(self) -> int:
        """Return the bytes of memory that its process has now."""
        child = self.child
        return child.memory() if child is not None else 0

    def next_turn(self) -> int:
        """Return a number that no message of the process has."""
        self._turn = self._turn % 0xFFFF_FFFF + 1
        return self._turn

    def close(self) -> None:
        """End the process."""
        child, self.child = self.child, None
        if child is not None:
            child.close()

    @staticmethod
    def _has_memory(child: Child, limits: Isolation) -> bool:
        return limits.memory is None or not child.given or child.memory() < FULL * limits.memory


class _Passage:
    """One chunk on its way through a slot's process."""

    def __init__(self, slot: SlotProcess, chunk: Chunk, blob: bytes, limits: Isolation) -> None:
        self._slot, self._chunk, self._blob, self._limits = slot, chunk, blob, limits
        self._messages = chunk.messages()
        self._given: deque[tuple[int, int]] = deque()
        """Turn and position of what the process has and has not answered for; the first runs, or will."""
        self._since = self._looked = time.monotonic()
        """When the first of them began, at the latest; when it was looked at last."""
        self._filled = 0.0, 0
        """When messages were given last, and how many it had then."""
        self._pace = 0.0
        """Seconds a message took of late."""
        self._still = False
        """The one that runs takes long: nothing more is given before it has ended."""
        self._timing = False
        self._mixed_up = False
        """The process reported what it was not asked: nothing that it reports counts any more."""

    def run(self) -> None:
        """Run what is left."""
        self._time(running=self._slot.child is not None and self._slot.child.ready)
        try:
            while not self._slot.stopping and self._fill():
                self._step(self._child)
        finally:
            if self._given:
                self._end(None, charged=False)
            self._time(running=False)
            self._chunk.running = None

    @property
    def _child(self) -> Child:
        if self._slot.child is None:
            self._slot.child = Child(self._slot.origin)
            self._time(running=False)
        self._chunk.process_began = self._slot.child.started
        return self._slot.child

    def _time(self, *, running: bool) -> None:
        """Start or stop counting time: a process's start is not charged to a message."""
        if running and not self._timing:
            self._chunk.begin()
        elif self._timing and not running:
            self._chunk.end()
        self._timing = running

    # --- giving -----------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Give messages ahead when few are left; return whether any is out."""
        slot, given = self._slot, self._given
        if len(given) > slot.ahead // 2 or self._still:
            return True
        if not given and slot.child is not None and self._used_up(slot.child):
            slot.close()
        now, turns = time.monotonic(), list[int]()
        filled, had = self._filled
        if had > len(given):
            self._pace = (now - filled) / (had - len(given))
            if now - filled < QUICK_S:
                slot.ahead = min(2 * slot.ahead, AHEAD_MOST)
        while len(given) < slot.ahead and (index := self._next()) is not None:
            child = self._child
            if not turns and child.reads_of is not None:
                self._announce(child, child.reads_of)
            child.run(self._chunk.frames[0].function, self._chunk.kind, self._blob, rows=self._chunk.sink)
            turns.append(slot.next_turn())
            child.give(turns[-1], self._messages[index])
            given.append((turns[-1], index))
            if child.pending > AHEAD_BYTES or self._used_up(child):
                break
        if turns:
            self._filled = now, len(given)
            if len(given) == len(turns):
                self._since = now
                self._chunk.running = given[0][1]
            self._child.flush(turns)
        return bool(given)

    def _announce(self, child: Child, run: bytes) -> None:
        """Let a process that reads ahead know what comes behind the next message, or that it is another run's."""
        chunk = self._chunk
        if run != chunk.run:
            child.reads_of = None
            child.announce(chunk.run, None)
            return
        child.announce(run, chunk.upcoming(self._slot.ahead + MOST))

    def _next(self) -> int | None:
        chunk, child = self._chunk, self._slot.child
        while not chunk.stopped and not (child is not None and self._used_up(child)):
            try:
                index = chunk.todo.popleft()
            except IndexError:
                break
            if index not in chunk.cancelled:
                return index
            chunk.done.append((index, Outcome.RETURN, b"", None))
        return None

    def _used_up(self, child: Child) -> bool:
        most = self._limits.max_messages
        return most is not None and child.given >= most

    def _take_back(self, child: Child) -> None:
        """Put what the process has not begun back into the chunk, in its order."""
        turns = child.take_back()
        while self._given and self._given[-1][0] in turns:
            self._chunk.todo.appendleft(self._given.pop()[1])

    # --- watching ---------------------------------------------------------------------------

    def _step(self, child: Child) -> None:
        """Wait for records of the process, handle them, and check on it."""
        shortest, longest = NAP_S
        enough = self._slot.ahead // 2 if self._chunk.todo else 0
        nap = min(longest, (len(self._given) - enough) * self._pace / 2)
        if nap > shortest:
            time.sleep(nap)
        for said in child.receive(self._patience()):
            self._hear(child, said)
        now = time.monotonic()
        if self._mixed_up:
            self._end(ProcessDied(how="reported outcomes out of turn: something else wrote to its pipe"))
        elif child.gone:
            self._end(None)
        elif self._given:
            self._look(child, now)

    def _patience(self) -> float:
        wait, since = LOOK_S, self._since - time.monotonic()
        if len(self._given) > 1:
            wait = min(wait, since + STILL_S)
        if self._limits.timeout is not None:
            wait = min(wait, since + self._limits.timeout)
        return wait

    def _hear(self, child: Child, said: Record) -> None:
        if self._mixed_up:
            return
        if said.say == Say.WANTS:
            child.reads_of = self._chunk.run
            return
        self._since = time.monotonic()
        if said.say == Say.READY:
            child.ready = True
            self._time(running=True)
        elif said.say == Say.OPENED:
            child.opening = False
        elif (
            said.say != Say.OUTCOME
            or not self._given
            or said.turn != self._given[0][0]
            or said.outcome not in _OUTCOMES
        ):
            self._mixed_up = True
        else:
            self._still = False
            _, index = self._given.popleft()
            self._note(index, said)
            self._chunk.done.append((index, _OUTCOMES[said.outcome], said.body, said.key))
            self._chunk.running = self._given[0][1] if self._given else None
            self._slot.fruitless = 0

    def _note(self, index: int, said: Record) -> None:
        """Note how a result was made; its end is that of its way through the pipe, by the clock of this process."""
        chunk = self._chunk
        chunk.took[index], chunk.ended[index] = said.seconds, time.perf_counter()
        if said.version:
            chunk.versions[index] = said.version

    def _look(self, child: Child, now: float) -> None:
        """End the process when its message is cancelled or over a limit; when it takes long, free those behind it."""
        limits, running = self._limits, now - self._since
        if not child.ready:
            if now - child.started > STARTING_S:
                self._end(None)
            return
        if limits.timeout is not None and running > (
            max(limits.timeout, OPENING_S) if child.opening else limits.timeout
        ):
            self._end(MessageTimeout(seconds=limits.timeout))
        elif now - self._looked >= LOOK_S:
            self._looked = now
            self._name(child, *self._given[0])
            if self._given[0][1] in self._chunk.cancelled:
                self._end(None, charged=False)
            elif limits.memory is not None and child.memory() > limits.memory:
                self._end(MemoryLimit(limit=size(limits.memory)))
        if len(self._given) > 1 and running > STILL_S:
            self._take_back(child)
            self._still, self._slot.ahead = bool(self._given), max(1, self._slot.ahead // 2)

    def _name(self, child: Child, turn: int, index: int) -> None:
        """Note the key of the document that runs, once, for views."""
        document = self._chunk.document
        if document is None or document[0] != index:
            key = child.words.key(turn)
            self._chunk.document = (index, key) if key is not None else None

    # --- the end of a process ---------------------------------------------------------------

    def _end(self, error: DqlabError | None, *, charged: bool = True) -> None:
        """Kill the process, or clean up after it: the message that ran ends, the rest goes to the next process.

        Parameters
        ----------
        error : DqlabError, optional
            Why it is killed. None: it has died.
        charged : bool, default True
            The message that ran is charged; else it is given back.
        """
        child, slot = self._child, self._slot
        held, guilty = time.monotonic() - self._since, self._given[0] if self._given and error else None
        # Killed, then its last outcomes, then what it did not take, then what is left in `_given`: that had begun. In
        # another order a message runs twice, or the wrong one is charged.
        status = child.kill(describe=error is not None)
        for said in child.rest():
            self._hear(child, said)
        self._take_back(child)
        begun = list(self._given)
        self._given.clear()
        for turn, index in begun:
            if guilty not in (None, (turn, index)):  # the guilty one ended at the last moment, and this one had begun
                self._chunk.todo.appendleft(index)
            elif not charged:
                self._chunk.done.append((index, Outcome.RETURN, b"", None))
            else:
                self._charge(child, turn, index, error or ProcessDied(how=how_it_ended(status)), held)
        slot.fruitless = 0 if begun or error or not charged else slot.fruitless + 1
        if slot.fruitless >= FRUITLESS and (next_one := self._next()) is not None:
            slot.fruitless = 0
            self._charge(child, 0, next_one, ProcessDied(how=f"{how_it_ended(status)} before it began"), 0.0)
        self._still, self._mixed_up, slot.ahead = False, False, 1
        slot.close()
        self._time(running=False)

    def _charge(self, child: Child, turn: int, index: int, error: DqlabError, held: float) -> None:
        meta, _ = unpack(self._blob)
        key, page = child.words.key(turn), child.words.page(turn)
        if page and isinstance(error, ProcessDied):
            error = ProcessDied(how=f"{error.how} at page {page} of {key!r}")
        failure = obituary(error, child.words.stack(), self._slot.origin, key=key, code=meta["code"], seconds=held)
        done: Done = index, Outcome.FAIL, failure.to_bytes(), key
        self._chunk.done.append(done)


_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def how_it_ended(status: int) -> str:
    """Describe an exit status: "died of signal 11 (SIGSEGV)"."""
    if status >= 0:
        return f"ended itself with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = "unknown"
    by = ", sent by another process, or by the kernel when memory ran out" if -status == signal.SIGKILL else ""
    return f"died of signal {-status} ({name}){by}"


def obituary(error: DqlabError, stack: str, origin: Origin, *, key: str | None, code: str, seconds: float) -> Failure:
    """Return the record of a failure that could not be raised in the process.

    Parameters
    ----------
    stack : str
        What `faulthandler` wrote of the thread that ran the message; "" when it did not.
    """
    failure = Failure.from_exception(
        error, key=key, code=code, consumer=origin.consumer, worker=origin.worker, when=time.time(), seconds=seconds
    )
    frames = _users_part(stack)
    if not frames:
        return failure
    last = next((frame for frame in reversed(frames) if is_users(frame.filename)), frames[-1])
    told = "".join(traceback.format_list(frames))
    kind = [failure.error, *dict.fromkeys(frame.name for frame in frames)]
    return replace(
        failure,
        traceback=f"Traceback (most recent call last):\n{told}{failure.traceback}",
        at=f"{last.name}:{last.lineno}",
        fingerprint=blake2b(kept("\n".join(kind)), digest_size=4).hexdigest(),
    )


def _users_part(stack: str) -> list[traceback.FrameSummary]:
    """Return the frames of the first thread that was described, outermost first, without our own."""
    described = stack.partition("most recent call first):")[2].partition("\n\n")[0]
    frames = []
    for file, line, name in _FRAME.findall(described):
        if is_own(file):
            break
        frames.append(traceback.FrameSummary(file, int(line), name))
    return frames[::-1]
