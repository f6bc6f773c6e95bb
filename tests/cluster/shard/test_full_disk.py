"""A disk that is full: what was done before stays done and can be read; the rest waits for room."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport.wire import pack
from dqlab.errors import WaitTimeout
from dqlab.log.errors import DiskFull
from dqlab.testing import Gate
from tests.cluster import desk
from tests.kit.disks import asked, fill_disk, make_room
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until
from tests.runs.test_paused_waits import WAITS, said_while

DONE = 2_500


def double(x: int) -> int:
    return 2 * x


def odd_only(x: int) -> int:
    if x % 2 == 0:
        raise ValueError(f"{x} is even")
    return x


class Store:
    """A durable queue whose disk gets full while a run goes on, and the run."""

    def __init__(self, lab: dq.Lab, pool: dq.QueuePool, gate: Gate) -> None:
        self.lab, self.pool, self._gate = lab, pool, gate

    def fill(self, done: int = 0) -> dq.Run:
        """Fill the disk when a run has so many results; return it when it has one more, which is not on disk."""
        gate, rest = self._gate, threading.Event()

        def held(x: int) -> int:
            if x == done:
                gate.wait()
            return x

        def documents() -> Iterator[int]:
            yield from range(done)
            rest.wait(60)
            yield done

        run = self.pool.map(held, documents(), name=f"held-{self.pool.name}")
        until(lambda: run.counts["acked"] == done)
        rest.set()
        until(lambda: run.counts["leased"] == 1 and run.record()["total"] is not None)
        until(lambda: self._ask(lambda actor: actor._store.log.durable == actor._store.log.end))
        self._ask(fill_disk)
        gate.open()
        until(lambda: run.counts["acked"] == done + 1)
        return run

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        return asked(self.lab.client, self.pool.name, question)

    def make_room(self) -> None:
        self._ask(make_room)


@pytest.fixture
def store(lab: dq.Lab, queue_name: str, tmp_path: Path) -> Iterator[Store]:
    pool = dq.QueuePool(
        lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path / "store", served=True
    )
    full = Store(lab, pool, Gate(tmp_path))
    yield full
    full.make_room()
    pool.close(force=True)


READS: dict[str, Callable[[dq.Run], Any]] = {
    "wait": lambda run: run.wait(timeout=3).results(timeout=3)[:],
    "results": lambda run: run.results(timeout=3)[:],
    "skip": lambda run: run.results(errors="skip", timeout=3)[:],
    "as_completed": lambda run: [value for _, value in sorted(run.as_completed(timeout=3))],
    "attach": lambda run: dq.Run(run.name, run.id, run.handle).results(timeout=3)[:],
}


def test_a_run_that_was_done_before_stays_done_and_can_be_read(store: Store) -> None:
    """Another run on the same queue fills the disk; what was promised of this one holds."""
    run = store.pool.map(double, range(DONE), name=f"done-{store.pool.name}").wait(timeout=60)
    failed = store.pool.map(odd_only, range(10), name=f"odd-{store.pool.name}", retry=dq.Retry(0)).wait(timeout=60)
    store.fill()

    read = {name: read(run) for name, read in READS.items()}

    assert read == {name: [2 * x for x in range(DONE)] for name in READS}
    assert failed.wait(timeout=3).results(errors="skip", timeout=3)[:] == [1, 3, 5, 7, 9]
    assert [letter.key for letter in failed.failures()] == [0, 2, 4, 6, 8]


def test_a_run_that_ends_then_waits_for_room(store: Store) -> None:
    """Its last result would be gone with a power cut; the others are given."""
    run = store.fill(DONE)

    assert sum(run.counts.values()) == run.counts["acked"] == DONE + 1
    with pytest.raises(WaitTimeout, match="no room"):
        run.wait(timeout=2)
    came = []

    def read() -> None:
        for key, _ in run.as_completed(timeout=2):
            came.append(key)

    with pytest.raises(WaitTimeout, match="no room"):
        read()
    assert sorted(came) == list(range(DONE))
    store.make_room()
    assert run.results(timeout=30)[:] == list(range(DONE + 1))


@pytest.mark.parametrize("wait", mostly_slow(["wait", "results", "as_completed"], "results"))
def test_a_wait_without_a_limit_warns_once_of_a_full_disk(
    store: Store, wait: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script shows no view: for it a wait without a word is one that hangs."""
    monkeypatch.setattr("dqlab.runs.waiting.LATE", 0.2)
    monkeypatch.setattr("dqlab.runs.run_wait.PARK", 0.1)
    run = store.fill(3)

    [said] = said_while(lambda: WAITS[wait](run), store.make_room)

    assert f"run {run.name!r} makes no progress" in said
    assert "no room" in said


RUNS = [bytes([number]) * 16 for number in (1, 2, 3)]
CODE = {"name": "f"}


def test_a_log_that_refuses_to_resume_one_run_leaves_the_others_to_the_next_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All were forgotten with the first refusal, and stayed stopped for a reason that was gone."""

    async def scenario() -> list[list[bool]]:
        actor = await desk.opened(run=RUNS[0], record={"name": "f-0", "codes": [CODE]}, results_maxsize=2500)
        for number, run in enumerate(RUNS[1:], 1):
            await actor.control(
                pack({"op": "open", "open": {"run": run, "record": {"name": f"f-{number}", "codes": [CODE]}}})
            )
        for sequence, run in enumerate(RUNS):  # of one producer
            await desk.put(actor, 1, run=run, sequence=sequence)
        held = [await desk.lease(actor, f"c{number}") for number in range(len(RUNS))]
        for each in sorted(held, key=lambda each: RUNS.index(each["run"])):
            await desk.finish(actor, each, [b"r" * (3000 if each["run"] == RUNS[0] else 100)])
        obey, refused = actor.ledger.obey, [1]

        def refuse_once(op: str, run: bytes | None, meta: dict[str, Any]) -> int:
            if op == "resume" and refused:
                refused.pop()
                raise DiskFull(directory="/full", needed=1, free=0)
            return obey(op, run, meta)

        monkeypatch.setattr(actor.ledger, "obey", refuse_once)
        with pytest.raises(DiskFull):
            await actor.control(pack({"op": "drop", "run": RUNS[0]}))
        stopped = [[actor.books[run].stopped for run in RUNS[1:]]]
        await actor.control(pack({"op": "drop", "run": RUNS[0]}))
        return [*stopped, [actor.books[run].stopped for run in RUNS[1:]]]

    assert asyncio.run(scenario()) == [[True, True], [False, False]]
