"""Turns a ledger into the body of a checkpoint, and back.

Plain data in msgpack; long lists of numbers as columns of little-endian 64-bit integers. Times of the monotonic clock
become wall times, delays become the time left, and leased messages become ready.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from dqlab.errors import FrameCorrupt
from dqlab.frame import NO_ID, Piece
from dqlab.rules.batches import Batch, FrozenRows
from dqlab.rules.book import Book, RunRecord
from dqlab.rules.lane import Lane, microseconds
from dqlab.rules.ledger import Ledger
from dqlab.rules.ranges import Ranges
from dqlab.rules.result_index import Once, Stretch
from dqlab.rules.retry import QueueOptions, Retry
from dqlab.rules.shard import Shard
from dqlab.rules.states import State
from dqlab.rules.trouble import Death, Trouble
from dqlab.store.journal import pack_plain, pack_with_list, unpack_plain

_VERSION = 1
AT_ONCE = 50
"""Lanes that `hold_resting` freezes per step: about two milliseconds."""


def freeze(ledger: Ledger, *, reuse: bool = False) -> Callable[[], bytes]:
    """Copy a ledger as it is now, and return a function for any thread that packs the copy."""
    shard = ledger.shard
    # Only what can change is copied, which takes milliseconds. The rest, however large, is packed by the function while
    # the ledger goes on changing: it must never reach into anything that the ledger modifies in place. Places are the
    # one exception, see `_freeze_lane`. With `reuse`, the packed bytes of lanes at rest, which have no unsettled
    # messages, stay with the ledger until they change: a lab keeps thousands of them, and each checkpoint would pack
    # them all.
    if reuse:
        ledger.note_functions()  # drops the packed lanes that have changed
    state = {
        "version": _VERSION,
        "at": shard.clock.wall(),
        "next_id": shard.next_id,
        "paused": shard.paused,
        "draining": shard.draining,
        "producers": shard.producers.frozen(),
        "functions": dict(ledger.functions),
        "uniques": list(shard.uniques.holding(shard.lanes[NO_ID], shard.clock.wall())),
        "early": [[lease.run, list(lease.remaining)] for lease in shard.leases.values() if lease.early],
    }
    lanes: list[Callable[[], bytes]] = list(ledger.packed.values()) if reuse else []
    changed = [run for run in shard.lanes if not reuse or run not in ledger.packed]
    lanes += [_packing(ledger, run, reuse=reuse) for run in changed]
    return lambda: pack_with_list(state, "lanes", [pack() for pack in lanes])


def hold_resting(ledger: Ledger) -> Iterator[None]:
    """Freeze the lanes at rest for the next `freeze` with `reuse`, in steps between which the ledger may change."""
    ledger.note_functions()  # drops the packed lanes that have changed
    # `freeze` itself blocks the event loop. After these steps it only has to copy the lanes that have changed since,
    # however many runs ended, were replayed or were moved by a compaction since the last checkpoint.
    held = 0
    # A list: between two steps the ledger may open and drop lanes. For the same reason each lane is looked up below.
    for run in [run for run in ledger.shard.lanes if run not in ledger.packed]:
        lane = ledger.shard.lanes.get(run)
        if lane is not None and not lane.alive and run not in ledger.packed:
            _packing(ledger, run, reuse=True)
            held += 1
            if held % AT_ONCE == 0:
                yield


def restore(ledger: Ledger, body: bytes) -> dict[bytes, Ranges]:
    """Bring a fresh ledger into a checkpoint's state, and return by run the ids acked early and not settled."""
    state = unpack_plain(body)
    if state["version"] != _VERSION:
        reason = f"version {state['version']}, this dqlab reads {_VERSION}"
        raise FrameCorrupt(kind="checkpoint", reason=reason, size=len(body))
    shard = ledger.shard
    shard.next_id, shard.paused, shard.draining = state["next_id"], state["paused"], state["draining"]
    for producer, run, expected, firsts in state["producers"]:
        shard.producers.restore(producer, run, expected, firsts)
    ledger.functions.update(state["functions"])
    # Not below 0: the clock may have been set back since, and a delay must not get longer by that.
    elapsed = max(0.0, shard.clock.wall() - state["at"])
    for entry in state["lanes"]:
        _restore_lane(ledger, entry, elapsed)
    for key, id, until in state.get("uniques", ()):  # missing where an earlier dqlab wrote it
        shard.uniques.note(key, id, until)
    early: dict[bytes, Ranges] = {}
    for run, ranges in state["early"]:
        for lo, hi in ranges:
            early.setdefault(run, Ranges()).add(lo, hi)
    return early


