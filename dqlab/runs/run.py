"""`Run`: one mapping of a function over documents, with a name."""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Self, overload

from dqlab.cluster.transport import calls, queue_calls
from dqlab.cluster.transport.isolation import Executor, isolation
from dqlab.cluster.transport.orders import ORDERS, Adopt, Cancel, Code, Drop, Pace, RetryDead
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.ref import NEWS_EVERY, RPC_TIMEOUT
from dqlab.cluster.transport.reports import Progress
from dqlab.cluster.transport.sealed import open_here, opened_blob, opened_plan
from dqlab.config import check_count, seconds_or_none
from dqlab.datasets.sink_parts import Reader, file_of
from dqlab.datasets.sinks import Files, Sink, let_go, sink_of
from dqlab.documents.storage import learn
from dqlab.errors import (
    BadOption,
    CallTimeout,
    DqlabError,
    DqlabWarning,
    PutError,
    RunCancelled,
    RunError,
    RunExists,
    RunNotFound,
    SubmissionIncomplete,
    in_words,
)
from dqlab.keywords import KeepsAttributes, SuggestsAttributes
from dqlab.numbers import many
from dqlab.plan import called
from dqlab.printed import Logs
from dqlab.rules.flow import FlowTerms, Share
from dqlab.rules.ranges import Ranges
from dqlab.rules.states import State
from dqlab.runs.code.sealing import check_function, check_takes_one, code_record, sealed_function
from dqlab.runs.code.versions import Redefined, code_version, given_parts
from dqlab.runs.compare.accepting import Means, Redo, Version, accept, accept_code, numbered, source_diff, versions
from dqlab.runs.compare.comparing import compare
from dqlab.runs.compare.comparison import Comparison
from dqlab.runs.compare.equality import Equal
from dqlab.runs.failures import CancelledDocument, DeadLetter, Failures, LostDocument, compile_where, keys_at, why_none
from dqlab.runs.marks import mark, pausing
from dqlab.runs.objects import HasWidget, StaysHere
from dqlab.runs.reading import one_document
from dqlab.runs.reading.merged import MergedResults, check_merge
from dqlab.runs.reading.one_document import Slowest
from dqlab.runs.reading.results import InPlace, Results, check_errors
from dqlab.runs.reading.tables import Errors, RunTables
from dqlab.runs.reading.typed import TypedCodes
from dqlab.runs.rehearsal import Marks, Rehearsal
from dqlab.runs.run_wait import RunWait
from dqlab.runs.submit.elements import why_empty
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sampling import Drawn, SampleSubmitter
from dqlab.runs.terms import BudgetOption, LimitOption, shared_budget, shared_rates
from dqlab.runs.update.plan import Again, Trust, UpdatePlan, plan_of
from dqlab.runs.update.updating import Following, redo
from dqlab.runs.waiting import Deadline
from dqlab.stats import CodeStats, History, RunState, RunStats, Snapshot, StopReason
from dqlab.stats.runs import Spend, spend_of
from dqlab.user_frames import level_of_user
from dqlab.waits import shown

if TYPE_CHECKING:
    import pandas as pd

    from dqlab.datasets.files import Published
    from dqlab.datasets.table import RunTable

MIN_PAST = 60.0
"""Seconds that the charts of a young run cover at least."""
REPORTED_WITHIN = 0.8
"""Share of the seconds that are left in which shards report. The others are for a shard that did not, to say why."""
SAID_WITHIN = 1.0
"""Seconds to wait for the queue's answer when a run is printed."""
_MAP_AGAIN = "Map the same documents under its name again: lab.map(fn, documents, name=...).go()"
_AS_BEFORE = Means()
ENDED_EARLY = (SubmissionIncomplete, PutError)
"""Errors of an input that was sent only in part; the results of that part belong to the run."""


class RowsStay(DqlabWarning):
    """A run with a sink was dropped, and the files that it has written stay."""


