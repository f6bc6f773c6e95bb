"""A run: one mapping of a function over documents, with a name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from dqlab.cluster.functions import pack_function
from dqlab.cluster.handle import Handle
from dqlab.cluster.protocol import PARK
from dqlab.cluster.sealed import blob_hash, seal_function
from dqlab.config import seconds
from dqlab.errors import (
    BadOption,
    ResultsFull,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunStalled,
    SubmissionIncomplete,
    WaitTimeout,
)
from dqlab.queue.states import State
from dqlab.runs.code import CodeVersion, code_version
from dqlab.runs.failures import DeadLetter, Failures
from dqlab.runs.results import Results, open_settlements
from dqlab.runs.where import compile_where
from dqlab.stats import CodeStats, Counts, RunState, RunStats, Snapshot, run_state

if TYPE_CHECKING:
    from dqlab.runs.mapping import Submitter

__all__ = ["Progress", "Run", "sealed_function"]

STALLED_AFTER = 5.0
"""Seconds without any consumer after which waiting is given up."""
LAST_REPORT = 0.5
"""Seconds that statistics of an ended run wait for its last report; workers report every 250 ms."""


def sealed_function(fn: Callable[..., Any]) -> tuple[bytes, bytes, CodeVersion]:
    """Return a function's blob hash, its blob and its code version.

    Raises
    ------
    NotPicklable
        The function, or something it captured, cannot be pickled.
    """
    version = code_version(fn)
    blob = pack_function(seal_function(fn), code=version.short)
    return blob_hash(blob), blob, version


@dataclass(frozen=True)
class Progress:
    """What a run's shards say of it right now, joined."""

    shards: list[dict[str, Any]]

    @property
    def counts(self) -> Counts:
        """Messages by state."""
        total = Counts()
        for shard in self.shards:
            total += Counts(*shard["counts"])
        return total

    @property
    def record(self) -> dict[str, Any]:
        """The run record, from shard 0."""
        return self.shards[0]

    @property
    def sealed(self) -> bool:
        """The input has ended and its total is known."""
        return all(shard["sealed"] for shard in self.shards)

    @property
    def done(self) -> bool:
        """Nothing more will happen by itself."""
        return all(shard["done"] for shard in self.shards)

    @property
    def stopped(self) -> bool:
        """No room for results."""
        return any(shard["stopped"] for shard in self.shards)

    @property
    def paused(self) -> bool:
        """No new leases for this run."""
        return any(shard["paused"] or shard["queue_paused"] for shard in self.shards)

    @property
    def consumers(self) -> int:
        """Consumer slots that ever parked and are alive, at the shard that has most."""
        return max(int(shard["consumers"]) for shard in self.shards)


