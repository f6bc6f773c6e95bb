"""Pause, resume, cancel, drop, purge, drain: what a person orders happens, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport import calls, queue_calls
from dqlab.cluster.transport.orders import Cancel
from dqlab.errors import ActorGone, BadOption, DqlabWarning, PutError, QueueClosed, RunCancelled, RunNotFound
from dqlab.stats import RunState
from dqlab.testing import Gate, Tally
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest


class Held:
    """Returns its element once the gate is open."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def __call__(self, x: int) -> int:
        self.gate.wait(x)
        return x


class BreaksFirst(Held):
    """Fails for its first element."""

    def __call__(self, x: int) -> int:
        if x == 0:
            raise OSError(x)
        return super().__call__(x)


def fails(x: int) -> int:
    raise OSError(x)


def same(x: int) -> int:
    return x


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def left(queue: dq.QueuePool) -> int:
    counts = queue.counts()
    return counts["ready"] + counts["delayed"] + counts["leased"]


def test_pause_gives_back_what_has_not_begun(queue: dq.QueuePool, gate: Gate) -> None:
    """What runs ends; the rest waits in the queue, where a restart of consumers does not touch it."""
    run = queue.map(Held(gate), range(100))
    gate.until_arrived(2)

    run.pause()
    until(lambda: run.counts["leased"] == 2)
    gate.open()
    until(lambda: run.counts["leased"] == 0)

    assert run.counts["acked"] == 2
    assert run.counts["ready"] == 98
    assert len(gate.arrived) == 2
    assert run.state == "paused"


def test_resume_goes_on_and_loses_nothing(queue: dq.QueuePool, gate: Gate) -> None:
    """A pause costs nothing: given back is not counted as tried."""
    gate.open()
    run = queue.map(Held(gate), range(200), retry=dq.Retry(0)).pause()
    until(lambda: run.counts["leased"] == 0)

    run.resume()

    assert list(run.results(timeout=20)) == list(range(200))
    assert len(gate.arrived) == 200


