"""Every public call that may wait ends, whatever happens meanwhile: with an error of ours, within a limit.

Every public name of the classes that users hold stands in one of the tables below, `WAITS`, `ASKS` and `ACTS`; a new
one that stands in none fails the first tests. Each of them is made under each of `CONDITIONS`, which name the few that
cannot block there, and why. Calls that wait at the same time share a queue and a condition.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pkgutil
import re
import signal
import socket
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from inspect import getattr_static, isclass, signature
from pathlib import Path
from typing import Any

import dask.config
import pandas as pd
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
import dqlab.lab
import dqlab.runs
from dqlab.checkup.examine import Gathering
from dqlab.cluster.transport.link import Link
from dqlab.cluster.transport.ref import Ref
from dqlab.datasets.table import RunTable
from dqlab.errors import (
    ActorGone,
    BadOption,
    CallTimeout,
    ConnectFailed,
    DqlabError,
    DqlabWarning,
    QueueFull,
    ResultsFull,
    RunError,
    rendering,
)
from dqlab.runs.compare.comparison import Comparison
from dqlab.runs.consumer_pool import Consumer
from dqlab.runs.failures import Failures
from dqlab.runs.pool import ShardView
from dqlab.runs.puts import PutResult
from dqlab.runs.reading.merged import MergedResults
from dqlab.runs.reading.results import Results
from tests.kit.disks import asked, break_disk, unplugged
from tests.kit.leaks import no_leaks


@dataclass
class Scene:
    """What is called: nothing of `run` and `put` will be processed, and `results` are there."""

    lab: dq.Lab
    pool: dq.QueuePool
    run: dq.Run
    put: PutResult
    results: Results
    consumers: dq.ConsumerPool

    @classmethod
    def on(cls, lab: dq.Lab, pool: dq.QueuePool) -> Scene:
        results = pool.map(abs, range(10)).results(timeout=20)
        pool.pause()
        run, put = pool.map(abs, [1], name=f"run-of-{pool.name}"), pool.submit(abs, 1)
        pool.flush(None)
        assert run.submitter is not None
        assert run.submitter.join(20)
        return cls(lab, pool, run, put, results, dq.ConsumerPool(pool.session.link.client, pool))

    @property
    def same_run(self) -> dq.Run:
        """The run, before anything is known of it."""
        return dq.Run(self.run.name, self.run.id, self.pool.handle)

    @property
    def failures(self) -> Failures:
        """One that is looked for."""
        return Failures("none", self.pool.handle, self.run.id, [1])

    @property
    def table(self) -> RunTable:
        """Reads results that are there."""
        return self.results.table()

    @property
    def merged(self) -> MergedResults:
        """Asks for keys when it is made, and for values later."""
        return MergedResults(self.results, len, "raise")

    @property
    def consumer(self) -> Consumer:
        """The first one of the queue."""
        return Consumer(self.pool.handle.link, f"consumer/{self.pool.name}/0")


Call = Callable[[Scene], Any]


def _not_rehearsed(run: Any, ask: Callable[[Any], object] = lambda run: run.rehearsal) -> None:
    """Ask a run for a sample that it does not have, or for what its documents cannot give."""
    with suppress(RunError, BadOption):
        ask(run)


def _compared(run: Any) -> Comparison:
    """Return a comparison with a run that has no code to take."""
    return Comparison(run.name, run.id, "", (1,), 2, 0, 0, 0)


def _found(sequence: Any, value: object) -> int | None:
    try:
        return int(sequence.index(value))
    except ValueError:  # what Python's sequences raise
        return None


WAITS: dict[str, Call] = {
    "Run.wait": lambda s: s.run.wait(),
    "Run.until_over": lambda s: s.run.until_over(),
    "Run.results": lambda s: s.run.results(),
    "Run.as_completed": lambda s: next(iter(s.run.as_completed())),
    "Run.query": lambda s: s.run.query("select * from results"),
    "Run.join": lambda s: s.run.join(pd.DataFrame({"key": [0]})),
    "Run.to_parquet": lambda s: s.run.to_parquet(f"{tempfile.mkdtemp()}/out"),
    "Run.publish": lambda s: s.run.publish(f"{tempfile.mkdtemp()}/out"),
    "PutResult.results": lambda s: s.put.results(),
    "ConsumerPool.join": lambda s: s.consumers.join(),
    "Documents.probe": lambda s: dq.Documents([f"/none/{s.pool.name}.pdf"]).probe(s.pool),
}
"""What waits for consumers, without a limit unless it is given one."""

ASKS: dict[str, Call] = {
    "Lab.all_runs": lambda s: s.lab.all_runs(),
    "Lab.attach": lambda s: s.lab.attach(s.run.name),
    "Lab.controls": lambda s: s.lab.controls(s.pool.name),
    "Lab.doctor": lambda s: s.lab.doctor(timeout=2),
    "Lab.ended": lambda s: s.lab.ended,
    "Lab.held_elsewhere": lambda s: s.lab.held_elsewhere,
    "Lab.history": lambda s: s.lab.history("1m"),
    "Lab.past": lambda s: s.lab.past(60),
    "Lab.queue_names": lambda s: s.lab.queue_names(),
    "Lab.snapshot": lambda s: s.lab.snapshot(),
    "Lab.stats": lambda s: s.lab.stats(),
    "Lab.wait_for_change": lambda s: s.lab.wait_for_change(1 << 60, timeout=0.5),
    "Lab.retry": lambda s: s.lab.retry(s.run.name),
    "Lab.gc": lambda s: s.lab.gc(),
    "QueuePool.counts": lambda s: s.pool.counts(),
    "QueuePool.dead": lambda s: list(s.pool.dead()),
    "QueuePool.gone": lambda s: s.pool.gone,
    "QueuePool.get_queue_size": lambda s: s.pool.get_queue_size(),
    "QueuePool.print": lambda s: s.pool.print(),
    "QueuePool.history": lambda s: s.pool.history("1m"),
    "QueuePool.past": lambda s: s.pool.past(60),
    "QueuePool.snapshot": lambda s: s.pool.snapshot(),
    "QueuePool.stats": lambda s: s.pool.stats(),
    "QueuePool.unacked": lambda s: s.pool.unacked(),
    "Run.counts": lambda s: s.run.counts,
    "Run.done": lambda s: s.run.done,
    "Run.state": lambda s: s.run.state,
    "Run.source": lambda s: s.run.source,
    "Run.versions": lambda s: s.run.versions,
    "Run.examples": lambda s: s.run.examples("none"),
    "Run.why_none": lambda s: s.run.why_none("error == 'None'"),
    "Run.function": lambda s: s.run.function(),
    "Run.failures": lambda s: list(s.run.failures()),
    "Run.left": lambda s: s.run.left(timeout=5),
    "Run.past": lambda s: s.run.past(60),
    "Run.reader": lambda s: s.same_run.reader(),
    "Run.sink": lambda s: s.same_run.sink,
    "Run.record": lambda s: s.run.record(),
    "Run.snapshot": lambda s: s.run.snapshot(),
    "Run.stats": lambda s: s.run.stats(),
    "Run.results_now": lambda s: list(s.run.results_now()),
    "Run.table": lambda s: s.run.table().count(),
    "Run.logs": lambda s: s.run.logs(0),
    "Run.slowest": lambda s: s.run.slowest(1),
    "Run.debug": lambda s: s.run.debug(0),
    "Run.rehearsal": lambda s: _not_rehearsed(s.run),
    "Run.marks": lambda s: len(s.run.marks),
    "Run.plan": lambda s: _not_rehearsed(s.run, lambda run: run.plan([])),
    "Run.spend": lambda s: s.run.spend(),
    "Run.diff": lambda s: _not_rehearsed(s.run, lambda run: run.diff(1, 1)),
    "Run.results_at": lambda s: list(s.same_run.results_at([(0, 1)])),
    "RunTable.columns": lambda s: s.table.columns,
    "RunTable.head": lambda s: s.table.head(),
    "RunTable.in_rest": lambda s: s.table.in_rest(),
    "RunTable.query": lambda s: s.table.query("select * from results"),
    "RunTable.place": lambda s: s.same_run.table().place(),
    "RunTable.reading": lambda s: list(s.table.reading()),
    "RunTable.schema": lambda s: s.table.schema,
    "RunTable.shape": lambda s: s.table.shape(),
    "RunTable.to_arrow": lambda s: s.table.to_arrow(),
    "RunTable.to_batches": lambda s: list(s.table.to_batches()),
    "RunTable.to_pandas": lambda s: s.table.to_pandas(),
    "RunTable.to_reader": lambda s: s.table.to_reader().read_all(),
    "PutResult.ids": lambda s: s.put.ids,
    "PutResult.durability": lambda s: s.put.durability,
    "Results.__getitem__": lambda s: s.results[3],
    "Results.__iter__": lambda s: list(s.results),
    "Results.count": lambda s: s.results.count(1),
    "Results.index": lambda s: _found(s.results, 1),
    "Results.items": lambda s: list(s.results.items()),
    "Results.identities": lambda s: list(s.results.identities()),
    "Results.ordinals_of": lambda s: s.results.ordinals_of("none"),
    "Results.single": lambda s: list(s.results.single([3])),
    "Results.references": lambda s: list(s.results.references()),
    "Results.keys": lambda s: list(s.results.keys()),
    "Results.replaced_keys": lambda s: list(s.results.replaced_keys()),
    "Results.code": lambda s: s.results.code,
    "Results.made": lambda s: list(s.results.made()),
    "Results.rows": lambda s: list(s.results.rows(3)),
    "Results.table": lambda s: s.results.table().head(),
    "Results.to_arrow": lambda s: s.results.to_arrow(),
    "Results.to_frame": lambda s: s.results.to_frame(),
    "ConsumerPool.nb_consumed": lambda s: s.consumers.nb_consumed(),
    "ConsumerPool.results": lambda s: s.consumers.results(),
    "ConsumerPool.__iter__": lambda s: list(s.consumers),
    "ShardView.stats": lambda s: s.pool[0].stats(),
    "ShardView.qsize": lambda s: s.pool[0].qsize(),
    "ShardView.empty": lambda s: s.pool[0].empty(),
    "Consumer.stats": lambda s: s.consumer.stats(),
    "Consumer.len_items": lambda s: s.consumer.len_items(),
    "Consumer.len_pending_items": lambda s: s.consumer.len_pending_items(),
    "Failures.__getitem__": lambda s: s.failures[:1],
    "Failures.__iter__": lambda s: list(s.failures),
    "Failures.classes": lambda s: s.run.failures().classes,
    "Failures.count": lambda s: s.failures.count(1),
    "Failures.index": lambda s: _found(s.failures, 1),
    "Failures.example": lambda s: s.failures.example("none"),
    "Failures.named": lambda s: list(s.failures.named([1])),
    "Failures.of": lambda s: list(s.failures.of(["none"])),
    "Failures.places": lambda s: s.failures.places(),
    "Failures.to_frame": lambda s: s.failures.to_frame(),
    "MergedResults.__getitem__": lambda s: s.merged[0],
    "MergedResults.__iter__": lambda s: list(s.merged),
    "MergedResults.count": lambda s: s.merged.count(1),
    "MergedResults.index": lambda s: _found(s.merged, 1),
    "MergedResults.items": lambda s: list(s.merged.items()),
    "MergedResults.keys": lambda s: list(s.merged.keys()),
    "MergedResults.to_frame": lambda s: s.merged.to_frame(),
}
"""What asks, and waits for no more than an answer."""

ACTS: dict[str, Call] = {
    "Lab.queue": lambda s: s.lab.queue(f"other-than-{s.pool.name}"),
    "Lab.map": lambda s: s.lab.map(abs, [1]),
    "QueuePool.map": lambda s: s.pool.map(abs, [1]),
    "QueuePool.submit": lambda s: s.pool.submit(abs, 1).ids,
    "QueuePool.batch_submit": lambda s: s.pool.batch_submit([(abs, 1)]).ids,
    "QueuePool.put": lambda s: s.pool.put(1).ids,
    "QueuePool.put_many": lambda s: s.pool.put_many([1]).ids,
    "QueuePool.flush": lambda s: s.pool.flush(None),
    "QueuePool.pause": lambda s: s.pool.pause(),
    "QueuePool.resume": lambda s: s.pool.resume(),
    "QueuePool.drain": lambda s: s.pool.drain(),
    "QueuePool.purge": lambda s: s.pool.purge(),
    "QueuePool.scale": lambda s: s.pool.scale(1),
    "QueuePool.forget": lambda s: s.pool.forget(),
    "QueuePool.replace": lambda s: s.pool.replace("c0"),
    "QueuePool.give_up": lambda s: s.pool.give_up("#0"),
    "QueuePool.compact": lambda s: s.pool.compact(),
    "Run.pause": lambda s: s.run.pause(),
    "Run.resume": lambda s: s.run.resume(),
    "Run.go": lambda s: s.run.go(),
    "Run.rehearse": lambda s: _not_rehearsed(s.run, lambda run: run.rehearse()),
    "Run.follow": lambda s: _not_rehearsed(s.run, lambda run: run.follow(iter([]))),
    "Run.update": lambda s: _not_rehearsed(s.run, lambda run: run.update([])),
    "Run.compare": lambda s: _not_rehearsed(s.run, lambda run: run.compare(abs)),
    "Run.redo": lambda s: _not_rehearsed(s.run, lambda run: run.redo(keys=["none"])),
    "Run.accept": lambda s: _not_rehearsed(s.run, lambda run: run.accept(_compared(run))),
    "Run.accept_code": lambda s: s.run.accept_code(abs),
    "Run.weight": lambda s: s.run.weight(2),
    "Run.priority": lambda s: s.run.priority(1),
    "Run.limit": lambda s: s.run.limit("1k/s"),
    "Run.budget": lambda s: s.run.budget("9 eur"),
    "Run.scale": lambda s: s.run.scale(1),
    "Run.retry": lambda s: s.run.retry(),
    "Run.send_again": lambda s: s.run.send_again(),
    "Run.replace": lambda s: s.run.replace("c0"),
    "Run.give_up": lambda s: s.run.give_up("#0"),
    "ConsumerPool.start": lambda s: s.consumers.start(),
    "ConsumerPool.scale": lambda s: s.consumers.scale(1),
    "ConsumerPool.cancel": lambda s: s.consumers.cancel(),
    "Run.cancel": lambda s: s.run.cancel(),
    "Run.drop": lambda s: s.run.drop(),
    "QueuePool.close": lambda s: s.pool.close(force=True),
    "Lab.close": lambda s: s.lab.close(),
}
"""What changes something."""

SAYS_NOTHING_TO_THE_CLUSTER = {
    "Lab": "announce dashboard embedded keep_in list_stored panel queues runs service widget",
    "QueuePool": "closed get_len get_queue get_queues put_many_sync put_nowait widget __getitem__ __iter__ __len__",
    "Run": "newer queue on_drop tried undecided waits_for_go widget",
    "PutResult": "__len__",
    "Results": "in_sink ordinal __len__",
    "ConsumerPool": "__getitem__ __len__",
    "Failures": "__len__",
    "MergedResults": "__len__",
    "RunTable": "count name now",
}
"""What waits for no other process: other names of the above, and what this process knows by itself."""

CLASSES = (
    *(dq.Lab, dq.QueuePool, dq.Run, PutResult, Results, dq.ConsumerPool),
    *(ShardView, Consumer, Failures, MergedResults, RunTable),
)
ASK_NOBODY = (
    "Became Compared Comparison DeadLetter Estimate Following Marks "
    "OpenedStretch Rehearsal Slowest Timeline UnackedLeases UpdatePlan Version"
)
"""Other classes whose objects users hold: what they know was fetched before, or is in this process."""
FUNCTIONS = {
    "connect": "test_connecting_without_an_answer_ends, test_interrupt_ends_connecting, and tests/test_connecting.py",
    "cancelled": "reads a flag of its own process",
    "explain": "looks at a function of its own process",
    "close": "compares two values",
    "same": "compares two values",
    "same_words": "compares two values",
    "later_from": "reads an answer",
    "map": "`Lab.map` of an open lab, or of one that `connect` opens",
    "once": "calls a function in its own process",
    "per_consumer": "calls a function in its own process",
    "spend": "notes an amount in its own process",
    "track": "counts in its own process",
}
"""What the package offers besides classes, and where it is looked at."""
CONTAINERS = ("__getitem__", "__iter__", "__len__")
LIMIT = 25.0
"""Seconds within which everything has ended: ten until a scheduler counts as gone, on a busy machine."""


def public(kind: type) -> set[str]:
    """Return the names of a class that a user may call, or whose value is made when it is asked for."""
    names = {name for name in dir(kind) if not name.startswith("_") or name in CONTAINERS}
    return {
        name
        for name in names
        if callable(getattr(kind, name, None)) or isinstance(getattr_static(kind, name), property)
    }


def test_every_public_call_stands_in_a_table() -> None:
    """One that is new, and waits for ever, would be found by a user."""
    known = {*WAITS, *ASKS, *ACTS}
    known |= {f"{kind}.{name}" for kind, names in SAYS_NOTHING_TO_THE_CLUSTER.items() for name in names.split()}

    public_names = {f"{kind.__name__}.{name}" for kind in CLASSES for name in public(kind)}
    public_names |= {f"Documents.{name}" for name in public(dq.Documents) if takes_a_lab(getattr(dq.Documents, name))}
    assert (public_names - known, known - public_names) == (set(), set())


def takes_a_lab(member: Any) -> bool:
    """Return whether a method is given the lab that it asks."""
    return callable(member) and "lab" in signature(member).parameters


def returned_by(kind: type) -> set[str]:
    """Return the words in the annotations of what a class's public methods return."""
    members = {name: member for base in kind.__mro__ for name, member in vars(base).items() if name[0] != "_"}
    functions = [getattr(m, "fget", None) or getattr(m, "func", None) or m for m in members.values()]
    annotations = [getattr(function, "__annotations__", {}).get("return", "") for function in functions]
    return {word for annotation in annotations for word in re.findall(r"\w+", str(annotation))}


