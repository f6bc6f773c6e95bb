"""`Lab`: a connection to one cluster, its queues and runs."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from dqlab.cluster.embedded.sockets import PREFIX
from dqlab.cluster.scheduler.state import NoWorkers
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.internals import undisturbed
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.cluster.transport.reports import FRESH
from dqlab.clusters_here import Announcement, address_of, announce, keeper_of, way_to, withdraw
from dqlab.config import check_name, option, seconds
from dqlab.errors import BadOption, CallTimeout, DqlabError, DqlabWarning, LabClosed, QueueNotFound, RunNotFound
from dqlab.keywords import (
    KeepsAttributes,
    SuggestsAttributes,
    meant,
    takes_same,
)
from dqlab.log.errors import OwnerStillAlive
from dqlab.notebook import in_jupyter, program
from dqlab.numbers import few_of, many
from dqlab.rules.retry import Retry
from dqlab.runs.objects import HasWidget, StaysHere
from dqlab.runs.pool import QueuePool
from dqlab.runs.queue_rows import Timeline
from dqlab.runs.run import Run
from dqlab.runs.session import CONCURRENCY, Durability, Session, check_shards, stored_in, warn_of_kept
from dqlab.stats import History, RunList, RunStats, Snapshot
from dqlab.store.values import Compacted
from dqlab.user_frames import level_of_user

if TYPE_CHECKING:
    from distributed import Client

    from dqlab.checkup.facts import Checkup

ANSWER = 40.0
"""Seconds that the scheduler may take to send an answer that it has."""
PANELS = ("dq", "depth", "throughput", "failures", "unacked", "runs", "storage")
"""Pages of the dashboard that dqlab adds."""
LOOK_TIMEOUT = 2.0
"""Seconds to wait for an answer when only the state of a lab is read."""
PATIENCE = 5.0
"""Seconds to wait for queues of other clients that may have a run of that name."""
CLOSE_PATIENCE = 4.0
"""Seconds to ask runs, before a lab closes, whether they are done."""
RESTING_FOR = 10.0
"""Seconds for which the list of a store's closed queues is reused: views look four times a second."""
LOOKED_AT = 20
"""Newest runs that are examined when their cluster ends."""

_log = logging.getLogger(__name__)

_here: WeakSet[Lab] = WeakSet()
"""Labs whose clusters end with this process."""


# Dask registers its exit handler when it is imported, above, and ends the clusters there. Handlers run in reverse
# order, so this one still reaches them.
@atexit.register
def _report_at_exit() -> None:
    """Report runs that the end of this process cuts short, unless it is a kernel."""
    if in_jupyter():
        return  # a kernel is restarted on purpose, and nobody reads what it writes then
    for lab in list(_here):
        with suppress(Exception):  # nothing may keep the process from ending, or print a traceback there
            if not lab.closed and lab.session.link.here and (said := lab._unfinished()):
                sys.stderr.write(f"DqlabWarning: {said}\n")
                sys.stderr.flush()


class QueueHeld(OwnerStillAlive):
    """Another process's lab has the queue open, and the error names the way to connect to that lab."""

    text = "queue {queue!r} was not opened: {why}. Nothing was touched."


def _note_unlisted(opened: concurrent.futures.Future[None]) -> None:
    """Log why some queues of a store could not be opened for views."""
    error = None if opened.cancelled() else opened.exception()  # cancelled: the lab is closed and needs no views
    if error is not None:
        _log.info("event=store_unlisted reason=%s", error)


