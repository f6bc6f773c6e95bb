"""`QueuePool`: a named queue as the object that users hold."""

from __future__ import annotations

import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from dqlab.clock import SystemClock
from dqlab.cluster.consumer.actor import Message
from dqlab.cluster.transport import calls, queue_calls
from dqlab.cluster.transport.isolation import Executor, is_coroutine, isolation, needs_of
from dqlab.cluster.transport.orders import ORDERS, Forget, purged_state
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.reports import FRESH
from dqlab.cluster.transport.sealed import seal_or_explain
from dqlab.config import check_count, check_directory, check_name, option, seconds, seconds_or_none
from dqlab.datasets.schemas import declared
from dqlab.datasets.sinks import Files, OwnSink, Parquet, as_sink
from dqlab.documents import labelled, parsed_natively
from dqlab.documents.sources import misread
from dqlab.errors import BadOption, DqlabError, DqlabWarning, QueueClosed, UsageError
from dqlab.frame import NO_ID, Kind
from dqlab.keywords import KeepsAttributes, SuggestsAttributes
from dqlab.numbers import many
from dqlab.plan import AUTO, Batch, called, planned
from dqlab.rules.budget import as_stop
from dqlab.rules.flow import FlowTerms
from dqlab.rules.ranges import END
from dqlab.rules.retry import Retry, as_retry
from dqlab.rules.states import State
from dqlab.runs.failures import Failures
from dqlab.runs.marks import mark, pausing
from dqlab.runs.objects import HasWidget, StaysHere
from dqlab.runs.puts import PlainPuts, PutResult
from dqlab.runs.queue_rows import Timeline, UnackedLeases, leases_of
from dqlab.runs.run import Run
from dqlab.runs.session import CONCURRENCY, Durability, Session, consumer_options, queue_options, warn_of_kept
from dqlab.runs.submit.sender import CONFIRM_WAIT
from dqlab.runs.terms import BudgetOption, Concurrency, LimitOption, RunTerms, flow_terms, share_of
from dqlab.stats import History, QueueStats, Snapshot
from dqlab.store.values import Compacted
from dqlab.user_frames import level_of_user
from dqlab.waits import shown

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class ShardView:
    """One shard of a queue; every method calls the shard.

    Attributes
    ----------
    index : int
        The shard's number, from 0.
    """

    handle: Handle
    index: int

    def __repr__(self) -> str:
        return f"<shard {self.index} of queue {self.handle.name!r}>"

    def stats(self) -> dict[str, Any]:
        """Return the totals that the shard reports to the scheduler, with counts by lane."""
        report, _ = self.handle.link.sync(self.handle.ask(self.index, calls.StatsCall()))
        return report.to_wire()

    def qsize(self) -> int:
        """Return how many messages are ready, delayed or leased."""
        return sum(sum(lane["counts"][state] for state in State if state.alive) for lane in self.stats()["lanes"])

    def empty(self) -> bool:
        """Return whether no message is ready, delayed or leased."""
        return self.qsize() == 0


OnExisting = Literal["attach", "new", "retry-failed", "update"]


_FOR_COROUTINES = (
    "queue {0!r} has concurrency={1}, which is for coroutine functions: of this function, a plain "
    "one, each consumer has one call at a time. lab.queue({0!r}).scale({1}) gives the queue {1} "
    "consumers"
)
_AUTO_BATCH = 64
"""Documents of a batch as "auto" has chosen it, roughly."""


