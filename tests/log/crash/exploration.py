"""Opens the crash states of a recorded session and judges what is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from random import Random

from dqlab.log import Log, LogOptions
from tests.log.crash.invariants import Outcome, check, check_same, reopen
from tests.log.crash.ledger import History, Ledger
from tests.log.crash.recording import RecordingFiles
from tests.log.crash.simulator import CrashState, crash_states, materialise
from tests.log.crash.workload import Workload

__all__ = ["Verdict", "explore"]

SHOWN = 10


@dataclass
class Verdict:
    """How many states were looked at, and what was wrong.

    Attributes
    ----------
    cases : int
        Pairs of a disk and a promise.
    states : int
        Different disks that were opened; in the second place, those of crashes during the recovery from others.
    violations : int
        Cases in which a promise was broken.
    shown : list of str
        The first of them.
    """

    cases: int = 0
    states: int = 0
    second: int = 0
    lives: int = 0
    violations: int = 0
    shown: list[str] = field(default_factory=list)

    def add(self, state: object, wrong: list[str]) -> None:
        """Note what was wrong with a state."""
        if wrong:
            self.violations += 1
            if len(self.shown) < SHOWN:
                self.shown.append(f"{state}: {'; '.join(wrong)[:600]}")

    def __iadd__(self, other: Verdict) -> Verdict:
        self.cases += other.cases
        self.states += other.states
        self.second += other.second
        self.lives += other.lives
        self.violations += other.violations
        self.shown = (self.shown + other.shown)[:SHOWN]
        return self


def explore(
    recorded: RecordingFiles,
    history: History,
    box: Path,
    options: LogOptions,
    *,
    seed: int = 0,
    again_every: int = 25,
    recovery_every: int = 150,
    life_every: int = 40,
    every: int = 1,
) -> Verdict:
    """Open every crash state of a session and compare it with what had been promised.

    Parameters
    ----------
    recorded : RecordingFiles
        Of the session, with a `Promise` as mark; the log lies in its directory ``log``.
    history : History
        Of the session.
    box : Path
        An empty directory on a fast file system.
    options : LogOptions
        To open with.
    seed : int
        Of all choices.
    again_every, recovery_every, life_every : int
        Each so many-th state is opened twice, is crashed again while it is being recovered, goes on being
        written to before it is opened again.
    every : int
        Take each so many-th prefix only.
    """
    verdict = Verdict()
    known: dict[int, Outcome] = {}
    judged: set[tuple[int, object, bool]] = set()
    for state in crash_states(recorded, seed=seed, every=every):
        if (case := (state.key, state.mark, state.whole)) in judged:
            continue
        judged.add(case)
        verdict.cases += 1
        outcome = known.get(state.key)
        if outcome is None:
            outcome = known[state.key] = _open(state, box, options)
            n = len(known)
            if outcome.refused is None:
                if n % again_every == 0:
                    verdict.add(f"{state}, opened again", check_same(outcome, reopen(box / "log", options)))
                if n % recovery_every == 0:
                    verdict += _crash_again(state, history, box, options, seed + n)
                if n % life_every == 0:
                    verdict.lives += 1
                    verdict.add(f"{state}, and a second life", _second_life(state, box, options, seed + n))
        verdict.add(state, _judge(outcome, history, state))
    verdict.states += len(known)
    return verdict


def _open(state: CrashState, box: Path, options: LogOptions) -> Outcome:
    materialise(state.image, box)
    return reopen(box / "log", options)


def _judge(outcome: Outcome, history: History, state: CrashState) -> list[str]:
    promise = state.mark
    return check(outcome, history, promise.written if state.whole else promise.synced, promise.issued)


def _crash_again(state: CrashState, history: History, box: Path, options: LogOptions, seed: int) -> Verdict:
    """Crash at every point of the recovery from a crash."""
    materialise(state.image, box)
    files = RecordingFiles(box)
    files.mark(state.mark)
    reopen(box / "log", options, files=files)
    verdict = Verdict()
    known: dict[int, Outcome] = {}
    for again in crash_states(files, seed=seed, subsets=1, mixtures=1):
        if again.key not in known:
            known[again.key] = _open(again, box, options)
            sure = check(known[again.key], history, state.mark.synced, state.mark.issued)
            verdict.add(f"{state}, and then in recovery {again}", sure)
    verdict.second += len(known)
    return verdict


def _second_life(state: CrashState, box: Path, options: LogOptions, seed: int) -> list[str]:
    """Go on after a crash, close or die, open: nothing of the new session may be lost."""
    materialise(state.image, box)
    rng = Random(seed)
    log = Log.open(box / "log", options=options)
    ledger = Ledger(log)
    load = Workload(ledger, rng)
    load.steps(30)
    clean = rng.random() < 0.5
    if clean:
        load.commit()
    promise = load.promise
    log.close(clean=clean)
    wrong = check(reopen(box / "log", options), ledger.history, promise.written, promise.issued)
    return load.wrong + wrong


def first(verdict: Verdict) -> str:
    """The first violations, for the message of a failing test."""
    return f"{verdict.violations} of {verdict.cases} cases:\n" + "\n".join(islice(verdict.shown, SHOWN))
