"""Runs coroutines on the client's event loop for users' threads, and waits for them.

Handles are synchronous. Everything below them is asynchronous, and runs in the loop thread of the Dask client.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import copy
import logging
import os
import re
import shlex
import threading
import time
import warnings
from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any, Self, TypeVar

from distributed import Client

from dqlab.cluster.transport.internals import event_loop, in_event_loop, leave_reports_to_us, opened, scheduler_rpc
from dqlab.cluster.transport.ref import limited
from dqlab.errors import ActorGone, CallTimeout, DqlabError, DqlabWarning, LabClosed, SchedulerGone, UsageError
from dqlab.waits import shown

T = TypeVar("T")

SLICE = 0.2
"""Seconds for which a wait blocks at most, so that Ctrl-C works at once and a dead scheduler is noticed."""
UNSHOWN = 1.0
"""Seconds after which a wait is given to `waits`, which draws it some seconds later."""
GONE_AFTER = 8.0
"""Seconds without a connection to the scheduler after which it counts as gone."""

_OF_A_COMM = re.compile(r"^in <.*>: ")
"""The connection's name before the text of a Dask error."""
_LONG_SECONDS = re.compile(r"\b(\d+\.\d)\d+ s\b")
"""Seconds in a Dask error, written with fifteen digits."""
_NOWHERE = logging.NullHandler()


def silence_own_lines() -> None:
    """Keep dqlab's log lines out of notebook cells unless logging was set up."""
    # Python prints warnings of loggers without a handler. The lines "event=..." are for the search for defects: what
    # concerns the person at the notebook is raised, warned of, or shown.
    logging.getLogger("dqlab").addHandler(_NOWHERE)  # adding the same handler twice is harmless