def test_every_class_that_users_hold_is_looked_at() -> None:
    """A new one brings calls."""
    modules = [importlib.import_module(each.name) for each in pkgutil.walk_packages(dqlab.runs.__path__, "dqlab.runs.")]
    classes = {kind for module in modules for kind in vars(module).values() if isclass(kind)}
    kinds = {kind.__name__: kind for kind in classes if kind.__module__.startswith("dqlab.runs")}
    held, todo = set[str](), [kind.__name__ for kind in CLASSES]
    while todo:
        held.add(name := todo.pop())
        todo += returned_by(kinds.get(name, dq.Lab)) & kinds.keys() - held
    held = {name for name in held if not issubclass(kinds.get(name, dq.Lab), BaseException)}

    assert held - {kind.__name__ for kind in CLASSES} == {*ASK_NOBODY.split()}
    assert {name for name in dq.__all__ if not isclass(getattr(dq, name))} == set(FUNCTIONS)


@dataclass(frozen=True)
class Condition:
    """What happens to a cluster, and what becomes of every call then.

    Attributes
    ----------
    limit : float
        Seconds within which every call has ended.
    waits : tuple of type
        What the calls that wait end with.
    cannot : dict
        Calls that cannot block then, and why.
    elsewhere : dict
        Calls that another test makes under this condition, for what they end: "FILE::TEST", or "TEST" of this file.
    instead : dict
        What is called where a call of the tables would have nothing to wait for.
    """

    limit: float
    waits: tuple[type[BaseException], ...] = (DqlabError,)
    cannot: Mapping[str, str] = field(default_factory=dict)
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, Call] = field(default_factory=dict)

    def calls(self, table: Mapping[str, Call]) -> dict[str, Call]:
        """Return the calls of a table that are made under this condition."""
        left = table.keys() - self.cannot.keys() - self.elsewhere.keys()
        return {name: self.instead.get(name, call) for name, call in table.items() if name in left}


