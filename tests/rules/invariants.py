"""Asserts that the counters, indexes and leases of a shard agree with its state bytes, after every step of a test."""

from __future__ import annotations

from dqlab.failures.classes import fingerprint_of
from dqlab.rules.lane import MAX_SETTLED, Lane
from dqlab.rules.leases import Leases
from dqlab.rules.ranges import END, Ranges
from dqlab.rules.shard import Shard
from dqlab.rules.states import State, stretches


def check_shard(shard: Shard) -> None:
    """Assert what holds after each call."""
    seen, leases = Ranges(), shard.leases
    for lane in shard.lanes.values():
        by_state = {state: Ranges() for state in State}
        for batch in lane.batches:
            lo, hi = batch.first, batch.first + len(batch.states)
            assert not seen.overlap(lo, hi), "an id lies in two frames"
            seen.add(lo, hi)
            for a, b, value in stretches(batch.states, 0, len(batch.states)):
                by_state[State(value)].add(lo + a, lo + b)
            assert batch.left == sum(not State(value).final for value in batch.states) > 0, "a finished frame is freed"
        _check_counts(lane, by_state)
        _check_indexes(lane, by_state)
        _check_leases(lane.run, by_state[State.LEASED], leases)
    assert all(lease.run in shard.lanes for lease in leases.values()), "a lease outlived its lane"
    assert not shard.draining or shard.paused or any(lane.alive for lane in shard.lanes.values()), "drained: paused"


def _check_counts(lane: Lane, by_state: dict[State, Ranges]) -> None:
    for state, ids in by_state.items():
        stored = [part for lo, hi in ids for part in lane.batches.covering(lo, hi)]
        units = sum(batch.units(a, b) for batch, a, b in stored)
        if state.final:
            lapsed = {State.ACKED: lane.lapsed, State.CANCELLED: lane.lapsed_cancelled}.get(state, 0)
            assert lane.counts[state] + lapsed >= ids.size, f"{state.name}: fewer counted than stored"
            assert lapsed or lane.units[state] >= units, f"{state.name}: fewer units counted than stored"
        else:
            assert lane.counts[state] == ids.size, f"{state.name}: {lane.counts[state]} counted, {ids.size} stored"
            assert lane.units[state] == units, f"{state.name}: {lane.units[state]} units counted, {units} stored"
    acked = by_state[State.ACKED].size + lane.settled.size
    forgotten = lane.counts[State.ACKED] + lane.lapsed - acked
    assert forgotten == 0 or (forgotten > 0 and lane.settled.intervals == MAX_SETTLED), "acks are stored or remembered"
    alive = [
        part for state in State if state.alive for span in by_state[state] for part in lane.batches.covering(*span)
    ]
    assert lane.nbytes == sum(batch.nbytes(a, b) for batch, a, b in alive), "bytes of living messages"
    if lane.total is not None:
        assert sum(lane.counts) <= lane.total, "more messages than were put"


def _check_indexes(lane: Lane, by_state: dict[State, Ranges]) -> None:
    ready = Ranges([*lane.ready, *lane.suspects])
    assert ready.size == lane.ready.size + lane.suspects.size, "a suspect is also in the ready line"
    assert ready == by_state[State.READY], "the ready line holds exactly what is ready"
    suspects = Ranges([*lane.suspects, *by_state[State.LEASED]])
    assert all(id in suspects for id in lane.lost_suspects), "only suspects are counted as lost"
    alive = (by_state[state] for state in (State.READY, State.DELAYED, State.LEASED))
    assert sum(id in ids for ids in alive for id in lane.taken) == len(lane.taken), "what has ended is forgotten"
    assert lane.dead == by_state[State.DEAD], "the dead letters are exactly what is dead"
    delayed = {id: record.due for id, record in lane.trouble.items() if id in by_state[State.DELAYED]}
    assert len(delayed) == by_state[State.DELAYED].size == len(lane.delayed or ()), "one entry per delayed message"
    assert sorted(due << 53 | id for id, due in delayed.items()) == list(lane.delayed or ()), "delays in order"
    retrying = 0
    for id, record in lane.trouble.items():
        found = lane.batches.at(id)
        assert found is not None, "trouble is remembered of stored messages only"
        state = State(found[0].states[found[1]])
        assert not state.final, "a finished message has no trouble left"
        assert record.exceptions <= record.deliveries, "every exception is a delivery"
        retrying += state.alive and record.deliveries > 0
    assert lane.retrying == retrying, f"{lane.retrying} retrying counted, {retrying} stored"
    classes: dict[str, list[int]] = {}
    for id in lane.dead.numbers(0, END):
        classes.setdefault(fingerprint_of(lane.trouble[id].failure), []).append(id)
    assert not classes or lane.dead_count(classes) == lane.dead.size, "each in its class"
    assert all([id for id, _ in lane.dead_ids(-1, [each])] == ids for each, ids in classes.items()), "classes by id"
    assert all(id in lane.trouble for lo, hi in lane.dead for id in range(lo, hi)), "every death has a reason"


def _check_leases(run: bytes, leased: Ranges, leases: Leases) -> None:
    held = Ranges()
    for lease in leases.of_run(run):
        assert lease.remaining, "a settled lease is closed"
        for lo, hi in lease.remaining:
            assert not held.overlap(lo, hi), "a message is in two leases"
            held.add(lo, hi)
        delivered = Ranges((piece.frame + piece.lo, piece.frame + piece.lo + piece.n) for piece in lease.pieces)
        assert all(not delivered.gaps(lo, hi) for lo, hi in lease.remaining), "a lease holds what was delivered"
    assert held == leased, "every leased message is in exactly one lease"
