"""A run: one mapping of a function over documents, with a name.

::

    RunViews    counts, statistics, failures
    └── RunWaits    wait, results, as_completed
        └── Run         pause, resume, cancel, retry, resubmit_lost, drop
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, Self

from dqlab.cluster.consumer.running.isolation import isolation
from dqlab.cluster.transport import run_orders
from dqlab.errors import BadOption, InputNotHere, InputUsedUp, RunCancelled, RunExists
from dqlab.frame import Kind
from dqlab.rules.checks import check_count
from dqlab.runs.claiming import Claim
from dqlab.runs.code.sealing import code_record, sealed_function
from dqlab.runs.code.versions import code_version
from dqlab.runs.failures import DeadLetter
from dqlab.runs.keywords import checks_keywords
from dqlab.runs.lost import repeats
from dqlab.runs.marks import mark, pausing
from dqlab.runs.run_waits import RunWaits
from dqlab.runs.submit.resubmission import Resubmission, claim_of
from dqlab.runs.submit.ticket import Entry
from dqlab.runs.where import compile_where

__all__ = ["Run"]


class Run(RunWaits):
    """One mapping of a function over documents. Made by `map`, found again by `attach`.

    Nothing here blocks except `wait`, `results` and iterating `as_completed`.

    Attributes
    ----------
    name : str
        Unique in its lab.
    id : bytes
        The lane's id.
    """

    @property
    def widget(self) -> Any:
        """A live view of this run as a widget, to be placed in a layout: ``VBox([run.widget, mine])``.

        The same one each time; ``widget.close()`` ends it.

        Raises
        ------
        ImportError
            The package anywidget is not installed; ``pip install 'dqlab[lab]'``.
        """
        return import_module("dqlab.live.display").widget_of(self)

    def pause(self) -> Self:
        """Lease no more of this run; what runs now ends, the rest is given back."""
        return self._order("pause", by=pausing())

    def resume(self) -> Self:
        """Go on after `pause`."""
        return self._order("resume")

    def cancel(self) -> int:
        """Give up every document that has no result yet; return how many. Results that exist stay.

        Documents that are lost stay lost, and cannot be sent again. An input that is slow to give its next element is
        not waited for: what it gives later is not sent.
        """
        if self.submitter is not None:
            self.submitter.stop(RunCancelled(run=self.name, cancelled=0, total=0, acked=0))
        self._progress()  # says what became of a run that was dropped
        cancelled = self.handle.link.sync(run_orders.cancel(self.handle, self.id))
        if self.submitter is not None:
            self.submitter.end()
        mark(self.handle.link, "cancel", self.queue)
        return cancelled

    def drop(self) -> None:
        """Cancel what is left and forget the run, its results and failures; frees their space."""
        self.cancel()
        self.handle.link.sync(self.handle.note(self.id, None))
        self.handle.link.sync(self.handle.control("drop", run=self.id))
        self.on_drop(self)

    def scale(self, n: int | Literal["auto"]) -> None:
        """Have this many consumers on the run's queue; see `QueuePool.scale`.

        Raises
        ------
        BadOption
            Something else, or a number below 1; or the queue's consumers are those of a `ConsumerPool`.
        """
        if n != "auto":
            check_count("n", n)
        link, number = self.handle.link, None if n == "auto" else n
        if link.sync(link.scheduler("dq_scale", service=self.queue, n=number)) is None:
            problem = "changes nothing: the consumers of its queue are those of a ConsumerPool; scale that."
            raise BadOption(option="n", value=n, problem=problem)
        mark(link, f"scale {n}", self.queue)

    @checks_keywords
    def retry(
        self,
        fn: Callable[..., Any] | None = None,
        where: str | Callable[[DeadLetter], bool] | None = None,
        *,
        fingerprint: str | None = None,
        rest: bool = False,
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
        fingerprint : str, optional
            Only those of this failure class.
        rest : bool, default False
            Give `fn` also to the documents that have no result yet, while the run goes on: those that wait and those
            that are not submitted yet. What runs now ends with the code that it began with. A run that paused itself
            because everything failed (`stop_if` of `map`) goes on, and gives `fn` to its rest in any case. A run that
            is done has no rest, and keeps its code.

        Raises
        ------
        NotPicklable
            The function cannot be sent.
        CodeGone
            No `fn`, and the run's newest code is kept nowhere any more. Nothing was sent.
        BadOption
            `rest` without `fn`; the expression is not one; or the run's messages run in processes, and `fn` is a
            coroutine function.
        """
        chosen = compile_where(where) if where is not None else None
        code = self._new_code(fn) if fn is not None else None
        classes = [] if fingerprint is None else [fingerprint]
        if rest and code is None:
            raise BadOption(option="rest", value=rest, problem="gives the rest of the run the code of fn=; pass that.")
        # A run that is done would count this code as its own, though no result is of it.
        if rest and code is not None and not self._progress().complete:
            self.handle.link.sync(run_orders.adopt(self.handle, self.id, code))
        if chosen is None:
            count = self.handle.link.sync(run_orders.retry(self.handle, self.id, code, classes=classes))
        else:
            count = self._retry_chosen(chosen, classes, code)
        if count:
            codes = self._progress().record["codes"]
            mark(self.handle.link, f"retry, {codes[-1]['name']} v{len(codes)}", self.queue)
        return count

    def undecided(self, fn: Callable[..., Any], error: RunExists) -> Run:
        """Return this run as it is seen by somebody who has mapped other code under its name, and has yet to choose.

        Its `wait` and `results` raise `error` until the run has the code of `fn`: they would be those of other code.
        """
        asked = Run(self.name, self.id, self.handle, self.submitter, self.on_drop)
        asked.doubt = code_version(fn).hash, error
        return asked

    def _retry_chosen(
        self, chosen: Callable[[DeadLetter], bool], classes: list[str], code: dict[str, Any] | None
    ) -> int:
        """Send through again those dead documents, perhaps of some failure classes, that a filter chooses."""
        count = 0
        letters = [letter for letter in self.failures().of(classes) if chosen(letter)]
        ids = [(letter.id, letter.id + 1) for letter in letters]
        ordinals = [(letter.ordinal, letter.ordinal + 1) for letter in letters]
        if not ids:
            return 0
        if code is None:
            code = self.handle.link.sync(run_orders.newest_code(self.handle, self.id))
        else:
            self.handle.link.sync(run_orders.teach(self.handle, self.id, code))
        for at in range(0, len(ids), run_orders.AT_ONCE):
            part = slice(at, at + run_orders.AT_ONCE)
            work = self.handle.control_ids("retry", self.id, ids[part], ordinals=ordinals[part], **code)
            count += self.handle.link.sync(work)
        return count

    def resubmit_lost(self) -> int:
        """Send lost documents through again, under their ordinals and with the run's newest code; return how many.

        Returns at once: the input is read again in the background, after a submission that is still under way, and
        `wait` and `results` wait for the end of that. Nothing is sent when nothing is lost, or while another client
        sends it. May be called again when more is lost.

        Raises
        ------
        InputUsedUp
            The documents came from an iterator, which gives them once.
        InputNotHere
            They were mapped by another process: map them again under the run's name, then call this.
        RunCancelled
            The run was cancelled.
        """
        with self._resubmitting:
            return self._resubmit_lost()

    def _resubmit_lost(self) -> int:
        progress, submitter = self._progress(), self.submitter
        count = progress.counts.lost
        if not count:
            if isinstance(submitter, Resubmission) and submitter.finished.is_set():
                self.submitter = submitter.source  # whatever kept it from sending is over
            return 0
        if progress.cancelled:
            raise self._cancelled(progress)
        if submitter is None:
            raise InputNotHere(run=self.name, lost=count)
        if not repeats(submitter.elements):
            raise InputUsedUp(run=self.name, kind=type(submitter.elements).__name__, lost=count)
        entry = submitter.sender.entry
        if entry.function != progress.record["codes"][-1]["blob"]:
            code = self.handle.link.sync(run_orders.newest_code(self.handle, self.id))
            entry = Entry(Kind.ELEMENT, code["function"], code["blob"])
        claim = Claim(self.handle.link, claim_of(self.id))
        if claim.take():
            try:
                again = Resubmission(submitter, entry, self._lost_by_shard, claim)
                again.start()
            except BaseException:
                claim.give_back()
                raise
            self.submitter = again
        return count

    def _lost_by_shard(self) -> tuple[list[tuple[int, int]], list[int]]:
        progress = self._progress(covered=True)
        return progress.lost, [counts.lost for counts in progress.by_shard]

    def _new_code(self, fn: Callable[..., Any]) -> dict[str, Any]:
        if self._progress().record["process"] is not None:
            isolation("process", fn)
        hash, blob, version = sealed_function(fn)
        return {"function": hash, "blob": blob, "code": code_record(version, hash)}

    def _order(self, op: str, *, by: str = "") -> Self:
        self.handle.link.sync(self.handle.control(op, run=self.id))
        mark(self.handle.link, op, self.queue, by=by)
        return self
