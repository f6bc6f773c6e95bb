"""Runs a slot's messages in a process, gives it messages ahead, watches it, and charges one message when it dies.

The slot's thread gives the process a few messages ahead and blocks on its pipes, so outcomes return without a detour
through the event loop. A long message does not hold up the others: those that the process has not begun are taken
back, and the event loop may give them to other consumers.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from dqlab.cluster.consumer.devices import Equipment
from dqlab.cluster.consumer.process.child_handle import Child, how_it_ended, obituary
from dqlab.cluster.consumer.process.pipes import Record, Say
from dqlab.cluster.consumer.running.chunk import UNDECIDED, Chunk, Done, Undecided
from dqlab.cluster.consumer.running.execution import HALT, Origin
from dqlab.cluster.consumer.running.functions import Setup, SetupFailed, halted, makes_objects
from dqlab.cluster.consumer.running.one_batch import OneBatch
from dqlab.cluster.transport.isolation import Isolation
from dqlab.cluster.transport.wire import unpack
from dqlab.documents.ahead import MOST
from dqlab.errors import DqlabError, MemoryLimit, MessageTimeout, ProcessDied
from dqlab.failures.failure import Failure, class_name
from dqlab.frame import Frame, Kind, Outcome
from dqlab.numbers import size
from dqlab.printed import Ring

LOOK_S = 0.05
"""Seconds between two checks of memory and of cancelled messages."""
STILL_S = 0.03
"""Seconds without an outcome after which messages that have not begun are taken back."""
QUICK_S = 0.01
"""Twice as many messages are given ahead when half of them take less than this."""
NAP_S = 0.0005, 0.01
"""Shortest and longest sleep in which outcomes may pile up: waking for each one costs as much as a short function."""
AHEAD_MOST = 256
AHEAD_BYTES = 1 << 20
_OUTCOMES: dict[int, Outcome | Undecided] = {int(outcome): outcome for outcome in (*Outcome, UNDECIDED)}
STARTING_S = 60.0
OPENING_S = 60.0
"""Seconds that a function may take to open where messages have a timeout, since its imports happen only once."""
SETUP_S = 600.0
"""The same for a function with a plan, which may load a model."""
FRUITLESS = 3
"""Processes in a row that may end before they begin a message, until the next message is charged."""
FULL = 0.75
"""Share of the memory limit above which an idle process is replaced, so that no message pays for earlier ones."""


class SlotProcess:
    """Runs chunks in a process that starts with the first chunk, serves all, and is replaced when it has ended."""

    def __init__(
        self,
        origin: Origin,
        equipment: Equipment | None = None,
        renewed: Callable[[], float] = lambda: 0.0,  # when credentials were renewed here, seconds of `time.monotonic`
    ) -> None:
        self.origin, self._renewed, self.stopping = origin, renewed, False
        """`stopping`, which any thread may set, has the slot's thread kill the process."""
        self.child: Child | None = None
        """The process; None before the first chunk and after `close`."""
        self.ahead, self.fruitless = 1, 0
        """How many messages to give ahead, and how many processes in a row ended before they began a message."""
        self.halted: tuple[bytes, float, bytes] | None = None
        """The function that could not be set up last, when, and the outcome of its messages."""
        self.setup: Setup | None = None
        self.mask: str | None = None
        """The devices that the process sees; None: as its worker."""
        self._turn, self._equipment = 0, equipment or Equipment()
        self._holds: tuple[bytes, str] | None = None
        """The run for which the process holds devices, and these."""

    def run(self, chunk: Chunk, blob: bytes) -> None:
        """Run the messages left in a chunk with a function that `pack_function` has packed."""
        limits = Isolation.of(chunk.lease.process) or Isolation()
        if limits.gpus is None:
            self._pass(chunk, blob, limits, None)
            return
        with self._equipment.turn as turn:
            turn.take(self.close)
            self._pass(chunk, blob, limits, (chunk.run, self._equipment.mask(limits.gpus)))

    def _pass(self, chunk: Chunk, blob: bytes, limits: Isolation, holds: tuple[bytes, str] | None) -> None:
        child = self.child
        if holds != self._holds:  # what another run has put there is gone before the devices are used again
            self.close()
            child, self._holds, self.mask = None, holds, None if holds is None else holds[1]
        if child is not None and (
            # An older process still has the old credentials.
            child.started < self._renewed() or not (child.alive and self._has_memory(child, limits))
        ):
            self.close()
        _Passage(self, chunk, blob, limits).run()

    def memory(self) -> int:
        """Return the resident bytes of the process, 0 without one."""
        child = self.child  # read once: the slot's thread may set it to None, and the event loop calls this
        return child.memory() if child is not None else 0

    def next_turn(self) -> int:
        """Return a turn, a number from 1 that no other message in the process has."""
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
        self._hash = chunk.frames[0].function
        self._makes = makes_objects(blob)
        """Whether the process has to make objects before the first message."""
        self._messages = chunk.messages()
        self._given: deque[tuple[int, int]] = deque()
        """Turns and positions of messages that the process has not answered; the first one runs, or will."""
        self._since = self._looked = time.monotonic()
        """When the first of them began, at the latest, and when it was last checked."""
        self._filled = 0.0, 0
        """When messages were last given, and how many the process had then."""
        self._pace = 0.0
        """Recent seconds of a message."""
        self._still = False
        """The running message takes long, so no more are given until it has ended."""
        self._timing = False
        self._mixed_up = False
        """The process sent an outcome out of turn, so none of its records counts any more."""
        failed = slot.halted
        tried = failed is not None and failed[0] == self._hash and chunk.leased_at <= failed[1]
        self._halted = failed[2] if failed is not None and tried else b""
        """Outcome of messages whose function could not be set up."""

    def run(self) -> None:
        """Run the messages left in the chunk."""
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
            self._slot.child = Child(self._slot.origin, self._slot.mask)
            self._time(running=False)
        return self._slot.child

    def _time(self, *, running: bool) -> None:
        """Start or stop the chunk's clock."""
        # It stands still while a process starts and opens a function: messages are not charged for that.
        if running and not self._timing:
            self._chunk.begin()
        elif self._timing and not running:
            self._chunk.end()
        self._timing = running

    # --- giving -----------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Give messages ahead when the process has few left, and return whether it has any."""
        slot, given = self._slot, self._given
        if len(given) > slot.ahead // 2 or self._still:
            return True
        if not given and slot.child is not None and self._used_up(slot.child):  # only an idle one may be replaced
            slot.close()
        now, turns = time.monotonic(), list[int]()
        filled, had = self._filled
        if had > len(given):
            self._pace = (now - filled) / (had - len(given))
            if now - filled < QUICK_S:
                slot.ahead = min(2 * slot.ahead, AHEAD_MOST)
        while len(given) < slot.ahead and (index := self._next()) is not None:
            child = self._child
            if not turns and child.reads_of is not None:  # after `_next`: it announces what follows that message
                self._announce(child, child.reads_of)
            child.run(self._hash, self._chunk.kind, self._blob, rows=self._chunk.lease.sink)
            self._time(running=not child.opening)
            turns.append(slot.next_turn())
            child.give(turns[-1], self._messages[index], self._chunk.once.get(index))
            given.append((turns[-1], index))
            if child.pending > AHEAD_BYTES or self._used_up(child):
                break
        if turns:
            self._filled = now, len(given)
            if len(given) == len(turns):  # the process was idle: the first message begins now
                self._since = now
                self._chunk.running = given[0][1]
            self._child.flush(turns)
        return bool(given)

    def _announce(self, child: Child, run: bytes) -> None:
        """Announce the messages after the next one to a process that reads ahead, or that its run has changed."""
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
            if chunk.is_cancelled(index):
                chunk.done.append((index, Outcome.RETURN, b"", None))
            elif self._halted:
                chunk.done.append((index, UNDECIDED, self._halted, None))
            else:
                return index
        return None

    def _used_up(self, child: Child) -> bool:
        most = self._limits.max_messages
        return most is not None and child.given >= most

    def _take_back(self, child: Child) -> None:
        """Take back the messages that the process has not begun, into the chunk and in their order."""
        turns = child.take_back()
        # From the right, to the left of `todo`: the first one given is also the first one to run again.
        while self._given and self._given[-1][0] in turns:
            self._chunk.todo.appendleft(self._given.pop()[1])

    # --- watching ---------------------------------------------------------------------------

    def _step(self, child: Child) -> None:
        """Wait for records of the process, handle them, and check on it."""
        shortest, longest = NAP_S
        # Sleep for half the time that its spare messages take, instead of waking for each outcome.
        enough = self._slot.ahead // 2 if self._chunk.todo else 0
        nap = min(longest, (len(self._given) - enough) * self._pace / 2)
        if nap > shortest:
            time.sleep(nap)
        for record in child.receive(self._patience()):
            self._handle(child, record)
        now = time.monotonic()
        if self._mixed_up:
            self._end(ProcessDied(how="sent an unexpected record: other code wrote to its pipe"))
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

    def _handle(self, child: Child, record: Record) -> None:
        if self._mixed_up:
            return
        if record.say == Say.WANTS:
            child.reads_of = self._chunk.run
            return
        if record.say == Say.BESIDE and self._given and record.turn == self._given[0][0]:
            spent, answers = pickle.loads(record.body)
            self._chunk.pay(self._given[0][1], spent)
            self._chunk.keep(self._given[0][1], answers)
            return
        # Every other record restarts the clock of the running message, so that the start of the process and the opening
        # of its function do not count.
        self._since = time.monotonic()
        if record.say == Say.READY:
            child.ready = True
        elif record.say == Say.OPENED:
            child.opening = False
            self._time(running=True)
            if record.seconds:
                self._slot.setup = self._chunk.run, record.seconds
            child.printed.read(None, record.printed)
        elif (
            record.say != Say.OUTCOME
            or not self._given
            or record.turn != self._given[0][0]
            or record.outcome not in _OUTCOMES
        ):
            self._mixed_up = True
        else:
            self._still = False
            _, index = self._given.popleft()
            # Before the outcome is in `done`, see `Chunk.ended`; by this clock: that of the process has another zero.
            self._chunk.took[index], self._chunk.ended[index] = record.seconds, time.perf_counter()
            if record.version:
                self._chunk.versions[index] = record.version
            self._note_printed(child, index, record.printed)
            done: Done = index, _OUTCOMES[record.outcome], record.body, record.key
            if done[1] is UNDECIDED and HALT in unpack(done[2])[0]:
                self._halt(done[2])
            if self._chunk.apart is not None and done[1] is not Outcome.ACK:
                # It may lack what was set up in its worker, where it runs next: what it raises here is not its outcome.
                self._chunk.apart.add((self._chunk.run, self._chunk.id_at(index)))
                done = index, Outcome.RETURN, b"", None
            self._chunk.done.append(done)
            self._chunk.running = self._given[0][1] if self._given else None
            self._slot.fruitless = 0

    def _note_printed(self, child: Child, index: int, upto: int) -> None:
        """Note what a message has printed, up to a position in all that its process has."""
        if upto > child.printed.passed:
            child.printed.read(self._chunk.ring_at(index), upto)

    def _look(self, child: Child, now: float) -> None:
        """End a process whose message is cancelled or over a limit, and take back the messages behind a long one."""
        limits, running = self._limits, now - self._since
        if not child.ready:
            if now - child.started > STARTING_S:
                self._end(None)
            return
        if limits.timeout is not None and running > (
            max(limits.timeout, SETUP_S if self._makes else OPENING_S) if child.opening else limits.timeout
        ):
            self._end(MessageTimeout(seconds=limits.timeout))
        elif now - self._looked >= LOOK_S:
            self._looked = now
            self._name(child, *self._given[0])
            self._chunk.note_step(self._given[0][1], *child.words.step(self._given[0][0]))
            if self._read_on(child):
                return
            if self._chunk.is_cancelled(self._given[0][1]):
                self._end(None, charged=False)
            elif limits.memory is not None and child.memory() > limits.memory:
                self._end(MemoryLimit(limit=size(limits.memory)))
        if len(self._given) > 1 and running > STILL_S:
            self._take_back(child)
            self._still, self._slot.ahead = bool(self._given), max(1, self._slot.ahead // 2)

    def _read_on(self, child: Child) -> bool:
        """Note what the running message has printed so far, and return whether it has ended."""
        # Where its outcome is not here after the size was read, nothing up to there belongs to the next message.
        size, running = child.printed.size, self._given[0]
        if size <= child.printed.passed:
            return False
        for record in child.receive(0.0):
            self._handle(child, record)
        if not self._given or self._given[0] != running:
            return True
        self._note_printed(child, running[1], size)
        return False

    def _name(self, child: Child, turn: int, index: int) -> None:
        """Note the key of the running document for views."""
        document = self._chunk.document
        if document is None or document[0] != index:  # once: reading it is a call of the system
            key, _ = child.words.document(turn)
            self._chunk.document = (index, key) if key is not None else None

    # --- the end of a process ---------------------------------------------------------------

    def _end(self, error: DqlabError | None, *, charged: bool = True) -> None:
        """Kill the process for `error`, or clean up after a dead one, and charge or give back the message that ran."""
        child, slot = self._child, self._slot
        held, guilty = time.monotonic() - self._since, self._given[0] if self._given and error else None
        # First kill it, then read its last outcomes, then take back the turns that it did not take: the messages left
        # in `_given` had begun. In another order a message runs twice, or the wrong one is charged.
        status = child.kill(describe=error is not None)
        for record in child.rest():
            self._handle(child, record)
        self._take_back(child)
        begun = list(self._given)
        self._given.clear()
        if begun:
            self._note_printed(child, begun[0][1], child.printed.size)
        for turn, index in begun:
            if guilty not in (None, (turn, index)):  # the guilty message ended just now, and this one had begun
                self._chunk.todo.appendleft(index)
                self._chunk.output.pop(index, None)
            elif not charged:
                self._chunk.done.append((index, Outcome.RETURN, b"", None))
            elif child.opening and self._makes:  # no message has begun: its function is to blame, or this machine
                died = SetupFailed("the process", error or ProcessDied(how=how_it_ended(status)))
                self._halt(halted(died, slot.origin))
                self._chunk.done.append((index, UNDECIDED, self._halted, None))
            else:
                self._charge(child, turn, index, error or ProcessDied(how=how_it_ended(status)), held)
        slot.fruitless = 0 if begun or error or not charged else slot.fruitless + 1
        if slot.fruitless >= FRUITLESS and (next_one := self._next()) is not None:
            slot.fruitless = 0
            self._charge(child, 0, next_one, ProcessDied(how=f"{how_it_ended(status)} before it began"), 0.0)
        self._still, self._mixed_up, slot.ahead = False, False, 1
        slot.close()
        self._time(running=False)

    def _halt(self, outcome: bytes) -> None:
        """Give all other messages back too: the run pauses, since its function cannot be set up here."""
        self._halted = outcome
        self._slot.halted = self._hash, time.monotonic(), outcome

    def _charge(self, child: Child, turn: int, index: int, error: DqlabError, held: float) -> None:
        meta, _ = unpack(self._blob)
        key, page = child.words.document(turn)
        if page and isinstance(error, ProcessDied):
            error = ProcessDied(how=f"{error.how} at page {page} of {key!r}")
        failure = obituary(error, child.words.stack(), self._slot.origin, key=key, code=meta["code"], seconds=held)
        # A suspect that has ended its own process too is not retried: that would be in a worker's process again.
        guilty = self._chunk.apart is not None and turn and isinstance(error, ProcessDied | MemoryLimit)
        done: Done = index, Outcome.REJECT if guilty else Outcome.FAIL, failure.to_bytes(), key
        self._chunk.done.append(done)


_ENDS = frozenset(map(class_name, (MemoryLimit, MessageTimeout, ProcessDied)))
"""Failures of a message whose process has ended."""


class BatchProcess(SlotProcess):
    """The process in which a slot runs batches: each goes there and back as one message."""

    def run_batch(self, one: OneBatch, chunk: Chunk, blob: bytes) -> None:
        """Run a batch, with what its chunk tells of the run."""
        parcel = _Parcel(one, chunk)
        self.run(parcel, blob)
        places = list(range(len(one.messages())))
        if not len(parcel.done):
            one.again = places
            return
        one.began = time.perf_counter() - parcel.took.get(0, 0.0)  # without the start of its process, and its set-up
        _, outcome, payload, key = parcel.done[0]
        if outcome is Outcome.ACK:
            vars(one).update(pickle.loads(payload))
        elif outcome is Outcome.RETURN:  # one of them was cancelled, or the slot stops
            gone = set(one.cancelled_places())
            one.done = [(place, outcome, b"", None) for place in gone]
            one.again = [place for place in places if place not in gone]
        elif outcome is UNDECIDED or len(places) == 1 or Failure.from_bytes(payload).error not in _ENDS:
            one.done = [(place, outcome, payload, key) for place in places]
        else:
            one.alone = places


class _Parcel(Chunk):
    """A batch as a chunk of one message."""

    def __init__(self, one: OneBatch, chunk: Chunk) -> None:
        message, function = pickle.dumps((one.messages(), one.row, one.once), 5), chunk.frames[0].function
        frame = Frame.encode([message], kind=Kind.VALUE, run=chunk.run, function=function)
        super().__init__(replace(chunk.lease, attempts={}, once={}), [0], [Frame.decode(frame)])
        self.leased_at, self._one = chunk.leased_at, one

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what the batch prints, or None where nothing is kept."""
        return self._one.ring_at(index)

    def is_cancelled(self, index: int | None) -> bool:
        """Return whether one of the batch's messages was cancelled: the others run again, in another process."""
        return bool(self._one.cancelled_places())
