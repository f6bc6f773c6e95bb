"""The messages of one run in a shard: the state of each, counts, and which are ready.

Every change of state goes through `Lane.move`, which keeps the state bytes, the counters and the indexes in step;
which changes are right is for the callers to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from operator import add, eq
from typing import Protocol

from sortedcontainers import SortedDict, SortedList

from dqlab.frame import NO_ID, Frame
from dqlab.rules.batches import Batch, Batches, Row
from dqlab.rules.flow import Flow, FlowTerms, Share
from dqlab.rules.frame_notes import FrameFunctions, Groups, Overrides
from dqlab.rules.ranges import END, ID_BITS, ID_MASK, Ranges
from dqlab.rules.retry import QueueOptions
from dqlab.rules.states import STATES, State, stretches
from dqlab.rules.trouble import DeadIndex, StoredLetter, Trouble

MAX_SETTLED = 10_000
"""Stretches of ids remembered as acked, some 150 bytes each; an older one that is settled again counts as stale."""

_FILL = tuple(bytes((state,)) for state in State)


def microseconds(seconds: float) -> int:
    """Convert a monotonic instant to the whole microseconds that lanes keep."""
    return round(seconds * 1e6)


class Changes(Protocol):
    """The part of a journal that a lane needs, to record what becomes of its messages."""

    def moved(
        self, lane: Lane, batch: Batch, a: int, b: int, old: State, new: State, *, suspect: bool, due: int
    ) -> None:
        """Record that messages `a` to `b` of a batch went from one state to another, as `Lane.move` has it."""

    def freed(self, batch: Batch) -> None:
        """Record that no message of a batch is needed any more, in any state."""


class Lane:
    """A run's messages in one shard, or the plain puts."""

    def __init__(self, run: bytes, options: QueueOptions, journal: Changes, activity: Activity | None = None) -> None:
        self.run = run  # 16 bytes; `NO_ID` is lane 0, for plain puts
        # Its shard's, where it notes that something moved.
        self.activity = activity if activity is not None else Activity()
        self.number = self.activity.number()
        self.retry = options.retry
        self.max_deliveries = options.max_deliveries
        self.visibility_timeout = options.visibility_timeout
        self.maxsize = options.maxsize
        self.max_bytes = options.max_bytes
        self.counts = [0] * len(State)  # messages by `State`
        self.units = [0] * len(State)  # sum of the weights of the messages, by `State`
        self.nbytes = 0  # payload bytes of the messages that are ready, delayed or leased
        self.retrying = 0  # messages among these with at least one counted delivery
        self.batches = Batches()
        self.ready = Ranges()  # ids to be leased in batches
        self.suspects = Ranges()  # ids to be leased alone, and ready too
        # How often a suspect was lost and that did not count, by id. In memory only.
        self.lost_suspects: dict[int, int] = {}
        # How often a living message was taken from a consumer by order, to be delivered again, by id. It counts for no
        # limit, and in memory only.
        self.taken: dict[int, int] = {}
        self.dead = Ranges()  # ids in the dead letters
        self.dead_index = DeadIndex()
        # Acked ids whose frames are freed, so that a late settle still counts as a duplicate: the last `MAX_SETTLED`
        # stretches, since ids of single calls lie between those of runs, and a queue lives for months.
        self.settled = Ranges()
        self.came = Ranges()  # ordinals of all that was put and is not lost; not in lane 0
        # ``due << 53 | id`` with due in monotonic microseconds; made on first use.
        self.delayed: SortedList | None = None
        self.trouble: SortedDict = SortedDict()  # id -> Trouble
        self.overrides = Overrides()
        # Functions that adopted code replaces, also in frames that come later; None: all, as in earlier versions.
        self.replaced: set[bytes] | None = set()
        self.functions = FrameFunctions()  # what the stored frames run unless overridden
        self.groups: Groups | None = None  # neighbours that are better run by one consumer; None where none are known
        # Messages that each function has acked, by its hash; under `NO_ID` those where it is not known. Not in lane 0.
        self.acked_by: dict[bytes, int] = {}
        # Ordinals of those, but for the first function: it has acked what no other one has.
        self.acked_at: dict[bytes, Ranges] = {}
        # Deliveries without an exception after which a message was dead, by the fingerprint of its last failure, as
        # `DeadIndex` files it. In memory only, like the count of deliveries that raised.
        self.died_unanswered: Counter[str] = Counter()
        # How many messages were dead or lost and are delivered again, and the sum of their weights: with these, what
        # was settled only grows. In memory only.
        self.revived = [0, 0]
        # Acked and cancelled messages that count no longer, since their documents run again.
        self.lapsed = self.lapsed_cancelled = 0
        # While documents under ordinals that came before run again in their places, until the lane is sealed: the
        # ordinals of which messages may be stored.
        self.redoes: Ranges | None = None
        self.paused = False  # nothing is leased from it; puts are accepted
        # What holds its messages back; None: nothing ever has. In memory only, but for the terms in a run's record.
        self.flow: Flow | None = None
        self.share = Share()
        self.waits = ""  # when it starts, in words, if nothing is leased before `share.starts`
        # Why nothing is leased from it for now: its consumers cannot keep results. It lasts as long as they report it,
        # and is not recorded.
        self.held = ""
        self.needs: Mapping[str, float] = {}  # amounts of resources that a slot must have to run its messages
        self.total: int | None = None  # messages that were ever put here, known when the lane is sealed
        # The only one whose frames, records and seal are taken, since it went on with the run; `NO_ID`: any.
        self.producer = NO_ID
        self.journal = journal

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.counts[state]:,} {state.name.lower()}" for state in State if self.counts[state])
        return f"<Lane {self.run.hex()[:8]}: {counts or 'empty'}>"

    @property
    def sealed(self) -> bool:
        """True when no more puts will come."""
        return self.total is not None

    def is_left_by(self, producer: bytes | None) -> bool:
        """Return whether another producer goes on with the run since (None is the queue itself, which never left)."""
        return producer is not None and self.producer not in (NO_ID, producer)

    @property
    def alive(self) -> int:
        """Messages that are ready, delayed or leased."""
        return self.counts[State.READY] + self.counts[State.DELAYED] + self.counts[State.LEASED]

    @property
    def settled_units(self) -> int:
        """Weights of the messages that are acked or dead, or their number where they have none."""
        line = self.units if any(self.units) else self.counts
        return line[State.ACKED] + line[State.DEAD]

    @property
    def done(self) -> bool:
        """True when the lane is sealed and each of its messages is acked, dead, cancelled or lost."""
        return self.total is not None and sum(self.counts) - self.alive >= self.total

    def named_functions(self) -> set[bytes]:
        """Return the functions of stored messages, and the latest ones while puts come."""
        over = self.sealed and not self.batches
        named = set() if over else {function for function, _ in self.overrides.items()}
        named.update(self.functions)
        if not self.sealed:
            named.update(self.functions.latest)
        named.discard(NO_ID)
        return named

    def functions_to_run(self) -> set[bytes]:
        """Return the functions of messages that are ready, delayed or leased, and of those that a client still puts."""
        runs: set[bytes] = set()
        if not self.sealed:
            runs.update(self._run_in(END - 1, END, set(list(self.functions.latest)[-1:])))
        if not self.alive:
            return runs
        known = {function for function, _ in self.overrides.items()}.union(self.functions)
        if len(known) == 1:  # nearly always
            return runs | known
        for lo, hi in self._unsettled():
            runs |= self._run_in(lo, hi)
            if runs >= known:
                break
        runs.discard(NO_ID)
        return runs

    @property
    def looks_to_run(self) -> int:
        """Most stretches of ids that `functions_to_run` looks at."""
        assigned = sum(ids.intervals for _, ids in self.overrides.items())
        return assigned + self.ready.intervals + self.suspects.intervals + len(self.trouble)

    def _unsettled(self) -> Iterator[tuple[int, int]]:
        """Yield the ids of messages that are ready, delayed or leased, as half-open ranges."""
        yield from chain(self.ready, self.suspects)
        for batch in self.batches.kept():
            for a, b, state in stretches(batch.states, 0, len(batch.states)):
                if state in (State.DELAYED, State.LEASED):
                    yield batch.first + a, batch.first + b

    def _run_in(self, lo: int, hi: int, own: set[bytes] | None = None) -> set[bytes]:
        """Return the functions that the ids ``[lo, hi)`` run."""
        # `own` are the functions of their frames, if these still come.
        found: set[bytes] = set()
        for a, b, function in self.overrides.split(lo, hi):
            if function is not None:
                found.add(function)
            else:
                found |= self.functions.between(a, b) if own is None else own
        return found

    def has_room(self, frame: Frame) -> bool:
        """Return whether a frame fits the lane's limits."""
        if not self.alive:
            # An empty lane accepts even a frame above the limits, or its client would wait for ever.
            return True
        if self.maxsize is not None and self.alive + frame.count > self.maxsize:
            return False
        return self.max_bytes is None or self.nbytes + len(frame.payload) <= self.max_bytes

    def leasable(self, *, suspects: bool) -> bool:
        """Return whether there is something to lease, with or without suspects, as far as its flow allows it."""
        return not (self.paused or self.held or self.waits) and bool(self.ready or (suspects and self.suspects))

    def room(self, now: float) -> int | None:
        """Return how many messages its flow lets through at `now`, monotonic seconds, or None for any number."""
        return None if self.flow is None else self.flow.room(now, self.counts[State.LEASED])

    def flowing(self) -> Flow:
        """Return its flow, after making one without terms for a lane that had none."""
        if self.flow is None:
            self.flow = Flow(FlowTerms(), proven=self.counts[State.ACKED] > 0)
        return self.flow

    def put(self, frame: Frame, first: int, now: float, place: int) -> None:
        """Store a frame whose messages, from id `first` on, are ready after all others."""
        self.name_function(first, frame)
        self.put_row(self.row(frame, first, microseconds(now), place), frame.weights)
        if frame.opens:
            self.groups = self.groups or Groups()
            self.groups.end(first)

    def name_function(self, first: int, frame: Frame) -> None:
        """Note which function a frame names."""
        self.functions.put(first, frame.function)
        # Its messages run that function, unless new code was adopted in its place. An adopted function overrides all
        # ids up to the end, also those still to come.
        if self.overrides and self.replaced is not None and frame.function not in self.replaced:
            self.overrides.discard(first, first + frame.count)

    def row(self, frame: Frame, first: int, now: int, place: int) -> Row:
        """Return the row of numbers that is kept of a frame put at `now`, monotonic microseconds."""
        # Lane 0 has no input, so a message's position is its id.
        ordinal = first if self.run == NO_ID else frame.ordinal
        return Row(first, frame.count, ordinal, now, len(frame.payload), place)

    def put_row(self, row: Row, weights: Sequence[int] | None = None) -> None:
        """Store a frame by its row."""
        self.activity.note(self)
        if self.redoes is not None:
            self.lapse(
                row.ordinal, row.ordinal + row.n
            )  # in a replay, which has no leases; else `Shard.put` has done it
            self.redoes.add(row.ordinal, row.ordinal + row.n)
        self.batches.add(row, weights)
        if self.run != NO_ID:
            self.came.add(row.ordinal, row.ordinal + row.n)
        self.ready.add(row.first, row.first + row.n)
        self.counts[State.READY] += row.n
        units = sum(weights) if weights is not None else 0
        self.units[State.READY] += units
        self.nbytes += row.size
        if self.sealed:
            # Only in logs of earlier versions: frames in a sealed lane replace lost messages.
            revived, revived_units = min(row.n, self.counts[State.LOST]), min(units, self.units[State.LOST])
            self.counts[State.LOST] -= revived
            self.units[State.LOST] -= revived_units
            self._revive(revived, revived_units)

    def put_rows(self, rows: Sequence[Row]) -> None:
        """Store one or more frames without weights, in ascending order of ids."""
        if self.sealed or self.batches.end > rows[0].first or self.redoes is not None:
            for row in rows:
                self.put_row(row)
            return
        # Much faster than `put_row` for each: a replay may have millions.
        columns = tuple(zip(*rows, strict=True))
        _, count, ordinal, *_ = columns
        if self.run != NO_ID:
            _add_all(self.came, ordinal, count)
        self.counts[State.READY] += sum(count)
        self.adopt_rows(columns, put_at_shift=0)

    def redo(self, *, again: bool = True) -> None:
        """Begin to take documents under ordinals that came before in their places, or end that."""
        stored = ((batch.ordinal, batch.ordinal + len(batch.states)) for batch in self.batches)
        self.redoes = Ranges(stored) if again else None

    def ids_of(self, lo: int, hi: int) -> list[tuple[int, int]]:
        """Return the ids of stored messages that have ordinals in ``[lo, hi)``."""
        found: list[tuple[int, int]] = []
        if self.redoes is not None and not self.redoes.overlap(lo, hi):  # nearly always: else each put looks at all
            return found
        for batch in self.batches:
            a, b = max(lo, batch.ordinal), min(hi, batch.ordinal + len(batch.states))
            if a < b:
                found.append((a - batch.ordinal + batch.first, b - batch.ordinal + batch.first))
        return found

    def lapse(self, lo: int, hi: int) -> None:
        """Count the messages with ordinals in ``[lo, hi)`` no longer, whatever state they are in."""
        for start, stop in self.came.overlap(lo, hi):
            ended = 0
            for a, b in self.ids_of(start, stop):
                for batch, x, y, state in self.stretches(a, b):
                    if state.alive or state is State.DEAD:
                        units = batch.units(x, y)
                        self._revive(*((y - x, units) if state is State.DEAD else (0, 0)))
                        self.move(batch, x, y, State.CANCELLED)
                        self.units[State.CANCELLED] -= units
                        ended += y - x
            self.counts[State.CANCELLED] -= ended
            self.lapsed_cancelled += ended
            # Those of which nothing is stored any more were acked.
            acked = min(stop - start - ended, self.counts[State.ACKED])
            self.counts[State.ACKED] -= acked
            self.lapsed += acked
            self._revive(acked, 0)
            self._discredit(start, stop, acked)
            self.came.discard(start, stop)

    def forget_cancelled(self, results: Ranges) -> None:
        """Count cancelled messages no longer: what has a result of before is acked, and the rest never came."""
        cancelled, acked, stored = self.counts[State.CANCELLED], self.counts[State.ACKED], Ranges()
        for batch in self.batches:
            for a, b, state in stretches(batch.states, 0, len(batch.states)):
                if State(state) not in (State.ACKED, State.CANCELLED):
                    stored.add(batch.ordinal + a, batch.ordinal + b)
        kept = Ranges([*results, *stored])
        self.came = Ranges(span for lo, hi in self.came for span in kept.within(lo, hi))
        again = self.came.size - stored.size - acked
        self.counts[State.ACKED] += again
        self.counts[State.CANCELLED] = 0
        self.lapsed, self.lapsed_cancelled = self.lapsed - again, self.lapsed_cancelled + cancelled
        self._revive(cancelled - again, self.units[State.CANCELLED])
        self.units[State.CANCELLED] = 0
        if again:  # which function made those results, only they themselves know
            self.acked_by[NO_ID] = self.acked_by.get(NO_ID, 0) + again

    def _discredit(self, lo: int, hi: int, acked: int) -> None:
        """Count acked messages with ordinals in ``[lo, hi)`` no longer for the functions that they ran."""
        theirs = {function: sum(b - a for a, b in at.within(lo, hi)) for function, at in self.acked_at.items()}
        others = acked - sum(theirs.values())
        for function in list(self.acked_by):
            if function in self.acked_at:
                self.acked_at[function].discard(lo, hi)
            # Beyond the first only in logs of earlier versions, which have no ordinals.
            taken = theirs[function] if function in theirs else min(others, self.acked_by[function])
            others -= 0 if function in theirs else taken
            self.acked_by[function] -= taken
            if not self.acked_by[function]:
                del self.acked_by[function]
                self.acked_at.pop(function, None)
        self.acked_at.pop(next(iter(self.acked_by), NO_ID), None)

    def adopt_rows(self, columns: Sequence[Sequence[int]], *, put_at_shift: int) -> None:
        """Restore batches to which nothing had happened, without weights, after all others."""
        self.activity.note(self)
        # Counts are restored already, or by `put_rows`.
        first, count, size = columns[0], columns[1], columns[4]
        self.nbytes += sum(size)
        _add_all(self.ready, first, count)
        self.batches.extend(columns, put_at_shift=put_at_shift)

    def adopt(self, batch: Batch) -> None:
        """Restore a batch as it was before the process ended."""
        self.activity.note(self)
        self.batches.keep(batch)
        # Counts are restored already. None of its messages is leased; `remember` follows for those in trouble, so
        # delayed ones are entered there, with their `due`.
        batch.left = 0
        for a, b, value in stretches(batch.states, 0, len(batch.states)):
            state = STATES[value]
            batch.left += 0 if state.final else b - a
            self.nbytes += batch.nbytes(a, b) if state.alive else 0
            if state in (State.READY, State.DEAD):
                self._enter(state, batch.first + a, batch.first + b, suspect=False, due=0)

    def remember(self, id: int, trouble: Trouble, *, due: int) -> None:
        """Restore the record of a message in trouble, ready again at `due` (monotonic microseconds) if delayed."""
        found = self.batches.at(id)
        assert found is not None, "trouble is remembered of stored messages only"
        state = STATES[found[0].states[found[1]]]
        self.trouble[id] = trouble
        self.retrying += state.alive and trouble.deliveries > 0
        if state is State.DELAYED:
            self._enter(state, id, id + 1, suspect=False, due=due)
        elif state is State.DEAD:
            self.dead_index.file(id, trouble)

    def move(self, batch: Batch, a: int, b: int, new: State, *, suspect: bool = False, due: int = 0) -> None:
        """Move messages `a` to `b` of a batch, which are all in one state, to another."""
        # With READY, `suspect`: they are to be leased alone. With DELAYED, `due`: when they are ready again, monotonic
        # microseconds. Callers bring `trouble` up to date before: the journal copies the counts, and `retrying` is
        # counted from them; it would be wrong for good.
        #
        # The order matters:
        #
        # 1. `keep` first. Until then a batch made from its row is a copy: a change of it is lost, and `_finish` cannot
        #    remove it.
        # 2. `_leave` before `_enter` and `_finish`. It finds a delayed message by the `due` that `_enter` overwrites,
        #    and a dead one by the record that `_finish` deletes.
        # 3. `retrying` and `_credit` before `_finish`, for the same reason.
        # 4. The journal last, when the lane is in step; and `moved` before `freed`, where a journal forgets the frame.
        self.activity.note(self)
        self.batches.keep(batch)
        old, n = STATES[batch.states[a]], b - a
        lo, hi = batch.first + a, batch.first + b
        self._leave(old, lo, hi)
        batch.states[a:b] = _FILL[new] * n
        self.counts[old] -= n
        self.counts[new] += n
        units = 0
        if batch.weights is not None:
            units = batch.units(a, b)
            self.units[old] -= units
            self.units[new] += units
        if old.alive and not new.alive:
            self.nbytes -= batch.nbytes(a, b)
            self.retrying -= sum(self.trouble[id].deliveries > 0 for id in self.troubled(lo, hi))
        elif new.alive and not old.alive:
            self._revive(n, units)
            self.nbytes += batch.nbytes(a, b)
            self.retrying += sum(self.trouble[id].deliveries > 0 for id in self.troubled(lo, hi))
        if self.lost_suspects and not suspect and new is not State.LEASED:
            for id in [id for id in self.lost_suspects if lo <= id < hi]:
                del self.lost_suspects[id]
        if self.taken and not new.alive:
            for id in self.taken_among(lo, hi):
                del self.taken[id]
        if new is State.ACKED and self.run != NO_ID:
            self._credit(lo, hi, batch.ordinal - batch.first)
        if new is State.LOST and self.run != NO_ID:
            self.came.discard(batch.ordinal + a, batch.ordinal + b)
        if new.final:
            self._finish(batch, lo, hi)
        else:
            self._enter(new, lo, hi, suspect=suspect, due=due)
        self.journal.moved(self, batch, a, b, old, new, suspect=suspect, due=due)
        if not batch.left:
            self.journal.freed(batch)

    def stretches(self, lo: int, hi: int) -> Iterator[tuple[Batch, int, int, State]]:
        """Yield (batch, a, b, state) for each stretch of equal state in ids ``[lo, hi)``, without unknown ids."""
        for batch, a, b in self.batches.covering(lo, hi):
            for start, stop, value in stretches(batch.states, a, b):
                # Callers move the messages of a stretch before they take the next one: `stretches` copies the states,
                # and `covering` looks up each batch.
                yield batch, start, stop, STATES[value]

    def alive_among(self, lo: int, hi: int) -> int:
        """Return how many messages with ids in ``[lo, hi)`` are ready, delayed or leased."""
        ready = sum(b - a for line in (self.ready, self.suspects) for a, b in line.within(lo, hi))
        others = 0
        for batch in self.batches.kept(lo, hi):
            a, b = max(0, lo - batch.first), min(len(batch.states), hi - batch.first)
            others += batch.states.count(State.LEASED, a, b) + batch.states.count(State.DELAYED, a, b)
        return ready + others

    def acked_among(self, lo: int, hi: int) -> int:
        """Return how many messages with ids in ``[lo, hi)`` are known to be acked."""
        # Old ones are forgotten, see `settled`.
        here = sum(b - a for _, a, b, state in self.stretches(lo, hi) if state is State.ACKED)
        return here + sum(b - a for a, b in self.settled.within(lo, hi))

    def troubled(self, lo: int, hi: int) -> list[int]:
        """Return the ids in ``[lo, hi)`` that have a record in `trouble`."""
        return list(self.trouble.irange(lo, hi, inclusive=(True, False))) if self.trouble else []

    def answerable(self, lo: int, hi: int, lease_id: int) -> list[tuple[int, int]]:
        """Return the parts of ``[lo, hi)`` that were not retried by hand after this lease was granted."""
        parts: list[tuple[int, int]] = []
        at = lo
        for id in self.troubled(lo, hi):
            if self.trouble[id].first_lease > lease_id:
                parts, at = [*parts, (at, id)] if at < id else parts, id + 1
        return [*parts, (at, hi)] if at < hi else parts

    def trouble_of(self, id: int) -> Trouble:
        """Return the record of a living message, created if it has none."""
        record: Trouble | None = self.trouble.get(id)
        if record is None:
            record = self.trouble[id] = Trouble()
        return record

    def count_delivery(self, id: int) -> Trouble:
        """Count one delivery of a living message and return its record."""
        record = self.trouble_of(id)
        if record.deliveries == 0:
            self.retrying += 1
        record.deliveries += 1
        return record

    def kept(self, ids: Iterable[tuple[int, int]]) -> list[tuple[int, bytes]]:
        """Return (id, kept answers) of messages in trouble among some ranges of ids that have kept answers."""
        found = ((id, self.trouble[id].once) for lo, hi in ids for id in self.troubled(lo, hi))
        return [(id, once) for id, once in found if once]

    def attempts(self, ids: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return (id, number of its next counted delivery) of messages in trouble among some ranges of ids."""
        if not self.retrying:
            return []
        found = ((id, self.trouble[id].deliveries) for lo, hi in ids for id in self.troubled(lo, hi))
        return [(id, counted + 1) for id, counted in found if counted]

    def take(self, lo: int, hi: int) -> None:
        """Note that the messages ``[lo, hi)`` were taken from a consumer by order, to be delivered again."""
        for id in range(lo, hi):
            self.taken[id] = self.taken.get(id, 0) + 1

    def taken_among(self, lo: int, hi: int) -> list[int]:
        """Return the ids in ``[lo, hi)`` that were taken from a consumer by order."""
        return [id for id in self.taken if lo <= id < hi]

    def delivered_before(self, lo: int, hi: int) -> int:
        """Return how many messages in ``[lo, hi)`` have been delivered before, as far as that is known."""
        known = {id for id in self.troubled(lo, hi) if self.trouble[id].deliveries} if self.retrying else set()
        return len(known.union(self.taken_among(lo, hi)))

    def note_lost(self, id: int) -> int:
        """Note the loss of a suspect that does not count by itself, and return how many there were."""
        self.lost_suspects[id] = self.lost_suspects.get(id, 0) + 1
        return self.lost_suspects[id]

    def wake(self, now: float) -> None:
        """Make the delayed messages ready that are due."""
        # `+ 1`: all ids of that microsecond, too, or the shard would be woken again and again with nothing to do.
        limit = (microseconds(now) + 1) << ID_BITS
        while self.delayed and self.delayed[0] < limit:
            found = self.batches.at(self.delayed[0] & ID_MASK)
            assert found is not None, "a delayed message is always stored"
            batch, index = found
            self.move(batch, index, index + 1, State.READY)

    def next_due(self) -> float | None:
        """Return when the next delayed message is ready, monotonic seconds."""
        return (self.delayed[0] >> ID_BITS) / 1e6 if self.delayed else None

    def oldest(self) -> float | None:
        """Return when the front-most ready message was put, monotonic seconds."""
        fronts = [first for first in (self.ready.first, self.suspects.first) if first is not None]
        found = self.batches.at(min(fronts)) if fronts else None
        return None if found is None else found[0].put_at

    def dead_ids(self, after: int, classes: Collection[str] = ()) -> Iterator[tuple[int, int]]:
        """Yield (id, ordinal) of the dead messages above `after`, by id, perhaps of some failure classes only."""
        # Lazy, so the lane must not change during the loop. Classes are fingerprints, or `NO_ANSWER`.
        found = self.dead_index.ids(classes, after) if classes else self.dead.numbers(after + 1, END)
        for id in found:
            stored = self.batches.at(id)
            assert stored is not None, "a dead message is always stored"
            yield id, stored[0].ordinal + stored[1]

    def dead_count(self, classes: Collection[str] = ()) -> int:
        """Return how many messages are dead, or dead with a failure of these classes."""
        return self.dead_index.count(classes) if classes else self.dead.size

    def letters(self, after: int, classes: Collection[str] = ()) -> Iterator[StoredLetter]:
        """Yield the dead letters of `dead_ids`."""
        for id, ordinal in self.dead_ids(after, classes):
            yield self.trouble[id].letter(id, ordinal)

    def _leave(self, old: State, lo: int, hi: int) -> None:
        if old is State.READY:
            self.ready.discard(lo, hi)
            if self.suspects:
                self.suspects.discard(lo, hi)
        elif old is State.DEAD:
            self.dead.discard(lo, hi)
            for id in range(lo, hi):
                self.dead_index.take(self.trouble[id])
        elif old is State.DELAYED:
            for id in range(lo, hi):
                self._delayed().remove(self.trouble[id].due << ID_BITS | id)
                self.trouble[id].due = 0  # or a checkpoint has another delay of it each time

    def _enter(self, new: State, lo: int, hi: int, *, suspect: bool, due: int) -> None:
        if new is State.READY:
            (self.suspects if suspect else self.ready).add(lo, hi)
        elif new is State.DEAD:
            self.dead.add(lo, hi)
            for id in self.troubled(lo, hi):  # when a lane is read back, `remember` follows for them
                self.dead_index.file(id, self.trouble[id])
        elif new is State.DELAYED:
            for id in range(lo, hi):
                self.trouble[id].due = due
                self._delayed().add(due << ID_BITS | id)

    def _revive(self, messages: int, units: int) -> None:
        self.revived = [self.revived[0] + messages, self.revived[1] + units]

    def _credit(self, lo: int, hi: int, shift: int) -> None:
        """Count acked messages, which have these ids and ordinals by `shift` above, for the functions that they ran."""
        # What was leased when the whole rest of a run got other code counts as that code's.
        only = None if self.overrides else self.functions.only
        if only is not None and (len(self.acked_by) < 2 and only in self.acked_by):  # nearly always
            self.acked_by[only] += hi - lo
            return
        for a, b, function in self.overrides.split(lo, hi):
            if function is None:
                own = self.functions.between(a, b)
                function = next(iter(own)) if len(own) == 1 else NO_ID
            self.acked_by[function] = self.acked_by.get(function, 0) + b - a
            if function != next(iter(self.acked_by)):
                self.acked_at.setdefault(function, Ranges()).add(a + shift, b + shift)

    def _delayed(self) -> SortedList:
        if self.delayed is None:
            self.delayed = SortedList()
        return self.delayed

    def _finish(self, batch: Batch, lo: int, hi: int) -> None:
        for id in self.troubled(lo, hi):
            del self.trouble[id]
        batch.left -= hi - lo
        if batch.left:
            return
        stop = batch.first + len(batch.states)
        for a, b, state in stretches(batch.states, 0, len(batch.states)):
            if state == State.ACKED:
                self.settled.add(batch.first + a, batch.first + b)
                self.settled.keep_last(MAX_SETTLED)
        if self.overrides:
            self.overrides.discard(batch.first, stop)
        self.batches.remove(batch)
        if self.batches:
            self.functions.freed(batch.first)
        else:
            self.functions.emptied()


def _add_all(ranges: Ranges, first: Sequence[int], count: Sequence[int]) -> None:
    """Add stretches that do not overlap, in any order."""
    if all(map(eq, map(add, first, count), islice(first, 1, None))):  # each begins where the last one ends
        ranges.add(first[0], first[-1] + count[-1])
    else:
        for lo, n in zip(first, count, strict=True):
            ranges.add(lo, lo + n)


class Activity:
    """Lanes that hold living messages, and lanes that have changed."""

    __slots__ = ("_alive", "_lanes", "changed")

    def __init__(self) -> None:
        # A lane notes itself whenever something moves in it. Reading `alive` forgets the lanes that have ended since,
        # so nothing has to be noted when the last message of a lane is settled.
        self._alive: dict[bytes, Lane] = {}
        self._lanes = 0
        self.changed: dict[bytes, None] = {}
        """Runs in which something has changed since `take_changed`."""

    def number(self) -> int:
        """Return a new lane's number."""
        # Lanes take turns in the order in which they were opened, see `Fairness.choose`.
        self._lanes += 1
        return self._lanes

    def note(self, lane: Lane) -> None:
        """Note that something moved in a lane."""
        self._alive[lane.run] = lane
        self.changed[lane.run] = None

    def touch(self, run: bytes) -> None:
        """Note that something else has changed in a run."""
        self.changed[run] = None

    def forget(self, run: bytes) -> None:
        """Forget a dropped lane."""
        self._alive.pop(run, None)
        self.changed.pop(run, None)

    def alive(self) -> Collection[Lane]:
        """Return the lanes that hold ready, delayed or leased messages."""
        # The result is a live view, and each call deletes from it: a loop over it may change the lanes that are in it,
        # but must neither put into others nor call this again.
        for run in [run for run, lane in self._alive.items() if not lane.alive]:
            del self._alive[run]
        return self._alive.values()

    def take_changed(self) -> list[bytes]:
        """Return the runs in which something has changed since the last call."""
        changed, self.changed = list(self.changed), {}
        return changed
