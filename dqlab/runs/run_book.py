"""`RunBook`: the runs of one lab by name, which start, attach and start over."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from dqlab.cluster.transport import calls, queue_calls
from dqlab.cluster.transport.orders import Code, Drop, Open, Reopen
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.reports import Progress
from dqlab.cluster.transport.sealed import blob_hash, with_settings
from dqlab.config import check_name
from dqlab.datasets.sinks import Sink, check_free, claim, let_go, same_sink, sink_of, target_of
from dqlab.documents import Documents, options_of
from dqlab.errors import (
    ActorGone,
    BadOption,
    CallTimeout,
    DqlabError,
    DqlabWarning,
    RunCancelled,
    RunError,
    RunExists,
    RunNotFound,
)
from dqlab.frame import Kind
from dqlab.keywords import meant
from dqlab.plan import Plan
from dqlab.rules.book import CodeRecord
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import Ranges
from dqlab.runs.code.sealing import (
    check_function,
    check_takes_one,
    code_record,
    keeping_plan,
    sealed_function,
    warn_of_scheme,
    warn_of_uncertain,
)
from dqlab.runs.code.versions import CodeVersion, same_scheme
from dqlab.runs.compare.accepting import take
from dqlab.runs.marks import mark, owner, tell
from dqlab.runs.run import Run
from dqlab.runs.submit.elements import as_mapped, repeats, tell_class, unit_of
from dqlab.runs.submit.mapping import Submitter
from dqlab.runs.submit.sampling import Drawn, SampleSubmitter, draw
from dqlab.runs.submit.sender import Entry, RunSender
from dqlab.runs.terms import RunTerms
from dqlab.runs.update.plan import UPDATED, Trust, UpdatePlan, plan_of
from dqlab.runs.update.updating import UpdateSender, UpdateSubmitter
from dqlab.runs.waiting import Deadline
from dqlab.user_frames import level_of_user
from dqlab.waits import shown

if TYPE_CHECKING:
    from dqlab.runs.pool import QueuePool
    from dqlab.runs.session import Session

NAMING, GIVING_BACK = 60.0, 1.0
"""Seconds that another client may take to start a run of the same name, and to wait until a claim of it is released."""
COMPARING = 2.0
"""Seconds that a `map` which retries failed documents waits for the comparison of the input before it returns."""
AT_ONCE = 0.5
"""Seconds that a `map` which attaches waits for the same; within them, `map` itself raises a difference."""
LOOKS_LEFT = 15
"""Looks at a submission that goes on after which the scheduler is asked whether a client still makes it."""
LISTED = 12
"""Runs that the error lists when a name is not found."""
NAMED = 5
"""Changed parts of a function that an error names one by one."""
CLOSING = 0.5
"""Seconds that all submissions to a closed queue together get to end."""
LANDING = 20.0
"""Seconds that puts in flight get to be refused after a refused one."""
LETTING_GO, LET_GO_FOR, LET_GO_EVERY, SOON = 1.0, 60.0, 0.5, 0.01
"""Seconds that an interrupted `map` waits for its run to be dropped, that its submission may then take to end in the
background, and between two attempts to cut a run off and two looks at the submission."""

_books: WeakValueDictionary[str, RunBook] = WeakValueDictionary()
"""The books of this process, by client."""


class NothingFailed(DqlabWarning):
    """`map` was to retry failed documents with other code, and no document has failed."""


@dataclass(frozen=True, eq=False)
class _Asked:
    """What one call of `map` asks for."""

    elements: Iterable[Any]
    entry: Entry
    code: CodeRecord
    version: CodeVersion
    on_existing: str
    terms: RunTerms
    rehearse: int | None
    planned: bool


class RunBook:
    """The runs that this lab knows, by name."""

    def __init__(self, session: Session) -> None:
        self._session, self._link = session, session.link
        self._runs: dict[str, Run] = {}
        # One `map` at a time. A claim of the name is taken before this lock: in the other order, a wait for another
        # client would block every name.
        self._lock = threading.RLock()
        _books[session.link.client.id] = self
        self.open_others: Callable[[str], None] = lambda name: None
        """Opens the remaining queues of the store when a name is not found."""
        self.elsewhere = ""
        """Hint for the error, with the process that holds the queues that could not be opened."""

    def __iter__(self) -> Any:
        return iter(list(self._runs.values()))

    def map(
        self,
        pool: QueuePool,
        fn: Callable[[Any], Any],
        documents: Iterable[Any],
        *,
        name: str | None,
        on_existing: str,
        terms: RunTerms,
        rehearse: int | None,
        serve: bool,
        cell: int | None,
        plan: Plan,
    ) -> Run:
        """Start a run or attach to one, as `QueuePool.map` describes."""
        check_function(fn)
        check_takes_one(fn, plan)
        elements = as_mapped(_iterable(documents))
        tell_class(elements)
        # Before the claim: pickling runs the user's code and may take long, while other clients wait for the name.
        hash, blob, version = sealed_function(fn, plan=plan)
        code = code_record(version, hash, planned=bool(plan)) | {
            "cell": cell if cell is not None else version.cell,
            "owner": owner(),
        }
        asked = _Asked(
            elements, Entry(Kind.ELEMENT, hash, blob), code, version, on_existing, terms, rehearse, bool(plan)
        )
        if name is not None:
            check_name(name, kind="run")
        if name is not None and on_existing == "update" and (found := self.find(name)) is not None:
            if serve:
                self._session.serve(pool)
            entry, code = _bringing(found.record()["options"], asked.entry, code)
            self._keep_current(found, elements, Code(entry.function, entry.blob, code), sink=terms.sink, waits=True)
            return found
        drawn: Drawn | None = None
        if rehearse and (name is None or on_existing == "new" or self.find(name) is None):
            # Before the lock, too: it reads the whole input.
            drawn = draw(elements, rehearse, options_of(elements))
            asked = replace(asked, elements=drawn.elements)
        with self._alone(name), self._lock:
            found = self.find(name) if name is not None else None
            if serve:
                self._session.serve(pool)
            if found is not None and on_existing != "new":
                run = self._again(found, asked)
                if on_existing == "attach":
                    warn_of_uncertain(found.name, version)
                return run
            if found is not None:
                if terms.sink is not None and (target := target_of(terms.sink)) is not None:
                    check_free(target, found.name, "")  # before the drop: a taken folder must not cost the old run
                self._as_it_is(found).drop()
            if rehearse and drawn is None:  # the run that was there has been dropped meanwhile
                drawn = draw(elements, rehearse, options_of(elements))
                asked = replace(asked, elements=drawn.elements)
            run = self._start(pool, name if name is not None else self._fresh_name(version.name), asked, drawn)
            mark(self._link, "submit", pool.name, cell=cell)
            return run

    def attach(self, name: str) -> Run:
        """Return the run of that name as it is, without later input under it, or raise `RunNotFound`."""
        run = self.named(name)
        mapped = run.submitter
        if mapped is None or not (mapped.undecided or isinstance(mapped.error, RunExists)):
            return run
        # A second object: the cell that mapped something else holds `run`, which must keep its difference.
        return self._known_as(run.name, run.id, run.handle)

    def named(self, name: str) -> Run:
        """Return the run of that name with any later input under it, or raise `RunNotFound` with the known names."""
        run = self.find(name)
        if run is None:
            known = sorted(self._known())
            known_here = _some_of(known) or ("none that can be seen from here" if self.elsewhere else "none")
            raise RunNotFound(run=name, hint=meant(name, known) + self.elsewhere + self._ended, known=known_here)
        self._served(run.queue)
        return run

    def _served(self, queue: str) -> QueuePool | None:
        """Return an open queue, with consumers: one that was opened again has none yet."""
        pool = self._session.pools.get(queue)
        if pool is not None and pool.served:
            self._session.serve(pool)
        return pool

    @property
    def _ended(self) -> str:
        """Hint for the error that runs of this lab last only as long as its process."""
        if not self._link.embedded or self._link.store:
            return ""
        return " This lab has no store, so runs that another process made have ended with it."

    def everything(self) -> list[Run]:
        """Return the runs of every queue that this lab has open, from all clients."""
        return list(self._known().values())

    def find(self, name: str) -> Run | None:
        """Return the run of that name if a queue knows it, opening the other queues of the store if none does."""
        before = self._runs.get(name)
        run = self._known(name).get(name)
        if run is None:
            self.open_others(name)
            run = self._known(name).get(name)
        if run is not None:
            self._runs[name] = run
        elif before is not None:
            self._dropped(before)
        return run

    def closed(self, pool: QueuePool) -> None:
        """Forget the runs of a closed queue."""
        runs = {name: run for name, run in list(self._runs.items()) if run.queue == pool.name}
        submitters = [run.submitter for run in runs.values() if run.submitter is not None]
        for submitter in submitters:
            submitter.stop(RunNotFound(run=submitter.name, hint=" Its queue was closed.", known="-"))
        until = time.monotonic() + CLOSING
        for submitter in submitters:  # bounded: a user's input may block its thread for any time
            submitter.join(max(0.0, until - time.monotonic()))
            submitter.leave()
        for name in runs:
            self._runs.pop(name, None)

    # --- inside -----------------------------------------------------------------------------

    @contextmanager
    def _alone(self, name: str | None) -> Iterator[None]:
        """Wait until no other client starts a run of that name, and keep others from it during the block."""
        if name is None:
            yield
            return
        scheduler, deadline = self._link.scheduler, time.monotonic() + NAMING
        claim: dict[str, Any] = {"what": f"name/{name}", "token": uuid.uuid4().hex}
        try:
            while not self._link.sync(scheduler("dq_claim", client=self._link.client.id, wait=1.0, **claim)):
                if time.monotonic() > deadline:
                    raise CallTimeout(name=f"run {name!r}, which another client starts,", call="map", seconds=NAMING)
            yield
        finally:
            # `start`, not `sync`: this also runs after Ctrl-C, when the scheduler may have granted the claim, and must
            # neither hang nor raise. If the scheduler cannot be reached, the claim ends with this client.
            with suppress(DqlabError, TimeoutError):
                self._link.start(scheduler("dq_disclaim", **claim)).result(GIVING_BACK)

    def _known(self, name: str | None = None) -> dict[str, Run]:
        """Return the runs of that name, or all runs, as this lab's queues know them."""
        # Runs of a queue that is gone stay: their objects explain what happened.
        runs = {own: run for own, run in list(self._runs.items()) if name is None or own == name}
        pools = list(self._session.pools.values())
        for pool, listed in zip(pools, self._link.sync(_listed(pools, name)), strict=True):
            if listed is None:
                continue
            there = {known: id for id, known in listed}
            for own, run in list(runs.items()):
                if run.queue == pool.name and there.get(own) != run.id:
                    del runs[own]  # another client has dropped the run, or has started it over
            new = {known: id for known, id in there.items() if known not in runs}
            for known, id in new.items():
                runs[known] = self._known_as(known, id, pool.handle)
        return runs

    def _dropped(self, run: Run) -> None:
        known = self._runs.get(run.name)
        if known is not None and known.id == run.id:
            del self._runs[run.name]

    def _fresh_name(self, function: str) -> str:
        stem = (
            "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in function).strip("-._")[:90]
            or "run"
        )
        while True:  # the scheduler may not know the newest runs of this lab yet
            name: str = self._link.sync(self._link.scheduler("dq_run_name", stem=stem))
            if name not in self._runs and name not in self._known(name):
                return name

    def _start(self, pool: QueuePool, name: str, asked: _Asked, drawn: Drawn | None) -> Run:
        given = asked.elements if drawn is None else drawn.given
        terms, options = asked.terms, options_of(given)
        entry, code = _bringing(options, asked.entry, asked.code)
        record: dict[str, Any] = {"name": name, "codes": [code], "client": self._link.client.id, **terms.record()}
        record |= {"options": options} if options else {}
        record |= {"unit": unit} if (unit := unit_of(given)) else {}
        opening = Open(uuid.uuid4().bytes, record, None if terms.retry is None else terms.retry.record())
        return self._begin(pool, opening, asked.elements, entry, drawn, terms.sink)

    def _begin(
        self,
        pool: QueuePool,
        opening: Open,
        elements: Iterable[Any],
        entry: Entry,
        drawn: Drawn | None = None,
        sink: Sink | None = None,
    ) -> Run:
        """Open a run, and submit its documents."""
        name, id = opening.record["name"], opening.run
        sender = self._sender(pool.handle.of_run(name), entry, opening, producer=id)
        run = self._known_as(name, id, pool.handle)
        if drawn is not None and drawn.asks:
            run.drawn = drawn
            submitter: Submitter = SampleSubmitter(name, drawn, sender, partial(self._go, run))
        else:
            submitter = Submitter(name, elements, sender)
        run.submitter = submitter
        store = pool.options.get("store", {}).get("directory", "")
        try:
            claimed = sink is not None and claim(sink, name, id.hex(), store)
        except KeyboardInterrupt:  # the folder may have been claimed, and this run will never be
            _unclaim(sink, id)
            raise
        try:
            # Before the shards know the run: `_is_left` cuts off an open run that this process does not submit.
            self._runs[name] = run
            self._link.sync(pool.handle.order(opening))
            self._runs[name] = run  # again: a `find` of this name may have found no shard with the run, and removed it
            submitter.start()
        except BaseException:  # Ctrl-C, or a shard out of reach: nobody would ever submit the run, so drop it
            self._dropped(run)
            submitter.stop(RunNotFound(run=name, hint=" It was interrupted.", known="-"))
            self._let_go(pool.handle, id, submitter)
            if claimed:
                _unclaim(sink, id)
            raise
        return run

    def _known_as(self, name: str, id: bytes, handle: Handle, submitter: Submitter | None = None) -> Run:
        return Run(name, id, handle, submitter, self._dropped, self._beside, updates=self._keep_current)

    def _beside(self, run: Run, code: Code, elements: list[Any]) -> Run:
        """Start a run of other code over some documents, on the terms of a run but without its sink."""
        pool = self._served(run.queue)
        if pool is None:
            raise RunNotFound(run=run.name, hint=" Its queue was closed.", known="-")
        answer, _ = self._link.sync(run.handle.ask(0, calls.OpeningCall(run.id)))
        # It never pauses itself: that all of a sample fails is what a comparison is to say.
        left_out = ("sink", "stop_if", "stop_despite")
        record = {part: value for part, value in answer.record.items() if part not in left_out}
        with self._lock:
            name = self._fresh_name(f"{run.name}-compare")
            record |= {"name": name, "codes": [code.code], "client": self._link.client.id}
            entry = Entry(Kind.ELEMENT, code.function, code.blob)
            return self._begin(pool, Open(uuid.uuid4().bytes, record, answer.retry), elements, entry)

    def _keep_current(
        self,
        run: Run,
        given: Iterable[Any] | UpdatePlan,
        code: Code,
        *,
        sink: Sink | None = None,
        trust: Trust = "version",
        keep_gone: bool = False,
        waits: bool = False,
    ) -> None:
        """Update a run from a plan, or from an input, if `waits` after the end of what the run still does."""
        if isinstance(given, UpdatePlan):
            if not self._update(run, given, code):
                reason = "it has got other documents since the plan was made. Nothing changed. Make another one."
                raise RunError(run=run.name, reason=reason)
            return
        while True:
            progress = run._progress(covered=True)
            if not (progress.sealed or self._submits(run.id)):
                progress = self._cut_off(run, progress)
            if waits and (progress.counts.left or not progress.sealed):  # another client updates it, or did until now
                with run._wait.interruptible(), shown(run):
                    run._wait.settled(Deadline(None), lambda progress: None)
                progress = run._progress(covered=True)
                if progress.cancelled:
                    raise RunError(run=run.name, reason="it was cancelled while this update waited. Nothing changed.")
            _check_sink(run.name, progress.record.sink, sink)
            plan = plan_of(run, given, progress, code=code.code, trust=trust, keep_gone=keep_gone)
            if self._update(run, plan, code):  # else another client has updated it meanwhile
                return

    def _update(self, run: Run, plan: UpdatePlan, code: Code) -> bool:
        """Carry out a plan, and return whether it was: not if the run's input is another one since."""
        self._served(run.queue)
        with self._alone(run.name), self._lock:
            progress = run._progress(covered=True)
            if not progress.sealed or progress.record.input.digest != plan.digest:
                return False
            same = plan.again > 0 and plan.only_again and progress.incomplete is None
            run.updated = run.updated if same else plan
            if plan.empty and progress.incomplete is None:  # else the input of an update that was cut off ends here
                return True
            take(run, code, progress)
            opening = Open(run.id, progress.record.opening())
            sender = self._sender(run.handle, Entry(Kind.ELEMENT, code.function, code.blob), opening, kind=UpdateSender)
            assert isinstance(sender, UpdateSender), "as it was asked for"
            reopen = Reopen(run.id, self._link.client.id, sender.producer, redo=True, gone=list(plan.gone_at))
            self._link.sync(run.handle.order(reopen))
            progress = run._progress(covered=True)
            sender.put_back(progress, [ordinal for ordinal, _ in plan.changed])
            documents = [*(document for _, document in plan.changed), *plan.new]
            run.at_end = None
            record = progress.record.input if same else f"{UPDATED}{uuid.uuid4().hex}"
            run.submitter = UpdateSubmitter(run.name, plan.input, documents, sender, record)
            run.submitter.start()
            self._runs[run.name] = run  # another object of it may still have the input that was refused
        mark(self._link, f"redo {plan.again:,}" if same else "update", run.queue)
        tell(run, "" if same else f"updating: {plan.summary}")
        return True

    def _let_go(self, handle: Handle, run: bytes, submitter: Submitter) -> None:
        """Drop a run that was not started, in the background if its shards are out of reach."""

        async def let_go() -> None:
            deadline = time.monotonic() + LET_GO_FOR
            # Not before the submitter ends: its frames on their way would open the dropped run again.
            while submitter.began and not submitter.finished.is_set() and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(SOON)
            await handle.order(Drop(run))

        # If no shard takes it, the run stays without a submitter, and the next `map` of its name cuts it off.
        with suppress(DqlabError, TimeoutError):
            self._link.start(let_go()).result(LETTING_GO)

    def _submits(self, run: bytes) -> bool:
        """Return whether this lab is submitting a run."""
        submitters = [mine.submitter for mine in list(self._runs.values()) if mine.id == run]
        return any(submitter is not None and submitter.sending for submitter in submitters)

    def _is_left(self, run: bytes, progress: Progress) -> bool:
        """Return whether this process has opened a run that it does not submit, as after an interrupted `map`."""
        book = _books.get(progress.record.client)
        return book is not None and not book._submits(run)

    def _cut_off(self, run: Run, progress: Progress) -> Progress:
        """Seal a run that no client submits any more, and return its progress afterwards."""
        # Repeatedly: the scheduler skips a shard that is moving to another worker at that moment.
        deadline = time.monotonic() + LANDING
        while True:
            left = self._seal_left(run, progress)
            progress = run._progress(covered=True)
            if progress.sealed or not left or time.monotonic() > deadline:
                return progress
            time.sleep(LET_GO_EVERY)

    def _seal_left(self, run: Run, progress: Progress) -> bool:
        """Seal a run that no client submits any more, and return whether this process is the one that left it."""
        left = self._is_left(run.id, progress)
        self._link.sync(self._link.scheduler("dq_cut_off", queue=run.queue, run=run.id if left else None))
        return left

    def _again(self, run: Run, asked: _Asked) -> Run:
        """Attach to an existing run after checking that code, sink and documents are the same."""
        retries, elements = asked.on_existing == "retry-failed", asked.elements
        if run.submitter is not None:
            # With an error until it has recorded where the input ended, which `progress` needs. Most others are short,
            # and then the inputs are compared at once.
            run.submitter.join(AT_ONCE if run.submitter.error is None else LANDING)
        progress = run._progress(covered=True)
        sending = run.submitter is not None and run.submitter.sending
        if not progress.sealed and not sending:
            # Another client submits the run. If that client is gone or was interrupted, this one continues.
            progress = self._cut_off(run, progress)
        record = progress.record
        codes = record.codes
        entry, code = asked.entry, asked.code
        if retries and not asked.planned and "planned" in codes[-1]:  # new code keeps the plan of the newest
            known = self._link.sync(queue_calls.newest_code(run.handle, run.id))
            blob, version = keeping_plan(entry.blob, asked.version, known)
            entry = Entry(Kind.ELEMENT, blob_hash(blob), blob)
            code = code | code_record(version, entry.function, planned=True)
        entry, code = _bringing(record.options, entry, code)
        _check_sink(run.name, record.sink, asked.terms.sink)
        if not retries:
            # Any version will do: a cell with the function that a retry has replaced since must still attach. But what
            # is put from now on runs the newest version.
            _check_code(run.name, asked.version, codes)
            if codes[-1]["hash"] != code["hash"] and not progress.complete:  # a complete run keeps no functions
                newest = self._link.sync(queue_calls.newest_code(run.handle, run.id))
                entry = Entry(Kind.ELEMENT, newest.function, newest.blob)
        # Keep the pickled function, not `fn`: names that it uses may get other values until the input is compared.
        given = Code(entry.function, entry.blob, code)
        then = (lambda: run._send_through(given)) if retries else None
        former = run.submitter
        if former is not None and former.elements is elements and not (repeats(elements) or former.finished.is_set()):
            if then is not None:  # the same iterator, which a thread already reads: there is nothing to compare
                then()
            return run
        sender = self._sender(run.handle, entry, Open(run.id, record.opening()))
        if sending or not progress.sealed:
            return self._meanwhile(run, elements, sender, retries=retries)
        if retries:
            _tell_nothing_failed(run.name, progress, code["hash"])
        cut_off = progress.incomplete is not None and not progress.cancelled
        before = _holding(sender, progress)
        rest = self._unless_asked(run, asked, sender, before, progress, then) if cut_off else elements
        if rest is None:
            return run
        run.submitter = Submitter(run.name, rest, sender, before=before, verify=not cut_off, reopen=cut_off, then=then)
        run.submitter.start()
        # Within this time most inputs are compared, so that the caller sees the difference, or what was retried.
        run.submitter.join(COMPARING if retries else AT_ONCE)
        error = run.submitter.error
        if isinstance(error, RunExists):
            run.submitter = former  # variables of earlier cells hold this object: it stays the run that they mapped
            self._as_it_is(run)
            raise copy(error)  # raising the kept error itself would add a traceback to it each time
        return run

    def _sender(
        self, handle: Handle, entry: Entry, opening: Open, producer: bytes = b"", kind: type[RunSender] = RunSender
    ) -> RunSender:
        """Return what puts documents of a run."""
        pool = self._session.pools.get(handle.name)
        bounds = {} if pool is None else {name: pool.options[name] for name in ("maxsize", "max_bytes")}
        named = producer or uuid.uuid4().bytes
        return kind(handle, entry, run=opening.run, producer=named, opening=opening, **bounds)

    def _unless_asked(
        self,
        run: Run,
        asked: _Asked,
        sender: RunSender,
        before: Submitted,
        progress: Progress,
        then: Callable[[], object] | None,
    ) -> Iterable[Any] | None:
        """Return the input to go on with, or None if the sample alone of a run was submitted, which asks again."""
        elements, rehearse = asked.elements, asked.rehearse
        if rehearse == 0 or not (rehearse or progress.rehearsed):
            return elements
        former = run.submitter
        if isinstance(former, SampleSubmitter) and former.drawn.given is elements and not repeats(elements):
            return None  # an iterator: drawn from again, it would lose what follows
        drawn = draw(elements, max(rehearse or 0, Ranges(before.held).size), progress.record.options)
        if not (drawn.asks and drawn.contains(before)):
            if progress.rehearsed:
                raise RunExists(run=run.name, difference="other documents")
            return drawn.elements  # all of the sample was submitted, and some of the rest
        self._try(run, drawn, sender, progress, then)
        return None

    def _try(
        self,
        run: Run,
        drawn: Drawn,
        sender: RunSender,
        progress: Progress,
        then: Callable[[], object] | None = None,
    ) -> None:
        """Submit what a queue lacks of a sample."""
        whole = progress.rehearsed and not drawn.missing(sender.held)
        run.drawn = drawn
        run.submitter = SampleSubmitter(
            run.name, drawn, sender, partial(self._go, run), reopen=not whole, verify=whole, then=then
        )
        run.submitter.start()
        run.submitter.join(AT_ONCE)

    def _go(self, run: Run, more: int = 0) -> None:
        """Submit what follows the sample of a run, or a larger sample, unless another client does."""
        asked = run.submitter
        assert isinstance(asked, SampleSubmitter), "only such a run waits for it"
        asked.join(LANDING)
        drawn, elements = asked.drawn, asked.elements
        if more or type(elements) is Documents:
            # Listed again, and compared before anything is put: files may have come while the run waited.
            drawn = draw(elements, max(more, len(drawn.sample.picks)), options_of(drawn.given))
            elements = drawn.elements
            asked.elements = elements  # drawing has taken more of an iterator
            drawn = replace(drawn, given=asked.drawn.given)
        with self._alone(run.name), self._lock:
            progress = run._progress(covered=True)
            if not progress.rehearsed:
                return
            code = progress.record.codes[-1]
            entry = asked.sender.entry
            if code["blob"] != entry.function:  # the sample was retried with newer code, which is that of the rest
                newest = self._link.sync(queue_calls.newest_code(run.handle, run.id))
                entry = Entry(Kind.ELEMENT, newest.function, newest.blob)
            sender = self._sender(run.handle, entry, Open(run.id, progress.record.opening()))
            before = _holding(sender, progress)
            if not drawn.contains(before) or asked.drawn.sample.total not in (None, drawn.sample.total):
                raise RunExists(run=run.name, difference="other documents")
            if more and drawn.asks:
                self._try(run, drawn, sender, progress)
                return
            run.submitter = Submitter(run.name, elements, sender, before=before, reopen=True)
            run.submitter.start()
        mark(self._link, "go", run.queue)

    def _meanwhile(self, run: Run, elements: Iterable[Any], sender: RunSender, *, retries: bool) -> Run:
        """Attach to a run that is still being submitted, and compare the input once that has ended."""
        if retries:
            steps = (
                f"Map it again after its end, or retry what has failed so far: lab.attach({run.name!r}).retry(fn=...)."
            )
            raise RunExists(run=run.name, difference="an input that is still being submitted", steps=steps)
        looks = count(1)

        def put() -> Submitted | None:
            try:
                progress = run._progress(covered=True)
                if not progress.sealed and next(looks) % LOOKS_LEFT == 0:
                    self._seal_left(run, progress)
            except CallTimeout:  # a shard is being recreated; the next look asks again
                return None
            if progress.cancelled:
                counts = progress.counts
                raise RunCancelled(run=run.name, cancelled=counts.cancelled, total=counts.all, acked=counts.acked)
            if not progress.sealed:
                return None
            # These documents may go on where the run was cut off, so that they agree so far proves nothing.
            if (cut_off := progress.cut_off(run.name)) is not None:
                raise cut_off
            return progress.record.input.extended(progress.came)

        # A second object: the first one has the submission, and keeps it.
        submitter = Submitter(run.name, elements, sender, verify=True, earlier=put)
        again = self._known_as(run.name, run.id, run.handle, submitter)
        submitter.start()
        return again

    def _as_it_is(self, run: Run) -> Run:
        """Remove from a run the difference to documents that were mapped under its name later, and return it."""
        submitter = run.submitter
        if submitter is not None and (submitter.undecided or isinstance(submitter.error, RunExists)):
            later = RunExists(run=run.name, difference="documents that were mapped later")
            submitter.stop(later)
            run.submitter = None
        return run