CLOSES = "test_lab_closes_in_any_state"
CLOSES_FAILED = "test_closing_ends_though_a_log_has_failed"
CONDITIONS = {
    "Ctrl-C": Condition(
        limit=2.0,
        waits=(KeyboardInterrupt,),
        cannot={
            "Lab.held_elsewhere": "it reads a file beside the store, and asks no other process",
            "Lab.gc": "it waits in QueuePool.compact, once for each durable queue",
        },
        elsewhere={"Lab.close": "tests/test_interrupt.py::test_interrupted_close_goes_on_and_can_be_repeated"},
        instead={
            "Lab.controls": lambda s: s.lab.controls("one that is not open"),
            "PutResult.ids": lambda s: s.pool.put(1).ids,
            "PutResult.durability": lambda s: s.pool.put(1).durability,
            "QueuePool.flush": lambda s: (s.pool.put(1), s.pool.flush(None)),  # type: ignore[func-returns-value]
            "ConsumerPool.start": lambda s: dq.ConsumerPool(s.lab.client, s.pool).start(),
        },
    ),
    "scheduler gone": Condition(
        limit=LIMIT,
        elsewhere={"Lab.close": "tests/test_lab_gone.py::test_lab_whose_cluster_was_just_killed_closes_in_silence"},
    ),
    "log failed": Condition(
        limit=LIMIT,
        waits=(ActorGone,),
        elsewhere=dict.fromkeys(("Lab.close", "QueuePool.close", "Run.drop"), CLOSES_FAILED),
    ),
    "closed by another": Condition(limit=LIMIT, elsewhere={"Lab.close": CLOSES}),
    "results full": Condition(
        limit=LIMIT,
        waits=(ResultsFull,),
        cannot={"Documents.probe": "the result of its one document may fit where no result of the others does"},
        elsewhere={"Lab.close": CLOSES},
        instead={"Run.as_completed": lambda s: list(s.run.as_completed())},
    ),
    "no workers": Condition(
        limit=65.0,  # a put that was handed over when another had just been sent waits for half a minute after that one
        waits=(ActorGone, CallTimeout),
        elsewhere={"Lab.close": "test_no_worker_ends_every_call"},
    ),
}
"""All calls under six conditions. What is in memory only is gone with its worker; for what is on disk a wait without a
limit goes on, and warns: see `test_wait_for_a_durable_queue_without_workers_warns_and_goes_on`."""