# --- lanes ----------------------------------------------------------------------------------


def _packing(ledger: Ledger, run: bytes, *, reuse: bool) -> Callable[[], bytes]:
    """Freeze a lane as it is now, and keep it with the ledger for the next checkpoints if it is at rest."""
    lane = ledger.shard.lanes[run]
    frozen = _freeze_lane(lane, ledger.books.get(run), ledger.shard, reuse=reuse)
    packing = Once(lambda: pack_plain(frozen()))
    if reuse and not lane.alive:
        ledger.packed[run] = packing
    return packing


def _freeze_lane(lane: Lane, book: Book | None, shard: Shard, *, reuse: bool) -> Callable[[], dict[str, Any]]:
    clock = shard.clock
    now = microseconds(clock.monotonic())
    # The batches in `kept` and the stretches of the book are the ledger's own objects: their places are read when this
    # is packed, in another thread. A compaction changes places, and the checkpoint would know copies that a
    # replay behind it meets again. So a compaction and a checkpoint never run side by side (`Upkeep._one_at_a_time`),
    # and a compaction drops what is packed or held of the lanes that it moves.
    rows, kept, weights = lane.batches.frozen(), lane.batches.kept(), lane.batches.weights()
    # Leased suspects are ready after a restart, and must still run alone then.
    held = [lease.remaining for lease in shard.leases.of_run(lane.run) if lease.suspect]
    state = {
        "run": lane.run,
        "retry": lane.retry.record(),
        "limits": [lane.max_deliveries, lane.visibility_timeout, lane.maxsize, lane.max_bytes],
        # A pause for want of room is not kept: after a restart there may be room, and nobody would end the pause.
        "paused": lane.paused and not (book is not None and book.stopped),
        "total": lane.total,
        "producer": lane.producer,
        "counts": list(lane.counts),
        "units": list(lane.units),
        "settled": _column(number for interval in lane.settled for number in interval),
        "came": _column(number for interval in lane.came for number in interval),
        "suspects": _column(number for ids in (lane.suspects, *held) for interval in ids for number in interval),
        "states": [[batch.first, bytes(batch.states)] for batch in kept],
        "trouble": [_take_trouble(id, trouble, now) for id, trouble in lane.trouble.items()],
        "once": [[id, trouble.once] for id, trouble in lane.trouble.items() if trouble.once],
        "first_leases": [[id, trouble.first_lease] for id, trouble in lane.trouble.items() if trouble.first_lease],
        "overrides": [[function, list(ids)] for function, ids in lane.overrides.items()],
        "replaced": None if lane.replaced is None else sorted(lane.replaced),
        "functions": lane.functions.to_list(),
        "acked_by": list(lane.acked_by.items()),
        "acked_at": [[function, list(at)] for function, at in lane.acked_at.items()],
        "lapsed": [lane.lapsed, lane.lapsed_cancelled, lane.redoes is not None],
    }
    wall = clock.wall() - clock.monotonic()
    pack_book = None if book is None else _freeze_book(book, reuse=reuse)
    return lambda: state | _pack_batches(rows, kept, weights, wall) | {"book": pack_book and pack_book()}


def _pack_batches(
    rows: Sequence[FrozenRows], kept: Sequence[Batch], weights: dict[int, Sequence[int]], wall: float
) -> dict[str, Any]:
    """Return columns of all batches, the untouched ones before the others."""
    places = [*chain.from_iterable(some.column("place") for some in rows), *(batch.place for batch in kept)]
    put_at = chain.from_iterable(some.column("put_at") for some in rows)
    shift = microseconds(wall)
    weights |= {batch.first: batch.weights for batch in kept if batch.weights}

    def column(field: str, of_kept: Iterable[int]) -> bytes:
        return _column(chain(chain.from_iterable(some.column(field) for some in rows), of_kept))

    return {
        "first": column("first", (batch.first for batch in kept)),
        "count": column("n", (len(batch.states) for batch in kept)),
        "ordinal": column("ordinal", (batch.ordinal for batch in kept)),
        "put_at": _column(at + shift for at in chain(put_at, (microseconds(batch.put_at) for batch in kept))),
        "size": column("size", (batch.size for batch in kept)),
        "place": _column(place >> 32 for place in places),
        "place_low": _column(place & 0xFFFF_FFFF for place in places),
        "weights": [[first, array("I", numbers).tobytes()] for first, numbers in weights.items()],
    }