def _bringing(options: Sequence[str], entry: Entry, code: CodeRecord) -> tuple[Entry, CodeRecord]:
    """Add to a function the storage options with which the documents of its run are opened."""
    if not options:
        return entry, code
    blob = with_settings(entry.blob, options=list(options))
    return Entry(entry.kind, blob_hash(blob), blob), code | {"blob": blob_hash(blob)}


def _holding(sender: RunSender, progress: Progress) -> Submitted:
    """Make a sender continue after what the queue holds of an input, and return that."""
    before = progress.record.input.extended(progress.came)
    sender.go_on([counts.all for counts in progress.by_shard], before.held)
    return before


def _tell_nothing_failed(run: str, progress: Progress, code: str) -> None:
    """Warn that no document has failed, so that a retry with other code runs nothing."""
    codes = progress.record.codes
    if not progress.complete or progress.counts.dead or any(each["hash"] == code for each in codes):
        return
    made = f"{codes[-1]['name']} v{len(codes)}"
    warnings.warn(
        f"no document of run {run!r} failed, so nothing runs with the code of this function: its results are those of "
        f"{made}. on_existing='new' drops them and runs all documents with this code; another name= keeps them.",
        NothingFailed,
        stacklevel=level_of_user(),
    )


def _unclaim(sink: Sink | None, id: bytes) -> None:
    """Give the folder of a sink back that a run claimed and never wrote to."""
    if sink is not None:
        with suppress(OSError):
            let_go(sink, id.hex())