class Lab(HasWidget, StaysHere, KeepsAttributes, SuggestsAttributes):
    """A connection to one cluster, with its queues and runs; `connect` makes it.

    Attributes
    ----------
    name : str
    client : Client
        The Dask client that the lab uses.
    store : Path or None
        Directory in which its queues are kept. None: they are transient.
    seen : Snapshot
        The last snapshot that this process fetched; empty at first.
    """

    _way_out = "return what is to be mapped next, and map that here"
    seen = Snapshot(at=0.0, seq=-1)
    _reported = False
    """Whether the runs that the end of the cluster cuts short were reported."""
    _closes = False
    """Whether a call of `close` has begun."""

    def __init__(
        self,
        client: Client,
        *,
        name: str | None = None,
        own_client: bool = False,
        cluster: Any = None,
        reserved: tuple[str, ...] = (),
        batch: bool = False,
        grows: bool = False,
        shared: str = "",
    ) -> None:
        self.client = client
        address = str(getattr(client.scheduler, "address", "cluster"))
        self.name = name or (program() or "local" if cluster is not None else address)
        self._own_client, self._cluster, self._reserved = own_client, cluster, len(reserved)
        self._batch = batch
        self.session = Session.of(client, reserved, self.name, grows=grows, shared=shared)
        if own_client:
            self.session.link.lab, self.session.link.embedded = self.name, cluster is not None
        self.closed = False
        self._stored: tuple[float, list[str]] = -RESTING_FOR, []
        """When the queues of the store were last listed, and their names."""
        if self.embedded:
            _here.add(self)
        self.store: Path | None = None
        self._announced: Announcement | None = None

    def keep_in(self, store: Path | None) -> None:
        """Make new queues durable in a directory, or transient with None."""
        self.store = store
        self.session.link.store = "" if store is None else str(store)
        self.session.runs.open_others = self._open_others

    def announce(self) -> None:
        """Make this user's Jupyter servers list the cluster until it ends."""
        http, link = self.session.http, self.session.link
        if http is None or self._announced is not None:
            return
        reached_at, here = address_of(link.address)
        tunnel = here and http["machine"] != socket.gethostname()
        bound = "" if tunnel else f"[{http['host']}]" if ":" in http["host"] else http["host"]
        self._announced = announce(
            Announcement(
                id="",
                name=self.name,
                dashboard=f"{http['scheme']}://{bound or reached_at}:{http['port']}",
                dashboard_host=socket.gethostname() if tunnel else http["machine"],
                tunnel=tunnel,
                scheduler=link.address,
                scheduler_id=http["scheduler_id"],
                token=self.session.token,
                embedded=self.embedded,
                store=None if self.store is None else str(self.store),
                where="local" if here else reached_at,
            )
        )

    def list_stored(self) -> None:
        """Begin to open the queues of this lab's store, so that views list their runs, and return at once."""
        # A queue that cannot be opened now is left out: the call that needs it later reports why. Opening processes
        # nothing, and queues keep the options that they were made with.
        if self.store is not None:
            opened = self.session.link.start(self.session.open_stored(self.store))
            opened.add_done_callback(_note_unlisted)

    def __repr__(self) -> str:
        if self.closed:
            return f"<Lab {self.name!r}: closed; dq.connect() opens one>"
        return f"<Lab {self.name!r} at {self.session.link.address}: {self._about()}>"

    def _about(self) -> str:
        try:
            workers = self._workers()
        except DqlabError:
            if command := self.session.link.up[0]:
                return f"no answer; if its cluster is gone: `{command}` in a terminal, then {self.session.link.up[1]}"
            where = "" if self.embedded else repr(self.session.link.address)
            return f"no answer; dq.connect({where}) tries again"
        if workers == 0:
            return "no worker is left; dq.connect() starts new ones" if self.embedded else "no worker has come yet"
        steps = "next: lab.map(function, documents), or %%dq submit --over documents"
        if resting := self._resting():
            names = few_of(resting, 5)
            steps = f"its store has {many(len(resting), 'queue')}, not open: {names}; lab.all_runs() lists their runs"
        return f"{describe_workers(self, workers)}, dashboard {self.dashboard}; {steps}"

    def _resting(self) -> list[str]:
        """Return the names of the queues in this lab's store if none is open, as they were a few seconds ago."""
        if self.store is None or self.session.pools:
            return []
        now = time.monotonic()
        if now - self._stored[0] >= RESTING_FOR:
            self._stored = now, self._listed_in_store()
        return self._stored[1]

    def _listed_in_store(self) -> list[str]:
        """Return the names of the queues in the store, or none where no answer arrives soon."""
        link = self.session.link
        with suppress(DqlabError):
            if not link.sync(link.scheduler("dq_queues"), timeout=LOOK_TIMEOUT):
                return sorted(link.sync(link.scheduler("dq_stored", store=str(self.store)), timeout=LOOK_TIMEOUT))
        return []

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def embedded(self) -> bool:
        """Whether this lab started its cluster on this machine; the cluster then ends with the lab."""
        return self._cluster is not None and not self._batch

    @property
    def service(self) -> str:
        """Id under which this user's Jupyter servers list the cluster; "" if it is not announced."""
        return self._announced.id if self._announced is not None else ""

    @property
    def ended(self) -> bool:
        """Whether this lab can no longer be used: closed, its scheduler gone, or all its own workers gone."""
        if self._closes:
            return True
        try:
            return self._workers() == 0 and self.embedded
        except CallTimeout:
            return not self.session.link.connected  # while connected, the scheduler is only busy
        except DqlabError:
            return True

    @property
    def runs(self) -> list[Run]:
        """Runs that this lab has made or attached to, oldest first."""
        return list(self.session.runs)

    def all_runs(self) -> RunList:
        """Return statistics of every run, the newest first; `runs` has only those of this process.

        Like `attach`, it opens the queues of the cluster and of this lab's store that are not open here yet. It does
        not start any processing.

        Raises
        ------
        LabClosed
            The lab is closed.

        Examples
        --------
        >>> [run.name for run in lab.all_runs() if run.counts.dead]  # doctest: +SKIP
        ['word-count']
        """
        self._open(name for name in self.queue_names() if name not in self.session.pools)
        found: list[RunStats] = []
        for run in self.session.runs.everything():
            with suppress(RunNotFound):  # another client has dropped it
                found.append(run.stats())
        return RunList(sorted(found, key=lambda run: run.started, reverse=True))

    @property
    def queues(self) -> list[QueuePool]:
        """Queues that this lab has open."""
        return list(self.session.pools.values())

    @property
    def held_elsewhere(self) -> str:
        """The lab of another process with queues in this lab's store, and the way to it, as a sentence; else ""."""
        keeper = keeper_of(self.store) if self.store is not None else None
        return "" if keeper is None or keeper.scheduler == self.session.link.address else f"{way_to(keeper)}."

    def queue(
        self,
        name: str = "default",
        n_queues: int | None = None,
        *,
        durable: bool | None = None,
        visibility_timeout: float | str | None = None,
        max_deliveries: int | None = None,
        retry: bool | int | Retry | None = None,
        maxsize: int | Literal["auto"] | None = "auto",
        max_bytes: int | str | None = None,
        served: bool | None = None,
        early_ack: bool | None = None,
        concurrency: int | None = None,
    ) -> QueuePool:
        """Open a queue, or return the open one of that name.

        Options apply when the queue is made; a queue that is already open or in the store keeps its own. If one of its
        shards could not be recovered, the queue is recreated.

        Parameters
        ----------
        name : str
        durable : bool, optional
            Whether to keep the queue in this lab's store. Default: yes, if it has one.
        maxsize : int, "auto" or None
            Maximum messages in one lane. "auto": the configured limit, 100,000 by default. None: no limit.
        n_queues, visibility_timeout, max_deliveries, retry, max_bytes, served, early_ack, concurrency
            See `QueuePool`. Default: 1 shard, ``served=True``, ``early_ack=False`` and ``concurrency=100``.

        Raises
        ------
        LabClosed
            The lab is closed, or no worker is left.
        BadOption
            `durable` is set, and the lab has no store. `durable`, `served` or `early_ack` is neither True nor False.
        LogError
            A durable queue cannot be opened; its subclasses give the reason, and what to do.

        Warns
        -----
        DqlabWarning
            The queue already exists, and has another value of an option that you passed; it keeps its own.
        """
        self._check_open()
        _check_switches(durable=durable, served=served, early_ack=early_ack)
        if durable and self.store is None:
            problem = "needs a lab with a store: dq.connect(store='runs/')."
            raise BadOption(option="durable", value=durable, problem=problem)
        place = self.store if durable is not False else None
        given: dict[str, Any] = {
            "n_queues": n_queues,
            "durable": durable,
            "visibility_timeout": visibility_timeout,
            "max_deliveries": max_deliveries,
            "retry": retry,
            "max_bytes": max_bytes,
            "served": served,
            "early_ack": early_ack,
            "concurrency": concurrency,
        }
        given = {option: value for option, value in given.items() if value is not None}
        if maxsize != "auto":
            given["maxsize"] = maxsize  # None is a value of it
        known = self.session.pools.get(name)
        if n_queues is not None:
            check_shards(n_queues)
        if known is not None:
            gone, waits = self.session.link.sync(known.handle.missing())
            if waits and self.embedded and not self._workers():
                raise self._without_workers()
            if not gone and not known._puts_failed:
                warn_of_kept(known, given)
                return known
            if durable is not False:  # a durable queue is reopened where its files are, maybe not in this lab's store
                place = stored_in(known.options) or place
            known._let_go()  # closing by name would close the queue that another client may just have opened
        try:
            pool = QueuePool(
                self.client,
                1 if n_queues is None else n_queues,
                Durability.DURABLE if place is not None else Durability.TRANSIENT,
                dirpath=place,
                retry=retry,
                name=name,
                visibility_timeout=visibility_timeout,
                max_deliveries=max_deliveries,
                maxsize=option("queue.maxsize") if maxsize == "auto" else maxsize,
                max_bytes=max_bytes,
                served=served is not False,
                early_ack=early_ack is True,
                concurrency=CONCURRENCY if concurrency is None else concurrency,
            )
            warn_of_kept(pool, {} if durable is None else {"durable": durable})
            return pool
        except NoWorkers:
            if not self.embedded:
                raise
            raise self._without_workers() from None
        except OwnerStillAlive as error:
            keeper = keeper_of(place) if place is not None else None
            if keeper is None:
                raise
            raise QueueHeld(queue=name, why=way_to(keeper), **error.fields) from None

    @takes_same(QueuePool.map)
    def map(self, *args: Any, **options: Any) -> Run:
        """Map a function over documents on the queue "default"; returns at once."""
        return self.queue().map(*args, **options)

    def attach(self, name: str) -> Run:
        """Return the run of that name.

        Raises
        ------
        RunNotFound
            The run does not exist; the error lists the existing ones.
        """
        self._check_open()
        given: object = name
        if not isinstance(given, str):
            check_name(given, kind="run")
        return self.session.runs.attach(name)

    def queue_names(self) -> list[str]:
        """Return the names of all queues that are open on the cluster or in this lab's store, sorted."""
        self._check_open()
        stored = self.session.stored_queues(self.store) if self.store is not None else []
        return sorted({*self.session.pools, *self.session.open_queues(), *stored})

    def controls(self, queue: str) -> QueuePool:
        """Return a queue of the cluster or the store, made by any client, to act on it.

        Raises
        ------
        QueueNotFound
            The name is unknown.
        """
        held = self.session.pools.get(queue)
        if held is not None:
            return held  # not reopened: for a queue that is out of reach, that would end the calls that wait for it
        known = self.queue_names()
        if queue not in known:
            raise QueueNotFound(queue=queue, hint=meant(queue, known), known=", ".join(known) or "none")
        return self.queue(queue)

    def retry(self, run: str, *, fingerprint: str = "") -> int:
        """Retry the dead documents of a run, or those of one failure class, and return how many there were."""
        return self.attach(run).send_again(fingerprint=fingerprint or None)

    def gc(self, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Compacted]:
        """Compact every queue of the store, one after another; see `QueuePool.compact`.

        Parameters
        ----------
        progress : callable, optional
            Called with the queue's name, bytes processed and total bytes.

        Returns
        -------
        dict of str to Compacted
            By queue.
        """
        self._check_open()
        self._open(self.session.stored_queues(self.store) if self.store is not None else ())
        return {
            pool.name: pool.compact(partial(progress, pool.name) if progress is not None else None)
            for pool in self.queues
            if pool.durability is Durability.DURABLE
        }

    def doctor(self, timeout: float | str = "10s") -> Checkup:
        """Examine the cluster, its queues and its store; report what is wrong and what to do about it.

        It asks all processes at once and changes nothing. The checkup lists findings, processes that do not answer
        first, and a table of all processes.

        Parameters
        ----------
        timeout : float or str, default 10 s
            For everything together.

        Returns
        -------
        Checkup
            Displays itself; true when there is no problem.

        Raises
        ------
        LabClosed
            The lab is closed.
        """
        from dqlab.checkup.examine import examine

        self._check_open()
        stores = [] if self.store is None else [self.store]
        return examine(self.session.link, of=f"lab {self.name}", stores=stores, timeout=timeout)

    def close(self) -> None:
        """Close this lab's queues, disconnect, and end the cluster if this lab started it; a no-op in a forked process.

        Each step runs even if the previous one failed: the cluster ends despite an interrupt or an error, but a second
        interrupt stops waiting for its end. You can repeat a call that did not complete.

        Warns
        -----
        DqlabWarning
            A run of this process was not done, and its cluster has ended with the lab.
        """
        if self.closed or not self.session.link.here:
            return
        self._closes = True  # first: `ended` is then true for `connect` in other threads, even if this call is cut off
        unfinished = ""
        try:
            unfinished = self._unfinished()  # while the runs can still be asked
            if self._own_client:
                self.session.link.leave()
            self._withdraw()
            if self._cluster is not None:
                for pool in list(self.session.pools.values()):
                    with suppress(DqlabError):  # a queue that does not answer must not keep the cluster from ending
                        pool.close(force=True)
        finally:
            try:
                if self._own_client:
                    self.client.close()  # before its cluster: a client that loses its scheduler tries to reconnect
            finally:
                if self._cluster is not None:
                    self._cluster.close()
                self._withdraw()  # when it was interrupted above
                self.closed = True
        if unfinished:
            warnings.warn(unfinished, DqlabWarning, stacklevel=level_of_user())

    def _unfinished(self) -> str:
        """Return, once, which runs of this process end with its cluster before they are done, or "" for none."""
        if not self.embedded or self._reported or not self.session.link.connected:
            return ""
        self._reported = True
        found, until = list[tuple[Run, str]](), time.monotonic() + CLOSE_PATIENCE
        for run in list(self.session.runs)[: -LOOKED_AT - 1 : -1]:  # the newest first, as time may run out
            with suppress(Exception):  # what cannot be asked now must not keep the cluster from ending
                left = left_undone(run, until)
                if left is not None:
                    found.append((run, left))
        if not found:
            return ""
        what = [
            f"{left or 'what is left'} of run {run.name!r} ({'in the store' if self._keeps(run) else 'lost'})"
            for run, left in found
        ]
        steps = "Let a run end before you close, or connect with store= to go on later"
        if any(self._keeps(run) for run, _ in found):
            again = f"dq.connect(store={str(self.store)!r}), then map the same documents under the run's name"
            steps = f"What is in the store goes on there: {again}"
        return f"{few_of(what)} were not done when the cluster ended. {steps}."

    def _keeps(self, run: Run) -> bool:
        """Return whether a run is in a store, and not in a transient queue."""
        pool = self.session.pools.get(run.queue)
        return pool is not None and pool.durability is Durability.DURABLE

    def _withdraw(self) -> None:
        """Make Jupyter servers no longer list the cluster."""
        announced = self._announced

        if announced is None:
            return

        # Undisturbed: a Ctrl-C between the file and the field would leave a cluster listed that has ended.
        def work() -> None:
            withdraw(announced, ended=self.embedded)
            self._announced = None

        undisturbed(work, "dqlab-close")

    def _open_others(self, run: str) -> None:
        """Open the queue in which another client has a run of that name, or else all queues of the store."""
        found, silent = self._queue_of(run)
        stored = self.session.stored_queues(self.store) if self.store is not None and not found else []
        held = self._open(name for name in ([found] if found else stored) if name not in self.session.pools)
        elsewhere = f" It may be in {self._who_holds(held)}" if held else ""
        if silent:
            queues = f"{'queue' if len(silent) == 1 else 'queues'} {', '.join(map(repr, silent))}"
            elsewhere += f" It may be in {queues}: no answer came within {PATIENCE:g} s; try again."
            said = (
                f"{queues} did not answer within {PATIENCE:g} s, so a run {run!r} of another client there is not found"
            )
            warnings.warn(said, DqlabWarning, stacklevel=level_of_user())
        self.session.runs.elsewhere = elsewhere

    def _who_holds(self, held: dict[str, OwnerStillAlive]) -> str:
        """Return a hint on the processes that have queues of the store open, among them maybe the one with the run."""
        one = next(iter(held.values()))
        why = one.why if isinstance(one, QueueHeld) else f"process {one.pid} on {one.host} has it open; close it there"
        return f"{', '.join(map(repr, held))}, open elsewhere: {why}."

    def _queue_of(self, run: str) -> tuple[str, list[str]]:
        """Return the open queue of another client that has a run, else "" and the queues that did not answer."""
        link = self.session.link
        others = [name for name in self.session.open_queues() if name not in self.session.pools]

        async def has(queue: str) -> bool | None:
            try:
                async with asyncio.timeout(PATIENCE):
                    answer, _ = await Handle(link, queue, 1).ask(0, calls.RunsCall(run))
            except (CallTimeout, TimeoutError):
                return None
            except DqlabError:  # closed since it was listed
                return False
            return bool(answer.runs)

        async def look() -> list[bool | None]:
            return await asyncio.gather(*map(has, others))

        found = dict(zip(others, link.sync(look()), strict=True)) if others else {}
        queue = next((queue for queue, there in found.items() if there), "")
        return queue, [] if queue else [queue for queue, there in found.items() if there is None]

    def _open(self, names: Iterable[str]) -> dict[str, OwnerStillAlive]:
        """Open queues, and return by name those that another process has open, with its error."""
        held: dict[str, OwnerStillAlive] = {}
        for name in names:
            try:
                self.queue(name)
            except OwnerStillAlive as error:
                held[name] = error
        if held:
            said = f"queues of the store were left out: {self._who_holds(held)}"
            warnings.warn(said, DqlabWarning, stacklevel=level_of_user())
        return held

    def _without_workers(self) -> LabClosed:
        left = (
            "What its transient queues held went with them; durable ones are in their store. Connect again, "
            "lab = dq.connect() or %dq connect -o lab, then map or attach again."
        )
        return LabClosed(lab=self.name, how="has no worker process left", what="its queues", left=left)

    def _workers(self) -> int:
        """Return how many workers the cluster has."""
        link = self.session.link
        return Snapshot.from_dict(link.sync(link.scheduler("dq_snapshot"), timeout=LOOK_TIMEOUT)).workers

    # --- looking ----------------------------------------------------------------------------------

    @property
    def dashboard(self) -> str:
        """Address of Dask's own dashboard."""
        http, link = self.session.http, self.session.link
        if http is not None and link.address.startswith(PREFIX):  # Dask would take the sockets' directory for a host
            return f"{http['scheme']}://127.0.0.1:{http['port']}/status"
        return str(self.client.dashboard_link)

    def stats(self) -> Snapshot:
        """Return all statistics at this instant."""
        return self.snapshot()

    def snapshot(self, *, timeout: float | None = None, fresh: bool = True) -> Snapshot:
        """Return all statistics at this instant, or with ``fresh=False`` as workers last reported them."""
        # Reports are up to 250 ms old. Views ask several times a second, and do not make the workers send more.
        self._check_open()
        link = self.session.link
        asked = link.scheduler("dq_snapshot", fresh=FRESH * fresh)  # seconds to wait for reports, or 0
        snapshot = Snapshot.from_dict(link.sync(asked, timeout=timeout))
        resting = () if snapshot.queues else tuple(self._resting())
        store = "" if self.store is None else str(self.store)
        self.seen = replace(snapshot, lab=self.name, store=store, resting=resting)
        return self.seen

    def history(self, span: float | str = "30m") -> Timeline:
        """Return the history of all queues together; see `QueuePool.history`."""
        return Timeline(self.past(seconds(span, name="span"), whole=True))

    def past(self, span: float, *, timeout: float | None = None, whole: bool = False) -> History:
        """Return the series of the last `span` seconds for charts; `whole` adds an unfinished last point."""
        self._check_open()
        link = self.session.link
        asked = link.scheduler("dq_history", span=span, whole=whole, fresh=FRESH * whole)
        return History.from_dict(link.sync(asked, timeout=timeout))

    def wait_for_change(self, since: int, timeout: float = 1.0) -> Snapshot:
        """Return the next snapshot after number `since`, or the present one after `timeout` seconds."""
        self._check_open()
        link = self.session.link
        return Snapshot.from_dict(
            link.sync(link.scheduler("dq_snapshot", since=since, wait=timeout, timeout=timeout + ANSWER))
        )

    def panel(self, name: str = "dq") -> str:
        """Return the address of a page of the dashboard: ``dq`` with all panels, or a single panel.

        Parameters
        ----------
        name : {"dq", "depth", "throughput", "failures", "unacked", "runs", "storage"}
        """
        if name not in PANELS:
            raise BadOption(option="panel", value=name, problem=f"must be one of {', '.join(PANELS)}.")
        page = "dq" if name == "dq" else f"individual-dq-{name}"
        return f"{self.dashboard.rsplit('/', 1)[0]}/{page}"

    def _check_open(self) -> None:
        if self.closed:
            raise self.session.link.closed_error()


def left_undone(run: Run, until: float) -> str | None:
    """Return the documents of a run that are not done, "" where it does not answer, or None for a run that is done."""
    try:
        return run.left(timeout=max(0.05, until - time.monotonic())) or None
    except CallTimeout:
        return None if run.at_end is not None else ""


def describe_workers(lab: Lab, workers: int) -> str:
    """Return how many of a lab's workers run consumers, in words, or how many there are and how many host queues."""
    if lab.embedded:
        return many(workers - lab._reserved, "consumer process")
    return many(workers, "worker") + (f" ({lab._reserved} for queues)" if lab._reserved else "")


def _check_switches(**given: object) -> None:
    """Raise `BadOption` for a value that is neither True nor False, since "no" would count as true."""
    for name, value in given.items():
        if value is not None and not isinstance(value, bool):
            raise BadOption(option=name, value=value, problem="is neither True nor False. Nothing was opened.")
