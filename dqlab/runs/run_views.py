"""Looking at a run: counts, statistics, code versions, failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.handle import Handle
from dqlab.errors import DqlabError
from dqlab.rules.states import State
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.lost import Lost
from dqlab.runs.progress import Progress
from dqlab.stats import CodeStats, Counts, History, RunState, RunStats, Snapshot, run_state

if TYPE_CHECKING:
    from dqlab.runs.run import Run
    from dqlab.runs.submit.mapping import Submitter

__all__ = ["RunViews"]

MIN_PAST = 60.0
"""Seconds that the series of a young run cover at least."""
LAST_REPORT = 0.5
"""Seconds that statistics of an ended run wait for its last report; workers report every 250 ms."""


@dataclass(eq=False, repr=False)
class RunViews:
    """The part of a run that asks and changes nothing. Attributes: see `Run`."""

    name: str
    id: bytes
    handle: Handle
    submitter: Submitter | None = None
    on_drop: Callable[[Run], None] = field(default=lambda run: None, repr=False)

    doubt: tuple[str, DqlabError] | None = field(default=None, repr=False)
    """Code that was mapped under this name and is none of the run's, and what is raised to whoever asks for results."""

    def __post_init__(self) -> None:
        self.handle = self.handle.of_run(self.name)
        self._resubmitting = threading.Lock()

    def __repr__(self) -> str:
        return f"<Run {self.name!r} on queue {self.handle.name!r}>"

    @property
    def queue(self) -> str:
        """Name of the queue it runs on."""
        return self.handle.name

    @property
    def counts(self) -> dict[str, int]:
        """Messages by state, asked from the queue now: ready, delayed, leased, acked, dead, cancelled, lost."""
        counts = self._progress().counts
        return {state.name.lower(): getattr(counts, state.name.lower()) for state in State}

    @property
    def done(self) -> bool:
        """Whether every document is acked, dead, cancelled or lost."""
        return self._progress().done

    @property
    def versions(self) -> list[CodeStats]:
        """Code versions this run has used, first to newest."""
        codes = self._progress().record["codes"]
        return [CodeStats(c["name"], c["short"], at + 1, c["cell"]) for at, c in enumerate(codes)]

    @property
    def source(self) -> str | None:
        """Source of the newest code version, when it is known."""
        source: str | None = self._progress().record["codes"][-1]["source"]
        return source

    def stats(self, *, timeout: float | None = None) -> RunStats:
        """Return the run's statistics at this instant: exact counts from the queue, rates from the collector.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for an answer.
        """
        progress = self._progress(timeout=timeout)
        record, counts = progress.record, progress.counts
        snapshot, known = self._reported(progress, timeout)
        consumers = known.consumers if known else progress.consumers
        state = run_state(
            counts,
            sealed=progress.sealed,
            incomplete=record["incomplete"] is not None,
            paused=progress.paused,
            stopped=progress.stopped,
            consumers=max(consumers, progress.consumers),
            blocked=bool(progress.blocked),
        )
        ends = [shard["ended"] for shard in progress.shards]
        units = [Counts(*shard["units"]) for shard in progress.shards if shard["units"]]
        return RunStats(
            name=self.name,
            queue=self.queue,
            state=state,
            counts=counts,
            units=sum(units[1:], units[0]) if units else None,
            why=progress.halted
            or progress.blocked
            or (known.why if known and known.state == state else record["incomplete"] or ""),
            code=self._code_stats(record),
            total=record["total"] if progress.sealed else None,
            retrying=sum(shard["retrying"] for shard in progress.shards),
            started=record["started"],
            ended=max(ends) if None not in ends else None,
            idle=max(shard["idle"] for shard in progress.shards),
            at=snapshot.at,
            rate=known.rate if known else None,
            units_rate=known.units_rate if known else None,
            consumers=consumers,
            classes=known.classes if known else (),
            classes_total=known.classes_total if known else 0,
            eta=known.eta if known and known.state == state else None,
        )

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Return everything at this instant; leases, consumers and failures are those of this run and its queue.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for an answer.
        """
        return self._snapshot(timeout=timeout)[0]

    def past(self, span: float | None = None, *, timeout: float | None = None) -> History:
        """Return the series that charts are drawn from, over the last `span` seconds; default: since the run began."""
        if span is None:
            span = self.stats(timeout=timeout).since_start
        span = max(MIN_PAST, span)
        link = self.handle.link
        asked = link.scheduler("dq_history", span=span, queue=self.queue, run=self.name)
        return History.from_dict(link.sync(asked, timeout=timeout))

    def _reported(self, progress: Progress, timeout: float | None) -> tuple[Snapshot, RunStats | None]:
        """Return the collector's statistics, and this run's among them.

        The picture of a run that ended is kept, with its failure classes: it waits for the last report.
        """
        snapshot, known = self._snapshot(timeout=timeout)
        deadline = time.monotonic() + LAST_REPORT
        while progress.done and time.monotonic() < deadline:
            if known.counts == progress.counts if known else snapshot.runs_total > len(snapshot.runs):
                break
            snapshot, known = self._snapshot(since=snapshot.seq, timeout=timeout)
        return snapshot, known

    def _snapshot(self, *, since: int | None = None, timeout: float | None) -> tuple[Snapshot, RunStats | None]:
        """Return the collector's newest statistics, or those after number `since`, and this run's among them."""
        link, later = self.handle.link, {} if since is None else {"since": since, "wait": LAST_REPORT}
        asked = link.scheduler("dq_snapshot", **later, queue=self.queue, run=self.name)
        snapshot = Snapshot.from_dict(link.sync(asked, timeout=timeout))
        return snapshot, next((run for run in snapshot.runs if run.name == self.name and run.queue == self.queue), None)

    def _code_stats(self, record: dict[str, Any]) -> CodeStats:
        code = record["codes"][-1]
        return CodeStats(code["name"], code["short"], len(record["codes"]), code["cell"])

    def record(self) -> dict[str, Any]:
        """Return the run record as the queue keeps it: code versions, elements submitted, their digest."""
        return self._progress().record

    def failures(self) -> Failures:
        """Return the run's dead letters: a sequence that shows itself as a table; `.to_frame()` for pandas."""
        progress = self._progress()
        return Failures(self.name, self.handle, self.id, [shard["counts"][State.DEAD] for shard in progress.shards])

    def examples(self, fingerprint: str, limit: int = 5, *, timeout: float | None = None) -> list[DeadLetter]:
        """Return some dead documents of one failure class.

        Parameters
        ----------
        fingerprint : str
            Of the class; see `RunStats.classes`.
        limit : int, default 5
            How many at most.
        timeout : float, optional
            Seconds to wait for the first answer.
        """
        self._progress(timeout=timeout)
        return list(islice(self.failures().of([fingerprint]), limit))

    def lost(self) -> Lost:
        """Return which documents are lost: (ordinal, key) each, or ordinals where this process has not their input."""
        return self._lost(self._progress(covered=True))

    def _lost(self, progress: Progress) -> Lost:
        return Lost(self.name, progress.lost, None if self.submitter is None else self.submitter.elements)

    def _progress(self, *, wait: float = 0.0, covered: bool = False, timeout: float | None = None) -> Progress:
        meta = {"run": self.id, "wait": wait, "covered": covered}
        return Progress(self.handle.link.sync(self.handle.ask_all("watch", meta, wait=wait), timeout=timeout))

    @property
    def state(self) -> RunState:
        """What the run is doing, in one word."""
        return self.stats().state
