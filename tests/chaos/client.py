"""A client: somebody's notebook, in a process of its own that may be killed in the middle of what it does.

Started with ``python -m tests.chaos.client``; see `serving`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import dqlab as dq
from dqlab.errors import CallTimeout, PutTimeout, RunStalled, SubmissionIncomplete
from dqlab.runs.puts import PutResult
from tests.chaos import ends, truth
from tests.chaos.functions import SINKS, Answer, Element, answer, elements, function, told, trait_of, work
from tests.chaos.plan import Load
from tests.chaos.refusals import refuse
from tests.chaos.serving import serve
from tests.kit.leaks import Footprint

__all__ = ["Customer"]

LOOK_EVERY = 0.02
AGAIN = (CallTimeout, PutTimeout, RunStalled, SubmissionIncomplete)
"""What a user is told to answer by mapping, or waiting, again; each time is counted, and judged by when it was."""
CELL = 240.0
"""Seconds that a cell may wait: it ends with its round, for what is paused for good goes on only then."""
ANY: dict[str, Any] = {"max_deliveries": 10_000, "concurrency": 8}
"""Options of all queues."""


class Customer:
    """What a client can be told to do."""

    def __init__(self) -> None:
        self._lab: dq.Lab | None = None
        self._runs: dict[str, dq.Run] = {}
        self._puts: list[PutResult] = []
        self._options: dict[str, dict[str, Any]] = {}
        self._closings: Counter[str] = Counter()
        """How often queues were closed, by name."""
        self._failed: dict[object, float] = {}
        """When a submission was first seen to have failed, monotonic seconds, by its submitter."""
        self._before = Footprint.take()
        threading.Thread(target=self._note_confirmed, name="chaos-scribe", daemon=True).start()

    @property
    def lab(self) -> dq.Lab:
        """The lab, which is open."""
        assert self._lab is not None
        return self._lab

    # --- connections ------------------------------------------------------------------------

    def connect(self, address: str, store: str, patience: float) -> None:
        """Connect to a town, after leaving the one before."""
        if self._lab is not None:
            self._lab.close()
        self._runs = {}
        self._lab = dq.connect(address, store=Path(store), timeout=patience)

    def open(self, name: str, shards: int, timeout: float, *, durable: bool) -> None:
        """Open a queue."""
        self._options[name] = {"n_queues": shards, "durable": durable, "visibility_timeout": timeout} | ANY
        self._pool(name)

    def open_again(self, name: str) -> None:
        """Open a queue that another client has closed; what was mapped before that is mapped again."""
        self._closings[name] += 1
        for run in [run for run, one in self._runs.items() if one.queue == name]:
            self._runs.pop(run, None)
        self._pool(name)

    def _pool(self, name: str) -> dq.QueuePool:
        """Return a queue, opened as it always is: another client may just have closed it."""
        return self.lab.queue(name, **self._options.get(name, {"max_deliveries": 10_000}))

    def leave(self) -> dict[str, Any]:
        """Close the lab; return what is left of it: threads and descriptors that were not there before."""
        self.lab.close()
        self._lab, self._runs = None, {}
        beyond = Footprint.take().beyond(self._before)
        return {
            "threads": {name: n for name, n in beyond.get("threads", {}).items() if "dq" in name},
            "descriptors": sum(beyond.get("descriptors", {}).values()),
        }

    # --- load -------------------------------------------------------------------------------

    def map(self, load: dict[str, Any], *, hurried: bool = False) -> None:
        """Begin a run, or go on with it; `hurried`: its documents come as fast as they can."""
        self._map(Load(**load), hurried=hurried)

    def _map(self, one: Load, *, hurried: bool = False) -> dq.Run:
        closings = self._closings[one.queue]
        run = self._pool(one.queue).map(
            function(one.kind),
            elements(one.run, one.documents, one.seconds, 0.0 if hurried else one.trickle, one.kind),
            name=one.run,
            retry=dq.Retry(2, backoff=0.05, max_backoff=0.2),
            executor="process" if one.kind == "process" else "thread",
            sink=_sink(one),
        )
        if closings == self._closings[one.queue]:  # else it may be of the queue that was closed
            self._runs[one.run] = run
        return run

    def interrupted(self, cell: dict[str, Any], after: float) -> bool:
        """Run a cell, interrupted by Ctrl-C after some seconds; return whether the interrupt came in time.

        It runs in the main thread, as in a notebook: a signal ends what that thread waits for.
        """
        me, over = threading.get_ident(), threading.Event()

        def interrupt() -> None:
            if not over.wait(after):
                signal.pthread_kill(me, signal.SIGINT)

        hand = threading.Thread(target=interrupt, name="chaos-interrupt")
        try:
            try:
                hand.start()  # it may be interrupted too, on a machine that is busy
                self.cell(**cell)
            finally:
                over.set()
                hand.join()
                for _ in range(100):  # an interrupt that is on its way comes here at the latest
                    pass
        except KeyboardInterrupt:
            return True
        return False

    def cell(self, what: str, load: dict[str, Any], lo: int = 0) -> list[tuple[int, str]]:
        """Run a cell of a notebook, one of `plan.CELLS`; return what it got: numbers and values.

        One that submits does so with numbers from `lo` on: what is submitted twice is done twice.
        """
        one = Load(**load)
        if what == "submit":
            return self._submit(one, lo)
        run = self._map(one)
        if what == "map":
            return []
        if what == "wait":
            run.wait(timeout=CELL)
            return []
        if what == "results":
            return ends.results(run, timeout=CELL)
        return ends.stream(run, timeout=CELL)

    def _submit(self, load: Load, lo: int) -> list[tuple[int, str]]:
        pool, source = self._pool(load.queue), f"by-hand-{load.queue}"
        calls = [(work, (source, number, _calm(number), load.seconds)) for number in range(lo, lo + load.documents)]
        if len(calls) == 1:
            values = pool.submit(*calls[0]).results(timeout=CELL)  # no variable holds what is submitted
        else:
            values = pool.batch_submit(calls).results(timeout=CELL)
        return [(lo + at, told(value)) for at, value in enumerate(values)]

    def put(self, queue: str, lo: int, hi: int, seconds: float) -> None:
        """Put calls by hand, and note them once they are confirmed."""
        source = f"by-hand-{queue}"
        calls = [(work, (source, number, _calm(number), seconds)) for number in range(lo, hi)]
        put = self._pool(queue).batch_submit(calls)
        self._puts.append(put)  # its results are asked for at the end, and kept as long as a client can ask
        ids = put.ids
        assert len(ids) == len(set(ids)) == hi - lo
        truth.confirmed(queue, source, lo, hi)

    def _note_confirmed(self) -> None:
        """Note how far runs have been confirmed, as a thread beside, for ever; that it cannot is noted too."""
        noted: dict[str, int] = {}
        try:
            while True:
                for name, run in list(self._runs.items()):
                    self._note_run(name, run, noted)
                time.sleep(LOOK_EVERY)
        except Exception as error:
            truth.fault(f"nobody notes any more what process {os.getpid()} hears as confirmed: {error!r}")
            raise

    def _note_run(self, name: str, run: dq.Run, noted: dict[str, int]) -> None:
        submitter = run.submitter
        if submitter is None:
            return
        through = submitter.sender.through
        if through > noted.get(name, 0):
            truth.confirmed(run.queue, name, noted.get(name, 0), through)
            noted[name] = through
        if submitter.error is not None:
            self._failed.setdefault(submitter, time.monotonic())

    # --- acts -------------------------------------------------------------------------------

    def restart(self) -> None:
        """Restart all workers, as somebody does whose cluster misbehaves."""
        self.lab.client.restart(timeout=30)

    def retire(self, addresses: list[str]) -> list[str]:
        """Retire workers; return those that were."""
        return list(self.lab.client.retire_workers(addresses))

    def consumers(self, queue: str, n: int | None) -> None:
        """Have so many consumers, or one on each worker."""
        self._pool(queue).scale("auto" if n is None else n)

    def pause(self, queue: str, run: str | None) -> None:
        """Pause a run, or the queue."""
        (self._pool(queue) if run is None else self.lab.attach(run)).pause()

    def resume(self, queue: str, run: str | None) -> None:
        """Let it go on."""
        (self._pool(queue) if run is None else self.lab.attach(run)).resume()

    def retry(self, run: str, kind: str) -> int:
        """Retry what is dead with a function that is mended; return how many."""
        return self.lab.attach(run).retry(fn=function(kind, mended=True))

    def compact(self, queue: str) -> None:
        """Compact a queue."""
        self._pool(queue).compact()

    def refuse(self, address: str, kind: str, seconds: float) -> None:
        """Have the disk of a worker refuse all that is written, for a while; see `refusals`."""
        self.lab.client.run(refuse, kind, seconds, workers=[address])

    def visit(self, name: str) -> None:
        """Open a queue that others close, and have a call done there."""
        pool = self._pool(name)
        source = f"by-hand-{name}"
        (value,) = pool.submit(calm, (source, 1, "sound", 0.0)).results(timeout=60)
        assert told(value) == told(answer(source, 1)), value

    # --- the end ----------------------------------------------------------------------------

    def finish(self, load: dict[str, Any], patience: float) -> dict[str, Any]:
        """Wait for the end of a run, mapping it again where that is what its errors say; return how it ended.

        "again" has the errors before that, and when they came.
        """
        name, deadline = load["run"], time.monotonic() + patience
        again: list[tuple[str, str, float]] = []
        while True:
            try:
                if name not in self._runs:
                    self.map(load, hurried=True)
                run = self._runs[name]
                run.wait(timeout=max(0.0, deadline - time.monotonic()))
                return ends.of_run(run) | {"again": again}
            except AGAIN as error:
                again.append((type(error).__name__, str(error), self._came(name)))
                if time.monotonic() > deadline:
                    raise
                sys.stderr.write(f"{name} is mapped again after {error!r}\n")
                time.sleep(LOOK_EVERY)
                self._runs.pop(name, None)

    def _came(self, name: str) -> float:
        """Return when an error came that is heard now: a submission may have failed long ago."""
        submitter = self._runs[name].submitter if name in self._runs else None
        return self._failed.get(submitter, time.monotonic())

    def finish_puts(self, queue: str, patience: float) -> dict[str, Any]:
        """Wait until all that was put by hand has ended; return how."""
        return ends.of_puts(self.lab, self._pool(queue), patience)

    def stats(self) -> dict[str, Any]:
        """Return the statistics, as the views get them."""
        snapshot = self.lab.stats()
        return {
            "workers": snapshot.workers,
            "runs": {one.name: list(ends.states(one.counts)) for one in snapshot.runs},
            "queues": {one.name: list(ends.states(one.counts)) for one in snapshot.queues},
        }

    def close(self, queue: str) -> None:
        """Close a queue for everybody."""
        self._pool(queue).close(force=True)

    def end(self) -> None:
        """Go at once: a notebook's process that is told to go asks no other process."""
        os._exit(0)


def _sink(load: Load) -> dq.Parquet | None:
    """Return where the results of a load go; None: they stay in its queue."""
    if load.kind not in SINKS:
        return None
    return dq.Parquet(truth.directory() / f"sink-{load.run}")


def _calm(number: int) -> str:
    """Return the trait of what is put by hand: it may fail once, and never for good."""
    trait = trait_of(number)
    return "sound" if trait == "broken" else trait


def calm(element: Element) -> Answer:
    """Answer, and note nothing: what a queue that is closed meanwhile has in hand may run, or be dropped."""
    source, number, _, _ = element
    return answer(source, number)


def main() -> None:
    """Serve until the tester is gone."""
    customer = Customer()
    serve(lambda op: getattr(customer, op), customer.end, (OSError, TimeoutError), cells=("interrupted",))


if __name__ == "__main__":
    main()