def test_a_retry_while_the_run_goes_on_says_that_the_rest_keeps_its_code(queue: dq.QueuePool, gate: Gate) -> None:
    """The view named version 2, and documents that waited ran version 1 in silence."""
    run = queue.map(BreaksFirst(gate), range(2000), retry=dq.Retry(0))  # more than all slots lease ahead
    until(lambda: run.counts["dead"] == 1 and run.counts["ready"] > 0)

    with pytest.warns(
        DqlabWarning, match=r"[\d,]+ documents of run .* keep the code that they had, version 1\..*rest=True"
    ):
        assert run.retry(fn=Held(gate)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.retry(fn=Held(gate), rest=True)
        gate.open()
        run.wait(timeout=30)
        run.retry(fn=same)


def test_a_run_that_is_cancelled_while_it_is_submitted_names_what_was_not_submitted(queue: dq.QueuePool) -> None:
    """ "0 of 0 documents were not processed" stood there for 300,000, and the run was "incomplete"."""
    go_on = threading.Event()

    def documents() -> Iterator[int]:
        go_on.wait(60)
        yield from range(10)

    run = queue.map(same, documents())
    assert run.cancel() == 0
    go_on.set()

    assert run.stats().state is RunState.CANCELLED
    until(lambda: [each.state for each in queue.snapshot().runs if each.name == run.name] == [RunState.CANCELLED])
    with pytest.raises(RunCancelled, match=r"0 of 0 documents.*nothing behind the first 0 was submitted"):
        run.results(timeout=30)


def test_cancelled_run_keeps_what_it_has_and_gives_up_the_rest(queue: dq.QueuePool, gate: Gate) -> None:
    """Finished work is worth keeping; the rest is given up, and what waits in the queue never runs."""
    done = Held(gate)
    run = queue.map(done, range(100))
    gate.until_arrived(2)
    until(lambda: run.record()["submitted"] == 100)

    cancelled = run.cancel()
    gate.open()

    assert cancelled == 100
    with pytest.raises(RunCancelled, match="100 of 100"):
        run.results(timeout=10)
    assert run.results(errors="skip", timeout=10)[:] == []
    assert run.counts["cancelled"] == 100
    assert run.state == "cancelled"
    assert len(gate.arrived) < 100


def _sits_until_cancelled(begun: Tally, ended: Tally) -> list[Callable[[int], object]]:
    def in_a_thread(x: int) -> None:
        begun.add(x)
        while not dq.cancelled():
            time.sleep(0.01)  # the work it does
        ended.add(x)

    async def in_a_coroutine(x: int) -> None:
        begun.add(x)
        while not dq.cancelled():  # noqa: ASYNC110 - the work it does
            await asyncio.sleep(0.01)
        ended.add(x)

    return [in_a_thread, in_a_coroutine]


@pytest.mark.parametrize("kind", [0, 1], ids=["thread", "coroutine"])
def test_running_message_can_ask_whether_it_was_cancelled(queue: dq.QueuePool, tmp_path: Path, kind: int) -> None:
    """A thread cannot be ended from outside."""
    begun, ended = Tally(tmp_path), Tally(tmp_path)
    run = queue.map(_sits_until_cancelled(begun, ended)[kind], range(2))
    until(lambda: len(begun.seen()) == 2)
    assert not ended.seen()
    run.cancel()
    until(lambda: len(ended.seen()) == 2)
    assert run.counts["cancelled"] == 2
    assert dq.cancelled() is False


def test_cancel_stops_the_input_too(queue: dq.QueuePool) -> None:
    """An endless generator must not go on feeding a run nobody wants."""

    def numbers() -> object:
        n = 0
        while True:
            yield n
            n += 1

    run = queue.map(same, numbers())  # type: ignore[arg-type]
    until(lambda: run.counts["acked"] > 0)

    run.cancel()

    assert run.submitter is not None
    assert run.submitter.finished.is_set()
    with pytest.raises(RunCancelled):
        run.results(timeout=10)


class BlockedInput:
    """An input that gives one element, and the others when it is let go."""

    def __init__(self) -> None:
        self.more = threading.Event()

    def __iter__(self) -> Iterator[int]:
        yield 1
        self.more.wait(60)
        yield from range(2, 100)


@pytest.fixture
def blocked() -> Iterator[BlockedInput]:
    blocked = BlockedInput()
    yield blocked
    blocked.more.set()


def let_go(blocked: BlockedInput, run: dq.Run) -> None:
    """Let an input go on, and wait until its thread has ended."""
    blocked.more.set()
    assert run.submitter is not None
    run.submitter._thread.join(30)
    assert not run.submitter._thread.is_alive()


def test_what_a_cancelled_input_gives_later_is_not_sent(
    lab: dq.Lab, queue: dq.QueuePool, blocked: BlockedInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread cannot be ended from outside, so it comes back some time, and finds nothing to do."""
    monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.05)  # it would tell the queue how far it is
    run = queue.map(same, blocked)
    next(run.as_completed(timeout=30))
    run.cancel()
    record = run.record()

    let_go(blocked, run)

    assert run.record() == record
    assert sum(run.counts.values()) == 1
    with pytest.raises(RunCancelled, match="of 1 document "):
        run.results(timeout=10)


def test_a_dropped_run_whose_input_hangs_is_gone_at_once_and_stays_so(
    lab: dq.Lab, queue: dq.QueuePool, blocked: BlockedInput, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the input gives later must neither bring the run back nor touch the next of its name."""
    monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.05)
    run = queue.map(same, blocked, name=queue.name)
    next(run.as_completed(timeout=30))
    began = time.monotonic()
    run.drop()
    assert time.monotonic() - began < 2
    again = queue.map(same, range(5), name=queue.name)

    let_go(blocked, run)

    assert list(again.results(timeout=30)) == [*range(5)]
    assert again.handle.link.sync(queue_calls.runs_of(again.handle)) == {queue.name: again.id}
    with pytest.raises(RunNotFound, match=f"no run named {queue.name!r} here. It was dropped"):
        run.wait(timeout=10)


def test_queue_is_closed_at_once_though_the_inputs_of_its_runs_hang(
    lab: dq.Lab, queue_name: str, tmp_path: Path
) -> None:
    """Each would be waited for, one after another; and the next queue of that name is none of their business."""
    pool = dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
    inputs = [BlockedInput() for _ in range(3)]
    runs = [pool.map(same, held, name=f"{queue_name}-{at}", consumers=None) for at, held in enumerate(inputs)]
    until(lambda: pool.counts()["ready"] == 3)
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 2.5
    pool = dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)
    found = [lab.attach(run.name) for run in runs]
    before = [run.record() for run in found]

    for held, run in zip(inputs, runs, strict=True):
        let_go(held, run)

    assert [run.record() for run in found] == before
    pool.close()


def test_nothing_is_recorded_about_a_run_whose_queue_was_closed_before_its_first_record(
    lab: dq.Lab, queue_name: str, tmp_path: Path, blocked: BlockedInput
) -> None:
    """A thread records how far an input is that rests: it ends with the queue, and leaves the next one alone."""
    store = {"durability": dq.Durability.DURABLE, "dirpath": tmp_path}
    pool = dq.QueuePool(lab.client, name=queue_name, **store)
    run = pool.map(same, blocked, name=queue_name, consumers=None)
    pool.close()
    pool = dq.QueuePool(lab.client, name=queue_name, **store)
    before = lab.attach(queue_name).record()

    until(lambda: f"dqlab-note-{run.name}" not in [thread.name for thread in threading.enumerate()])

    assert lab.attach(queue_name).record() == before
    pool.close()