def _check_sink(run: str, there: dict[str, Any] | None, sink: Sink | None) -> None:
    """Raise `RunExists` for a sink that differs from the run's sink; None stands for that sink."""
    if sink is not None and not same_sink(there, sink.record()):
        has = "no sink" if there is None else str(sink_of(there))
        raise RunExists(run=run, difference=f"another sink ({has}, and these rows are for {sink})")


def _check_code(run: str, version: CodeVersion, codes: list[CodeRecord]) -> None:
    """Raise RunExists if a run has no version with this code, and warn if that cannot be compared."""
    if any(code["hash"] == version.hash for code in codes):
        return
    earlier = [code["source"] for code in codes if not same_scheme(code["hash"], version.hash)]
    if version.source is None or version.source not in earlier:
        raise RunExists(run=run, difference=_difference(version, codes[-1]), other_code=True)
    warn_of_scheme(run, version.name)


def _difference(code: CodeVersion, newest: CodeRecord) -> str:
    """Describe in a few words how a function differs from the newest version of a run."""
    changed = code.changed_since(newest.get("parts") or {}) if same_scheme(code.hash, newest["hash"]) else []
    if not changed or changed == [f"code of {code.name}"]:
        return f"other code ({newest['name']})"
    named = ", ".join(changed[:NAMED]) + (f" and {len(changed) - NAMED} more" if len(changed) > NAMED else "")
    return f"other code ({newest['name']}; changed: {named})"


def _iterable(documents: Any) -> Iterable[Any]:
    try:
        # Call iter() only where it is needed, since some inputs can be iterated only once. An array without dimensions
        # has __iter__ and cannot be iterated.
        if not isinstance(documents, Iterable) or getattr(documents, "ndim", None) == 0:
            iter(documents)
    except TypeError:
        raise BadOption(
            option="documents", value=documents, problem="cannot be iterated. Pass a list, a generator or dq.Documents."
        ) from None
    given: Iterable[Any] = documents
    return given


def _some_of(names: list[str]) -> str:
    """Format a few names and the number of the others."""
    more = f", and {len(names) - LISTED} more (lab.all_runs() has all)" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more


async def _listed(pools: Sequence[QueuePool], name: str | None) -> list[list[tuple[bytes, str]] | None]:
    """Return (id, name) of the runs of that name, or of all runs, for each queue, or None for a queue that is gone."""

    async def of(pool: QueuePool) -> list[tuple[bytes, str]] | None:
        try:
            answer, _ = await pool.handle.ask(0, calls.RunsCall(name))
        except ActorGone:
            return None
        return answer.runs

    return await asyncio.gather(*map(of, pools))