def _restore_lane(ledger: Ledger, entry: dict[str, Any], elapsed: float) -> None:
    shard = ledger.shard
    deliveries, timeout, maxsize, max_bytes = entry["limits"]
    options = QueueOptions(timeout, deliveries, Retry(**entry["retry"]), maxsize, max_bytes)
    lane = shard.lanes[entry["run"]] = Lane(entry["run"], options, shard.journal, shard.activity)
    lane.paused, lane.total, lane.producer = entry["paused"], entry["total"], entry.get("producer", NO_ID)
    lane.counts, lane.units = entry["counts"], entry["units"]
    # The leases are gone with the process that granted them, so what was leased is ready again.
    for counted in (lane.counts, lane.units):
        counted[State.READY] += counted[State.LEASED]
        counted[State.LEASED] = 0
    lane.settled, lane.came = Ranges(_pairs(entry["settled"])), Ranges(_pairs(entry.get("came", b"")))
    _restore_batches(lane, entry, shard.clock.monotonic() - shard.clock.wall())
    for function, ids in entry["overrides"]:
        for lo, hi in ids:
            lane.overrides.assign(lo, hi, function)
    replaced = entry.get("replaced")  # missing where an earlier dqlab wrote it
    lane.replaced = None if replaced is None else set(replaced)
    if "functions" in entry:
        lane.functions.restore(entry["functions"])
    else:  # written by an earlier dqlab
        lane.functions.assume(ledger.functions)
    lane.acked_by = dict(entry.get("acked_by", ()))  # missing where an earlier dqlab wrote it
    lane.acked_at = {function: Ranges(at) for function, at in entry.get("acked_at", ())}  # also
    lapsed = entry.get("lapsed", (0, 0, False))  # missing where an earlier dqlab wrote it
    lane.lapsed, lane.lapsed_cancelled, again = lapsed
    lane.redo(again=again)
    # After the batches, which put all that is ready into `ready`.
    for lo, hi in _pairs(entry["suspects"]):
        lane.ready.discard(lo, hi)
        lane.suspects.add(lo, hi)
    # After the batches, too: `Lane.remember` looks the message up.
    for row in entry["trouble"]:
        _restore_trouble(lane, row, shard.clock.monotonic(), elapsed)
    for id, once in entry.get("once", ()):
        lane.trouble[id].once = once
    for id, first_lease in entry.get("first_leases", ()):  # missing where an earlier dqlab wrote it
        lane.trouble[id].first_lease = first_lease
    if entry["book"] is not None:
        ledger.keep(lane.run, _restore_book(lane, entry["book"]))


def _restore_batches(lane: Lane, entry: dict[str, Any], monotonic: float) -> None:
    # In the order of the fields of `Row`; `place` follows as halves, since it may have more than 64 bits.
    names = ("first", "count", "ordinal", "put_at", "size")
    columns: list[Sequence[int]] = [_numbers(entry[name]) for name in names]
    halves = zip(_numbers(entry["place"]), _numbers(entry["place_low"]), strict=True)
    columns.append([high << 32 | low for high, low in halves])
    weights, states = dict(entry["weights"]), dict(entry["states"])
    start, shift = 0, microseconds(monotonic)
    for at in _with_weights_or_states(columns[0], weights, states):
        _adopt_rows(lane, columns, start, at, shift)
        start = at + 1
        first, count, ordinal, put_at, size, place = (column[at] for column in columns)
        batch = Batch(first, count, ordinal=ordinal, put_at=(put_at + shift) / 1e6, size=size, place=place)
        if first in weights:
            batch.weights = array("I", weights[first])
        if first in states:
            batch.states[:] = states[first].replace(bytes((State.LEASED,)), bytes((State.READY,)))
        # Rows and batches alternate in the order of their ids: rows can only be added after all others.
        lane.adopt(batch)
    _adopt_rows(lane, columns, start, len(columns[0]), shift)


