"""Restores a shard in memory whose worker died: its lanes come back, and all they held counts as lost."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from dqlab.frame import NO_ID
from dqlab.rules.ids import first_id
from dqlab.rules.journal import Op
from dqlab.rules.ledger import Ledger
from dqlab.rules.states import State

__all__ = ["Past", "PastLane", "recall"]


_GONE = (State.LOST, State.CANCELLED)


class PastLane(TypedDict):
    """One lane, as known when its worker died."""

    run: bytes
    lost: int
    """Messages that were put here, without the cancelled ones."""
    cancelled: int
    units: tuple[int, int]
    """Sums of weights: of lost and of cancelled messages."""
    died: list[str]
    """Workers whose deaths lost them, the latest last."""
    open: NotRequired[dict[str, Any]]
    """The order that opened the lane; absent for lane 0."""
    seal: NotRequired[dict[str, Any]]
    """The order that sealed it: {here, total, incomplete}."""
    producer: NotRequired[bytes]
    """The only one that puts and seals, if the run was cut off and continues."""
    submitted: NotRequired[dict[str, Any]]
    """How far the input was submitted: `Submitted.record`."""
    functions: NotRequired[dict[bytes, bytes]]
    """Blobs of newer code versions, by hash."""
    adopted: NotRequired[bytes]
    """The function that later messages run in place of other versions' functions."""
    retries: NotRequired[int]
    """How often failures are retried, if that was set for the lane."""
    paused: NotRequired[bool]
    ended: NotRequired[float | None]


class Past(TypedDict):
    """One shard, as known when its worker died."""

    first_sequence: int
    """Where ids begin: above all that were ever given."""
    paused: bool
    draining: bool
    lanes: list[PastLane]


def recall(ledger: Ledger, past: Past) -> None:
    """Bring a new ledger to the known state of an earlier epoch of its shard, which left no log."""
    shard = ledger.shard
    shard.next_id = first_id(shard.index, past["first_sequence"])
    shard.paused, shard.draining = past["paused"], past["draining"]
    for known in past["lanes"]:
        run = known["run"]
        if run != NO_ID:
            ledger.open(known["open"])
        book = ledger.book(run)
        book.died = known["died"]
        lane = book.lane
        lane.paused, lane.producer = known.get("paused", False), known.get("producer", NO_ID)
        gone = zip(_GONE, (known["lost"], known["cancelled"]), known["units"], strict=True)
        for state, messages, units in gone:
            lane.counts[state], lane.units[state] = messages, units
        ledger.functions |= known.get("functions", {})
        if "adopted" in known:
            ledger.adopt(run, known["adopted"])
        if "retries" in known:
            ledger.order(Op.RETRIES, run, {"retries": known["retries"]})
        if "submitted" in known:
            ledger.order(Op.SUBMITTED, run, known["submitted"])
        if "seal" in known:
            ledger.order(Op.SEAL, run, {"seal": {"run": run, **known["seal"]}})
            book.ended = known.get("ended")
    # Last: until all lanes are back, a function that only a later one names would be forgotten.
    ledger.check_functions()
