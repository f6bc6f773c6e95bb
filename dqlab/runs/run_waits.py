"""Waiting for a run: its end, its results, each result as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Literal, Self

from dqlab.cluster.transport.protocol import PARK
from dqlab.config import seconds
from dqlab.errors import (
    AllFailed,
    CallTimeout,
    DocumentsLost,
    DocumentsNotPut,
    NoAnswer,
    PutError,
    ResultsFull,
    ResultsMissing,
    RunCancelled,
    RunFailed,
    RunStalled,
    SubmissionIncomplete,
    WaitTimeout,
    in_words,
)
from dqlab.errors.trimming import interruptible
from dqlab.runs.deadline import GRACE, Deadline
from dqlab.runs.in_place import InPlace
from dqlab.runs.keywords import checks_keywords
from dqlab.runs.lost import Lost, LostDocument
from dqlab.runs.progress import Progress
from dqlab.runs.results import Results, check_errors
from dqlab.runs.run_views import RunViews
from dqlab.runs.streams import Streams
from dqlab.runs.submit.resubmission import Resubmission, claim_of
from dqlab.stats import Counts
from dqlab.texts import one_line

__all__ = ["RunWaits"]

NAMED = 3
"""Lost documents that an error names."""
AT_ONCE = 0.2
"""Seconds between two looks at a run that is done but for its submission."""
LOOK_EVERY = 0.5
"""Seconds between two looks whether results still come, while none comes."""
STALLED_AFTER = 5.0
"""Seconds without any consumer after which waiting is given up."""


class RunWaits(RunViews):
    """The part of a run that blocks its caller. Attributes: see `Run`."""

    @checks_keywords
    def wait(self, timeout: float | str | None = None) -> Self:
        """Wait until every document is acked, dead, cancelled or lost. Ctrl-C stops waiting; the run goes on.

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
        AllFailed
            The first documents all failed, so it paused itself; see `stop_if` of `map`.
        DocumentsLost
            Some were lost with a worker, or in damaged files; see `resubmit_lost`.
        ResultsMissing
            Some were processed, and their results are not there.
        SchedulerGone, ActorGone
            There is nobody left to ask.
        """
        deadline = Deadline(seconds(timeout, name="timeout"))
        with self._interruptible():
            self._raise_lost(self._settled(deadline, self._raise_submission), deadline)
        return self

    def _interruptible(self) -> AbstractContextManager[None]:
        again = f"lab.attach({self.name!r}).wait() waits again, lab.attach({self.name!r}).cancel() gives it up."
        return interruptible(f"no longer waiting for run {self.name!r}, which was left as it is. {again}")

    def _asked(self, deadline: Deadline, **question: Any) -> Progress:
        """Ask until all shards answer: one may be about to be opened by another worker, and take its time.

        Raises
        ------
        NoAnswer
            The time is over.
        """
        while (progress := self._tried(deadline, **question)) is None:
            pass
        return progress

    def _tried(self, deadline: Deadline, **question: Any) -> Progress | None:
        """Ask once; None when some shard gave no answer and there is time left."""
        try:
            return self._progress(**question, timeout=deadline.patience)
        except CallTimeout as error:
            if deadline.over:
                raise self._no_answer(deadline) from error
            return None

    def _no_answer(self, deadline: Deadline) -> NoAnswer:
        return NoAnswer(run=self.name, queue=self.queue, seconds=deadline.limit)

    def _settled(self, deadline: Deadline, judge: Callable[[Progress | None], None]) -> Progress:
        """Wait until nothing is left of what was submitted; `judge` raises what ends the wait early."""
        alone_since: float | None = None
        while True:
            judge(None)
            ended = self.submitter is None or self.submitter.finished.is_set()  # asked first: shards answer one by one
            parked = deadline.within(PARK if alone_since is None else 0.5)
            progress = self._tried(deadline, wait=parked)
            if progress is None:
                continue
            over = progress.done and ended and not (progress.counts.lost and self._are_sent_again(deadline))
            # Lost documents that are being sent again are waited for: their sender knows why it could not.
            if over or (progress.given_up and not progress.counts.lost):
                judge(progress)
                return progress
            if progress.done and self.submitter is not None:
                self.submitter.finished.wait(deadline.within(AT_ONCE))
            self._raise_stopped(progress)
            if deadline.over:
                raise self._out_of_time(progress, deadline.limit)
            alone_since = self._watch_consumers(progress, alone_since)

    def _out_of_time(self, progress: Progress, limit: float | None) -> WaitTimeout:
        why = f" What holds it up: {progress.blocked}" if progress.blocked else ""
        return WaitTimeout(run=self.name, seconds=limit, left=progress.counts.left, why=why)

    def _raise_stopped(self, progress: Progress) -> None:
        """Raise why the run paused itself, if it did."""
        if progress.halted:
            counts = progress.counts
            now = _parts(counts, so_far=not progress.sealed)
            raise AllFailed(run=self.name, why=progress.halted, now=now, left=counts.left, dead=counts.dead)
        for shard in progress.shards:
            if shard["stopped"]:
                raise ResultsFull(run=self.name, used=shard["stored"], limit=shard["results_maxsize"])

    def _are_sent_again(self, deadline: Deadline) -> bool:
        """Return whether some client sends the lost documents again; wait for it, at most until the deadline."""
        link = self.handle.link
        asked = link.scheduler("dq_claimed", what=claim_of(self.id), wait=deadline.within(PARK))
        try:
            return bool(link.sync(asked, timeout=deadline.patience))
        except CallTimeout as error:
            if deadline.over:
                raise self._no_answer(deadline) from error
            return True  # not known; whoever waits looks again

    def _watch_consumers(self, progress: Progress, alone_since: float | None) -> float | None:
        if progress.consumers or progress.paused or not progress.counts.left:
            return None
        now = time.monotonic()
        if alone_since is not None and now - alone_since > STALLED_AFTER:
            raise RunStalled(run=self.name, queue=self.queue, waiting=progress.counts.left, seconds=STALLED_AFTER)
        return alone_since if alone_since is not None else now

    def _raise_submission(self, progress: Progress | None = None) -> None:
        """Raise why the input ended early: what this process knows, else, with `progress`, what the queue knows."""
        self._raise_doubt()
        error = self.submitter.error if self.submitter is not None and not self._is_repaired() else None
        if error is None:
            cut_off = progress.cut_off(self.name) if progress is not None else None
            if cut_off is not None:
                raise cut_off
            return
        if self.submitter is not None and self.submitter.unsent:
            position, reason = self.submitter.count, in_words(error)
            raise SubmissionIncomplete(run=self.name, position=position, reason=reason) from error
        raise error

    def _raise_doubt(self) -> None:
        """Raise that the results would be those of other code, as long as the run does not have the code asked for."""
        if self.doubt is not None:
            hash, error = self.doubt
            if all(code["hash"] != hash for code in self._progress().record["codes"]):
                raise error
            self.doubt = None

    def _is_repaired(self) -> bool:
        """Return whether this client could not send lost documents again, and nothing is lost: another one has."""
        if not isinstance(self.submitter, Resubmission) or self.submitter.error is None:
            return False
        try:
            return not self._progress(timeout=GRACE).counts.lost
        except CallTimeout:
            return False

    @checks_keywords
    def results(
        self, errors: Literal["raise", "skip", "return"] = "raise", timeout: float | str | None = None
    ) -> Results:
        """Wait for the run, then return its values in document order.

        Parameters
        ----------
        errors : {"raise", "skip", "return"}
            What to do about documents without a result: raise `RunFailed`, `RunCancelled` or `DocumentsLost`,
            leave them out, or put their `DeadLetter` or `LostDocument` in their place. A result that cannot be
            unpickled here raises `ResultUnreadable` where it is read; with "return" that error stands in its place.
        timeout : float or str, optional
            As in `wait`.

        Returns
        -------
        Results
            A lazy sequence; holds one page.

        Raises
        ------
        RunFailed, RunCancelled, DocumentsLost, ResultsMissing
            Some documents have no result, and `errors` is "raise".
        """
        check_errors(errors, "skip")
        with self._interruptible():
            return self._results(errors, Deadline(seconds(timeout, name="timeout")))

    def _results(self, errors: str, deadline: Deadline) -> Results:
        try:
            self._settled(deadline, self._raise_submission)
        except (SubmissionIncomplete, DocumentsNotPut, PutError):
            if errors == "raise":
                raise
            self._settled(deadline, lambda progress: None)
        progress = self._asked(deadline, covered=True)
        if errors == "raise":
            self._raise_missing(progress, deadline)
        covered = [tuple(span) for shard in progress.shards for span in shard["covered"]]
        instead = self._in_place(progress) if errors == "return" else None
        return Results(self.name, self.handle, self.id, [(lo, hi) for lo, hi in covered], instead, self._raise_gone)

    def _in_place(self, progress: Progress) -> InPlace:
        lost, how = {}, progress.how_lost(self.queue)
        if progress.counts.lost:
            lost = {at: LostDocument(at, key, how) for at, key in self._lost(progress).items()}
        return InPlace(self.failures() if progress.counts.dead else None, lost)

    def _cancelled(self, progress: Progress) -> RunCancelled:
        counts = progress.counts
        return RunCancelled(run=self.name, cancelled=counts.cancelled, total=counts.all, acked=counts.acked)

    def _raise_gone(self) -> None:
        """Raise why results that were there are not any more, if that is known."""
        deadline = Deadline(None)
        self._raise_lost(self._asked(deadline, covered=True), deadline)

    def _raise_lost(self, progress: Progress, deadline: Deadline) -> None:
        """Raise `DocumentsLost` when some are, and the run was not given up."""
        self._raise_sums(progress, deadline)
        counts = progress.counts
        if not counts.lost or progress.cancelled:
            return
        lost = self._lost(self._asked(deadline, covered=True))
        keys = lost.first(NAMED)
        more = f" and {len(lost) - len(keys):,} more" if len(lost) > len(keys) else ""
        first = f"The first: {', '.join(map(repr, keys))}{more}." if keys else ""
        how = progress.how_lost(self.queue)
        raise DocumentsLost(run=self.name, lost=counts.lost, total=counts.all, how=how, first=first, ranges=lost.ranges)

    def _raise_sums(self, progress: Progress, deadline: Deadline) -> None:
        """Raise `ResultsMissing` when acked documents and kept results do not add up."""
        if not progress.missing:
            return
        progress = self._asked(deadline, covered=True)
        ranges = [(lo, hi) for shard in progress.shards for lo, hi in shard["missing_ordinals"]]
        missing = Lost(self.name, ranges, None if self.submitter is None else self.submitter.elements)
        known = ", ".join(map(repr, missing.first(NAMED)))
        at = ", ".join(str(lo) if hi - lo == 1 else f"{lo} to {hi - 1}" for lo, hi in ranges[:NAMED])
        more = ", ..." if len(ranges) > NAMED else ""
        first = f"those at position {at}{more} of its input" + (f", the first {known}" if known else "")
        acked = progress.counts.acked
        raise ResultsMissing(run=self.name, missing=progress.missing, acked=acked, first=first, ranges=ranges)

    def _raise_given_up(self, progress: Progress, deadline: Deadline) -> None:
        """Raise why some documents have no result that did not fail, if there are any."""
        self._raise_sums(progress, deadline)
        if progress.counts.cancelled or progress.cancelled:
            raise self._cancelled(progress)
        self._raise_lost(progress, deadline)

    def _raise_missing(self, progress: Progress, deadline: Deadline) -> None:
        counts = progress.counts
        self._raise_given_up(progress, deadline)
        if counts.dead:
            first = next(iter(self.failures()))
            what = f"{first.error} at document {first.key!r}: {one_line(first.message, 300)}"
            others = RunFailed.OTHERS if counts.acked else ""
            raise RunFailed(run=self.name, dead=counts.dead, total=counts.all, first=what, others=others)

    def as_completed(self, timeout: float | str | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) as documents finish, those that have finished first; failures are left out.

        Every result that there is comes before the error that ends it.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds to wait for the next result.

        Raises
        ------
        WaitTimeout
            No result came in time.
        RunStalled, ResultsFull, AllFailed, SubmissionIncomplete
            Nothing more comes; as in `wait`.
        RunCancelled, DocumentsLost, ResultsMissing
            All results came but those of cancelled or lost documents; as in `results`.
        ResultUnreadable
            All results came but those that cannot be unpickled here; the first of them.

        Examples
        --------
        >>> for key, value in run.as_completed():  # doctest: +SKIP
        ...     print(key, value)
        """
        limit = seconds(timeout, name="timeout")
        with self._interruptible():
            yield from self._completed(limit)

    def _completed(self, limit: float | None) -> Iterator[tuple[Any, Any]]:
        self._raise_doubt()
        streams = Streams(self.handle, self.id)
        longest = 1.0 if limit is None else min(1.0, limit)
        deadline, over, alone_since, looked = Deadline(limit), False, None, time.monotonic()
        given_up = False
        while not (over and streams.done):
            try:
                over = over or (streams.done and self._is_over(deadline))  # asked first: nothing comes behind the pages
                came = False
                for page in streams.pages(longest, deadline.patience):
                    for stretch in page:
                        yield from stretch.items()
                    deadline, came = Deadline(limit), True
                if given_up and not came:
                    break
                if came or over:
                    alone_since = None
                elif time.monotonic() > looked + LOOK_EVERY:
                    (alone_since, given_up), looked = self._watch_idle(deadline, alone_since), time.monotonic()
            except CallTimeout as error:  # a shard is being made anew, and takes its time
                if deadline.over:
                    raise self._no_answer(deadline) from error
            self._raise_submission()
            if deadline.over and not (over and streams.done):
                raise self._out_of_time(self._asked(deadline), limit)
        deadline = Deadline(limit)
        self._raise_given_up(self._settled(deadline, self._raise_submission), deadline)
        streams.check_readable()

    def _watch_idle(self, deadline: Deadline, alone_since: float | None) -> tuple[float | None, bool]:
        """Look, while no result comes, whether any will; return since when no consumer exists, and if none will."""
        progress = self._tried(deadline)
        if progress is None:
            return alone_since, False
        self._raise_stopped(progress)
        return self._watch_consumers(progress, alone_since), progress.given_up

    def _is_over(self, deadline: Deadline) -> bool:
        """Return whether nothing more comes of a run whose shards are done; wait a little for what may."""
        if self.submitter is not None and not self.submitter.finished.wait(deadline.within(AT_ONCE)):
            return False
        progress = self._tried(deadline)
        return progress is not None and progress.done and not (progress.counts.lost and self._are_sent_again(deadline))


def _parts(counts: Counts, *, so_far: bool) -> str:
    """Return how many documents are in which state at one instant; those that are named add up to the first number."""
    amounts = {
        "have failed": counts.dead,
        "were processed": counts.acked,
        "were cancelled": counts.cancelled,
        "are lost": counts.lost,
        "wait": counts.left,
    }
    parts = [f"{amount:,} {state}" for state, amount in amounts.items() if amount]
    return f"of {counts.all:,} documents{' so far' if so_far else ''} {', '.join(parts)}"