def _with_weights_or_states(firsts: Sequence[int], *noted: Mapping[int, Any]) -> list[int]:
    """Return the indices of batches with weights or states."""
    return [at for at, first in enumerate(firsts) if any(first in what for what in noted)] if any(noted) else []


def _adopt_rows(lane: Lane, columns: Sequence[Sequence[int]], start: int, stop: int, shift: int) -> None:
    if start < stop:
        lane.adopt_rows([column[start:stop] for column in columns], put_at_shift=shift)


# --- troubles -------------------------------------------------------------------------------


def _take_trouble(id: int, trouble: Trouble, now: int) -> list[Any]:
    history = [[death.reason, bytes(death.failure), death.deliveries, death.exceptions] for death in trouble.history]
    failure, delay = bytes(trouble.failure), max(0, trouble.due - now)
    return [id, trouble.deliveries, trouble.exceptions, trouble.reason, failure, trouble.receipt, delay, history]


def _restore_trouble(lane: Lane, row: list[Any], now: float, elapsed: float) -> None:
    id, deliveries, exceptions, reason, failure, receipt, delay, history = row
    trouble = Trouble(deliveries, exceptions, reason, failure, tuple(receipt) if receipt else None)
    trouble.history = tuple(Death(*death) for death in history)
    lane.remember(id, trouble, due=microseconds(now + max(0.0, delay / 1e6 - elapsed)))


# --- books ----------------------------------------------------------------------------------


def _freeze_book(book: Book, *, reuse: bool) -> Callable[[], dict[str, Any]]:
    results, record = book.results.held(_pack_results, reuse=reuse), book.record
    state = {
        "record": None if record is None else vars(record) | {"codes": list(record.codes)},
        "started": book.started,
        "ended": book.ended,
        "idle": book.idle,
        "why": book.why,
        "spent": dict(book.spent),
        "unwanted": list(book.unwanted),
    }

    def pack() -> dict[str, Any]:
        columns = [block() for block in results]
        pieces, places = (b"".join(column[at] for column in columns) for at in (0, 1))
        return state | {"results": pieces, "places": places}

    return pack


def _pack_results(stretches: Sequence[Stretch]) -> tuple[bytes, bytes]:
    """Return the columns ``results`` and ``places`` of some stretches."""
    pieces = _column(number for stretch in stretches for number in (*stretch.piece, stretch.at))
    halves = ((stretch.place >> 32, stretch.place & 0xFFFF_FFFF) for stretch in stretches)
    return pieces, _column(chain.from_iterable(halves))


def _restore_book(lane: Lane, entry: dict[str, Any]) -> Book:
    book = Book(lane, started=entry["started"], ended=entry["ended"], idle=entry["idle"], why=entry["why"])
    if entry["record"] is not None:
        book.record = RunRecord(**entry["record"])
    book.spent = dict(entry.get("spent", {}))
    # `get` here and below: logs of earlier versions do not have the entry, and must still open.
    book.unwanted = Ranges(entry.get("unwanted", ()))
    numbers, places = _numbers(entry["results"]), _pairs(entry["places"])
    for first, ordinal, n, at in zip(numbers[::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True):
        high, low = next(places)
        book.results.add(Stretch(Piece(first, ordinal, n), high << 32 | low, at))
    for lo, hi in _pairs(entry.get("forgotten", b"")):  # an earlier dqlab did not write it
        book.results.forget(lo, hi)
    for id, trouble in lane.trouble.items():
        found = lane.batches.at(id)
        if trouble.failure and found is not None:
            batch, index = found
            dead = batch.states[index] == State.DEAD
            book.failed(bytes(trouble.failure), dead=dead, ordinal=batch.ordinal + index, id=id)
    return book


# --- columns --------------------------------------------------------------------------------


def _column(numbers: Iterable[int]) -> bytes:
    column = array("Q", numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _numbers(column: bytes) -> array[int]:
    numbers = array("Q", column)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _pairs(column: bytes) -> Iterator[tuple[int, int]]:
    numbers = iter(_numbers(column))
    return zip(numbers, numbers, strict=True)