@dataclass(eq=False, repr=False)
class Run(HasWidget, StaysHere, KeepsAttributes, SuggestsAttributes):
    """One mapping of a function over documents, made by `map` and found again by `attach`.

    No method waits for the run except `wait`, `results` and others that say so, and iterating `as_completed`.

    Attributes
    ----------
    name : str
        The run's name, unique in its lab.
    id : bytes
        The id of the run's lane.
    """

    _way_out = "take along what the function needs of it, such as list(run.results())"

    name: str
    id: bytes
    handle: Handle
    submitter: Submitter | None = None
    on_drop: Callable[[Run], None] = field(default=lambda run: None, repr=False)
    beside: Callable[[Run, Code, list[Any]], Run] | None = field(default=None, repr=False)
    """Starts a run of other code over some documents, on the same queue and terms."""
    updates: Callable[..., None] | None = field(default=None, repr=False)
    """Carries out a plan, or makes one of an input first."""
    updated: UpdatePlan | None = field(default=None, init=False, repr=False)
    """What the last update from this object has done; None before one."""
    drawn: Drawn | None = field(default=None, repr=False)
    """The sample that was submitted first, if this process drew one."""
    rate: float | None = field(default=None, init=False, repr=False)
    """What a worker-hour costs, for the estimate that a view shows."""

    doubt: tuple[Callable[[Progress], bool], DqlabError] | None = field(default=None, repr=False)
    """After other code or documents were mapped under this name: whether the run is the one of before still, and the
    error for reading results."""
    at_end: Progress | None = field(default=None, init=False, repr=False)
    """What the last wait found when the run was over, if nothing was sent again since."""
    _redefined: Redefined = field(default_factory=Redefined, init=False, repr=False)
    _empty_said: bool = field(default=False, init=False, repr=False)
    _cancelled_here: bool = field(default=False, init=False, repr=False)
    """Whether this object cancelled the run, so that `wait` need not warn of it."""
    _reader: list[Reader | None] = field(default_factory=list, init=False, repr=False)
    """The reader of the sink's rows, or None without a sink; empty until the first use."""

    def __post_init__(self) -> None:
        self.handle = self.handle.of_run(self.name)

    def __repr__(self) -> str:
        return f"<Run {self.name!r} on queue {self.handle.name!r}>"

    def __str__(self) -> str:
        """Return in a sentence what the run is doing, or its name if the queue does not answer at once."""
        try:
            counts = self._progress(timeout=SAID_WITHIN).counts
            state = self.stats(timeout=SAID_WITHIN).state
        except DqlabError as error:
            return f"{self!r}: {error}"
        amount = f"{counts.settled:,} of {many(counts.all, 'document')} settled"
        parts = {"dead": counts.dead, "lost": counts.lost, "cancelled": counts.cancelled, "left": counts.left}
        said = "".join(f", {number:,} {word}" for word, number in parts.items() if number)
        failed = " run.failures() lists what failed." if counts.dead else ""
        stands = self.submitter.error if self.submitter is not None else None
        other = f" {stands}" if isinstance(stands, RunExists) else ""
        return f"Run {self.name!r} on queue {self.queue!r} is {state.value}: {amount}{said}.{failed}{other}"

    def pause(self) -> Self:
        """Stop leasing messages of this run; running messages finish, and consumers give back the others."""
        return self._order("pause")

    def resume(self) -> Self:
        """Continue after `pause`."""
        return self._order("resume")

    def plan(
        self,
        documents: Iterable[Any],
        again: Again = (),
        fn: Callable[[Any], Any] | None = None,
        *,
        trust: Trust = "version",
        keep_gone: bool = False,
    ) -> UpdatePlan:
        """Compare an input with what this run has, and change nothing.

        Parameters
        ----------
        documents : iterable of Document
            What the run should have now, all of it. It is read whole.
        again : collection, callable or "all", optional
            Keys of documents that run again though they have not changed, as with new code: some keys, a function of a
            key that returns whether to, or "all".
        fn : callable, optional
            The function that an update would run, which the plan compares with those that made the results. Default:
            the run's newest code.
        trust : {"version", "size"}
            What tells that a document has changed. "size": its size alone where its version is a size and a time, so
            that files that were only touched or restored from a backup do not run again.
        keep_gone : bool, default False
            Keep the results of documents that the input no longer has.

        Returns
        -------
        UpdatePlan
            What is new, has another version, or is gone, by key. A document that was renamed is gone, and new.

        Raises
        ------
        RunError
            The run has not ended, its documents have no keys, or several have the same one.
        UsageError
            An element is no document, or two documents have the same key.
        BadOption
            `trust` is neither of the two.

        Examples
        --------
        >>> print(run.plan(dq.Documents.from_glob("inbox/**")))  # doctest: +SKIP
        run 'extract': 3,112 new, 18 changed, 4 gone; 1,995,000 kept
        """
        code = None if fn is None else self._new_code(fn).code
        progress = self._progress(covered=True)
        return plan_of(self, documents, progress, again, code=code, trust=trust, keep_gone=keep_gone)

    def update(
        self,
        documents: Iterable[Any] | UpdatePlan,
        fn: Callable[[Any], Any] | None = None,
        *,
        trust: Trust = "version",
        keep_gone: bool = False,
        wait: bool = False,
    ) -> Self:
        """Run what is new in an input and what has changed, drop the results of what is gone, and keep the rest.

        It returns at once, as `map` does. The result of a document that has changed stays until its new one is
        recorded; if it fails, the old one stays, and the failure is listed. An update that was cut off, as by the end
        of its process, is completed by the next one.

        Parameters
        ----------
        documents : iterable of Document or UpdatePlan
            All that the run should have now, or what `plan` made of it.
        fn : callable, optional
            The function for new and changed documents; it is the run's newest code then. Default: the newest code,
            where this process has mapped it or a failed document keeps it.
        trust, keep_gone
            As in `plan`, for documents that are no plan yet.
        wait : bool, default False
            Wait for the end of what the run still does, instead of raising.

        Raises
        ------
        RunError
            As in `plan`; or the run has got other documents since the plan was made, perhaps by this very plan; or its
            code is no longer kept anywhere. Nothing changed.

        Examples
        --------
        >>> changed = [pair.key for pair in run.compare(parse).changed]  # doctest: +SKIP
        >>> run.update(run.plan(papers, again=changed), fn=parse).wait()  # doctest: +SKIP
        >>> run.update(dq.Documents.from_glob("inbox/**")).wait()  # doctest: +SKIP
        >>> print(run.updated)  # doctest: +SKIP
        run 'extract': 3,112 new, 18 changed, 4 gone; 1,995,000 kept
        """
        if isinstance(documents, UpdatePlan) and documents.run != self.name:
            problem = f"is a plan of run {documents.run!r}. Nothing changed."
            raise BadOption(option="documents", value=documents, problem=problem)
        assert self.updates is not None, "every run of a lab has it"
        code = self._code_of_update(fn)
        self.updates(self, documents, code, trust=trust, keep_gone=keep_gone, waits=wait)
        self.doubt = None
        return self

    def follow(
        self,
        documents: Iterable[Any] | str,
        every: float | str = "1m",
        fn: Callable[[Any], Any] | None = None,
        *,
        trust: Trust = "version",
        keep_gone: bool = False,
    ) -> Following:
        """Keep the run current with an input that has no end: look every so often, and update; return at once.

        Views say so, and when the next look is. A look that fails is shown, changes nothing, and the next one tries
        again. Ends with this process, with `Following.stop`, when documents of the run are cancelled, or it is dropped.

        Parameters
        ----------
        documents : str or iterable of Document
            A pattern of files, as for `Documents.from_glob`, or documents that can be listed again and again.
        every : float or str, default "1m"
            Seconds, or "5m", between two looks.
        fn, trust, keep_gone
            As in `update`.

        Raises
        ------
        BadOption
            The documents can be read only once, or `every` is no time, or below 0.1 s. Nothing is followed.
        RunError
            The run's code is no longer kept anywhere; pass it as `fn`.

        Examples
        --------
        >>> following = run.follow("inbox/**", every="1m")  # doctest: +SKIP
        >>> print(following)  # doctest: +SKIP
        following inbox/**, 3,112 taken
        >>> following.stop()  # doctest: +SKIP
        """
        code = self._code_of_update(fn)
        following = Following(self, documents, code, every, trust, keep_gone=keep_gone)
        following.start()
        return following

    def go(self) -> Self:
        """Submit the rest of a run that was rehearsed; return at once.

        What the sample has done counts. If the sample was retried with new code, the rest runs that code too. Nothing
        happens if the run has gone on already.

        Raises
        ------
        RunError
            This process does not have the run's input. Map the same documents under the run's name again, then call
            `go`. Nothing was submitted.
        RunExists
            The input has changed since the sample was drawn, or other code was mapped. Nothing was submitted.

        Examples
        --------
        >>> run = lab.map(parse, papers, name="parse", rehearse=30)  # doctest: +SKIP
        >>> print(run.rehearsal)  # doctest: +SKIP
        >>> run.go().wait()  # doctest: +SKIP
        """
        self._wait.raise_other_input()
        asked = self.submitter
        if isinstance(asked, SampleSubmitter):
            asked.go()
            self.at_end = None
        elif self._progress().rehearsed:
            raise self._without_input("")
        return self

    def rehearse(self, n: int = 100) -> Self:
        """Try `n` documents, those that were tried before included, of a run that was rehearsed; return at once.

        Raises
        ------
        BadOption
            `n` is below 1.
        RunError
            The run does not wait for `go`, or this process does not have its input. Nothing was submitted.
        RunExists
            The input has changed since the sample was drawn, or other code was mapped. Nothing was submitted.

        Examples
        --------
        >>> print(run.rehearse(100).rehearsal)  # doctest: +SKIP
        """
        check_count("n", n)
        self._wait.raise_other_input()
        asked = self.submitter
        if not isinstance(asked, SampleSubmitter):
            raise self._without_input("it does not wait for `go`.")
        asked.go(n)
        return self

    def _without_input(self, why: str) -> RunError:
        """Return the error of a run that was rehearsed elsewhere, or that is not because of `why`."""
        known = self._progress().rehearsed
        return RunError(run=self.name, reason=f"its input is not known in this process. {_MAP_AGAIN}" if known else why)

    @property
    def waits_for_go(self) -> bool:
        """Whether only a sample was submitted from here, and `go` submits the rest."""
        return isinstance(self.submitter, SampleSubmitter)

    @property
    def tried(self) -> int:
        """Documents of the sample that was submitted from here, 0 without one."""
        asked = self.submitter
        return len(asked.drawn.sample.picks) if isinstance(asked, SampleSubmitter) else 0

    @property
    def marks(self) -> Marks:
        """Which results of the sample are right or wrong in your judgement, and which share of all that promises.

        Examples
        --------
        >>> run.marks.right("a.pdf").wrong("c.pdf")  # doctest: +SKIP
        1 of 2 right: 9 to 91 %
        """
        return Marks(self)

    @property
    def rehearsal(self) -> Rehearsal:
        """What the sample of the run says; waits until the sample is settled.

        Raises
        ------
        RunError
            The run was not rehearsed, or this process does not have its input.
        """
        asked = self.submitter
        drawn = asked.drawn if isinstance(asked, SampleSubmitter) else self.drawn
        if drawn is None:
            raise self._without_input("it was not rehearsed.")
        if isinstance(asked, SampleSubmitter):
            with self._wait.interruptible(), shown(self):
                self._wait.settled(Deadline(None), self._wait.raise_other_input)
            if asked.error is not None:
                self._wait.raise_submission()
        return Rehearsal.of(self, drawn, self._progress(covered=True))

    def results_at(self, ordinals: Sequence[tuple[int, int]]) -> Results:
        """Return the values at some half-open ranges of ordinals, which must have results."""
        return self._covered(self._progress(), list(ordinals), None)

    def limit(self, limit: LimitOption) -> Self:
        """Let as many calls of the rest of this run through as `limit` says, such as "300/min"; see `map`.

        Raises
        ------
        BadOption
            `limit` is no rate, or is not above zero: the run was left as it is.

        Examples
        --------
        >>> run = lab.map(ask, papers, limit="500/min").limit("300/min")
        """
        return self._paced(rates=shared_rates(limit, self.handle.shards))

    def budget(self, budget: BudgetOption) -> Self:
        """Give the run another budget, such as "30 eur", what is spent included, and go on if the old one was spent.

        Raises
        ------
        BadOption
            `budget` is no amount with a unit: the run was left as it is.

        Examples
        --------
        >>> run = lab.map(ask, papers, budget="20 eur").budget("30 eur")
        """
        self._paced(budget=shared_budget(budget, self.handle.shards))
        progress = self._progress()
        return self.resume() if progress.halted and progress.halt is StopReason.BUDGET else self

    def weight(self, weight: float) -> Self:
        """Give the rest of this run another share of the consumers' time among its person's runs; see `map`.

        Raises
        ------
        BadOption
            `weight` is not from 0.01 to 100: the run was left as it is.

        Examples
        --------
        >>> run = lab.map(parse, papers).weight(3)
        """
        return self._paced(weight=weight)

    def priority(self, priority: int) -> Self:
        """Start the rest of this run before, or after, the other runs of its person; see `map`.

        Raises
        ------
        BadOption
            `priority` is no whole number from -10 to 10: the run was left as it is.

        Examples
        --------
        >>> run = lab.map(parse, papers).priority(5)
        """
        return self._paced(priority=priority)

    def _paced(self, **changes: Any) -> Self:
        """Change terms of its flow, or of its share."""
        before = FlowTerms.of(self._progress().record.flow or {})
        if changes.keys() & {"weight", "priority"}:
            changes = {"share": replace(before.share or Share(), **changes)}
        self.handle.link.sync(self.handle.order(Pace(self.id, replace(before, **changes).record())))
        return self

    def left(self, *, timeout: float) -> str:
        """Return in words how many documents have no outcome, or "" if the run is done or cancelled."""
        progress = self._progress(timeout=timeout)
        counts, reads = progress.counts, self.submitter is not None and self.submitter.sending
        if progress.cancelled or not (counts.left or reads):
            return ""
        if not counts.left:
            return "the documents that were not submitted yet"
        so_far = " so far" if reads else ""
        return f"{counts.left:,} of {many(counts.all, 'document')}{so_far}"

    def cancel(self) -> int:
        """Give up every document that has no result yet; return how many. Existing results stay.

        Of an update that is what it has not done: earlier results stay, and the next update does the rest.

        Lost documents stay lost and cannot be sent again. `cancel` does not wait for a slow input, whose later elements
        are not sent.

        Raises
        ------
        RunExists
            Other documents were mapped under the run's name, and this variable refers to them: nothing was cancelled.
        """
        self._wait.raise_other_documents()
        self._cancelled_here = True
        # Stop the submission first: it then ends with this error, and not with the puts that a cancelled lane refuses.
        if self.submitter is not None:
            self.submitter.stop(RunCancelled(run=self.name, cancelled=0, total=0, acked=0))
        self._progress()  # raises `RunNotFound` for a dropped run
        cancelled = self.handle.link.sync(self.handle.order(Cancel(self.id)))
        if self.submitter is not None:
            self.submitter.end()
        mark(self.handle.link, "cancel", self.queue)
        return cancelled

    def replace(self, consumer: str) -> list[str]:
        """Take the running documents from a consumer of the run's queue and try them again; return their names.

        The attempt does not count. If the function does not end within 5 s, its thread goes on with it, while the
        consumer runs other documents.

        Parameters
        ----------
        consumer : str
            The consumer's name as views show it.

        Raises
        ------
        BadOption
            The consumer does not exist, or runs nothing now; nothing was done.

        Examples
        --------
        >>> run.replace("c0")  # doctest: +SKIP
        ['inv-00777.pdf']
        """
        return self.handle.link.sync(self.handle.let_go(consumer=consumer, give_up=False))

    def give_up(self, document: str | int) -> list[str]:
        """Give up a document that a consumer runs: it becomes a failure, which `retry` can send again.

        The consumer goes on with other documents, as after `replace`.

        Parameters
        ----------
        document : str or int
            The document's name as views show it: its key, or its position as ``#17`` or 17. Keys take precedence.

        Raises
        ------
        BadOption
            No consumer runs the document now; nothing was done.

        Examples
        --------
        >>> run.give_up("inv-00777.pdf")  # doctest: +SKIP
        ['inv-00777.pdf']
        """
        try:
            return self.handle.link.sync(self.handle.let_go(document=str(document), run=self.id, give_up=True))
        except BadOption as error:
            if not str(document).isdecimal():
                raise
            with suppress(BadOption):  # if the position fails too, the first error is better: it has the user's words
                at = f"#{document}"
                return self.handle.link.sync(self.handle.let_go(document=at, run=self.id, give_up=True))
            raise error from None

    def drop(self, *, data: bool = False) -> None:
        """Cancel the remaining documents and forget the run, its results and its failures; frees their space.

        Parameters
        ----------
        data : bool, default False
            For a run with a sink, also delete the files that the run has written. Other files in the folder stay, and
            with `Files` also the files of deliveries that did not count. By default the files stay, and a warning says
            so; without the run, nothing records which of their rows count.

        Raises
        ------
        RunExists
            Other documents were mapped under the run's name, and this variable refers to them: nothing was dropped.
            ``lab.attach(name).drop()`` drops the existing run.
        RunError
            With `data`: the files could not be deleted, for example because this store is a copy of the one that
            they belong to. The run was not dropped, so you can call this again.
        """
        try:
            sink = self.sink
        except RunNotFound:
            sink = None
        try:
            self.cancel()
        except RunNotFound:  # perhaps in some shards alone: a client or the cluster died while it was dropped
            there, _ = self.handle.link.sync(self.handle.ask(0, calls.RunsCall(self.name)))
            if self.id not in [id for id, _ in there.runs]:
                raise
        if sink is not None and data:  # before the drop: without the run, nothing records which files are its own
            try:
                let_go(sink, self.id.hex(), self._files() if isinstance(sink, Files) else ())
            except OSError as error:
                raise RunError(
                    run=self.name,
                    reason=f"its rows in {sink} could not be deleted: {in_words(error)}. The run is cancelled and was "
                    "not dropped; some of its rows may be gone. Call run.drop(data=True) again once the cause is "
                    "removed, or run.drop(), which leaves them there.",
                ) from error
        self.handle.link.sync(self.handle.order(Drop(self.id)))
        self.on_drop(self)
        if sink is not None and not data:
            said = f"run {self.name!r} is dropped, and its rows stay in {sink}. run.drop(data=True) deletes them too."
            warnings.warn(said, RowsStay, stacklevel=level_of_user())

    def _files(self) -> list[str]:
        """Return the names of the files to which the results refer, for a run with `Files`."""
        try:
            return [file_of(reference) for _, reference in self.results_now().references()]
        except RunNotFound:  # an earlier drop was cut short: no shard knows the names any more
            return []

    def scale(self, n: int | Literal["auto"]) -> None:
        """Set the number of consumers on the run's queue; see `QueuePool.scale`.

        Raises
        ------
        BadOption
            `n` is not a number or "auto", or is below 1, or the queue's consumers belong to a `ConsumerPool`.
        """
        if n != "auto":
            check_count("n", n)
        link, number = self.handle.link, None if n == "auto" else n
        if link.sync(link.scheduler("dq_scale", set_id=self.queue, n=number)) is None:
            problem = "changes nothing: the consumers of its queue are those of a ConsumerPool; scale that."
            raise BadOption(option="n", value=n, problem=problem)
        mark(link, f"scale {n}", self.queue)

    def retry(
        self,
        fn: Callable[..., Any] | None = None,
        where: str | Callable[[DeadLetter], bool] | None = None,
        *,
        fingerprint: str | None = None,
        limit: int | None = None,
        rest: bool = False,
        memory: int | str | None = None,
        timeout: float | str | None = None,
        executor: Executor = "auto",
        note: str = "",
    ) -> int:
        """Retry dead documents, with new code or other limits if they are given; return how many.

        The documents keep their ids, arguments and history; their deliveries count from zero again.

        Parameters
        ----------
        fn : callable, optional
            The corrected function. Default: the run's newest code.
        where : str or callable, optional
            Which documents to retry: a Python expression such as ``"error == 'KeyError' and deliveries < 5"`` over
            error, message, key, deliveries, version, at, fingerprint; or a function of a `DeadLetter`. Keys are texts
            there; a missing one is None, which is neither below nor above any value.
        fingerprint : str, optional
            Retry only this failure class.
        limit : int, optional
            Retry at most this many documents, to test the code first.
        rest : bool, default False
            Use `fn` also for the rest of a run that continues: the documents that wait or are not submitted yet.
            Running documents finish with the code that they began with. A run that paused itself because everything
            failed (`stop_if` of `map`) continues, and always uses `fn` for its rest. A run that is done has no rest and
            keeps its code. Without `rest`, these documents keep their code, and a warning says so if `fn` is new to a
            run that continues. It also gives them `memory`, `timeout` and `executor`, without `fn` too.
        memory : int or str, optional
            Maximum resident memory of a process from now on, as for `map`, for what is retried. What is not given stays
            as it was, and later retries keep it.
        timeout : float or str, optional
            Longest time for one message, likewise.
        executor : {"auto", "thread", "process"}
            Where what is retried runs. "auto": where it did, or in a process if `memory` or `timeout` is given.
            "thread": without limits.
        note : str, optional
            What the retry is for, at most 200 characters; `versions` and the views show it. By default, the limits that
            are given. A retry with one of these four is a version of its own, also of the same code.

        Raises
        ------
        NotPicklable
            The function cannot be sent.
        RunError
            No `fn` was given, and no shard has the run's newest code any more. Nothing was sent.
        BadOption
            `fn` is not a function; `rest` was given without `fn`; `limit` is below 1; the expression is invalid, or
            fails for a failure: no document is sent again; or the messages run in processes, or would with these
            limits, and the function is a coroutine function; or a limit is invalid.
        RunExists
            Other documents were mapped under the run's name, and this variable refers to them: nothing was retried.

        Warns
        -----
        DqlabWarning
            Documents that wait, or are not submitted yet, keep their code. Or `fn` is omitted, and the notebook now has
            another function of that name: the old code runs again. Or there are failures, and none matches `where` or
            `fingerprint`: the warning names them.

        Examples
        --------
        >>> run.retry(where="error == 'MemoryLimit'", memory="8GB", note="the large scans")  # doctest: +SKIP
        12
        """
        code = self._code_of_retry(fn, Means(memory, timeout, executor, note))
        kept = "" if code is None or rest else self._rest_keeps(code)
        count = self._retry(code, where, fingerprint, limit, rest=rest)
        if count and fn is None:
            kept = self._edited()
        if not count and (none := self.why_none(where, fingerprint)):
            warnings.warn(none, DqlabWarning, stacklevel=level_of_user())
        if kept:
            warnings.warn(kept, DqlabWarning, stacklevel=level_of_user())
        return count

    def send_again(
        self,
        fn: Callable[..., Any] | None = None,
        where: str | None = None,
        *,
        fingerprint: str | None = None,
        limit: int | None = None,
        rest: bool = False,
        means: Means = _AS_BEFORE,
    ) -> int:
        """Retry as `retry` does, without warnings, for a caller that reports their reasons itself."""
        return self._retry(self._code_of_retry(fn, means), where, fingerprint, limit, rest=rest)

    def why_none(self, where: str | Callable[[DeadLetter], bool] | None = None, fingerprint: str | None = None) -> str:
        """Return in words why `retry` with this filter sent nothing, or "" without a filter or without failures."""
        return "" if where is None and fingerprint is None else why_none(self.name, self.failures(), where, fingerprint)

    def _edited(self) -> str:
        """Return a warning if the notebook's function has other code than a retry without `fn` runs, else ""."""
        codes = self._progress().record.codes
        name = codes[-1]["name"]
        given = given_parts(codes[-1].get("parts") or {})
        if self._redefined.newer(name, codes[-1]["short"], lambda: given) is None:
            return ""
        return (
            f"what failed in run {self.name!r} runs again with the code that it had, {name} v{len(codes)}, and {name} "
            f"has changed in this notebook. For what fails again: run.retry(fn={name})."
        )

    def _rest_keeps(self, code: Code) -> str:
        """Return a warning if documents that have yet to run will not run this code, else ""."""
        progress = self._progress()
        counts, codes = progress.counts, progress.record.codes
        if progress.halted or progress.cancelled or codes[-1]["hash"] == code.code["hash"]:
            return ""
        waiting = counts.ready + counts.delayed
        if not waiting and progress.sealed:
            return ""
        return (
            f"{many(waiting, 'document')} of run {self.name!r} that wait keep the code that they had, version "
            f"{len(codes)}. run.retry(fn=..., rest=True) gives them this code too."
        )

    def _retry(
        self,
        code: Code | None,
        where: str | Callable[[DeadLetter], bool] | None,
        fingerprint: str | None,
        limit: int | None,
        *,
        rest: bool,
    ) -> int:
        self._wait.raise_other_documents()
        chosen = compile_where(where) if where is not None else None
        classes = [] if fingerprint is None else [fingerprint]
        if limit is not None and not (type(limit) is int and limit >= 1):
            raise BadOption(option="limit", value=limit, problem="is how many documents at most, 1 or more.")
        if rest and code is None:
            raise BadOption(
                option="rest",
                value=rest,
                problem="gives fn= or limits to what is left of a run, and there is none of the two.",
            )
        # A run that is done would list this code as its own, though none of its results comes from it.
        if rest and code is not None and not self._progress().complete:
            self.handle.link.sync(self.handle.order(Adopt(self.id, code)))
        if chosen is None:
            return self._send_through(code, classes, limit)
        return self._marked(self._retry_chosen(chosen, classes, code, limit))

    def _send_through(self, code: Code | None, classes: Collection[str] = (), limit: int | None = None) -> int:
        """Retry dead documents with sealed code, and return how many."""
        sent = queue_calls.retry(self.handle, self.id, code, classes=classes, limit=limit)
        return self._marked(self.handle.link.sync(sent))

    def _marked(self, count: int) -> int:
        if count:
            self.at_end = None
            codes = self._progress().record.codes
            note = f": {said}" if (said := codes[-1].get("note", "")) else ""
            mark(self.handle.link, f"retry, {codes[-1]['name']} v{len(codes)}{note}", self.queue)
        return count

    def undecided(self, fn: Callable[..., Any], error: RunExists) -> Run:
        """Return this run as an object whose `wait` and `results` raise `error` until it has what was mapped."""
        # For a user who has mapped other code or documents under the run's name and has yet to choose: the results of
        # the old ones must not be taken for those of the new. Other variables keep the object without the doubt.
        asked = Run(self.name, self.id, self.handle, self.submitter, self.on_drop, self.beside, self.updates)
        hash, digest = code_version(fn).hash, self._progress().record.input.digest

        def as_before(progress: Progress) -> bool:
            if error.other_code:
                return all(code["hash"] != hash for code in progress.record.codes)
            return progress.record.input.digest == digest

        asked.doubt = as_before, error
        return asked

    def _retry_chosen(
        self, chosen: Callable[[DeadLetter], object], classes: list[str], code: Code | None, limit: int | None
    ) -> int:
        """Retry the dead documents that a filter chooses, perhaps only among some failure classes."""
        count = 0
        letters = list(islice((letter for letter in self.failures().of(classes) if chosen(letter)), limit))
        ids = [(letter.id, letter.id + 1) for letter in letters]
        ordinals = [(letter.ordinal, letter.ordinal + 1) for letter in letters]
        if not ids:
            return 0
        sync = self.handle.link.sync
        work = sync(queue_calls.begin_retry(self.handle, self.id, code))
        for at in range(0, len(ids), queue_calls.AT_ONCE):
            part = slice(at, at + queue_calls.AT_ONCE)
            count += sync(self.handle.order(RetryDead(self.id, ids[part], ordinals[part], work.function, work.blob)))
        return count

    def _code_of_retry(self, fn: Callable[..., Any] | None, means: Means) -> Code | None:
        """Return the code of a retry, or None for the run's newest as it is."""
        code = self._new_code(fn) if fn is not None else None
        progress = self._progress()
        record, newest = progress.record, progress.record.codes[-1]
        if not means and (code is None or "process" not in newest):
            return code
        if code is None and not (progress.counts.dead or progress.counts.left):
            return None  # there is nothing to send, and the function is no longer kept
        if code is None:
            code = self.handle.link.sync(queue_calls.newest_code(self.handle, self.id))
        return means.applied(code, newest, record.process, fn, self.function)

    def _new_code(self, fn: Callable[..., Any]) -> Code:
        check_function(fn)
        record = self._progress().record
        newest = self._newest(planned=(planned := "planned" in record.codes[-1]))
        check_takes_one(fn, None if newest is None else opened_plan(newest.blob))
        if record.codes[-1].get("process", record.process) is not None:
            isolation("process", called(fn))
        hash, blob, version = sealed_function(fn, options=record.options, newest=newest)
        return Code(hash, blob, code_record(version, hash, planned=planned))

    def _code_of_update(self, fn: Callable[..., Any] | None) -> Code:
        code = self._kept() if fn is None else self._new_code(fn)
        if code is None:
            reason = "no shard keeps the code of a run that has ended. Nothing changed. Pass it, as fn=parse."
            raise RunError(run=self.name, reason=reason)
        return code

    def _newest(self, *, planned: bool) -> Code | None:
        """Return the run's newest code if there is a plan beside its function, which new code keeps."""
        if not planned:
            return None
        return self._kept() or self.handle.link.sync(queue_calls.newest_code(self.handle, self.id))

    def _kept(self) -> Code | None:
        """Return the run's newest code as this process has mapped it or a shard keeps it, or None."""
        newest = self._progress().record.codes[-1]
        entry = None if self.submitter is None else self.submitter.sender.entry
        if entry is not None and entry.function == newest.get("blob"):
            return Code(entry.function, entry.blob, newest)
        with suppress(RunError):
            return self.handle.link.sync(queue_calls.newest_code(self.handle, self.id))
        return None

    def _order(self, verb: str) -> Self:
        self.handle.link.sync(self.handle.order(ORDERS[verb].order(self.id)))
        mark(self.handle.link, verb, self.queue, by=pausing() if ORDERS[verb].stops else "")
        return self

    # --- other code -------------------------------------------------------------------------------

    def compare(
        self,
        fn: Callable[..., Any],
        sample: int = 300,
        *,
        equal: Equal | None = None,
        score: Callable[[Any, Any], Any] | None = None,
        noise: int | None = None,
        documents: Iterable[Any] | None = None,
    ) -> Comparison:
        """Run other code over a sample of the run's documents, and compare the results with those of the run.

        Only the new code runs, on the run's queue, as a run of its own that is dropped at the end; the run does not
        change. Documents are drawn from all that have a result, and by themselves from those that failed: at least a
        tenth of the sample. Rows of one row group are drawn together. The comparison says what *changes*; what is
        better only a `score` can say.

        Parameters
        ----------
        fn : callable
            The new code. It is called as the run's own: with the same `init`, `setup`, `batch` and limits.
        sample : int, default 300
            How many documents.
        equal : callable, optional
            Takes the old and the new result, and returns whether they are the same: ``dq.close(1e-6)``,
            ``dq.same("label")``, ``dq.same_words`` or your own. Default: they are equal, or have the same parts; NaN is
            the same as NaN, and a tuple as a list.
        score : callable, optional
            Takes the key of a document and a result, and returns a number, larger for better ones.
        noise : int, optional
            On how many documents the old code runs again, to see what changes by itself. Default: 30 for coroutine
            functions and for functions that use random numbers, the date or a network, as far as their names show; 0
            for others.

        documents : iterable, optional
            The run's input, for a process that did not map it; it must be the same as then.

        Returns
        -------
        Comparison
            With ``changed``, ``summary``, ``share``, ``counts`` and ``to_frame()``.

        Raises
        ------
        RunError
            This process does not have the input of the run, and `documents` were not given; or nothing of the run has
            an outcome yet; or `noise` was given, and the old code is not kept.
        RunExists
            The input has changed since it was mapped.
        BadOption
            `fn` is not a function; `sample` is below 1; `equal` or `score` is not callable, or raised.
        NotPicklable
            The function cannot be sent.

        Examples
        --------
        >>> found = run.compare(parse, sample=300, equal=dq.close(1e-6))  # doctest: +SKIP
        >>> print(found.summary)  # doctest: +SKIP
        v1 → v2 on 300 of 1,998,204 documents: 281 equal · 17 changed · 2 newly fail · 6.3 % (4.1-9.7) of all would ...
        """
        return compare(self, fn, sample=sample, equal=equal, score=score, noise=noise, elements=documents)

    def redo(
        self,
        fn: Callable[..., Any] | None = None,
        keys: Collection[Any] | None = None,
        *,
        where: str | None = None,
        documents: Iterable[Any] | None = None,
    ) -> int:
        """Run documents that have a result again, with new code if it is given; return how many, at once.

        Each keeps its place and its earlier result until the new one is recorded; if it fails now, the earlier result
        stays, and the failure is one of `failures`. `wait` waits for them. A document that already runs again starts
        over: the later order counts.

        Parameters
        ----------
        fn : callable, optional
            The new code. Default: the run's newest, where the queue still keeps it.
        keys : collection, optional
            Keys of the documents, or positions where they have none. Default: all that have a result.
        where : str, optional
            In place of `keys`, an SQL condition over the columns of the current results, such as ``"lang == 'de'"``.
        documents : iterable, optional
            The run's input, in a process that did not map it.

        Raises
        ------
        RunError
            The input is still being submitted, ended early or was cancelled, cannot be read here, or the code is no
            longer kept. Nothing was run.
        RunExists
            These are other documents than those of the run. Nothing was run.
        BadOption
            A key has no result in this run, or `keys` and `where` are both given. Nothing was run.
        QueryError
            `where` is not SQL, or names a missing column. Nothing was run.

        Examples
        --------
        >>> run.redo(parse, where="lang == 'de'")  # doctest: +SKIP
        2
        """
        return redo(self, fn, keys, where, documents)

    def accept(self, comparison: Comparison, redo: Redo = "none") -> int:
        """Take the code that was compared as the run's newest; return how many documents run again.

        The cell with that code attaches from then on, and what is left of a run that goes on runs it. A result stays
        until there is a new one, and `versions` says how many each code made.

        Parameters
        ----------
        comparison : Comparison
            What `compare` returned for this run.
        redo : {"none", "failed", "changed", "all"}
            Which documents run again: none, those that failed, those of the sample whose result changed, or all. The
            last two need keys, as `update` does, and a run that has ended.

        Raises
        ------
        BadOption
            The comparison is of another run, or has not ended. Nothing changed.
        RunExists
            The input has changed since it was compared. Nothing changed.
        RunError
            The run has got other code since. Nothing changed.

        Examples
        --------
        >>> run.accept(run.compare(parse), redo="failed")  # doctest: +SKIP
        41
        """
        return accept(self, comparison, redo)

    def accept_code(self, fn: Callable[..., Any]) -> Self:
        """Declare that an edit changes no result, so that the cell with this code attaches from now on.

        Nothing runs again. What is left of a run that goes on runs the new code.

        Parameters
        ----------
        fn : callable
            The edited function.

        Raises
        ------
        BadOption
            `fn` is not a function, or cannot be called as the run's own.

        Examples
        --------
        >>> run.accept_code(parse)  # doctest: +SKIP
        <Run 'parse' on queue 'default'>
        """
        accept_code(self, fn)
        return self

    def diff(self, one: int, other: int) -> str:
        """Return the lines in which two code versions differ, with the names of other parts that do.

        Parameters
        ----------
        one, other : int
            Numbers of versions, from 1, as `versions` and the views have them.

        Raises
        ------
        BadOption
            The run has no version of that number.

        Examples
        --------
        >>> print(run.diff(1, 2))  # doctest: +SKIP
        --- v1
        +++ v2
        ...
        """
        return source_diff(self._progress().record.codes, one, other)

    # --- waiting ----------------------------------------------------------------------------------

    @property
    def _wait(self) -> RunWait:
        return RunWait(self)

    def wait(self, timeout: float | str | None = None, *, errors: Literal["warn", "raise"] = "warn") -> Self:
        """Wait until every document is acked, dead, cancelled or lost. Ctrl-C stops waiting; the run continues.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds, or "5m". None: no limit; if the run is paused or no worker has joined yet, `wait` warns once after
            some seconds, and waits on.
        errors : {"warn", "raise"}
            What to do about documents that failed or were cancelled: warn, or raise `RunFailed` or
            `RunCancelled`, so that a script ends with status 1.

        Returns
        -------
        Run
            The run itself, so that calls chain.

        Raises
        ------
        WaitTimeout
            The timeout has expired; the run continues.
        SubmissionIncomplete
            The input raised, or one of its elements could not be sent.
        RunStalled
            Documents wait, and no consumer has existed for 5 s.
        ResultsFull
            There is no room for more results.
        AllFailed
            So many documents failed that the run paused itself; see `stop_if` of `map`.
        RunHalted
            What the run calls or a storage refuses it, its budget is spent, or its class or an object of `setup` could
            not be made, so the run paused itself.
        ResultsMissing
            Some documents were lost in damaged files, or were processed and their results are missing.
        SchedulerGone, ActorGone
            The scheduler or a shard is gone for good.
        RunFailed, RunCancelled
            Some documents have no result, and `errors` is "raise".

        Warns
        -----
        DqlabWarning
            Documents failed; see `failures`. Or the input had no elements, or somebody else cancelled the run.
        """
        if errors not in ("warn", "raise"):
            raise BadOption(option="errors", value=errors, problem="is 'warn' or 'raise'. Nothing was waited for.")
        progress = self.until_over(timeout)
        counts = progress.counts
        self._warn_empty(progress)
        if errors == "raise":
            self._wait.raise_missing(progress, Deadline(None))
        if progress.cancelled and not self._cancelled_here:
            warnings.warn(str(self._wait.cancelled(progress)), DqlabWarning, stacklevel=level_of_user())
        if counts.dead:
            failed = f"{counts.dead:,} of {many(counts.all, 'document')} of run {self.name!r} failed"
            warnings.warn(f"{failed}. run.failures() lists them.", DqlabWarning, stacklevel=level_of_user())
        return self

    def _warn_empty(self, progress: Progress) -> None:
        """Warn once that the input had no elements."""
        if self._empty_said or progress.counts.all or not progress.sealed or progress.cancelled:
            return
        if progress.incomplete is not None or (self.submitter is not None and self.submitter.error):
            return
        self._empty_said = True
        elements = () if self.submitter is None else self.submitter.elements
        said = f"run {self.name!r} has no documents, so there is nothing to do. {why_empty(elements)}."
        warnings.warn(said, DqlabWarning, stacklevel=level_of_user())

    def until_over(self, timeout: float | str | None = None) -> Progress:
        """Wait as `wait` does, for a caller that reports failed documents itself."""
        deadline = Deadline(seconds_or_none(timeout, name="timeout"))
        with self._wait.interruptible(), shown(self):
            progress = self._wait.settled(deadline, self._wait.raise_submission)
            self._wait.raise_lost(progress, deadline)
        return progress

    @overload
    def results(
        self,
        errors: Literal["raise", "skip", "return"] = ...,
        timeout: float | str | None = ...,
        *,
        merge: None = ...,
        code: int | None = ...,
    ) -> Results: ...
    @overload
    def results(
        self,
        errors: Literal["raise", "skip", "return"] = ...,
        timeout: float | str | None = ...,
        *,
        merge: Callable[[list[Any]], Any],
    ) -> MergedResults: ...
    def results(
        self,
        errors: Literal["raise", "skip", "return"] = "raise",
        timeout: float | str | None = None,
        *,
        merge: Callable[[list[Any]], Any] | None = None,
        code: int | None = None,
    ) -> Results | MergedResults:
        """Wait for the run, then return its values in document order.

        Parameters
        ----------
        errors : {"raise", "skip", "return"}
            What to do about documents without a result: raise `RunFailed`, `RunCancelled` or `ResultsMissing`,
            skip them, or return their `DeadLetter`, `LostDocument` or `CancelledDocument` in their place. A result
            that cannot be unpickled in this process raises `ResultUnreadable` when you read it; "return" returns that
            error in its place.
        timeout : float or str, optional
            As in `wait`.
        merge : callable, optional
            Merges the values of documents that `Documents.split` has cut: takes a list, the values of a document's
            parts in the order of its pages, and returns the value of the document. For a document that was not split,
            the list has one value. If a part has no result, `errors` applies to the whole document.
        code : int, optional
            Only the results that this code version made, by its number in `versions`; not with `merge`, nor with
            `errors="return"`. All results are looked through once.

        Returns
        -------
        Results, or MergedResults with `merge`
            A lazy sequence that holds one page. With `merge`, it has a value for each document, under the document's
            key; all keys are read first.

        Raises
        ------
        RunFailed, RunCancelled, ResultsMissing
            Some documents have no result, and `errors` is "raise".
        PartsMissing
            With `merge`: some parts of a document are not in the run, and `errors` is "raise".
        BadOption
            `merge` cannot be called.

        Examples
        --------
        >>> run = lab.map(lambda part: [len(page.text()) for page in part.pages()], pdfs.split(40))  # doctest: +SKIP
        >>> lengths = dict(run.results(merge=lambda parts: sum(parts, [])).items())  # doctest: +SKIP
        """
        check_errors(errors, "skip")
        check_merge(merge)
        if code is not None:
            return self._made_by(code, errors, timeout, merge)
        with self._wait.interruptible(), shown(self):
            deadline = Deadline(seconds_or_none(timeout, name="timeout"))
            if merge is None:
                return self._results(errors, deadline)
            # "return", not "skip": merging must see the parts without a result, whose documents are incomplete.
            found = self._results("return" if errors == "skip" else errors, deadline)
            return MergedResults(found, merge, errors)

    def _made_by(self, code: int, errors: Any, timeout: float | str | None, merge: object) -> Results:
        """Return the results that one code version made."""
        if merge is not None or errors == "return":
            problem = "chooses among results; with merge= and errors='return' there are also others. Nothing was read."
            raise BadOption(option="code", value=code, problem=problem)
        short = numbered(self._progress().record.codes, code, "code")["short"]
        return self.results_at(self.results(errors, timeout).ordinals_of(short))

    def _results(self, errors: str, deadline: Deadline) -> Results:
        try:
            self._wait.settled(deadline, self._wait.raise_submission)
        except ENDED_EARLY:
            if errors == "raise":
                raise
            self._wait.settled(deadline, self._wait.raise_other_input)
        progress = self._wait.asked(deadline, covered=True)
        if errors == "raise":
            self._wait.raise_missing(progress, deadline)
        self._warn_empty(progress)
        covered = [span for shard in progress.shards for span in shard.covered]
        instead = self._in_place(progress, covered) if errors == "return" else None
        return self._covered(progress, covered, instead)

    def results_now(self) -> Results:
        """Return the values so far, in document order, even while the run continues."""
        self._wait.raise_other_input()
        progress = self._progress(covered=True)
        covered = [span for shard in progress.shards for span in shard.covered]
        return self._covered(progress, covered, None)

    def _covered(self, progress: Progress, covered: list[tuple[int, int]], instead: InPlace | None) -> Results:
        gone, reader = self._wait.raise_gone, self.reader(progress)
        typed = TypedCodes().note(progress.record.codes)
        return Results(self.name, self.handle, self.id, covered, instead, gone, self._only_code, reader, typed)

    def reader(self, progress: Progress | None = None, *, timeout: float | None = None) -> Reader | None:
        """Return the reader of the rows in the run's sink, or None without a sink."""
        if not self._reader:
            record = (self._progress(timeout=timeout) if progress is None else progress).record.sink
            self._reader.append(None if record is None else Reader(sink_of(record), self.name, self.id.hex()))
        return self._reader[0]

    @property
    def sink(self) -> Sink | None:
        """The sink to which consumers write the results, or None if the queue keeps them."""
        reader = self.reader()
        return None if reader is None else reader.sink

    def table(self) -> RunTable:
        """Return the run's results as a lazy table, even while the run continues; failures have no row.

        Nothing is read yet. Any library that reads Arrow can read the table, a page of results at a time: pyarrow,
        polars, DuckDB. Besides the columns of the values, it has the columns of lineage: ``_key``, ``_ordinal``,
        ``_version``, ``_code``, ``_seconds``, ``_attempts``, ``_consumer``, ``_at``; see `Results.to_frame`.

        Returns
        -------
        RunTable
            With ``schema``, ``head(n)``, ``count()``, ``to_arrow()``, ``to_pandas()``, ``to_reader()``,
            ``to_batches()`` and ``query(sql)``. Each of them reads the results that exist when you call it.

        Raises
        ------
        ExtraMissing
            pyarrow is not installed (it is in the extra ``tables``).

        Examples
        --------
        >>> run.table().head(3)  # doctest: +SKIP
        >>> polars.DataFrame(run.table())  # doctest: +SKIP
        """
        return RunTables(self).table()

    def query(self, sql: str, errors: Errors = "raise", timeout: float | str | None = None) -> pd.DataFrame:
        """Wait for the run, then return the result of an SQL query as a pandas DataFrame.

        Parameters
        ----------
        sql : str
            A query over the tables ``results`` and ``source``. ``source`` is the run's input, with ``size``, ``pages``,
            ``version`` and ``path`` of documents, and the columns of rows. Both tables have ``key``, ``_key`` and
            ``_ordinal``, except for a name that one of their own columns has.
        errors : {"raise", "skip"}
            What to do about documents without a result, as for `results`. ``run.table().query(sql)`` queries the
            current results.
        timeout : float or str, optional
            As in `wait`.

        Raises
        ------
        ExtraMissing
            DuckDB, pyarrow or pandas is not installed (the extras ``tables`` and ``lab`` have them).
        UsageError
            The query names `source`, and this process cannot read the input.
        QueryError
            The query is not SQL, or names a missing table or column.

        Warns
        -----
        DqlabWarning
            Several documents of `source` have the same key: a join by key returns their rows once for each of them,
            and a join by ``_ordinal`` does not.

        Examples
        --------
        >>> run.query("select year, avg(n) from results join source using (key) group by year")  # doctest: +SKIP
        """
        return RunTables(self).query(sql, errors, timeout)

    def join(
        self, df: pd.DataFrame, on: str = "key", errors: Errors = "raise", timeout: float | str | None = None
    ) -> pd.DataFrame:
        """Wait for the run, then return your table with the results beside its rows.

        Parameters
        ----------
        df : pandas.DataFrame
            Its rows and their order do not change; rows without a result have nulls in the result's columns.
        on : str, default "key"
            The column, or the name of the index, with the documents' keys.
        errors : {"raise", "skip"}
            What to do about documents without a result, as for `results`.
        timeout : float or str, optional
            As in `wait`.

        Returns
        -------
        pandas.DataFrame
            Your table with the columns of the results; if both have a column, the result's gets the suffix ``_result``.

        Raises
        ------
        UsageError
            No row has the key of a result.
        """
        return RunTables(self).join(df, on, errors, timeout)

    def to_parquet(
        self, path: str | os.PathLike[str], errors: Errors = "raise", timeout: float | str | None = None
    ) -> str:
        """Wait for the run, then write its results as Parquet, a page at a time; return the path.

        The complete file or folder gets its name in one step. Writing the same run again replaces its previous files in
        one step.

        Parameters
        ----------
        path : str or path
            A folder, for files of a million rows each, or a single file if the name ends in ``.parquet``.
        errors : {"raise", "skip"}
            What to do about documents without a result, as for `results`.
        timeout : float or str, optional
            As in `wait`.

        Raises
        ------
        TargetTaken
            The target has other contents: rows of another run, or files that dqlab did not write.
        TargetUnwritable
            The target cannot be written: no space, or no permission.
        ExtraMissing
            pyarrow is not installed (it is in the extra ``tables``).

        Examples
        --------
        >>> run.to_parquet("out/")  # doctest: +SKIP
        """
        return RunTables(self).to_parquet(path, errors, timeout)

    def publish(self, path: str | os.PathLike[str], timeout: float | str | None = None) -> Published:
        """Wait for the run, then write everything that others need to a folder, in the order of the input.

        The folder has ``results.parquet``, ``failures.parquet`` and ``manifest.json``: the run, its code with the
        source, versions of dqlab and libraries, the digest of the input, and counts, which are checked. Publishing the
        same run again replaces the previous folder in one step.

        Parameters
        ----------
        path : str or path
        timeout : float or str, optional
            As in `wait`.

        Returns
        -------
        Published
            With ``path``, ``rows``, ``failures``, ``in_rest`` and ``nbytes``.

        Raises
        ------
        TargetTaken
            The target has other contents.
        TargetUnwritable
            The target cannot be written.
        RunError
            The run was retried meanwhile.

        Warns
        -----
        DqlabWarning
            Several code versions made the results; the warning says how many each.

        Examples
        --------
        >>> run.publish("dataset/")  # doctest: +SKIP
        """
        return RunTables(self).publish(path, timeout)

    def _only_code(self) -> str | None:
        """Return the code version that made all results, or None if the run has had several."""
        # Call it after the results are fetched: new code is recorded before the first message runs with it, so one
        # version at that time means that all of these results are from it.
        codes = self._progress().record.codes
        return str(codes[0]["short"]) if len(codes) == 1 else None

    def _in_place(self, progress: Progress, covered: Sequence[tuple[int, int]]) -> InPlace:
        lost, how = {}, progress.how_lost(self.queue)
        if progress.counts.lost:
            lost = {at: LostDocument(at, key, how) for at, key in keys_at(progress.lost, self._wait.elements)}
        instead = InPlace(self.failures() if progress.counts.dead else None, lost, Ranges(covered))
        if progress.counts.cancelled:  # no shard keeps their ordinals: they are the gaps between all the others
            known = Ranges(sorted([*covered, *((at, at + 1) for at in instead.ordinals)]))
            end = progress.total if progress.sealed else None
            gaps = known.gaps(0, progress.counts.all if end is None else end)
            instead.add({at: CancelledDocument(at, key) for at, key in keys_at(gaps, self._wait.elements)})
        return instead

    def as_completed(self, timeout: float | str | None = None) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) as documents finish, beginning with those that have finished; failures are left out.

        All available results are yielded before the error that ends the iteration is raised.

        Parameters
        ----------
        timeout : float or str, optional
            Seconds to wait for the next result.

        Raises
        ------
        WaitTimeout
            No result arrived in time.
        RunStalled, ResultsFull, AllFailed, RunHalted
            No more results will arrive; as in `wait`.
        SubmissionIncomplete
            The input raised, or one of its elements could not be sent; all results of earlier elements were yielded.
        RunCancelled, ResultsMissing
            All results were yielded except for cancelled or lost documents; as in `results`.
        ResultUnreadable
            All results were yielded except those that cannot be unpickled in this process; the error names the first.

        Examples
        --------
        >>> for key, value in run.as_completed():  # doctest: +SKIP
        ...     print(key, value)
        """
        limit = seconds_or_none(timeout, name="timeout")
        with self._wait.interruptible(), shown(self) as wait:
            self._warn_empty((yield from self._wait.completed(limit, wait)))

    # --- looking: at once, and from any client ----------------------------------------------------

    @property
    def queue(self) -> str:
        """Name of the run's queue."""
        return self.handle.name

    @property
    def counts(self) -> dict[str, int]:
        """Messages by state, as the queue reports them now: ready, delayed, leased, acked, dead, cancelled, lost."""
        counts = self._progress().counts
        return {state.name.lower(): getattr(counts, state.name.lower()) for state in State}

    @property
    def done(self) -> bool:
        """Whether every document is acked, dead, cancelled or lost."""
        return self._progress().done

    @property
    def versions(self) -> list[Version]:
        """Code versions of this run, oldest first, each with its `note` and how many ``results`` it made."""
        return versions(self._progress())

    @property
    def source(self) -> str | None:
        """Source of the newest code version, or None if it is unknown."""
        source: str | None = self._progress().record.codes[-1]["source"]
        return source

    def function(self, version: str = "") -> Callable[..., Any]:
        """Return the function that was sent, with the values and helpers of its notebook, even in another kernel.

        Parameters
        ----------
        version : str
            A short code version, as in a dead letter; "" for the newest.

        Raises
        ------
        BadOption
            The run never had this version.
        RunError
            No document of the run failed with this version, or waits to run with it.

        Examples
        --------
        >>> letter = run.failures()[0]  # doctest: +SKIP
        >>> run.function(letter.version)(letter.document)  # doctest: +SKIP
        """
        codes = self._progress().record.codes
        chosen = [code for code in reversed(codes) if version in ("", code["short"])]
        if not chosen:
            known = ", ".join(repr(code["short"]) for code in codes)
            raise BadOption(option="version", value=version, problem=f"run {self.name!r} has had {known}.")
        code = chosen[0]
        blobs = dict.fromkeys(each["blob"] for each in chosen if each["short"] == code["short"])
        for blob in blobs:  # of one code, also with other limits
            if (packed := self.handle.link.sync(queue_calls.kept_function(self.handle, blob))) is not None:
                function: Callable[..., Any] = open_here(opened_blob(packed))
                return function
        raise RunError(
            run=self.name,
            reason=f"its queue no longer keeps the function {code['name']!r} (version {code['short']}): it does while "
            "a document of the run has failed with it, or is still to run. Results are not touched by this. Its "
            "source is run.source; define it in a cell.",
        )

    def newer(self, code: CodeStats) -> Callable[..., Any] | None:
        """Return the notebook's present function of the same name, or None if it has the same code."""
        return self._redefined.newer(code.name, code.short, lambda: self._given(code.short))

    def _given(self, short: str) -> dict[str, str]:
        """Return the digests of what travels along with a code version."""
        codes = self._progress().record.codes
        return next((given_parts(code.get("parts") or {}) for code in codes if code["short"] == short), {})

    def stats(self, *, timeout: float | None = None) -> RunStats:
        """Return the run's statistics at this instant, with exact counts.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for an answer.
        """
        return self._reported(timeout)[1]

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """Return all statistics at this instant, with leases, consumers and failures of this run and its queue only."""
        if self.submitter is not None and isinstance(self.submitter.error, RunExists):
            raise copy(self.submitter.error)  # a view of other documents would show them as these
        return self._reported(timeout)[0]

    def _reported(self, timeout: float | None) -> tuple[Snapshot, RunStats]:
        return self.handle.link.sync(self._ask_reports(RPC_TIMEOUT if timeout is None else timeout), timeout=timeout)

    async def _ask_reports(self, patience: float) -> tuple[Snapshot, RunStats]:
        """Return a snapshot with all that the shards have done by now, and this run in it."""
        call, deadline = self.handle.link.scheduler, time.monotonic() + patience
        while (left := deadline - time.monotonic()) > 0:
            within = REPORTED_WITHIN * left
            answer = await call("dq_run_snapshot", queue=self.queue, name=self.name, run=self.id, within=within)
            snapshot = None if answer is None else Snapshot.from_dict(answer)
            if snapshot is not None and snapshot.own_run is not None:
                return snapshot, snapshot.own_run
            # A shard knows why, and raises it. If none does, one has just been recreated: ask again.
            await self.handle.ask_all(calls.WatchCall(self.id))
            await asyncio.sleep(NEWS_EVERY)
        raise CallTimeout(name=self.queue, call="report", seconds=patience)

    def past(self, span: float, *, timeout: float | None = None) -> History:
        """Return the series that charts draw, over the last `span` seconds."""
        link = self.handle.link
        asked = link.scheduler("dq_history", span=max(MIN_PAST, span), queue=self.queue, run=self.name)
        return History.from_dict(link.sync(asked, timeout=timeout))

    def record(self) -> dict[str, Any]:
        """Return the run record that the queue keeps, with code versions, submitted elements and their digest."""
        progress = self._progress()
        return progress.record.to_dict() | {"halted": progress.halted}

    def failures(self) -> Failures:
        """Return the run's dead letters: a sequence that a notebook shows as a table; `.to_frame()` for pandas."""
        progress = self._progress()
        dead = [counts.dead for counts in progress.by_shard]
        return Failures(self.name, self.handle, self.id, dead, lambda: self.stats().classes, progress.record.codes)

    def logs(self, key: str | int, since: float | str | None = None) -> Logs:
        """Return what a document has printed: by `print`, `logging` or `warnings`, and in processes by anything.

        Output is kept of documents that failed, of slow ones (over 1 s, and ten times the mean of their run) and, with
        ``map(..., logs="all")``, of all; of one that runs now, it is what it has printed so far.

        Parameters
        ----------
        key : str or int
            The document's key, or its position in the input as ``"#17"`` or 17. Keys take precedence.
        since : float or str, optional
            Of a document that runs now, only what it printed in so many seconds before now, to a second: 30, or
            ``"2m"``. Default: all that is kept.

        Returns
        -------
        Logs
            A text; "" if the document printed nothing, or if its output was not kept. It has the first and the last
            8 KiB; ``.cut`` is how many bytes between them are left out. Lines of progress bars have their last state.

        Raises
        ------
        BadOption
            No document with this key has ended or runs now; with `since`, none runs now.

        Examples
        --------
        >>> print(run.logs("inv-00777.pdf"))  # doctest: +SKIP
        """
        return one_document.logs_of(self, key, since)

    def slowest(self, n: int = 10) -> Slowest:
        """Return the documents whose results took longest.

        Parameters
        ----------
        n : int, default 10
            How many.

        Returns
        -------
        Slowest
            A list, the slowest first; each has ``key``, ``seconds``, ``ordinal`` and ``consumer``.

        Raises
        ------
        BadOption
            `n` is below 1.

        Examples
        --------
        >>> run.slowest(3)  # doctest: +SKIP
        """
        return one_document.slowest(self, n)

    def spend(self) -> Spend:
        """Return what the calls of this run have spent, what all will have, and what holds the run back now.

        Calls say with `dqlab.spend` what they cost. What all documents will have spent is estimated once five have
        ended: from what they have cost so far, and the spread of the last 200 calls of each shard.

        Returns
        -------
        Spend
            With ``spent``, ``budget``, ``reserved``, ``unknown``, ``in_all``, ``lasts``, ``binds`` and ``history``.

        Examples
        --------
        >>> run.spend().binds  # doctest: +SKIP
        'the limit of tokens'
        """
        lanes = [shard.lane for shard in self._progress().shards]
        return spend_of([lane.spending for lane in lanes if lane.spending is not None], self.stats())

    def debug(self, key: str | int) -> Any:
        """Run a document here, in this process, and open a debugger at the line that raises.

        The function is the run's newest. In a notebook the debugger is IPython's, else Python's `pdb`; ``q`` leaves it.
        The run and its failures do not change.

        Parameters
        ----------
        key : str or int
            The key of a dead document, its message id, or its position as ``"#17"``; or of any document of the input,
            in the process that mapped it.

        Returns
        -------
        object
            What the function returned, or None after an exception.

        Raises
        ------
        BadOption
            There is no such document.
        RunError
            The queue no longer keeps the function.

        Examples
        --------
        >>> run.debug("inv-00777.pdf")  # doctest: +SKIP
        """
        return one_document.debug(self, key)

    def examples(self, fingerprint: str, limit: int = 5, *, timeout: float | None = None) -> list[DeadLetter]:
        """Return up to `limit` dead documents of the failure class with this fingerprint."""
        self._progress(timeout=timeout)  # only this call has a limit: it fails early if the queue does not answer
        return list(islice(self.failures().of([fingerprint]), limit))

    def _progress(self, *, wait: float = 0.0, covered: bool = False, timeout: float | None = None) -> Progress:
        watch = calls.WatchCall(self.id, wait, covered)
        found = Progress(self.handle.link.sync(self.handle.ask_all(watch, wait=wait), timeout=timeout))
        learn(found.record.options)  # documents of failures open here, even if another process has listed them
        return found

    @property
    def state(self) -> RunState:
        """What the run is doing, as one word."""
        return self.stats().state
