"""A round as it stands: the town, the clients, what they were told, and what has been done so far."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from tests.chaos import truth
from tests.chaos.history import CellEnd, Closing, Refusal, Unrest
from tests.chaos.plan import CLIENTS, Load, Plan
from tests.chaos.remote import Call, Died, Refused, Remote

__all__ = ["Scene"]

LOOK_EVERY = 0.01
START = 120.0
"""Seconds that a process, or a cluster, may take to start."""
CELL = 260.0
"""Seconds that a cell may take which was interrupted and is run again; a little more than it waits by itself."""
PATIENCE = 150.0
"""Seconds that anything else may take: the longest that dqlab itself waits is 40 s, and nothing needs more than 5."""
STANDING = 2.0
"""Seconds after which the next act comes although nothing moves."""


class Scene:
    """Processes, and the log of what was done. `where` is the round's own directory."""

    def __init__(self, plan: Plan, where: Path) -> None:
        self.plan, self.where = plan, where
        self.store = where / "store"
        self.began = time.monotonic()
        self.done: list[str] = []
        self.refused: list[Refusal] = []
        self.unrest: list[Unrest] = []
        self.begun = truth.Begun(where)
        self.wanted = plan.workers
        """Workers that the cluster was told to have."""
        self.retired = 0
        """How many of them were retired; the cluster replaces those late."""
        self.retiring: set[int] = set()
        """Processes of workers that were to be retired."""
        self.given = {queue.name: 0 for queue in plan.queues}
        self.mapped: list[Load] = []
        self.orders: list[Call] = []
        """What was told and need not be answered before the next act."""
        self.cells: list[tuple[Call, CellEnd]] = []
        """Cells that were run again after they were interrupted, which end when nothing is paused any more."""
        self.closed: list[Closing] = []
        self.passing: dict[str, list[tuple[int, int]]] = {queue.name: [] for queue in plan.queues}
        """Numbers [lo, hi) that cells submitted into queues."""
        self.counted: Counter[str] = Counter()
        """What acts have met, for the line at the end."""
        self.stopped: set[int] = set()
        self.paused: list[dict[str, Any]] = []
        self.incarnations = dict.fromkeys(("town", *CLIENTS), 0)
        self.address = ""
        self.town = self._start("town")
        self.clients = {name: self._start(name) for name in CLIENTS}

    # --- processes --------------------------------------------------------------------------

    def _start(self, name: str) -> Remote:
        self.incarnations[name] += 1
        module = "tests.chaos.town" if name == "town" else "tests.chaos.client"
        return Remote(module, f"{name}-{self.incarnations[name]}", self.where)

    def found_town(self) -> None:
        """Start the cluster, and have every client connect and open all queues."""
        self.address = self.town.ask("up", deadline=START, workers=self.plan.workers)["address"]
        for call in [self._connects(name) for name in CLIENTS]:
            call.answer()
        for name in CLIENTS:
            self.open_queues(name)

    def _connects(self, name: str) -> Call:
        return self.clients[name].start(
            "connect", deadline=START, address=self.address, store=str(self.store), patience=START / 2
        )

    def open_queues(self, name: str) -> None:
        """Have a client open all queues."""
        for queue in self.plan.queues:
            self.clients[name].ask(
                "open",
                deadline=PATIENCE,
                name=queue.name,
                shards=queue.shards,
                timeout=queue.timeout,
                durable=queue.durable,
            )

    def map(self, load: Load) -> None:
        """Have a run begun, or gone on with, by its client."""
        self.order(load.client, "map", load=asdict(load))

    def new_town(self) -> None:
        """After the end of the last one: on the same store, with the same clients, who map again what they mapped."""
        self.town = self._start("town")
        self.found_town()
        for load in self.mapped:
            self.map(load)

    def new_client(self, name: str) -> None:
        """After the end of the last one: it maps again what that has mapped."""
        self.clients[name] = self._start(name)
        self._connects(name).answer()
        self.open_queues(name)
        for load in self.mapped:
            if load.client == name:
                self.map(load)

    def processes(self) -> list[psutil.Process]:
        """Return every process of this round that runs: all were given its directory in their environment."""
        found = []
        for one in psutil.process_iter():
            try:
                mine = one.environ().get(truth.DIRECTORY) == str(self.where)
                if mine and one.pid != os.getpid() and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
            except psutil.Error:
                continue
        return found

    def kill_all(self) -> None:
        """End everything, whatever state it is in."""
        for one in self.processes():
            try:
                one.kill()
            except psutil.Error:
                continue
        for remote in (self.town, *self.clients.values()):
            remote.kill()

    # --- orders -----------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Note what is done."""
        self.done.append(f"{time.monotonic() - self.began:7.2f} s, {self.begun.count():5} executed  {text}")

    def order(self, client: str, op: str, **arguments: Any) -> Call:
        """Tell a client something, and do not wait for the answer."""
        self.orders.append(self.clients[client].start(op, deadline=PATIENCE, **arguments))
        return self.orders[-1]

    def heed(self, call: Call) -> Any:
        """Wait for an answer; an error is noted, and judged at the end."""
        try:
            return call.answer()
        except Died:
            return None
        except Refused as error:
            self.say(f"{call.what} answered {error}")
            self.refused.append(Refusal(call.what, error.name, error.text, error.typed, call.at))
            return None

    def heed_orders(self) -> None:
        """Wait for all answers that were not waited for."""
        orders, self.orders = self.orders, []
        for call in orders:
            self.heed(call)

    def run_again(self, client: str, cell: dict[str, Any], end: CellEnd) -> None:
        """Have a client run a cell once more, and do not wait for what it gets, which `heed_cells` puts into `end`."""
        self.cells.append((self.clients[client].start("cell", deadline=CELL, **cell), end))

    def heed_cells(self) -> list[CellEnd]:
        """Wait for all cells; return those that were not refused, and whose client lives."""
        ended = []
        for call, end in self.cells:
            got = self.heed(call)
            if got is not None:
                end.got.extend((number, value) for number, value in got)
                ended.append(end)
        return ended

    # --- pace -------------------------------------------------------------------------------

    def await_executions(self, n: int) -> None:
        """Wait until so many more functions have begun, or nothing has moved for a while."""
        before, since = self.begun.count(), time.monotonic()
        while self.begun.count() - before < n and time.monotonic() - since < STANDING:
            threading.Event().wait(LOOK_EVERY)

    # --- signals ----------------------------------------------------------------------------

    def hosts(self, kind: str) -> list[dict[str, Any]]:
        """Return workers with "queue": shards, or "consumer": consumers and no shards."""
        workers = self.heed(self.town.start("workers", deadline=PATIENCE)) or []
        with_queues = [one for one in workers if one["queues"]]
        return with_queues if kind == "queue" else [one for one in workers if not one["queues"]]

    def hit(self, worker: dict[str, Any], number: int, by: str) -> None:
        """Send a worker a signal, and note what it takes with it."""
        for queue in worker["queues"]:
            truth.taken("shard", queue, worker["pid"], by, where=self.where)
        truth.taken("consumer", "-", worker["pid"], by, where=self.where)
        try:
            os.kill(worker["pid"], number)
        except ProcessLookupError:
            self.say(f"process {worker['pid']} had ended")

    def go_on(self) -> None:
        """Let all go on that were stopped."""
        for pid in self.stopped:
            truth.taken("consumer", "-", pid, "continue", where=self.where)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue
        self.stopped.clear()
