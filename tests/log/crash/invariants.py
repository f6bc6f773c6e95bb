"""What must be true of a log that was opened after a crash, and of one that runs.

Each check returns sentences about what is wrong, none when all is well. The numbers are those of
the crash-test plan: I1 confirmed puts are there or named as lost; I2 confirmed settles stay; I3
payloads are what was put; I6 nothing is invented; I7 recovery changes nothing; I8 space comes
back; I9 the log's own counters agree with the ledger and the directory.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dqlab.clock import Clock
from dqlab.errors import DqlabError
from dqlab.log.files import Files
from dqlab.log.log import Log
from dqlab.log.recovery import Corruption, FoundLog
from dqlab.log.writer import LogOptions
from tests.log.crash.ledger import History, Ledger, payload

__all__ = ["Outcome", "Promise", "check", "check_counters", "check_same", "check_space", "reopen"]


class Promise(NamedTuple):
    """How many records, from the first on, were synced, written and appended when the crash came."""

    synced: int
    written: int
    issued: int


@dataclass
class Outcome:
    """What a reopened log held.

    Attributes
    ----------
    live : set of int
        Ids whose record is there.
    unreadable : set of int
        Those of them whose body the log refused to hand out, by a typed error.
    wrong : list of str
        Bodies that are not what was put.
    replayed : list of int
        Serials of the records behind the checkpoint, in the order they came.
    refused : Exception, optional
        Why it did not open.
    """

    live: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    recovery: FoundLog | None = None
    corrupt: Sequence[Corruption] = ()
    refused: Exception | None = None

    @property
    def named_lost(self) -> set[int]:
        """Ids the log names as lost in a record whose header was whole."""
        found: set[int] = set()
        for damage in self.corrupt:
            if damage.count is not None and damage.base is not None:
                found.update(range(damage.base, damage.base + damage.count))
        return found


def reopen(
    directory: Path,
    options: LogOptions,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    clean: bool = False,
    read: bool = True,
) -> Outcome:
    """Open a log, replay it, read all that lives, close it."""
    outcome = Outcome()
    log = None
    try:
        log = Log.open(directory, options=options, files=files, clock=clock)
        ledger = Ledger(log)
        outcome.live, outcome.replayed = ledger.live, ledger.replayed
        outcome.recovery, outcome.corrupt = log.recovery, log.corrupt
        if ledger.doubled:
            outcome.wrong.append(f"I6: replayed twice: {sorted(ledger.doubled)}")
        if read:
            _read_all(ledger, outcome)
        outcome.wrong += check_counters(ledger)
    except Exception as error:  # noqa: BLE001 - whatever it is belongs into the verdict
        outcome.refused = error
        if not isinstance(error, DqlabError):
            outcome.wrong.append(f"not an error of ours: {type(error).__name__}: {error}, at {_place(error)}")
    finally:
        if log is not None:
            log.close(clean=clean)
    return outcome


def _place(error: Exception) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def _read_all(ledger: Ledger, outcome: Outcome) -> None:
    for chunk in ledger.distinct():
        try:
            body = ledger.read(chunk)
        except DqlabError:
            outcome.unreadable |= chunk.alive
            continue
        if body != chunk.body():
            outcome.wrong.append(f"I3: wrong bytes for {sorted(chunk.alive)} at {chunk.position}")


def check(
    outcome: Outcome, history: History, confirmed: int, issued: int, *, excused: Iterable[int] = (), rot: bool = False
) -> list[str]:
    """Compare what a log holds with what was promised.

    Parameters
    ----------
    outcome : Outcome
        Of the reopening.
    history : History
        All that was ever appended.
    confirmed, issued : int
        How many records the log had confirmed, and been given.
    excused : iterable of int
        Ids that may be missing.
    rot : bool
        Bytes that were durable have been damaged: what the log names as lost may be missing.
    """
    if outcome.refused is not None:
        return [f"did not open: {type(outcome.refused).__name__}: {outcome.refused}", *outcome.wrong]
    wrong = list(outcome.wrong)
    allowed = set(excused)
    if rot:
        allowed |= outcome.named_lost
    there = outcome.live - outcome.unreadable
    if missing := history.must_live(confirmed, issued) - there - allowed:
        wrong.append(f"I1: confirmed and gone: {sorted(missing)}")
    revived = outcome.live - history.may_live(confirmed, issued) - (allowed if rot else set())
    if invented := {id for id in revived if history.added.get(id, issued) >= issued}:
        wrong.append(f"I6: never put: {sorted(invented)}")
    if undone := revived - invented:
        wrong.append(f"I2: settled, confirmed, and back: {sorted(undone)}")
    if any(a >= b for a, b in zip(outcome.replayed, outcome.replayed[1:], strict=False)):
        wrong.append(f"I6: replayed out of order or twice: {outcome.replayed}")
    if not rot and outcome.unreadable:
        wrong.append(f"I3: could not be read: {sorted(outcome.unreadable)}")
    return wrong


def check_same(first: Outcome, second: Outcome) -> list[str]:
    """I7: what a second opening finds is what the first one found."""
    if second.refused is not None:
        return [f"I7: opened once and not again: {second.refused}"]
    if first.live != second.live:
        return [f"I7: alive in only one of two openings: {sorted(first.live ^ second.live)}"]
    return list(second.wrong)


def check_counters(ledger: Ledger) -> list[str]:
    """I9: what the log counts as needed is what the ledger needs."""
    needed = sum(ledger.needed().values())
    counted = ledger.log.usage().needed
    return [] if counted == needed else [f"I9: the log counts {counted} bytes as needed, the ledger {needed}"]


def check_space(directory: Path, ledger: Ledger, options: LogOptions) -> list[str]:
    """I8: after checkpoints, compaction and collection a log is not much larger than what lives in it."""
    used = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    alive = sum(len(payload(id)) for id in ledger.live)
    checkpoints = 2 * len(ledger.state()) + 4096
    bound = 2 * alive + 2 * options.segment_bytes + options.reserve_bytes + checkpoints
    records = 48 * len(ledger.distinct())
    if used > bound + 2 * records:
        return [f"I8: {used} bytes on disk for {alive} alive, at most {bound + 2 * records} were promised"]
    return []