class Link:
    """One process's connection to one lab's cluster, over a synchronous Dask client."""

    def __init__(self, client: Client) -> None:
        if client.asynchronous:
            raise UsageError(
                reason="dqlab needs a synchronous Dask client; this one is asynchronous. "
                "Make it with Client(address), without asynchronous=True."
            )
        silence_own_lines()
        leave_reports_to_us(client)
        self.client = client
        self.address = str(getattr(client.scheduler, "address", "?"))
        self.direct = True
        # `lab` is the lab's name in errors. `embedded`: the cluster ends with the lab.
        self.lab, self.embedded = self.address, False
        self.store = ""
        """Directory of the lab's or queue's store; "": transient."""
        self.up = ("", "")
        """For a cluster of `dqlab up`: the command that starts it again, and the call that connects to it."""
        self.again = ""
        """The call that connects to the same cluster or store from any process; "": there is none."""
        self._what, self._holds, self._found_by = "this lab", "its queues", "lab.attach(RUN)"
        self._lost_since: float | None = None
        self._left = threading.Event()
        self._pid = os.getpid()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the client's loop, or raise LabClosed."""
        try:
            self.check_open()
            return asyncio.run_coroutine_threadsafe(work, event_loop(self.client))
        except RuntimeError:  # the loop has ended
            work.close()  # else Python warns that it was never awaited
            raise self.closed_error() from None
        except DqlabError:
            work.close()
            raise

    def sync(
        self, work: Coroutine[Any, Any, T], *, timeout: float | None = None, late: tuple[float, str] | None = None
    ) -> T:
        """Run a coroutine on the client's loop and wait for its result, with one warning `late`, (seconds, text)."""
        if in_event_loop(self.client):
            work.close()
            raise UsageError(
                reason="dqlab was called from the Dask client's own event loop, which would wait for itself."
            )
        return self.result(self.start(work), timeout=timeout, late=late)

    def result(
        self,
        future: concurrent.futures.Future[T],
        *,
        timeout: float | None = None,
        late: tuple[float, str] | None = None,
    ) -> T:
        """Wait for a future of `start`, or raise LabClosed, SchedulerGone or CallTimeout."""
        # Cancels the work when the wait is interrupted.
        began, shows = time.monotonic(), ExitStack()
        silent = True
        deadline = None if timeout is None else began + timeout
        try:
            while True:
                left = SLICE if deadline is None else max(0.0, min(SLICE, deadline - time.monotonic()))
                try:
                    return future.result(left)
                except TimeoutError:
                    if future.done():  # the work itself raised TimeoutError, or has just ended
                        return future.result()
                    self.check_scheduler()
                    if silent and time.monotonic() - began > UNSHOWN:
                        silent = False
                        shows.enter_context(shown(f"waiting for an answer of the cluster at {self.address}"))
                    if late is not None and time.monotonic() - began > late[0]:
                        warnings.warn(late[1], DqlabWarning, stacklevel=4)
                        late = None
                    if deadline is not None and time.monotonic() >= deadline:
                        raise CallTimeout(name=self.address, call="wait", seconds=timeout) from None
        except SchedulerGone as error:
            # Raise LabClosed only if the lab was closed here. Else the client is closed because Dask gave the scheduler
            # up.
            if self.embedded or self._left.is_set():
                self.check_open()
            raise self._gone(error.reason) from error
        except ActorGone as error:
            if not error.without_files:
                raise
            what = self._what if self._what == self._holds else "what it held"
            said = ActorGone.NO_FILES.format(what=what[:1].upper() + what[1:], found=f"{self._found_by} finds it")
            raise ActorGone(name=error.name, reason=error.reason, left=said, without_files=True) from error
        except (RuntimeError, concurrent.futures.CancelledError):
            self.check_open()
            raise
        finally:
            future.cancel()
            shows.close()

    def check_scheduler(self) -> None:
        """Raise SchedulerGone once the scheduler has been out of reach for `GONE_AFTER`, or LabClosed."""
        self.check_open()
        if self.connected:
            self._lost_since = None
            return
        now = time.monotonic()
        self._lost_since = self._lost_since or now
        if now - self._lost_since > GONE_AFTER:
            raise self._gone(f"no connection for {GONE_AFTER:g} s")

    @property
    def connected(self) -> bool:
        """Whether the connection to the scheduler is open."""
        comm = self.client.scheduler_comm
        return self.client.status == "running" and comm is not None and not comm.comm.closed()

    # --- closing ----------------------------------------------------------------------------

    def named(self, what: str, found_by: str) -> Self:
        """Return a copy whose errors name a queue or run, and the line of code that finds it again."""
        link = copy.copy(self)
        link._what, link._holds, link._found_by = what, what, found_by
        return link

    @property
    def closed(self) -> bool:
        """Whether the client is closed or closing."""
        return self.client.status in ("closed", "closing")

    @property
    def here(self) -> bool:
        """Whether this is the process that connected, not a fork of it."""
        return self._pid == os.getpid()

    def check_open(self) -> None:
        """Raise LabClosed if the client is closed, or UsageError in a fork of its process."""
        if not self.here:
            raise UsageError(
                reason=f"{self._what} cannot be used here: it belongs to process {self._pid}, and this is a fork of "
                "that one, without the threads that receive answers. Nothing was done. Start processes with "
                "multiprocessing.get_context('spawn'), and call dq.connect(ADDRESS) in them; or let the lab itself "
                "run the function, with lab.map."
            )
        if self.closed:
            raise self.closed_error() from None

    def leave(self) -> None:
        """Note that the lab is being closed on purpose."""
        # Errors can then state what is left of the cluster, which nobody knows after a lost connection.
        self._left.set()

    def closed_error(self) -> LabClosed:
        """Return the error for a use of the closed lab."""
        how = "was closed"
        if self.embedded:
            gone = ", and what was in its transient queues is gone"
            stored = f"; what was confirmed of {self._holds} is in the store"
            left = f"Its cluster ended with it{stored if self.store else gone}. {self._to_go_on()}"
        elif self._left.is_set():
            left = f"Its cluster was left as it is: queues, runs and results stay there. {self._to_go_on()}"
        else:
            how = f"has lost its connection to the scheduler at {self.address}"
            left = self.way_on() or SchedulerGone.UNKNOWN
        return LabClosed(lab=self.lab, how=how, what=self._what, left=left, kept=self._kept)

    def _to_go_on(self) -> str:
        """Return the line that connects again, and what finds queues and runs afterwards."""
        if not self.embedded:
            return f"To go on: lab = dq.connect({self.address!r}), then {self._found_by}."
        if not self.store:
            return "Start again with dq.connect() (in a notebook: %dq connect -o lab), then map the documents again."
        magic = f"%dq connect -o lab --store {shlex.quote(self.store)}"
        return f"To go on: lab = dq.connect(store={self.store!r}) (in a notebook: {magic}), then {self._found_by}."

    def _gone(self, reason: str) -> SchedulerGone:
        """Return the error for a scheduler that no longer answers."""
        reason = _LONG_SECONDS.sub(r"\1 s", _OF_A_COMM.sub("", reason))
        return SchedulerGone(
            address=self.address, reason=reason, left=self.way_on() or SchedulerGone.UNKNOWN, kept=self._kept
        )

    @property
    def _kept(self) -> bool:
        """Whether runs may be found again after the end of the cluster."""
        # Only a cluster that is known to have had no store has surely lost them.
        known = self.embedded or (bool(self.up[0]) and not self._left.is_set())
        return bool(self.store) or not known

    def way_on(self) -> str:
        """Return in words what is left of a cluster that ended by itself and how to go on, "" if unknown."""
        command, connecting = self.up
        if not command:
            if self.embedded or not self.store:
                return ""
            return (
                f"Its cluster is gone. What was confirmed of {self._holds} is in the store {self.store}. To go on: "
                f"lab = dq.connect(store={self.store!r}), or a new cluster on that store, then {self._found_by}."
            )
        start = f"To go on: `{command}` in a terminal, then lab = {connecting}"
        if self.store:
            kept = f"What was confirmed of {self._holds} is in the store {self.store}"
            return f"Its cluster is gone. {kept}. {start}, {self._found_by}."
        return f"Its cluster is gone, and {self._holds} with it: it had no store. {start}, and map the documents again."

    # --- coroutines -------------------------------------------------------------------------

    async def reaches(self, worker: str, timeout: float) -> bool:
        """Return whether this process can call a worker directly."""
        try:
            await asyncio.wait_for(self.client.rpc(worker).dq_greet(), timeout)
        except (OSError, TimeoutError):
            return False
        return True

    async def scheduler(self, op: str, *, timeout: float = 40.0, **arguments: Any) -> Any:
        """Call one of the registry's handlers on the scheduler, and raise the handler's error."""
        try:
            async with limited(timeout):
                return opened(await getattr(scheduler_rpc(self.client), op)(**arguments))
        except TimeoutError:
            raise CallTimeout(name=self.address, call=op, seconds=timeout) from None
        except OSError as error:
            raise self._gone(str(error)) from error
