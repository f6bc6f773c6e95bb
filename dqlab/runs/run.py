"""A run: one mapping of a function over documents, with a name.

::

    RunViews    counts, statistics, failures
    └── RunWaits    wait, results, as_completed
        └── Run         pause, resume, cancel, retry, resubmit_lost, drop
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

from dqlab.cluster.isolation import isolation
from dqlab.cluster.ticket import Entry
from dqlab.errors import BadOption, RunCancelled
from dqlab.frame import Kind
from dqlab.losses import InputNotHere, InputUsedUp
from dqlab.queue.checks import check_count
from dqlab.runs.claiming import Claim
from dqlab.runs.failures import DeadLetter
from dqlab.runs.keywords import checks_keywords
from dqlab.runs.lost import repeats
from dqlab.runs.marks import mark, pausing
from dqlab.runs.resubmission import Resubmission, claim_of
from dqlab.runs.run_waits import RunWaits
from dqlab.runs.sealing import code_record, sealed_function
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

    def pause(self) -> Self:
        """Lease no more of this run; what runs now ends, the rest is given back."""
        return self._order("pause", by=pausing())

    def resume(self) -> Self:
        """Go on after `pause`."""
        return self._order("resume")

    def cancel(self) -> int:
        """Give up every document that has no result yet; return how many. Results that exist stay.

        Documents that are lost stay lost, and cannot be sent again.
        """
        if self.submitter is not None:
            self.submitter.stop(RunCancelled(run=self.name, cancelled=0, total=0, acked=0))
        progress = self._progress()
        complete = progress.done and not progress.counts.lost and progress.record["incomplete"] is None
        if not complete:
            self.handle.link.sync(self.handle.note(self.id, {"cancelled": True}))
        cancelled = self.handle.link.sync(self.handle.control("cancel", run=self.id))
        if not self._progress().cancelled:  # it has ended meanwhile
            self.handle.link.sync(self.handle.note(self.id, {"cancelled": False}))
        if self.submitter is not None:
            self.submitter.join()
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

        Raises
        ------
        NotPicklable
            The function cannot be sent.
        BadOption
            The expression is not one; or the run's messages run in processes, and `fn` is a coroutine function.
        """
        chosen = compile_where(where) if where is not None else None
        meta: dict[str, Any] = self._new_code(fn) if fn is not None else self._newest_code()
        count = 0
        ids: list[tuple[int, int]] = []
        ordinals: list[tuple[int, int]] = []
        for letter in self.failures():
            of_class = fingerprint is None or letter.fingerprint == fingerprint
            if of_class and (chosen is None or chosen(letter)):
                ids.append((letter.id, letter.id + 1))
                ordinals.append((letter.ordinal, letter.ordinal + 1))
        if ids and fn is not None:
            self.handle.link.sync(self.handle.note(self.id, dict(meta)))
        for at in range(0, len(ids), 5000):
            work = self.handle.control_ids(
                "retry", self.id, ids[at : at + 5000], ordinals=ordinals[at : at + 5000], **meta
            )
            count += self.handle.link.sync(work)
        if count:
            codes = self._progress().record["codes"]
            mark(self.handle.link, f"retry, {codes[-1]['name']} v{len(codes)}", self.queue)
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
        link, code = self.handle.link, self._newest_code()
        entry = Entry(Kind.ELEMENT, code["function"], code["blob"]) if code else submitter.sender.entry
        claim = Claim(link, claim_of(self.id))
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

    def _newest_code(self) -> dict[str, Any]:
        code = self._progress().record["codes"][-1]
        for shard in range(len(self.handle.refs)):  # one that was lost has lost its functions too
            meta, parts = self.handle.link.sync(self.handle.ask(shard, "function", {"hash": code["blob"]}))
            if meta["known"]:
                return {"function": code["blob"], "blob": bytes(parts[0]), "code": code}
        return {}

    def _order(self, op: str, *, by: str = "") -> Self:
        self.handle.link.sync(self.handle.control(op, run=self.id))
        mark(self.handle.link, op, self.queue, by=by)
        return self
