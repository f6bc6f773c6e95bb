"""A seeded mixture of everything a journal does to a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType

from dqlab.log.files import Files
from dqlab.log.log import Log
from dqlab.log.writer import LogOptions
from tests.log.crash.invariants import Promise
from tests.log.crash.ledger import RESULTS, History, Ledger

__all__ = ["SMALL", "Workload", "run_session", "small_options"]


def small_options(**changes: object) -> LogOptions:
    """Options under which a few hundred records fill many segments."""
    values = {"segment_bytes": 4096, "reserve_bytes": 4096, "checkpoint_bytes": 16384}
    return LogOptions(**(values | changes))  # type: ignore[arg-type]


SMALL = small_options()

ACTIONS = {
    "put": 34,
    "settle": 30,
    "drop": 8,
    "note": 4,
    "commit": 20,
    "sync": 2,
    "read": 6,
    "checkpoint": 4,
    "collect": 2,
    "compact": 2,
}


class Workload:
    """Steps through a ledger's life.

    Parameters
    ----------
    ledger : Ledger
        On an open log.
    rng : Random
        Chooses the steps.
    on_promise : callable
        Called with a `Promise` whenever it changes; before anything is written that it does not cover.
    synced : int, optional
        How many records were synced when the session before ended; by default all.
    wrong : list of str
        Gets a sentence for each wrong read.
    """

    def __init__(
        self,
        ledger: Ledger,
        rng: Random,
        on_promise: Callable[[Promise], None] = lambda promise: None,
        *,
        synced: int | None = None,
    ):
        self.ledger, self.log, self.rng = ledger, ledger.log, rng
        self.wrong: list[str] = []
        self.moved = 0
        self._on_promise = on_promise
        start = ledger.history.issued
        self.promise = Promise(start if synced is None else synced, start, start)
        self.tell()

    def steps(
        self, n: int, *, without: frozenset[str] = frozenset(), also: Mapping[str, int] = MappingProxyType({})
    ) -> None:
        """Make `n` random steps; `also` adds actions, or gives them other weights."""
        chosen = ACTIONS | dict(also)
        actions = [name for name in chosen if name not in without]
        weights = [chosen[name] for name in actions]
        for name in self.rng.choices(actions, weights, k=n):
            getattr(self, name)()

    def tell(self, *, synced: bool = False) -> None:
        """Say what is promised now; who uses the ledger by himself must do it before anything is written."""
        written = self.ledger.confirmed()
        if synced or self.log.options.sync == "always":
            now = written
        else:
            now = self.promise.synced
        self.promise = Promise(now, written, self.ledger.history.issued)
        self._on_promise(self.promise)

    def put(self) -> None:
        self.ledger.put(self.rng.choice((1, 1, 1, 2, 3, 8, 20)))
        self.tell()

    def settle(self) -> None:
        messages = [id for id in self.ledger.live if id < RESULTS]
        if messages:
            first = min(messages) if self.rng.random() < 0.7 else self.rng.choice(sorted(messages))
            self.ledger.settle(first, self.rng.choice((1, 3, 10)), result=self.rng.random() < 0.4)
            self.tell()

    def drop(self) -> None:
        results = sorted(id for id in self.ledger.live if id >= RESULTS)
        if results:
            self.ledger.drop(self.rng.choice(results))
            self.tell()

    def note(self) -> None:
        self.ledger.note()
        self.tell()

    def commit(self) -> None:
        self.log.commit()
        self.tell()

    def sync(self) -> None:
        self.log.commit()
        self.log.sync()
        self.tell(synced=True)

    def idle(self) -> None:
        """Do what a shard does that has nothing to do: sync if that is still to be done, and say so in the log."""
        if self.log.options.sync != "always":
            self.sync()
        self.log.note_synced()
        self.tell(synced=True)

    def roll(self) -> None:
        self.log.roll()
        self.tell(synced=True)

    def read(self) -> None:
        live = sorted(self.ledger.live)
        if live:
            chunk = self.ledger.chunks[self.rng.choice(live)]
            if self.ledger.read(chunk) != chunk.body():
                self.wrong.append(f"I3: wrong bytes while running at {chunk.position}")

    def checkpoint(self) -> None:
        self.ledger.checkpoint()
        self.tell(synced=True)

    def collect(self) -> None:
        self.log.collect()
        self.tell()

    def compact(self) -> None:
        """Compact, with life going on meanwhile, and let the victims go."""
        self.moved += self.ledger.compact(self._meanwhile)
        self.checkpoint()
        self.collect()

    def _meanwhile(self) -> None:
        if self.rng.random() < 0.2:
            self.steps(2, without=frozenset({"compact"}))

    def closed(self) -> None:
        """The log was closed, and has synced everything."""
        issued = self.ledger.history.issued
        self.promise = Promise(issued, issued, issued)
        self._on_promise(self.promise)

    def drain(self) -> None:
        """Settle and drop everything, so that all space can come back."""
        messages = [id for id in self.ledger.live if id < RESULTS]
        if messages:
            self.ledger.settle(min(messages), max(messages) - min(messages) + 1, result=False)
        for result in sorted(id for id in self.ledger.live if id >= RESULTS):
            self.ledger.drop(result)
        self.tell()
        self.commit()


def run_session(
    directory: Path,
    steps: int,
    seed: int,
    *,
    options: LogOptions = SMALL,
    files: Files | None = None,
    history: History | None = None,
    on_promise: Callable[[Promise], None] = lambda promise: None,
    close: bool = True,
) -> tuple[Workload, Ledger]:
    """Open a log, make steps, close it (or leave it open)."""
    log = Log.open(directory, options=options, files=files)
    ledger = Ledger(log, history)
    load = Workload(ledger, Random(seed), on_promise)
    load.steps(steps)
    load.commit()
    if close:
        log.close()
        load.closed()
    return load, ledger