def test_a_run_that_another_client_cancels_while_its_input_is_read_is_named_though_nothing_waits(
    queue: dq.QueuePool,
) -> None:
    """`wait` returned without a warning, although the rest of the input was never submitted."""
    go_on = threading.Event()

    def documents() -> Iterator[int]:
        yield from range(10)
        go_on.wait(60)
        yield from range(10, 20)

    run = queue.map(same, documents(), name=queue.name)
    until(lambda: run.counts["acked"] == 10)
    run.handle.link.sync(run.handle.order(Cancel(run.id)))  # as a colleague, or the button of a view, does
    with pytest.warns(DqlabWarning, match=r"0 of 10 documents.*nothing behind the first 10 was submitted"):
        run.wait(timeout=30)
    go_on.set()
    with pytest.raises(RunCancelled, match="nothing behind the first 10 was submitted"):
        run.results(timeout=30)


def test_dropped_run_is_forgotten_with_its_results(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Dropping is how memory is given back."""
    run = queue.map(lambda x: bytes(1000), range(100), name="to-drop").wait(timeout=20)
    [before] = queue.handle.link.sync(queue.handle.ask_all(calls.StatsCall()))

    run.drop()

    [after] = queue.handle.link.sync(queue.handle.ask_all(calls.StatsCall()))
    assert (before.stored > 100_000, after.stored) == (True, 0)
    assert run.name not in [known.name for known in lab.runs]
    with pytest.raises(RunNotFound, match="dropped"):
        _ = run.counts
    with pytest.raises(RunNotFound):
        lab.attach("to-drop")


def test_purge_throws_away_dead_letters(queue: dq.QueuePool) -> None:
    """They count as cancelled afterwards: every document is accounted for."""
    run = queue.map(fails, range(4), retry=dq.Retry(0)).wait(timeout=20)

    assert queue.purge("dead") == 4

    assert (run.counts["dead"], run.counts["cancelled"]) == (0, 4)
    assert len(run.failures()) == 0
    assert run.done


def test_purge_throws_away_what_waits(queue: dq.QueuePool) -> None:
    """A queue filled by mistake is emptied without running it."""
    queue.pause()
    put = queue.batch_submit([(same, x) for x in range(10)])
    assert len(put.ids) == 10

    assert queue.purge("ready") == 10

    assert left(queue) == 0
    with pytest.raises(BadOption, match="state"):
        queue.purge("leased")


def test_drain_refuses_puts_and_finishes_the_rest(queue: dq.QueuePool, gate: Gate) -> None:
    """Before a shutdown: nothing new comes in, nothing that is in is lost."""
    run = queue.map(Held(gate), range(20))
    gate.until_arrived(1)
    until(lambda: run.record()["submitted"] == 20)

    queue.drain()
    with pytest.raises(PutError, match="resume"):
        _ = queue.submit(same, 1).ids
    gate.open()

    assert list(run.results(timeout=20)) == list(range(20))
    queue.resume()
    assert queue.submit(same, 1).results(timeout=20) == [1]


def test_run_whose_documents_meet_a_draining_queue_says_so(queue: dq.QueuePool) -> None:
    """A run would wait for ever for a queue that takes nothing more."""
    queue.drain()

    run = queue.map(same, range(5))

    with pytest.raises(PutError):
        run.wait(timeout=10)


def test_closed_queue_says_so(lab: dq.Lab, queue_name: str) -> None:
    """A handle in an old cell outlives what it points to."""
    pool = lab.queue(queue_name)
    pool.close()
    pool.close()

    for call in (lambda: pool.submit(same, 1), lambda: pool.put(1), lambda: pool.map(same, [1])):
        with pytest.raises(QueueClosed, match=r"lab\.queue"):
            call()


def test_a_queue_that_another_client_closed_and_opened_again_takes_puts_once_it_is_asked_for(
    lab: dq.Lab, queue_name: str
) -> None:
    """What a put met in between was raised by every later one, though the name led to an open queue again."""
    pool = lab.queue(queue_name)
    assert pool.submit(abs, -1).results(timeout=20) == [1]
    with Client(lab.client.scheduler.address, set_as_default=False) as other:
        dq.QueuePool(other, name=queue_name).close(force=True)
        with pytest.raises(ActorGone):
            pool.submit(abs, -1).results(timeout=20)
        dq.QueuePool(other, name=queue_name, served=True)

        assert lab.queue(queue_name).submit(abs, -1).results(timeout=20) == [1]
        lab.queue(queue_name).close(force=True)