def test_every_call_is_made_under_every_condition() -> None:
    """Or it is written down why it cannot block there, or which test makes it."""
    calls = {*WAITS, *ASKS, *ACTS}
    assert len(CONDITIONS) == 6
    for condition in CONDITIONS.values():
        exempt = [*condition.cannot, *condition.elsewhere]
        assert len(exempt) == len(set(exempt))
        assert {*exempt, *condition.instead} <= calls
        assert all(why for why in condition.cannot.values())
        for test in condition.elsewhere.values():
            file, _, name = test.rpartition("::")
            text = (Path(__file__).parents[1] / file if file else Path(__file__)).read_text()
            assert f"def {name}(" in text


class StillWaiting(Exception):
    """What a call raised that has not ended."""


def outcomes(
    scene: Scene, calls: Mapping[str, Call], meanwhile: Callable[[], Any] | None = None, *, limit: float = LIMIT
) -> dict[str, Any]:
    """Make all calls at the same time, do something meanwhile, and return what each raised or None."""
    ended: dict[str, Any] = dict.fromkeys(calls, StillWaiting())

    def run(name: str, call: Call) -> None:
        try:
            call(scene)
            ended[name] = None
        except BaseException as error:  # noqa: BLE001 - this is what is looked at
            ended[name] = error

    threads = [threading.Thread(target=run, args=item, name=item[0], daemon=True) for item in calls.items()]
    deadline = time.monotonic() + limit
    for thread in threads:
        thread.start()
    if meanwhile is not None:
        meanwhile()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return ended


