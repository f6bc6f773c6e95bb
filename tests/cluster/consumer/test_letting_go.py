"""A function that does not end after its message was cancelled keeps a thread, and no other message."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.consumer import hand, runner
from dqlab.errors import BadOption
from dqlab.frame import NO_ID
from dqlab.rules.states import State
from dqlab.testing import Gate
from dqlab.texts import as_name
from tests.cluster.consumer.test_coroutines import Bench, bench, until
from tests.kit import waiting

pytestmark = pytest.mark.lowest


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hand.LET_GO_S == 5.0
    monkeypatch.setattr(hand, "LET_GO_S", 0.3)
    monkeypatch.setattr(runner, "FREE_S", 0.3)


class Endless:
    """Functions that do not end before `release`."""

    def __init__(self) -> None:
        self.released, self.begun = threading.Event(), threading.Event()
        self.ran: list[int] = []

    def spins(self, x: int) -> int:
        self.ran.append(x)
        if x == 0:
            self.begun.set()
            while not self.released.is_set():
                time.sleep(0.01)
        return x

    def waits(self, x: int) -> int:
        self.ran.append(x)
        if x == 0:
            self.begun.set()
            self.released.wait()
        return x

    async def holds_its_loop(self, x: int) -> int:
        return self.spins(x)

    async def swallows(self, x: int) -> int:
        self.ran.append(x)
        if x == 0:
            self.begun.set()
            while not self.released.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
        return x

    async def waits_for_ever(self, x: int) -> int:
        self.ran.append(x)
        if x == 0:
            self.begun.set()
            await asyncio.Event().wait()
        return x


@pytest.fixture
def endless() -> Iterator[Endless]:
    endless = Endless()
    yield endless
    endless.released.set()


async def cancel(here: Bench, lo: int, hi: int) -> None:
    here.actor.shard.cancel(NO_ID, [(lo, hi)])
    here.actor._dispatch()


async def hang(here: Bench, endless: Endless) -> None:
    """Have the slot run what does not end, and cancel that."""
    await here.put([0])
    await until(endless.begun.is_set)
    await cancel(here, 0, 1)


@pytest.mark.parametrize("how", ["spins", "waits", "holds_its_loop", "swallows"])
def test_slot_works_on_beside_a_function_that_does_not_end(endless: Endless, how: str) -> None:
    """Else the next run hangs behind it, though all looks healthy; what it returns one day counts for nothing."""

    async def scenario() -> None:
        async with bench(getattr(endless, how), concurrency=1) as here:
            await hang(here, endless)
            await here.put([1, 2, 3])
            await here.until(State.ACKED, 3)
            assert len(here.slot.runner.abandoned) == 1
            endless.released.set()
            await until(lambda: not here.slot.runner.abandoned)
            await here.put([4])
            await here.until(State.ACKED, 4)
            assert await here.values() == [1, 2, 3, 4]
            assert here.counts()[State.CANCELLED] == 1
            assert not here.actor.shard.lanes[NO_ID].trouble

    asyncio.run(scenario())

    assert endless.ran == [0, 1, 2, 3, 4]


def test_coroutine_that_was_cancelled_ends_with_a_cancelled_error(endless: Endless) -> None:
    """It waits for what never comes; a coroutine can be ended, other than a thread."""

    async def scenario() -> list[str]:
        async with bench(endless.waits_for_ever, concurrency=1) as here:
            await hang(here, endless)
            await here.put([1])
            await here.until(State.ACKED, 1)
            await until(lambda: not here.slot.runner.abandoned)
            return here.slot.runner.abandoned

    assert asyncio.run(scenario()) == []


# --- on a cluster ---------------------------------------------------------------------------


def _patience(seconds: float) -> float:
    from dqlab.cluster.consumer import hand

    before, hand.LET_GO_S = hand.LET_GO_S, seconds
    return before


@pytest.fixture
def impatient_lab(lab: dq.Lab) -> Iterator[dq.Lab]:
    lab.client.run(_patience, 0.5)
    yield lab
    lab.client.run(_patience, 5.0)


def _functions(gate: Gate) -> dict[str, Callable[[int], Any]]:
    def thread(x: int) -> None:
        gate.wait()

    async def coroutine(x: int) -> None:
        gate.wait()

    return {"thread": thread, "coroutine": coroutine}


async def _same(x: int) -> int:
    return x


@pytest.mark.parametrize("kind", ["thread", "coroutine"])
def test_run_behind_a_cancelled_one_that_never_ends_is_done_and_doctor_names_the_consumer(
    impatient_lab: dq.Lab, queue: dq.QueuePool, tmp_path: Any, kind: str
) -> None:
    """The README promises that slow documents hold no others up."""
    gate = Gate(tmp_path)
    run = queue.map(_functions(gate)[kind], range(2), name=f"endless-{kind}")
    gate.until_arrived(2)
    run.cancel()

    after: Callable[[int], Any] = abs if kind == "thread" else _same
    assert list(queue.map(after, range(50)).results(timeout=20)) == list(range(50))

    found = [finding for finding in impatient_lab.doctor().findings if "still runs" in finding.what]
    assert found
    assert all(f"queue {queue.name}: consumer c" in finding.what for finding in found)
    assert all("#0" in finding.what or "#1" in finding.what for finding in found)
    assert all("restart_workers(['" in finding.command for finding in found)
    gate.open()


# --- what users order of a document that is stuck -------------------------------------------


def _stuck(gate: Gate, kind: str) -> Callable[[int], Any]:
    """Return a function whose fourth element waits for the gate."""

    def thread(x: int) -> int:
        if x == 3:
            gate.wait()
        return -x

    async def coroutine(x: int) -> int:
        return thread(x)

    return coroutine if kind == "coroutine" else thread


def _held_by(lab: dq.Lab, document: str) -> str:
    """Wait until a consumer reports that it runs a document; return its name."""
    since = -1
    while True:
        snapshot = lab.wait_for_change(since, timeout=1.0)
        since = snapshot.seq
        for consumer in snapshot.consumers:
            if consumer.document == document:
                return consumer.name


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_document_of_a_replaced_consumer_is_tried_again_and_nothing_is_counted(
    impatient_lab: dq.Lab, queue: dq.QueuePool, tmp_path: Any, kind: str
) -> None:
    gate = Gate(tmp_path)
    run = queue.map(
        _stuck(gate, kind), range(20), name=f"replaced-{kind}", executor="process" if kind == "process" else "thread"
    )
    gate.until_arrived(1)
    assert run.replace(_held_by(impatient_lab, "#3")) == ["#3"]
    gate.until_arrived(2)  # it has begun a second time, beside the first
    gate.open()
    assert list(run.results(timeout=20)) == [-x for x in range(20)]
    assert run.wait(timeout=20).counts["dead"] == 0


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_document_given_up_is_a_failure_with_its_reason_and_a_retry_sends_it_through(
    impatient_lab: dq.Lab, queue: dq.QueuePool, tmp_path: Any, kind: str
) -> None:
    gate = Gate(tmp_path)
    run = queue.map(
        _stuck(gate, kind), range(20), name=f"given-up-{kind}", executor="process" if kind == "process" else "thread"
    )
    gate.until_arrived(1)
    holder = _held_by(impatient_lab, "#3")
    assert run.give_up("#3") == ["#3"]
    assert run.wait(timeout=20).counts["dead"] == 1
    (letter,) = run.failures()
    assert letter.ordinal == 3
    assert letter.reason.startswith("given up after")
    assert letter.reason.endswith(f"on {holder}")
    (failure,) = run.stats().classes
    assert (failure.error, failure.dead, failure.message) == ("NoAnswer", 1, letter.reason)
    assert str(letter) == f"3: NoAnswer: {letter.reason}"
    gate.open()
    assert run.retry() == 1
    assert list(run.results(timeout=20)) == [-x for x in range(20)]


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_batch_that_runs_shows_what_it_printed_and_any_document_of_it_can_be_given_up(
    impatient_lab: dq.Lab, queue: dq.QueuePool, executor: Any, tmp_path: Path
) -> None:
    """Not only the first: who reads the log finds the one to blame by its key."""
    gate = Gate(tmp_path)
    for n in range(8):
        (tmp_path / f"{n}.txt").write_text(str(n))

    def stuck(documents: list[dq.Document]) -> list[str]:
        if any(each.key == "5.txt" for each in documents):
            print("stuck in 5")  # noqa: T201 - `run.logs` shows it
            gate.wait()
        return [each.key for each in documents]

    listed = dq.Documents.from_glob(str(tmp_path / "*.txt"))
    run = queue.map(stuck, listed, batch=4, executor=executor, retry=0)
    try:
        gate.until_arrived(1)
        waiting.until(lambda: run.logs("5.txt") == "stuck in 5\n")
        assert run.give_up("5.txt") == ["5.txt"]
        run.until_over()
    finally:
        gate.open()

    assert [(letter.ordinal, letter.reason[:14]) for letter in run.failures()] == [(5, "given up after")]
    assert run.counts["acked"] == 7


@pytest.mark.parametrize("by", ["key", "name shown"])
@pytest.mark.parametrize("key", ["caf\udce9.txt", "a\ud800b", "x" * 400, "line\nbreak"])
def test_document_of_any_key_is_given_up_by_its_key_and_by_the_name_shown(
    impatient_lab: dq.Lab, queue: dq.QueuePool, tmp_path: Any, key: str, by: str
) -> None:
    """Dask's messages carry no lone surrogates, and names are cut in reports."""
    gate = Gate(tmp_path)
    run = queue.map(lambda document: gate.wait(), [dq.Document(key, "", "/nowhere")], name="odd-key")
    gate.until_arrived(1)
    name = key if by == "key" else as_name(key)
    _held_by(impatient_lab, as_name(key))
    assert run.give_up(name) == [as_name(key)]
    assert run.wait(timeout=20).counts["dead"] == 1
    assert [letter.key for letter in run.failures()] == [key]
    gate.open()


def test_order_about_what_no_consumer_runs_is_refused_with_what_there_is(lab: dq.Lab, queue: dq.QueuePool) -> None:
    run = queue.map(abs, range(3), name="quick")
    run.wait(timeout=20)
    with pytest.raises(BadOption, match=r"has no consumer of that name; it has c0, c1"):
        run.replace("c99")
    with pytest.raises(BadOption, match="does not run anything now"):
        run.replace("c0")
    with pytest.raises(BadOption, match="does not run #1 now"):
        run.give_up("#1")
    with pytest.raises(BadOption, match="does not run 1 now"):
        run.give_up(1)
    assert list(run.results()) == [0, 1, 2]
