"""What waits for a run: its end, or each result as it comes; and why no more results arrive.

A wait is a loop around one question to all shards. What an answer means is judged here from a `Progress`, and from what
`waiting.Standstill` has seen before; a method whose name begins with `raise` returns when its reason does not hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from copy import copy
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.protocol import PARK
from dqlab.cluster.transport.reports import Progress
from dqlab.errors import (
    AllFailed,
    CallTimeout,
    ResultsFull,
    ResultsMissing,
    RunCancelled,
    RunExists,
    RunFailed,
    RunHalted,
    RunStalled,
    SubmissionIncomplete,
    WaitTimeout,
    in_words,
)
from dqlab.errors.rendering import interruptible
from dqlab.notebook import in_script
from dqlab.numbers import many
from dqlab.rules.book import CANCELLED
from dqlab.runs.failures import first_keys
from dqlab.runs.reading.results import Keys, OpenedStretch, Streams
from dqlab.runs.waiting import ENDS_WITH_SCRIPT, Deadline, Standstill, expects_workers, name_pause, no_answer
from dqlab.stats import Counts, StopReason
from dqlab.texts import one_line
from dqlab.waits import Wait

if TYPE_CHECKING:
    from dqlab.runs.run import Run

NAMED = 3
"""Lost documents that an error names."""
_GO_ON = ", then go on with run.resume(), in a notebook %dq resume {run}. Nothing is lost: {now}."
_MEND = (
    ". No document is to blame: {now}. Where the code is at fault, mend it: run.retry(fn=..., rest=True), in a "
    "notebook %dq retry {run} --rest. Else go on with run.resume()."
)
"""Steps out of a halt: where something was refused, and where the class of a run or its `setup` could not be made."""
AT_ONCE = 0.2
"""Seconds between two looks at a run that is done except for its submission."""
LOOK_EVERY = 0.5
"""Seconds between two checks for facts that no shard reports: a failed submission, or the end of new results."""
COMPARED = 2.0
"""Seconds that an order waits for the comparison of documents that were mapped again."""


class RunWait:
    """Waits for one run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def elements(self) -> Iterable[Any] | None:
        """The input, if it was mapped in this process."""
        return None if self._run.submitter is None else self._run.submitter.elements

    def interruptible(self) -> AbstractContextManager[None]:
        """Say on Ctrl-C that the run goes on, and how to come back to it."""

        def text() -> str:
            left = f"no longer waiting for run {self._run.name!r}, which was left as it is"
            if self._run.handle.link.embedded and in_script():
                return f"{left}. {ENDS_WITH_SCRIPT}"
            # A script's variables end with it, and most notebooks name what they are connected to `lab`.
            lab = f"dq.connect({self._run.handle.link.address!r})" if in_script() else "lab"
            there = f"{lab}.attach({self._run.name!r})"
            return f"{left}. {there}.wait() waits again, {there}.cancel() gives it up."

        return interruptible(text)

    def asked(self, deadline: Deadline, **question: Any) -> Progress:
        """Call until all shards answer, or raise `WaitTimeout` at the deadline."""
        # One timeout proves nothing: another worker may still be opening a shard.
        standstill = self._standstill(deadline.limit)
        while (progress := self._tried(deadline, **question)) is None:
            standstill.unanswered(self._run.queue)
        return progress

    def _tried(self, deadline: Deadline, **question: Any) -> Progress | None:
        """Call once, and return None if a shard does not answer and time is left."""
        try:
            return self._run._progress(**question, timeout=deadline.patience)
        except CallTimeout as error:
            if deadline.over:
                raise self._no_answer(deadline) from error
            return None

    def _no_answer(self, deadline: Deadline) -> WaitTimeout:
        return WaitTimeout(run=self._run.name, seconds=deadline.limit, why=no_answer(self._run.queue))

    def _standstill(self, limit: float | None) -> Standstill:
        return Standstill(f"run {self._run.name!r}", limit)

    def settled(self, deadline: Deadline, judge: Callable[[Progress | None], None]) -> Progress:
        """Wait until every submitted document has an outcome, unless `judge` raises a reason to end the wait early."""
        standstill = self._standstill(deadline.limit)
        while True:
            judge(None)
            # Read this before the shards answer, one by one: a submission that ends meanwhile may have added documents
            # to a shard that has already answered.
            ended = self._run.submitter is None or self._run.submitter.finished.is_set()
            # A long call only while nothing else needs a look: no shard reports a submission that fails here.
            parked = deadline.within(PARK if ended and not standstill.begun else LOOK_EVERY)
            progress = self._tried(deadline, wait=parked)
            if progress is None:
                standstill.unanswered(self._run.queue)
                continue
            if (progress.done and ended) or progress.given_up or self._never_ends(progress):
                judge(progress)
                self._run.at_end = progress
                return progress
            if progress.done and self._run.submitter is not None:
                self._run.submitter.finished.wait(deadline.within(AT_ONCE))
            self._watch(progress, standstill)
            if deadline.over:
                raise self._out_of_time(progress, deadline.limit)

    def _watch(self, progress: Progress, standstill: Standstill) -> None:
        """Warn when a pause or a disk has stopped the run for a while, or raise why it does not go on by itself."""
        self._raise_stopped(progress)
        counts, link = progress.counts, self._run.handle.link
        rests = progress.paused and counts.left and not counts.leased
        why = (self._what_pauses(progress) if rests else "") + _what_blocks(progress)
        alone = bool(counts.left) and not (progress.consumers or progress.paused)
        lonely = standstill.look(why, alone=alone)
        if lonely and not link.sync(expects_workers(link)):
            run, queue, seconds = self._run.name, self._run.queue, round(lonely)
            raise RunStalled(run=run, queue=queue, waiting=counts.left, seconds=seconds, unable=progress.unable)

    def _out_of_time(self, progress: Progress, limit: float | None) -> WaitTimeout:
        left = f"{many(progress.counts.left, 'message')} left."
        why = left + self._what_pauses(progress) + _what_blocks(progress)
        return WaitTimeout(run=self._run.name, seconds=limit, why=why)

    def _what_pauses(self, progress: Progress) -> str:
        """Return in words whether the input is still read, which pauses stop the run, and how to end them."""
        reads = "" if progress.sealed else " Its input is not read to its end, so more come."
        paused = {"run_paused": progress.run_paused, "queue_paused": progress.queue_paused}
        return reads + name_pause(self._run.name, self._run.queue, **paused)

    def completed(self, limit: float | None, wait: Wait) -> Generator[tuple[Any, Any], None, Progress]:
        """Yield (key, value) as documents finish, and return what the run was at its end."""
        keys, found = Keys(self._run.name), self.stretches(limit, wait)
        while True:
            try:
                stretch = next(found)
            except StopIteration as end:
                progress: Progress = end.value
                return progress
            keys.look(stretch)
            yield from stretch.items()

    def stretches(self, limit: float | None, wait: Wait) -> Generator[OpenedStretch, None, Progress]:
        """Yield results as documents finish, and return what the run was at its end."""
        self.raise_other_input()
        run = self._run
        streams = Streams(
            *(run.handle, run.id, lambda patience: run.reader(timeout=patience)),
            codes=lambda patience: run._progress(timeout=patience).record.codes,
        )
        deadline, over, looked = Deadline(limit), False, time.monotonic()
        given_up, error, standstill = False, None, self._standstill(limit)
        while not (over and streams.done):
            came = False
            try:
                # Before the pages are read: only then is it certain that they have everything.
                over = over or (streams.done and self._is_over(deadline))
                for page in streams.pages(deadline.within(1.0), deadline.patience):
                    wait.give()  # no display of a wait while the caller's loop body runs, and its time does not count
                    yield from page
                    wait.take()
                    deadline, came = Deadline(limit), True
                if came or over:
                    given_up, error = False, None
                    standstill.look("")
                elif (given_up or error is not None) and not streams.more:
                    break
                elif deadline.over or time.monotonic() > looked + LOOK_EVERY:
                    try:
                        given_up = self._watch_idle(deadline, standstill)
                        looked = time.monotonic()
                    except (ResultsFull, RunHalted, RunStalled) as ended:
                        error = ended  # raised later: results may have arrived since the pages were read
            except CallTimeout as silent:  # a shard is being recreated
                if deadline.over and not came:
                    raise self._no_answer(deadline) from silent
                standstill.unanswered(self._run.queue)
            self.raise_other_input()
            if deadline.over and not came and not (over and streams.done):
                raise error or self._out_of_time(self.asked(deadline), limit)
        if error is not None:
            raise error
        deadline = Deadline(limit)
        progress = self.settled(deadline, self.raise_submission)
        self._raise_given_up(progress, deadline)
        streams.check_readable()
        return progress

    def _watch_idle(self, deadline: Deadline, standstill: Standstill) -> bool:
        """Return whether no more results will arrive."""
        progress = self._tried(deadline)
        if progress is None:
            return False
        self._watch(progress, standstill)
        rests = progress.paused and not progress.counts.leased and self._has_broken(progress)
        return rests or progress.given_up or self._never_ends(progress)

    def _has_broken(self, progress: Progress) -> bool:
        """Return whether the input has ended early."""
        submitter = self._run.submitter
        if submitter is None:
            return progress.cut_off(self._run.name) is not None
        return submitter.finished.is_set() and submitter.error is not None

    def _never_ends(self, progress: Progress) -> bool:
        """Return whether nothing is left of a run whose input ended early without its shards knowing of it."""
        return not progress.sealed and not progress.counts.left and self._has_broken(progress)

    def _is_over(self, deadline: Deadline) -> bool:
        """Return whether a run whose shards are done has no more results, after a short wait for its submission."""
        if self._run.submitter is not None and not self._run.submitter.finished.wait(deadline.within(AT_ONCE)):
            return False
        progress = self._tried(deadline)
        return progress is not None and progress.done

    def _raise_stopped(self, progress: Progress) -> None:
        """Raise the reason why the run has paused itself, if it has."""
        if progress.halted:
            counts = progress.counts
            now = _parts(counts, so_far=not progress.sealed)
            run, why = self._run.name, progress.halted
            if progress.halt is StopReason.ALL_FAILED:
                raise AllFailed(run=run, why=why, now=now, left=counts.left, dead=counts.dead)
            steps = (_MEND if progress.halt is StopReason.UNMADE else _GO_ON).format(run=run, now=now)
            raise RunHalted(run=run, why=why.removesuffix("."), steps=steps)
        for shard in progress.shards:
            if shard.lane.stopped:
                raise ResultsFull(run=self._run.name, used=shard.stored, limit=shard.results_maxsize)

    def raise_submission(self, progress: Progress | None = None) -> None:
        """Raise why the input ended early, as this process knows it, else as the queue does if `progress` is given."""
        self.raise_other_input()
        error = self._run.submitter.error if self._run.submitter is not None else None
        if error is None:
            cut_off = progress.cut_off(self._run.name) if progress is not None else None
            if cut_off is not None:
                raise cut_off
            return
        if self._run.submitter is not None and self._run.submitter.unsent:
            position, reason = self._run.submitter.count, in_words(error)
            raise SubmissionIncomplete(run=self._run.name, position=position, reason=reason) from error
        raise error

    def raise_other_input(self, progress: Progress | None = None) -> None:
        """Raise while the run has other code or other documents than were mapped."""
        self._raise_doubt()
        submitter = self._run.submitter
        error = submitter.error if submitter is not None and not submitter.unsent else None
        if isinstance(error, RunExists):
            raise error

    def raise_other_documents(self) -> None:
        """Raise, after a short wait for the comparison, if an order may be meant for other documents than the run's."""
        submitter = self._run.submitter
        if submitter is None or not submitter.verifies:
            return
        submitter.join(COMPARED)
        if isinstance(submitter.error, RunExists):
            raise copy(submitter.error)
        if submitter.undecided:
            steps = f"Wait for that with run.wait(), or name the run as it is: lab.attach({self._run.name!r})."
            raise RunExists(run=self._run.name, difference="documents that these are still compared with", steps=steps)

    def _raise_doubt(self) -> None:
        """Raise while the run does not have what was mapped last."""
        if self._run.doubt is not None:
            as_before, error = self._run.doubt
            if as_before(self._run._progress()):
                raise copy(error)  # the same object would keep the tracebacks of earlier cells
            self._run.doubt = None

    def cancelled(self, progress: Progress) -> RunCancelled:
        """Return the error of a run with cancelled documents."""
        counts, unsent = progress.counts, ""
        if progress.incomplete == CANCELLED:
            unsent = f" Its input was still being read: nothing behind the first {counts.all:,} was submitted."
        given_up = counts.cancelled
        return RunCancelled(run=self._run.name, cancelled=given_up, total=counts.all, acked=counts.acked, unsent=unsent)

    def raise_gone(self) -> None:
        """Raise why results that existed are missing, if that is known."""
        deadline = Deadline(None)
        self.raise_lost(self.asked(deadline, covered=True), deadline)

    def raise_lost(self, progress: Progress, deadline: Deadline) -> None:
        """Raise `ResultsMissing` if documents are lost and the run was not cancelled."""
        self._raise_sums(progress, deadline)
        counts = progress.counts
        if not counts.lost or progress.cancelled:
            return
        lost = tuple(self.asked(deadline, covered=True).lost)
        keys, left = first_keys(lost, self.elements, NAMED), sum(hi - lo for lo, hi in lost)
        more = f" and {left - len(keys):,} more" if left > len(keys) else ""
        first = f"The first: {', '.join(map(repr, keys))}{more}." if keys else ""
        how = progress.how_lost(self._run.queue)
        of, are = many(counts.all, "document"), "is" if counts.lost == 1 else "are"
        raise ResultsMissing(
            reason=f"{counts.lost:,} of {of} of run {self._run.name!r} {are} lost: {how}. {first} Results of the "
            "others: run.results(errors='skip'). Map the lost ones again under another name.",
            ranges=lost,
        )

    def _raise_sums(self, progress: Progress, deadline: Deadline) -> None:
        """Raise `ResultsMissing` if acked documents have no result, or if the states do not add up to the input."""
        if progress.unaccounted:
            first, total = f"no shard of queue {self._run.queue!r} has them in any state", progress.total or 0
            raise self._missing(progress.unaccounted, total, first, [])
        if not progress.missing:
            return
        progress = self.asked(deadline, covered=True)
        ranges = [span for shard in progress.shards for span in shard.missing_ordinals]
        known = ", ".join(map(repr, first_keys(ranges, self.elements, NAMED)))
        at = ", ".join(str(lo) if hi - lo == 1 else f"{lo} to {hi - 1}" for lo, hi in ranges[:NAMED])
        more = ", ..." if len(ranges) > NAMED else ""
        first = f"those at position {at}{more} of its input" + (f", the first {known}" if known else "")
        acked = progress.counts.acked
        raise self._missing(progress.missing, acked, first, ranges)

    def _missing(self, missing: int, acked: int, first: str, ranges: list[tuple[int, int]]) -> ResultsMissing:
        of, have = many(acked, "processed document"), "has" if missing == 1 else "have"
        return ResultsMissing(
            reason=f"{missing:,} of {of} of run {self._run.name!r} {have} no result, which must not happen: {first}. "
            "The others have theirs: run.results(errors='skip'). Map these documents once more under another name; "
            "`dqlab store check` looks at a store, lab.doctor() at the rest. Please report this.",
            ranges=ranges,
        )

    def _raise_given_up(self, progress: Progress, deadline: Deadline) -> None:
        """Raise why documents that did not fail have no result, if there are any."""
        self._raise_sums(progress, deadline)
        if progress.counts.cancelled or progress.cancelled:
            raise self.cancelled(progress)
        self.raise_lost(progress, deadline)

    def raise_missing(self, progress: Progress, deadline: Deadline) -> None:
        """Raise why documents have no result, if there are any."""
        counts = progress.counts
        self._raise_given_up(progress, deadline)
        if counts.dead:
            first = next(iter(self._run.failures()))
            said = f": {one_line(first.message, 300)}" if first.message else ""
            what = f"{first.error} at document {first.key!r}{said}"
            others = "What succeeded: run.results(errors='skip'). " if counts.acked else ""
            steps = (
                f"{others}See run.failures(); then run.retry() once what the documents need is there, or "
                "run.retry(fn=...) with other code."
            )
            of = f"{many(counts.all, 'document')} of run {self._run.name!r}"
            raise RunFailed(run=self._run.name, dead=counts.dead, of=of, first=what, steps=steps)


def _what_blocks(progress: Progress) -> str:
    """Return as a sentence why nothing can be confirmed, or "" if all is well."""
    return f" Blocked by: {progress.blocked}" if progress.blocked else ""


def _parts(counts: Counts, *, so_far: bool) -> str:
    """Format how many documents are in each state at one instant."""
    # All states, from one answer: users add these numbers up and compare the sum with the first number.
    amounts = {
        "have failed": counts.dead,
        "were processed": counts.acked,
        "were cancelled": counts.cancelled,
        "are lost": counts.lost,
        "wait": counts.left,
    }
    parts = [f"{amount:,} {state}" for state, amount in amounts.items() if amount]
    return f"of {many(counts.all, 'document')}{' so far' if so_far else ''} {', '.join(parts)}"