def untyped(ended: Mapping[str, Any], *, must_raise: bool) -> dict[str, Any]:
    """Return which calls ended with something else than an error of ours, or did not end."""
    fine = DqlabError if must_raise else (DqlabError, type(None))
    return {name: error for name, error in ended.items() if not isinstance(error, fine)}


def every_call_ends(scene: Scene, condition: Condition, meanwhile: Callable[[], Any] | None = None) -> None:
    """Make every call of the tables; something happens while the first ones wait."""
    ended = outcomes(scene, condition.calls(WAITS), meanwhile, limit=condition.limit)
    assert {name: error for name, error in ended.items() if not isinstance(error, condition.waits)} == {}
    assert untyped(outcomes(scene, condition.calls(ASKS), limit=condition.limit), must_raise=False) == {}
    assert untyped(outcomes(scene, condition.calls(ACTS), limit=condition.limit), must_raise=False) == {}


@pytest.fixture
def pool(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue that others may close."""
    pool = lab.queue(queue_name)
    yield pool
    pool.close(force=True)


class Silence:
    """While it is kept, no process answers what is asked of a cluster, and Ctrl-C is pressed for the first question."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pressed: float | None = None
        self._kept = self._presses = False
        self._asking: list[str] = []
        for kind, name in ((Ref, "call"), (Link, "scheduler"), (Gathering, "_scheduler")):
            monkeypatch.setattr(kind, name, self._silenced(getattr(kind, name)))

    def _silenced(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        async def ask(*arguments: Any, **options: Any) -> Any:
            # What a user did, for charts, and results that no client can read any more: nothing waits for these.
            if "dq_mark" in arguments or any(type(one) is bytes and b"coming" in one for one in arguments):
                return await plain(*arguments, **options)
            task = asyncio.current_task()
            name = "" if task is None else task.get_name()
            if "dq_disclaim" in arguments:  # goes on in the background
                name = "dqlab-disclaim"
            self._asking.append(name)
            try:
                while self._kept:
                    if self._presses and not name.startswith("dqlab-forget"):
                        self._presses = False
                        asyncio.get_running_loop().call_later(0.02, self._press)
                    await asyncio.sleep(0.01)
            finally:
                self._asking.remove(name)
            return await plain(*arguments, **options)

        return ask

    def _press(self) -> None:
        self.pressed = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    def during(self, call: Callable[[], Any]) -> str:
        """Call, interrupted; return what is wrong with its end."""
        self.pressed, self._kept, self._presses = None, True, True
        said = "was not interrupted: it asks nobody"
        try:
            call()
        except KeyboardInterrupt:
            took = time.monotonic() - (self.pressed or 0.0)
            said = "" if took < CONDITIONS["Ctrl-C"].limit else f"took {took:.1f} s"
        except BaseException as error:  # noqa: BLE001 - this is what is looked at
            said = repr(error)
        if said:
            with suppress(KeyboardInterrupt):  # one that comes too late
                time.sleep(0.0 if self._presses else 0.5)
        # What a sender has taken goes on, by tasks with names of their own: the message was handed over.
        deadline = time.monotonic() + CONDITIONS["Ctrl-C"].limit
        while (left := [name for name in self._asking if not name.startswith("dqlab-")]) and not said:
            if time.monotonic() > deadline:
                said = f"goes on asking: {left}"
            time.sleep(0.01)
        self._kept = self._presses = False
        while self._asking:
            time.sleep(0.01)
        return said


def test_interrupt_ends_every_call_without_an_answer(
    lab: dq.Lab, pool: dq.QueuePool, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Ctrl-C, within two seconds; nothing goes on, nothing is held, and the same calls work afterwards."""
    condition = CONDITIONS["Ctrl-C"]
    scene = Scene.on(lab, pool)
    scene.consumers.start()
    assert untyped(outcomes(scene, condition.calls(ASKS)), must_raise=False) == {}  # starts the threads of pools
    scene.results = lab.attach(scene.results.name).results(timeout=20)  # the first ones keep a page
    monkeypatch.setattr(
        "dqlab.runs.reading.results.READ_VALUES", 3
    )  # of ten results: several pages are asked for at once
    silence, wrong = Silence(monkeypatch), {}
    with no_leaks():
        for name, call in condition.calls(WAITS | ASKS | ACTS).items():
            wrong[name] = silence.during(lambda call=call: call(scene))  # type: ignore[misc]
            pool.flush(20)
    assert {name: said for name, said in wrong.items() if said} == {}
    assert untyped(outcomes(scene, condition.calls(ASKS)), must_raise=False) == {}
    acts = condition.calls(ACTS)
    assert untyped(outcomes(scene, acts), must_raise=False) == {}


@contextmanager
def pressed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Press Ctrl-C when the block has asked the cluster for what it waits for, and not while it prepares that."""
    began, asked = threading.Event(), threading.Event()
    trim, result = rendering._trim_tracebacks, Link.result

    def begin() -> None:
        trim()
        began.set()

    def ask(self: Link, *args: Any, **options: Any) -> Any:
        if began.is_set() and threading.current_thread() is threading.main_thread():
            asked.set()
        return result(self, *args, **options)

    def press() -> None:
        if asked.wait(30):
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(rendering, "_trim_tracebacks", begin)
    monkeypatch.setattr(Link, "result", ask)
    pressing = threading.Thread(target=press)
    pressing.start()
    yield
    pressing.join()


@pytest.mark.parametrize("name", WAITS)
def test_interrupt_ends_a_wait(lab: dq.Lab, pool: dq.QueuePool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is what one presses when nothing comes."""
    scene = Scene.on(lab, pool)

    with pressed(monkeypatch), pytest.raises(KeyboardInterrupt, match="no longer waiting for"):
        WAITS[name](scene)
    assert scene.run.counts["ready"] == 1


def test_queue_closed_by_another_client_ends_every_call(lab: dq.Lab, pool: dq.QueuePool) -> None:
    """Colleagues share clusters, and close what they take for theirs."""
    scene = Scene.on(lab, pool)
    with dq.connect(lab.session.link.address, name="closes") as other:
        every_call_ends(scene, CONDITIONS["closed by another"], lambda: other.queue(pool.name).close(force=True))


def test_no_consumer_ends_every_wait(lab: dq.Lab, queue_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves by itself then."""
    parks = "run_wait.PARK", "puts.PARK", "consumer_pool.PARK"
    for limit in (*parks, "waiting.STALLED_AFTER", "submit.sender.ROOM_WAIT"):
        monkeypatch.setattr(f"dqlab.runs.{limit}", 1.0)
    pool = dq.QueuePool(lab.client, name=queue_name, maxsize=1)
    run, put = pool.map(abs, range(10), consumers=None), pool.submit(abs, 1)
    scene = Scene(lab, pool, run, put, Results("none", pool.handle, run.id, []), dq.ConsumerPool(lab.client, pool))
    pool.submit(abs, 2)
    with pytest.raises(QueueFull):  # once: some of the others flush as well
        ACTS["QueuePool.flush"](scene)
    pool.submit(abs, 2)
    waits = {name: wait for name, wait in WAITS.items() if name != "Documents.probe"}  # it maps, with consumers

    assert untyped(outcomes(scene, waits), must_raise=True) == {}
    pool.close()


def test_no_room_for_results_ends_every_call(lab: dq.Lab, queue_name: str) -> None:
    """A queue that has no room pauses itself, which is nobody's wish."""
    with dask.config.set({"dqlab.results.maxsize": 20_000}):
        pool = lab.queue(queue_name)
    run, put = pool.map(bytes, [1_000] * 20_000), pool.batch_submit([(bytes, 1_000)] * 20_000)
    scene = Scene(
        lab, pool, run, put, Results("none", pool.handle, run.id, [(0, 10)]), dq.ConsumerPool(lab.client, pool)
    )
    with pytest.raises(ResultsFull):  # else a document that is probed may find room before the others have taken it
        run.wait(timeout=60)
    every_call_ends(scene, CONDITIONS["results full"])
    pool.close()


def test_log_that_failed_ends_every_call(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disks fail under people who wait: each call ends, and none of them costs what is on the disk."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.HOPELESS_AFTER", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.LONGEST_PAUSE", 0.5)
    kept = {"durability": dq.Durability.DURABLE, "dirpath": tmp_path}
    pool = dq.QueuePool(lab.client, name=queue_name, served=True, **kept)  # type: ignore[arg-type]
    scene = Scene.on(lab, pool)

    def fail() -> None:
        asked(lab.client, queue_name, break_disk)
        with suppress(DqlabError):
            assert pool.put(1).ids

    with unplugged(lab.client, tmp_path):
        every_call_ends(scene, CONDITIONS["log failed"], fail)
    again = lab.queue(queue_name)
    assert (again.durability, again.counts()["acked"]) == (dq.Durability.DURABLE, 10)
    again.close(force=True)


@pytest.mark.parametrize("call", ["QueuePool.close", "Lab.close", "Run.drop"])
def test_closing_ends_though_a_log_has_failed(
    lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A user whose disk fails closes everything first."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.HOPELESS_AFTER", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.LONGEST_PAUSE", 0.5)
    other = dq.connect(lab.session.link.address, name=f"closes-{queue_name}", store=tmp_path)
    pool = other.queue(queue_name)
    run = pool.map(abs, range(10), consumers=None)
    assert run.submitter is not None
    assert run.submitter.join(20)
    with unplugged(lab.client, tmp_path):
        asked(lab.client, queue_name, break_disk)
        ended = outcomes(Scene(other, pool, run, None, None, None), {call: ACTS[call]})  # type: ignore[arg-type]
        assert untyped(ended, must_raise=False) == {}
        other.close()
    again = dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
    assert again.counts()["ready"] == 10
    again.close(force=True)


@contextmanager
def silent() -> Iterator[str]:
    """Listen where a scheduler might be, let connect, and answer nothing: one that is stopped, or that swaps."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.cluster
def test_connecting_without_an_answer_ends(tmp_path: Path) -> None:
    """Whatever is wrong with a cluster shows when somebody connects to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    with silent() as stopped:
        written = tmp_path / "written"
        written.write_text(json.dumps({"address": stopped}))
        calls: dict[str, Call] = {
            "no scheduler": lambda _: dq.connect(nobody, timeout=0.5),
            "one that is stopped": lambda _: dq.connect(stopped, timeout=0.5),
            "no file of one": lambda _: dq.connect(scheduler_file=tmp_path / "none", timeout=0.5),
            "a file of one that is stopped": lambda _: dq.connect(scheduler_file=written, timeout=0.5),
            "sockets that are gone": lambda _: dq.connect(f"unix://{tmp_path}:7", timeout=0.5),
        }
        began = time.monotonic()
        ended = outcomes(None, calls)  # type: ignore[arg-type]

    assert {name: error for name, error in ended.items() if not isinstance(error, ConnectFailed)} == {}
    assert time.monotonic() - began < 5


@pytest.mark.cluster
def test_interrupt_ends_connecting() -> None:
    """Ctrl-C is what one presses at a wrong address, and the next try is not to find a lab that is half made."""
    with silent() as stopped:
        press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        press.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            dq.connect(stopped, timeout=20)
        press.join()
        assert time.monotonic() - began < 5
        with pytest.raises(ConnectFailed):
            dq.connect(stopped, timeout=0.5)


def test_connecting_with_a_store_that_cannot_be_used_ends(lab: dq.Lab, tmp_path: Path) -> None:
    """A path that is a file, or a disk that refuses: before anything is mapped."""
    (tmp_path / "file").write_text("")
    with unplugged(lab.client, tmp_path):
        with pytest.raises(DqlabError):
            dq.connect(lab.session.link.address, name="no-store", store=tmp_path / "file")
        refuses = dq.connect(lab.session.link.address, name="refuses", store=tmp_path / "store")
        with pytest.raises(DqlabError, match="the cable"):
            refuses.queue("kept")
        refuses.close()


STATES: dict[str, Callable[[dq.Lab, dq.QueuePool], object]] = {
    "nothing": lambda lab, pool: None,
    "closed by another": lambda lab, pool: lab.queue(pool.name).close(force=True),
    "no consumers": lambda lab, pool: pool.map(abs, range(10), consumers=None),
    "paused": lambda lab, pool: (pool.map(abs, range(10)), lab.queue(pool.name).pause()),  # type: ignore[func-returns-value]
    "an input that hangs": lambda lab, pool: pool.map(abs, iter(threading.Event().wait, None)),
    "put under way": lambda lab, pool: pool.batch_submit([(abs, 1)] * 50_000),
    "results full": lambda lab, pool: _fill(pool),
}


def _fill(pool: dq.QueuePool) -> None:
    with pytest.raises(ResultsFull):
        pool.map(bytes, [1_000] * 20_000).wait(timeout=30)


@pytest.mark.parametrize("state", STATES)
def test_lab_closes_in_any_state(lab: dq.Lab, queue_name: str, state: str) -> None:
    """It is the last cell of a notebook, run whatever became of the others."""
    other = dq.connect(lab.session.link.address, name=f"closes-{queue_name}")
    with dask.config.set({"dqlab.results.maxsize": 20_000}):
        pool = other.queue(queue_name)
    STATES[state](lab, pool)
    began = time.monotonic()
    other.close()
    assert time.monotonic() - began < 5
    assert other.closed
    assert untyped(outcomes(None, {"put": lambda _: pool.submit(abs, 1).ids}), must_raise=True) == {}  # type: ignore[arg-type]
    lab.queue(queue_name).close(force=True)


@pytest.mark.slow
def test_scheduler_that_is_gone_ends_every_call(queue_name: str) -> None:
    """A kernel whose cluster has ended is restarted only when somebody says that it has."""
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None)
    with dq.connect(Client(cluster, set_as_default=False), name="ends") as lab:
        scene = Scene.on(lab, lab.queue(queue_name))
        every_call_ends(scene, CONDITIONS["scheduler gone"], cluster.close)
        lab.client.close()


LIMITS = {
    "cluster.scheduler.actors.RESOLVE_WAIT": 0.5,
    "cluster.scheduler.actors.HOPELESS_AFTER": 2.0,
    "runs.submit.sender.CONFIRM_WAIT": 1.0,
    "runs.puts.CONFIRM_WAIT": 1.0,
    "runs.waiting.LATE": 0.5,
}
"""What makes waiting for workers long, and how short it may be."""


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    """One whose workers may go."""
    with LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


@pytest.fixture(params=["short", pytest.param("true", marks=pytest.mark.slow)])
def scaled_to_nothing(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own_cluster: LocalCluster
) -> Iterator[tuple[LocalCluster, dq.Lab]]:
    """A cluster that will have no worker, and a lab with a store on it."""
    for limit, seconds in LIMITS.items() if request.param == "short" else ():
        monkeypatch.setattr(f"dqlab.{limit}", seconds)
    scale(own_cluster, 3)
    client = Client(own_cluster, set_as_default=False)
    with dq.connect(client, name="scales", store=tmp_path) as lab:
        yield own_cluster, lab
    client.close()


def scale(cluster: LocalCluster, n: int) -> None:
    """Have so many workers."""
    cluster.scale(n)
    deadline = time.monotonic() + 30
    while len(cluster.scheduler.workers) != n and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(cluster.scheduler.workers) == n


@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:.*No worker process answers")
def test_no_worker_ends_every_call(scaled_to_nothing: tuple[LocalCluster, dq.Lab]) -> None:
    """Those that wait for a durable queue without a limit go on; they have a test of their own."""
    cluster, lab = scaled_to_nothing
    condition = CONDITIONS["no workers"]
    in_memory, on_disk = Scene.on(lab, lab.queue("in-memory", durable=False)), Scene.on(lab, lab.queue("on-disk"))
    waits = {
        f"in memory: {name}": (lambda s, wait=wait: wait(in_memory)) for name, wait in condition.calls(WAITS).items()
    }
    others = condition.calls(ASKS | ACTS)
    closing = {name: others.pop(name) for name in ("Run.cancel", "Run.drop", "QueuePool.close")}
    scale(cluster, 0)

    calls = waits | {f"on disk: {name}": call for name, call in others.items()}
    ended = outcomes(on_disk, calls, limit=condition.limit)
    assert {name: ended[name] for name in waits if not isinstance(ended[name], condition.waits)} == {}
    assert untyped(ended, must_raise=False) == {}
    assert untyped(outcomes(in_memory, others, limit=condition.limit), must_raise=False) == {}
    for name, call in closing.items():
        for scene in (in_memory, on_disk):
            assert untyped(outcomes(scene, {name: call}, limit=condition.limit), must_raise=False) == {}
    began = time.monotonic()
    lab.close()
    assert time.monotonic() - began < 5


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_wait_for_a_durable_queue_without_workers_warns_and_goes_on(
    scaled_to_nothing: tuple[LocalCluster, dq.Lab],
) -> None:
    """Clusters of a batch system scale to nothing and come back: a wait loses nothing by that."""
    cluster, lab = scaled_to_nothing
    scene = Scene.on(lab, lab.queue("on-disk"))
    waits = {name: wait for name, wait in WAITS.items() if name != "Documents.probe"}  # it maps: an act
    scale(cluster, 0)
    said, warned = [], threading.Event()

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if category is DqlabWarning and "No worker process answers" in str(message):
            said.append(str(message))
            if len(said) == len(waits):
                warned.set()

    def come_back() -> None:
        assert warned.wait(90)
        scale(cluster, 3)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(DqlabError):  # its log is being opened
                scene.pool.resume()
                break

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        ended = outcomes(scene, waits, come_back, limit=150)

    assert {name: error for name, error in ended.items() if error is not None} == {}
    assert len(said) == len(waits)