@dataclass(eq=False)
class Run:
    """One mapping of a function over documents. Made by `map`, found again by `attach`.

    Nothing here blocks except `wait`, `results` and iterating `as_completed`.

    Attributes
    ----------
    name : str
        Unique in its lab.
    id : bytes
        The lane's id.
    """

    name: str
    id: bytes
    handle: Handle
    submitter: Submitter | None = None
    on_drop: Callable[[Run], None] = field(default=lambda run: None, repr=False)

    def __repr__(self) -> str:
        return f"<Run {self.name!r} on queue {self.handle.name!r}>"

    @property
    def queue(self) -> str:
        """Name of the queue it runs on."""
        return self.handle.name

    # --- looking ----------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Messages by state, asked from the queue now: ready, delayed, leased, acked, dead, cancelled, lost."""
        counts = self._progress().counts
        return {state.name.lower(): getattr(counts, state.name.lower()) for state in State}

    @property
    def done(self) -> bool:
        """Whether every document is acked, dead or cancelled."""
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
        snapshot, known = self._snapshot(timeout=timeout)
        progress = self._progress(timeout=timeout)
        record, counts = progress.record, progress.counts
        reported = known.counts == counts if known else snapshot.runs_total > len(snapshot.runs)
        if progress.done and not reported:
            # The picture of a run that ended is kept, with its failure classes: worth one more report.
            snapshot, known = self._snapshot(since=snapshot.seq, timeout=timeout)
        consumers = known.consumers if known else progress.consumers
        state = run_state(
            counts,
            sealed=progress.sealed,
            incomplete=record["incomplete"] is not None,
            paused=progress.paused,
            stopped=progress.stopped,
            consumers=max(consumers, progress.consumers),
        )
        ends = [shard["ended"] for shard in progress.shards]
        units = [Counts(*shard["units"]) for shard in progress.shards if shard["units"]]
        return RunStats(
            name=self.name,
            queue=self.queue,
            state=state,
            counts=counts,
            units=sum(units[1:], units[0]) if units else None,
            why=known.why if known and known.state == state else record["incomplete"] or "",
            code=self._code_stats(record),
            total=record["total"] if progress.sealed else None,
            retrying=sum(shard["retrying"] for shard in progress.shards),
            started=record["started"],
            ended=max(ends) if None not in ends else None,
            at=snapshot.at,
            rate=known.rate if known else None,
            units_rate=known.units_rate if known else None,
            consumers=consumers,
            classes=known.classes if known else (),
            classes_total=known.classes_total if known else 0,
        )

    def _snapshot(self, *, since: int | None = None, timeout: float | None) -> tuple[Snapshot, RunStats | None]:
        """Return the collector's newest statistics, or those after number `since`, and this run's among them."""
        link, later = self.handle.link, {} if since is None else {"since": since, "timeout": LAST_REPORT}
        snapshot = Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot", **later), timeout=timeout))
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

    def _progress(self, *, wait: float = 0.0, covered: bool = False, timeout: float | None = None) -> Progress:
        meta = {"run": self.id, "wait": wait, "covered": covered}
        try:
            return Progress(self.handle.link.sync(self.handle.ask_all("watch", meta, wait=wait), timeout=timeout))
        except RunNotFound:
            raise RunNotFound(run=self.name, hint=" It was dropped.", known="see lab.runs") from None

    # --- waiting ----------------------------------------------------------------------------

    def wait(self, timeout: float | str | None = None) -> Run:
        """Wait until every document is acked, dead or cancelled. Ctrl-C stops waiting; the run goes on.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds, or "5m". Without one there is no limit; a paused run keeps waiting.

        Returns
        -------
        Run
            Itself, so that calls chain.

        Raises
        ------
        WaitTimeout
            The time is over; the run goes on.
        SubmissionIncomplete
            The input raised, or one of its elements could not be sent.
        RunStalled
            Work waits and no consumer has existed for 5 s.
        ResultsFull
            No room for results.
        SchedulerGone, ActorGone
            There is nobody left to ask.
        """
        limit = seconds(timeout, name="timeout")
        deadline = None if limit is None else time.monotonic() + limit
        alone_since: float | None = None
        while True:
            self._raise_submission()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            progress = self._progress(wait=min(PARK if alone_since is None else 0.5, PARK if left is None else left))
            if progress.done and (self.submitter is None or self.submitter.finished.is_set()):
                self._raise_submission()
                return self
            if progress.stopped:
                limit_bytes = self.handle.link.sync(self.handle.link.scheduler("dq_queues"))[self.queue]["options"]
                used = sum(shard["stored"] for shard in progress.shards)
                raise ResultsFull(run=self.name, used=used, limit=limit_bytes["results_maxsize"])
            if left is not None and left <= 0:
                raise WaitTimeout(run=self.name, seconds=limit, left=progress.counts.left)
            alone_since = self._watch_consumers(progress, alone_since)

    def _watch_consumers(self, progress: Progress, alone_since: float | None) -> float | None:
        if progress.consumers or progress.paused or not progress.counts.left:
            return None
        now = time.monotonic()
        if alone_since is not None and now - alone_since > STALLED_AFTER:
            raise RunStalled(run=self.name, queue=self.queue, waiting=progress.counts.left, seconds=STALLED_AFTER)
        return alone_since if alone_since is not None else now

    def _raise_submission(self) -> None:
        submitter = self.submitter
        if submitter is None or submitter.error is None:
            return
        error = submitter.error
        from dqlab.runs.mapping import unsent

        if unsent(error):
            reason = f"{type(error).__name__}: {error}"
            raise SubmissionIncomplete(run=self.name, position=submitter.count, reason=reason) from error
        raise error

    def results(
        self, errors: Literal["raise", "skip", "return"] = "raise", timeout: float | str | None = None
    ) -> Results:
        """Wait for the run, then return its values in document order.

        Parameters
        ----------
        errors : {"raise", "skip", "return"}
            What to do about documents without a result: raise `RunFailed` or `RunCancelled`, leave
            them out, or put their `DeadLetter` in their place.
        timeout : float or str, optional
            As in `wait`.

        Returns
        -------
        Results
            A lazy sequence; holds one page.

        Raises
        ------
        RunFailed, RunCancelled
            Some documents have no result, and `errors` is "raise".
        """
        if errors not in ("raise", "skip", "return"):
            raise BadOption(option="errors", value=errors, problem="is one of 'raise', 'skip', 'return'.")
        try:
            self.wait(timeout)
        except SubmissionIncomplete:
            if errors == "raise":
                raise
            self._wait_for_submitted(timeout)
        progress = self._progress(covered=True)
        counts = progress.counts
        if errors == "raise":
            self._raise_missing(counts)
        covered = [tuple(span) for shard in progress.shards for span in shard["covered"]]
        lost: dict[int, Any] = {}
        if errors == "return" and counts.dead:
            lost = {letter.ordinal: letter for letter in self.failures()}
        return Results(self.name, self.handle, self.id, [(lo, hi) for lo, hi in covered], lost)

    def _wait_for_submitted(self, timeout: float | str | None) -> None:
        submitter, self.submitter = self.submitter, None
        try:
            self.wait(timeout)
        finally:
            self.submitter = submitter

    def _raise_missing(self, counts: Counts) -> None:
        if counts.cancelled:
            raise RunCancelled(run=self.name, cancelled=counts.cancelled, total=counts.all, acked=counts.acked)
        if counts.dead:
            first = next(iter(self.failures()))
            what = f"{first.error}: {first.message} (document {first.key!r})"
            raise RunFailed(run=self.name, dead=counts.dead, total=counts.all, first=what)

    def as_completed(self, timeout: float | str | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) as documents finish, those that have finished first; failures are left out.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds to wait for the next result.

        Raises
        ------
        WaitTimeout
            No result came in time.
        """
        limit = seconds(timeout, name="timeout")
        cursors = dict.fromkeys(range(len(self.handle.refs)), 0)
        longest = 1.0 if limit is None else min(1.0, limit)
        waited_since = time.monotonic()
        while cursors:
            for shard in list(cursors):
                meta = {"run": self.id, "cursor": cursors[shard], "wait": longest if len(cursors) == 1 else 0.05}
                answer, parts = self.handle.link.sync(self.handle.ask(shard, "stream", meta, wait=1.0))
                page = open_settlements(parts)
                for stretch in page:
                    yield from stretch.items()
                cursors[shard] = answer["cursor"]
                if page:
                    waited_since = time.monotonic()
                if answer["done"]:
                    del cursors[shard]
            self._raise_submission()
            if limit is not None and time.monotonic() - waited_since > limit:
                raise WaitTimeout(run=self.name, seconds=limit, left=self._progress().counts.left)

    # --- acting -----------------------------------------------------------------------------

    def pause(self) -> Run:
        """Lease no more of this run; what runs now ends, the rest is given back."""
        return self._order("pause")

    def resume(self) -> Run:
        """Go on after `pause`."""
        return self._order("resume")

    def cancel(self) -> int:
        """Give up every document that has no result yet; return how many. Results that exist stay."""
        if self.submitter is not None:
            self.submitter.stop(RunCancelled(run=self.name, cancelled=0, total=0, acked=0))
        cancelled = self.handle.link.sync(self.handle.control("cancel", run=self.id))
        if self.submitter is not None:
            self.submitter.join()
        return cancelled

    def drop(self) -> None:
        """Cancel what is left and forget the run, its results and failures; frees their space."""
        self.cancel()
        self.handle.link.sync(self.handle.control("drop", run=self.id))
        self.on_drop(self)

    def retry(
        self,
        fn: Callable[..., Any] | None = None,
        where: str | Callable[[DeadLetter], bool] | None = None,
    ) -> int:
        """Send dead documents through again, with new code if it is given; return how many.

        They keep their ids, arguments and history; their deliveries count anew.

        Parameters
        ----------
        fn : callable, optional
            The mended function. Default: the run's newest code.
        where : str or callable, optional
            Which of them: an expression such as ``"error == 'KeyError' and deliveries < 5"`` over
            error, message, key, deliveries, version; or a function of a `DeadLetter`.

        Raises
        ------
        NotPicklable
            The function cannot be sent.
        BadOption
            The expression is not one.
        """
        chosen = compile_where(where) if where is not None else None
        meta: dict[str, Any] = self._new_code(fn) if fn is not None else self._newest_code()
        count = 0
        ids: list[tuple[int, int]] = []
        ordinals: list[tuple[int, int]] = []
        for letter in self.failures():
            if chosen is None or chosen(letter):
                ids.append((letter.id, letter.id + 1))
                ordinals.append((letter.ordinal, letter.ordinal + 1))
        for at in range(0, len(ids), 5000):
            work = self.handle.control_ids(
                "retry", self.id, ids[at : at + 5000], ordinals=ordinals[at : at + 5000], **meta
            )
            count += self.handle.link.sync(work)
        return count

    def _new_code(self, fn: Callable[..., Any]) -> dict[str, Any]:
        hash, blob, version = sealed_function(fn)
        return {"function": hash, "blob": blob, "code": code_record(version, hash)}

    def _newest_code(self) -> dict[str, Any]:
        code = self._progress().record["codes"][-1]
        meta, parts = self.handle.link.sync(self.handle.ask(0, "function", {"hash": code["blob"]}))
        return {"function": code["blob"], "blob": bytes(parts[0]), "code": code} if meta["known"] else {}

    def _order(self, op: str) -> Run:
        self.handle.link.sync(self.handle.control(op, run=self.id))
        return self

    @property
    def state(self) -> RunState:
        """What the run is doing, in one word."""
        return self.stats().state


def code_record(version: CodeVersion, blob: bytes) -> dict[str, Any]:
    """Return what the queue keeps of a code version."""
    return {
        "name": version.name,
        "hash": version.hash,
        "short": version.short,
        "source": version.source,
        "cell": version.cell,
        "blob": blob,
    }