class QueuePool(HasWidget, StaysHere, KeepsAttributes, SuggestsAttributes):
    """A named queue over one or more shards, made by `lab.queue` or by the ancestor's constructor.

    ``len(pool)`` is the number of shards, and ``pool[i]`` is one of them; `counts` and `get_queue_size` return how many
    messages wait and run.

    Parameters
    ----------
    client : Client
        A synchronous Dask client; dqlab installs itself on its cluster.
    n_queues : int, default 1
        Number of shards, each an actor, at most 16; it never changes.
    durability : Durability, default TRANSIENT
        DURABLE: confirmed messages are on disk; opening a queue of the same name in the same `dirpath` recovers them.
    ack_timeout : float or str, optional
        The ancestor's name for `visibility_timeout`.
    retry : bool, int or Retry, optional
        False: no retries. True or None: 3, from 1 s on. A number is a number of retries; a `Retry` sets the details.
    name : str, optional
        Default: generated. If a queue of that name is open, this object attaches to it.
    visibility_timeout : float or str, default "60s"
        How long a delivered message is leased; renewed while its executor lives.
    max_deliveries : int, default 5
        How often the worker of a message may die, or its lease may expire, while the message runs as a suspect in that
        worker, before the message is dead. Only `retry` limits exceptions.
    maxsize : int or None
        Maximum messages in one lane. Default None here (put everything, then start), and 100,000 for `lab.queue`.
    max_bytes : int, str or None, default "1 GiB"
        The same in bytes.
    served : bool, default False
        Start consumers automatically, one on each consumer worker (as `lab.queue` does). Otherwise only a
        `ConsumerPool`, or `map`, starts consumers.
    early_ack : bool, default False
        At most once, for the queue's own consumers: a message that was handed to a function is never delivered again.
    concurrency : int, default 100
        Concurrent calls of coroutine functions on each of the queue's own consumers. Of a plain
        function each consumer has one call at a time; `scale` sets the number of consumers.
    dirpath : path, optional
        With DURABLE: the store, a directory that all workers can reach; the queue has a subdirectory in it.

    Raises
    ------
    BadOption
        The name or an option is invalid.
    VersionMismatch
        The cluster runs another version of dqlab, or an older Dask than dqlab needs.

    Warns
    -----
    DqlabWarning
        A queue of that name is open, or in the store, and an option that you passed has another value there.
    """

    _way_out = "return what is to be put next, and put that here"

    def __init__(
        self,
        client: Client,
        n_queues: int = 1,
        durability: Durability = Durability.TRANSIENT,
        ack_timeout: float | str | None = None,
        retry: bool | int | Retry | None = None,  # noqa: FBT001 - the ancestor's signature
        *,
        name: str | None = None,
        visibility_timeout: float | str | None = None,
        max_deliveries: int | None = None,
        maxsize: int | None = None,
        max_bytes: int | str | None = None,
        served: bool = False,
        early_ack: bool = False,
        concurrency: int = CONCURRENCY,
        dirpath: str | os.PathLike[str] | None = None,
    ) -> None:
        check_count("concurrency", concurrency)
        self.session = Session.of(client)
        self.durability = Durability(durability)
        self.name = check_name(name, kind="queue") if name is not None else f"queue-{uuid.uuid4().hex[:8]}"
        given: dict[str, Any] = {
            "visibility_timeout": visibility_timeout if visibility_timeout is not None else ack_timeout,
            "max_deliveries": max_deliveries,
            "retry": retry,
            "maxsize": maxsize,
            "max_bytes": max_bytes,
        }
        asked = queue_options(**given, store=self._store_in(dirpath))
        self.handle, self.options = self.session.open_queue(self.name, n_queues, asked)
        self.served = served
        self.consumer_options = consumer_options(early=early_ack, concurrency=concurrency)
        bounds, serve = (self.options["maxsize"], self.options["max_bytes"]), self._serve_again if served else None
        self._puts = PlainPuts(self.handle, *bounds, forgets=served, serve=serve)
        self._closed = False
        self.session.pools[self.name] = self
        given |= {"n_queues": n_queues} if n_queues != 1 else {}
        if maxsize == option("queue.maxsize"):  # as `Lab.queue` gives it by itself
            del given["maxsize"]
        warn_of_kept(self, {name: value for name, value in given.items() if value is not None})

    def __repr__(self) -> str:
        state = "closed" if self._closed else many(self.handle.shards, "shard")
        return f"<QueuePool {self.name!r}: {state}, maxsize {self.options['maxsize']}>"

    def _store_in(self, dirpath: str | os.PathLike[str] | None) -> tuple[Path, str] | None:
        if self.durability is Durability.TRANSIENT:
            return None
        if dirpath is None:
            problem = "needs a directory: pass dirpath=, or connect with store= and ask lab.queue(name)."
            raise BadOption(option="durability", value="DURABLE", problem=problem)
        return check_directory(dirpath), self.name

    # --- runs -------------------------------------------------------------------------------

    def map(
        self,
        fn: Callable[[Any], Any],
        documents: Iterable[Any],
        *,
        name: str | None = None,
        on_existing: OnExisting = "attach",
        retry: int | Retry | None = None,
        executor: Executor = "auto",
        timeout: float | str | None = None,
        memory: int | str | None = None,
        max_messages_per_process: int | None = None,
        concurrency: Concurrency | None = None,
        limit: LimitOption | None = None,
        cap: Mapping[str, int] | None = None,
        budget: BudgetOption | None = None,
        weight: float = 1,
        priority: int = 0,
        delay: float | str | None = None,
        at: str | datetime | None = None,
        gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        stop_if: int | float | Literal["auto"] | None = "auto",
        sink: Parquet | Files | OwnSink | str | os.PathLike[str] | None = None,
        rehearse: int | None = None,
        consumers: Literal["auto"] | None = "auto",
        cell: int | None = None,
        init: Mapping[str, Any] | None = None,
        setup: Mapping[str, Callable[[], Any]] | None = None,
        returns: Any = None,
        batch: int | Literal["auto"] | Batch | None = None,
        logs: Literal["failed", "all", "none"] = "failed",
    ) -> Run:
        """Map a function over documents; return at once, while the work continues in the background.

        Parameters
        ----------
        fn : callable
            Takes one argument: the document, or the element itself. If it yields, its rows are one result, a list, and
            rows of the run's tables with their number in ``_part``. May be a coroutine function.
        documents : iterable
            Any iterable except a set, since its order differs between kernels: pass ``sorted(x)``. One thread of this
            process reads it, element by element, while the run continues. You may change a builtin container, such as a
            list, or a Series at once, since `map` reads a copy of its references; so too a numpy array up to 1 GiB,
            since `map` reads a copy of its values. If the length of any other input changes while it is read, the input
            ends with an error. If you change an element after `map`, the run may use the old or the new value: map
            `copy.deepcopy(documents)`, or a generator that yields new elements.
        name : str, optional
            Default: the function's name and a number, which is always a new run.
        on_existing : {"attach", "new", "retry-failed", "update"}
            What to do if a run of that name exists: attach to it if code and documents are the same; cancel and drop it
            and start over; retry its dead documents with this code; or run what is new or has changed in the documents
            and keep the rest, as `Run.update` does.
        retry : int or Retry, optional
            Tries after an exception: 5 is ``dq.Retry(5)``, which also sets delays and the exceptions. Default: the
            queue's.
        executor : {"auto", "thread", "process"}
            Where `fn` runs: in a thread of its consumer, or in a process, which can crash, hang or be killed without
            affecting other messages. "auto": a process if one of the next three is given, or if the first document is a
            PDF, whose parsers are native code and may crash; otherwise a thread. Coroutine functions, and a consumer's
            own `process_item`, never run in a process.
        timeout : float or str, optional
            Longest time for one message, from its start: seconds, or "30s". Then its process is killed.
        memory : int or str, optional
            Maximum resident memory of a process: bytes, or "1 GB". A process that uses more is killed.
        max_messages_per_process : int, optional
            Start a new process after this many messages, for functions that leak.
        concurrency : "auto", int or Adaptive, optional
            Most calls of this run at once, over all consumers. "auto", the default of coroutine functions unless the
            queue has a `concurrency`: found out by what the service refuses, see `Adaptive`. Calls of a plain function
            run in threads then. A call of a batch counts once; a `limit` of calls counts its documents.
        limit : str, mapping or Limit, optional
            Most calls in a time, such as "500/min", over all consumers; every delivery counts, also a retry. By unit,
            as ``{"calls": "500/min", "tokens": "200k/min"}``, also what calls say with `dqlab.spend`, see `Limit`,
            which also has a name, by which the runs of a queue share it. The queue's shards divide it.
        cap : mapping, optional
            Most documents at once for each value of a key, as ``{"host": 4}``: the host of a document's URL, of a
            string, or of a row's column ``url``; or by another name the column of a row that is in its message. Those
            without a value count as one. Others go on meanwhile, as far as they are among the next 10,000 documents.
            Not together with `sink`.
        budget : str or Budget, optional
            The most that the calls of this run may cost together, such as "20 eur", as they say with `dqlab.spend`. The
            run pauses itself when the rest pays for no further call, see `Budget`; ``run.budget("30 eur")`` goes on.
        weight : float, default 1
            The run's share of the consumers' time among the runs of the same person in its queue, 0.01 to 100: with 3
            it gets three times as much as one with 1. People get equal shares before.
        priority : int, default 0
            -10 to 10. As long as a run has documents to start, the same person's runs in the queue with a lower one
            start none.
        delay : float or str, optional
            Start no document before so many seconds, or "10m", have passed.
        at : str or datetime, optional
            Start none before "18:00", the next one here, or "2026-11-30 18:00". `wait` waits for it too. By the clocks
            of the workers; what the queue has room for is submitted before.
        gpus : float, optional
            Devices that each call may use: a whole number, or a share of one, as 0.5 for two slots on a device. Every
            slot runs them in a process of its own, which sees its devices alone (``CUDA_VISIBLE_DEVICES``) before it
            imports anything; a slot for which its machine has none left runs other work. Not for coroutine functions.
        resources : mapping, optional
            Amounts of Dask's worker resources that each call needs, as ``{"GPU": 1}``: only consumers of workers that
            were started with them run it, and no more slots there than these have resources for. With neither a device
            nor a resource anywhere, `wait` and `results` raise `RunStalled`, which names what is missing.
        stop_if : int, float, "auto" or None
            When the run pauses itself while others of its documents wait; `wait` and `results` then raise `AllFailed`.
            "auto": 100 documents have failed for good, and none has succeeded. A whole number: so many have failed,
            whatever has succeeded. A share, such as 0.05: this part of the documents that have ended has failed, once
            200 have ended. None: never. Documents that consumers already hold still run: with a fast function these may
            be some hundred more, or even all, and then the run is done. Each shard of a queue counts its own documents
            and pauses only once: after ``resume`` or ``retry`` the run continues.
        sink : Parquet, Files, str, path or object, optional
            Where consumers write the results, which then do not pass through the queue: ``dq.Parquet("out/")``, or just
            a folder or a URL; ``dq.Files("txt/{key}.txt")``; or your own object with ``open``,
            ``write`` and ``commit``, see `dqlab.datasets.sinks.OwnSink`. The folder must be empty or new, and belongs
            to the run until ``run.drop(data=True)``; the run reads its results and tables from this folder.
        rehearse : int, optional
            Submit only so many documents, drawn from the whole input, before the rest waits for ``run.go()``; see
            ``run.rehearsal``. `map` then reads the whole input before it returns. Of an iterator, whose other documents
            are unknown, the first are taken. An input of no more documents runs at once. Default: none, and a run of
            that name that waits still does; with 0 it goes on.
        consumers : {"auto"} or None
            "auto": one consumer on every consumer worker, including workers that join later.
        cell : int, optional
            Number of the notebook cell that defined `fn`; shown with its code version.
        init : mapping of str to object, optional
            Arguments of `fn` where that is a class: ``lab.map(Embed, docs, init={"name": "bge-small"})``.
        setup : mapping of str to callable, optional
            What each call gets as keywords, by name a function without arguments that makes it:
            ``lab.map(parse, docs, setup={"nlp": load_spacy})``. A consumer's slot calls it once, before the first
            document.
        returns : class, optional
            The class of fields of the results, where the function has no annotation that names it: a Pydantic model, a
            dataclass, an attrs class, a named tuple or a TypedDict. Its fields are the columns of `Run.table`; what
            does not fit it fails with `AnswerInvalid`.
        batch : int, "auto" or Batch, optional
            `fn` takes a list of so many documents, and returns a list with one result for each: ``batch=64``, or
            ``batch=dq.Batch(256, max_bytes="8MB")``. "auto" finds the size by documents per second. Each document keeps
            its own result and failure: a batch that raises is halved until the document to blame is found. `timeout`
            and `memory` count per call.
        logs : {"failed", "all", "none"}
            Of which documents `Run.logs` has what they printed: those that failed or were slow, all, or none. The logs
            of workers have it in any case.

        Returns
        -------
        Run

        Raises
        ------
        NotPicklable
            `fn` cannot be sent to another process.
        RunExists
            `name` belongs to a run with other code.
        BadOption
            `name` is not a valid name.
        BadOption
            An option is invalid, a limit was given for a thread or a coroutine function, `fn` cannot be called with one
            document, or the labels of `documents` repeat. Nothing was submitted.
        SinkTaken
            The folder of `sink` has other contents: rows of another run, or other files. Nothing was submitted.
        ExtraMissing
            `sink` needs a package that is not installed here. Nothing was submitted.

        Warns
        -----
        DqlabWarning
            `on_existing` is "retry-failed" and no document has failed: nothing runs with the new code.
            Or the queue has another `concurrency` than 100, and the function is no coroutine function.

        Examples
        --------
        >>> run = lab.map(len, ["a", "bb", "ccc"], name="lengths")
        >>> list(run.results())
        [1, 2, 3]
        """
        self._check_open()
        _check_documents(documents)
        documents = labelled(documents)
        if on_existing not in get_args(OnExisting):
            choices = "must be 'attach', 'new', 'retry-failed' or 'update'."
            raise BadOption(option="on_existing", value=on_existing, problem=choices)
        chosen_retry = as_retry(retry)
        if consumers not in ("auto", None):
            raise BadOption(option="consumers", value=consumers, problem="must be 'auto' or None.")
        stop = as_stop(stop_if)
        if rehearse is not None:
            check_count("rehearse", rehearse, least=0)
        into = None if sink is None else as_sink(sink, _sealed_sink)
        if into is not None:
            into.check()
        of_queue = self.consumer_options["concurrency"]
        if of_queue != CONCURRENCY and not is_coroutine(called(fn)):
            warnings.warn(_FOR_COROUTINES.format(self.name, of_queue), DqlabWarning, stacklevel=level_of_user())
        process = isolation(
            executor,
            called(fn),
            timeout=timeout,
            memory=memory,
            max_messages=max_messages_per_process,
            gpus=gpus,
            native=parsed_natively(documents),
        )
        plain = concurrency is not None and not is_coroutine(called(fn))
        if plain and process is not None:
            problem = "is for threads and coroutines; a run in processes has one call in each: scale its consumers."
            raise BadOption(option="concurrency", value=concurrency, problem=problem)
        batch = Batch.of(batch)
        if cap is not None and into is not None:
            problem = "does not go with sink=: calls whose rows wait for their part would count. Leave one of them out."
            raise BadOption(option="cap", value=cap, problem=problem)
        flow = flow_terms(
            called(fn),
            concurrency=concurrency,
            limit=limit,
            budget=budget,
            cap=cap,
            shards=self.handle.shards,
            default=of_queue == CONCURRENCY,
            each=1 if batch is None else _AUTO_BATCH if batch.size == AUTO else int(batch.size),
        )
        share = share_of(weight, priority, delay, at)
        if share is not None:
            flow = replace(flow or FlowTerms(), share=share)
        return self.session.runs.map(
            self,
            fn,
            documents,
            name=name,
            on_existing=on_existing,
            terms=RunTerms(chosen_retry, process, needs_of(gpus, resources), flow, stop, into),
            rehearse=rehearse,
            serve=consumers == "auto",
            cell=cell,
            plan=planned(
                fn,
                init=init,
                setup=setup,
                returns=None if returns is None else declared(returns, batch=batch is not None),
                batch=batch,
                threads=flow.at_once * self.handle.shards if plain and flow is not None else 0,
                logs=logs,
            ),
        )

    # --- acting -----------------------------------------------------------------------------

    def scale(self, n: int | Literal["auto"]) -> None:
        """Set the number of consumers, spread over the workers, also while runs are active.

        Surplus consumers give back their messages, and missing consumers start at once. If a worker dies, its consumer
        is replaced. Consumers of a `ConsumerPool` do not count; it has its own `scale`.

        Parameters
        ----------
        n : int or "auto"
            "auto", the default: one on each consumer worker, including workers that join later.

        Raises
        ------
        BadOption
            `n` is not a number or "auto", or is below 1.
        """
        self._check_open()
        if n != "auto":
            check_count("n", n)
        self.session.scale(self, None if n == "auto" else n)
        self._mark(f"scale {n}")

    def pause(self) -> None:
        """Lease nothing more from this queue; puts are still accepted."""
        self._order("pause")

    def resume(self) -> None:
        """Continue after `pause` or `drain`."""
        self._order("resume")

    def replace(self, consumer: str) -> list[str]:
        """Take the running documents from a consumer and try them again; see `Run.replace`."""
        return self.handle.link.sync(self.handle.let_go(consumer=consumer, give_up=False))

    def give_up(self, document: str) -> list[str]:
        """Give up a document that a consumer runs, of any run; see `Run.give_up`."""
        return self.handle.link.sync(self.handle.let_go(document=document, give_up=True))

    def drain(self) -> None:
        """Refuse puts, process all queued messages, then pause."""
        self._order("drain")

    def purge(self, state: str = "dead") -> int:
        """Discard messages that are ready, delayed or dead, in every lane; they count as cancelled.

        Parameters
        ----------
        state : {"ready", "delayed", "dead"}

        Returns
        -------
        int
            How many messages were discarded.
        """
        count = self.handle.link.sync(self.handle.order(purged_state(state)))
        self._mark(f"purge {state}")
        return count

    def forget(self) -> int:
        """Free the results of settled single calls and values, and return how many were freed."""
        # A served queue frees a result when its `PutResult` is gone. That leaves the results of clients that ended
        # before, and of a queue with a `ConsumerPool`; runs keep their results until `Run.drop`.
        self._check_open()
        return self.handle.link.sync(self.handle.order(Forget(NO_ID, [(0, END)])))

    def compact(self, progress: Callable[[int, int], None] | None = None) -> Compacted:
        """Free the disk space of settled messages during live traffic; of a transient queue too.

        Parameters
        ----------
        progress : callable, optional
            Called about five times a second with the bytes processed so far and the total bytes of the current files.

        Returns
        -------
        Compacted
            Bytes before and after, messages kept and dropped, and seconds, for all shards together.

        Raises
        ------
        DiskFull
            There is no space to copy the bytes that are still needed. Nothing changed.
        """
        self._check_open()
        self._mark("compact")
        with shown(f"compacting queue {self.name}") as wait:

            def report(done: int, of: int) -> None:
                wait.step(f"{done / 1e6:,.1f} of {of / 1e6:,.1f} MB read")
                if progress is not None:
                    progress(done, of)

            return self.handle.link.sync(queue_calls.compact(self.handle, report))

    def close(self, *, force: bool = False) -> None:
        """Confirm puts, retire this queue's consumers, close the queue and free its memory.

        Parameters
        ----------
        force : bool, default False
            Close the queue even if other clients have it open.

        Raises
        ------
        UsageError
            Other clients have the queue open; nothing was done.
        """
        if self._closed:
            return
        link = self.handle.link
        self._puts.settle()
        others = link.sync(link.scheduler("dq_close", name=self.name, client=link.client.id, force=force))
        if others:
            raise UsageError(
                reason=f"queue {self.name!r} is open in {many(others, 'other client')}; it was left open. Use "
                "pool.close(force=True)."
            )
        self._let_go()

    def _order(self, verb: str) -> None:
        self.handle.link.sync(self.handle.order(ORDERS[verb].order(None)))
        self._mark(verb, by=pausing() if ORDERS[verb].stops else "")

    def _mark(self, text: str, *, by: str = "") -> None:
        mark(self.handle.link, text, self.name, by=by)

    @property
    def _puts_failed(self) -> bool:
        """Whether all further puts through this object fail."""
        # Somebody closed the queue. It may be open again under its name: this object must not be taken for that queue.
        return self._puts.failed

    def _let_go(self) -> None:
        """Forget the queue in this process, and leave it on the cluster."""
        # No call here: `dq_close` goes by name, and would close a queue that another client has just opened.
        self._closed = True
        self._puts.close()
        self.session.forget(self)

    async def _serve_again(self) -> None:
        with suppress(DqlabError):  # it was closed again; the next put raises that
            await self.session.serve_from_loop(self)

    def _before_put(self, kind: Kind) -> None:
        self._check_open()
        if self.served and kind is Kind.CALL:
            self.session.serve_once(self)

    def _check_open(self) -> None:
        self.handle.link.check_open()
        if self._closed:
            raise QueueClosed(queue=self.name)

    # --- putting by hand, under the ancestor's names ----------------------------------------------

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> PutResult:
        """Put one call and return at once.

        Raises
        ------
        BadOption
            `fn` is not a function, or cannot be called with these arguments. If your consumer calls it with others, put
            a `Message`, whose arguments are not checked: ``put(Message(fn, ...))``. Nothing was submitted.
        NotPicklable
            The function or an argument cannot be sent.
        MessageTooLarge
            The arguments are above the limit.
        QueueFull, PutError
            An earlier put was refused; `flush` and the result of that put raise it as well.
        """
        return self._calls([(fn, args, kwargs)])

    def batch_submit(
        self,
        calls: Iterable[tuple[Any, ...]],
        *,
        timeout: float | None = None,
        worker_class: type | None = None,
        sync_mode: bool = True,
        batch_size: int | None = None,
        unique: object = None,
    ) -> PutResult:
        """Put many calls at once; if one cannot be put, none is.

        Parameters
        ----------
        calls : iterable of tuple
            Each ``(fn, *args)``, or ``(fn, args, kwargs)`` with a tuple and a dict.
        timeout, worker_class, sync_mode, batch_size
            Options of the ancestor; they change nothing.
        unique : None
            Refused: a key stands for one message, so put each with ``put(Message(fn, ...), unique=...)``.

        Raises
        ------
        BadOption
            An element is not a call, its function cannot be called with its arguments, or `unique` is given. Nothing
            was submitted.
        """
        if unique is not None:
            problem = "stands for one message: put each call with put(dq.Message(fn, ...), unique=...)."
            raise BadOption(option="unique", value=unique, problem=problem)
        return self._calls(calls)

    def put(
        self,
        value: Any,
        timeout: float | None = None,
        *,
        unique: str | None = None,
        within: float | str = 0.0,
        delay: float | str | None = None,
        at: str | datetime | None = None,
    ) -> PutResult:
        """Put one plain value, for a consumer with its own `process_item`; a `Message` is put as a call.

        Parameters
        ----------
        timeout : float, optional
            An option of the ancestor; it changes nothing: a put does not wait, and reading ``.ids`` has its own limit.
        unique : str, optional
            A text that stands for the message in this queue: while a message with it waits or runs, nothing is put, and
            the result is that of the message that is there (``.existed`` is True). A dead one does not count.
        within : float or str, default 0
            So long after its put, seconds or "1d", `unique` stands for a message that is done, too.
        delay : float or str, optional
            Deliver it after so many seconds, or "10m".
        at : str or datetime, optional
            Deliver it at "18:00", the next one here, or "2026-11-30 18:00".

        Raises
        ------
        BadOption
            An option is invalid; nothing was put.
        PutTimeout, QueueFull, PutError
            With one of these options a put waits for its confirmation, and was refused.

        Examples
        --------
        >>> result = lab.queue().put(dq.Message(len, "abc"), unique="abc", within="1d")
        >>> result.existed
        False
        """
        share = share_of(1, 0, delay, at)
        if unique is None and share is None:
            return self._values([value])
        self._before_put(Kind.CALL if isinstance(value, Message) else Kind.VALUE)
        later = 0.0 if share is None else max(0.0, share.starts - SystemClock().wall())
        return self._puts.alone(value, unique, within=seconds(within, name="within"), delay=later)

    def put_many(self, values: Iterable[Any], timeout: float | None = None) -> PutResult:
        """Put many plain values; if one cannot be pickled, none is put."""
        return self._values(values)

    put_nowait = put
    put_many_sync = put_many

    def flush(self, timeout: float | str | None = CONFIRM_WAIT) -> None:
        """Wait until every put of this client is confirmed.

        Raises
        ------
        PutTimeout
            A put was not confirmed in time. With None: a put was given up, because its queue had not confirmed it for
            30 s and no worker that holds the queue answers, and its ids or results have not been read.
        QueueFull, PutError
            A put was refused, and its ids or results have not been read.
        """
        self._puts.flush(seconds_or_none(timeout, name="timeout"))

    def _calls(self, calls: Iterable[tuple[Any, ...]]) -> PutResult:
        self._before_put(Kind.CALL)
        return self._puts.calls(calls)

    def _values(self, values: Iterable[Any]) -> PutResult:
        self._before_put(Kind.VALUE)
        return self._puts.values(values)

    # --- looking ----------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return self._closed

    @property
    def gone(self) -> bool:
        """Whether a shard has died and cannot be recreated, after up to 10 s for a shard that is being recreated."""
        return self.handle.link.sync(self.handle.missing())[0]

    def counts(self) -> dict[str, int]:
        """Return the number of messages by state, over all lanes, as the queue reports them now."""
        totals = dict.fromkeys((state.name.lower() for state in State), 0)
        for report in self.handle.link.sync(self.handle.ask_all(calls.StatsCall())):
            for lane in report.lanes:
                for state in State:
                    totals[state.name.lower()] += lane.counts[state]
        return totals

    def stats(self) -> QueueStats:
        """Return the queue's statistics at this instant."""
        known = self.snapshot().queue(self.name)
        if known is None:
            raise QueueClosed(queue=self.name)
        return known

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return all statistics at this instant, with leases, consumers, failures and storage of this queue only."""
        # `fresh` first asks workers for what has changed since their last reports, which are up to 250 ms old.
        link = self.handle.link
        asked = link.scheduler("dq_snapshot", queue=self.name, fresh=FRESH * fresh)
        return Snapshot.from_dict(link.sync(asked, timeout=timeout))

    def history(self, span: float | str = "30m") -> Timeline:
        """Return the queue's statistics over time.

        Parameters
        ----------
        span : float or str, default "30m"
            How far back. The history has a moment for each second of the last quarter of an hour and for each minute of
            the last day, and nothing from before the cluster started.

        Returns
        -------
        Timeline
            A sequence of moments; `.to_frame()` returns a pandas DataFrame.
        """
        return Timeline(self.past(seconds(span, name="span"), whole=True))

    def past(self, span: float, *, timeout: float | None = None, whole: bool = False) -> History:
        """Return the series that charts draw, over the last `span` seconds; see `Lab.past` for `whole`."""
        link = self.handle.link
        asked = link.scheduler("dq_history", span=span, queue=self.name, whole=whole, fresh=FRESH * whole)
        return History.from_dict(link.sync(asked, timeout=timeout))

    def unacked(self) -> UnackedLeases:
        """Return the messages that consumers hold now, longest held first; a notebook shows them as a table.

        The document that a consumer runs appears a second after it began.
        """
        link = self.handle.link
        runs = {run: name for name, run in link.sync(queue_calls.runs_of(self.handle)).items()}
        consumers = self.snapshot().consumers
        rows = [row for answer in link.sync(self.handle.ask_all(calls.LeasesCall())) for row in answer.rows]
        return leases_of(rows, queue=self.name, runs=runs, consumers=consumers, now=SystemClock().wall())

    def dead(self) -> Failures:
        """Return the dead letters of plain puts; `run.failures()` returns those of a run."""
        progress = self.handle.link.sync(queue_calls.progress_of(self.handle, NO_ID))
        return Failures(self.name, self.handle, NO_ID, [counts.dead for counts in progress.by_shard])

    # --- its shards, one by one, under the ancestor's names ---------------------------------------

    def __len__(self) -> int:
        return self.handle.shards

    def __getitem__(self, index: int) -> ShardView:
        return ShardView(self.handle, range(len(self))[index])

    def __iter__(self) -> Iterator[ShardView]:
        return (ShardView(self.handle, index) for index in range(len(self)))

    def get_len(self) -> int:
        """Return the number of shards."""
        return len(self)

    def get_queue(self, idx: int) -> ShardView:
        """Return one shard, like ``pool[idx]``."""
        return self[idx]

    def get_queues(self) -> list[ShardView]:
        """Return all shards."""
        return list(self)

    def get_queue_size(self) -> dict[int, int]:
        """Return how many messages are ready, delayed or leased in each shard, by its index."""
        return {shard.index: shard.qsize() for shard in self}

    def print(self) -> str:
        """Return one line per shard, with its waiting and running messages."""
        sizes = self.get_queue_size().items()
        return "\n".join([f"{self!r}", *(f"  shard {index}: {many(size, 'message')}" for index, size in sizes)])


def _check_documents(documents: Any) -> None:
    """Raise `BadOption` for inputs that do not iterate over documents."""
    if isinstance(documents, str | bytes):
        problem = "is one text, whose elements are its characters. Pass [text], or dq.Documents.from_glob(path)."
        documents = documents[:40]
    else:
        problem, called = misread(documents)
        documents = called or documents
    if problem:
        raise BadOption(option="documents", value=documents, problem=f"{problem} Nothing was submitted.")


def _sealed_sink(sink: object) -> bytes:
    return seal_or_explain(sink, "the sink")
