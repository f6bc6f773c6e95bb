"""`map` that is interrupted leaves nothing behind for which the same cell would wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.orders import Open, Order
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import CallTimeout, SubmissionIncomplete
from dqlab.runs import run_book
from dqlab.runs.run_book import RunBook
from dqlab.runs.submit.mapping import Submitter
from tests.runs.submit.test_cut_off import double

OUT_OF_REACH = CallTimeout(name="q", call="control", seconds=1)


def after(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException) -> None:
    """Raise an error just after the first call of a method has done its work."""
    original: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1 << 30))

    def interrupted(self: Any, *args: Any, **options: Any) -> Any:
        done = original(self, *args, **options)
        if next(calls):
            return done
        if hasattr(done, "__await__"):
            return awaited(done)
        raise error

    async def awaited(done: Any) -> Any:
        await done
        raise error

    monkeypatch.setattr(owner, name, interrupted)


def runs_of(pool: dq.QueuePool) -> list[Any]:
    answer, _ = pool.handle.link.sync(pool.handle.ask(0, calls.RunsCall()))
    return list(answer.runs)


PLACES = [
    (Handle, "order", OUT_OF_REACH),
    (Submitter, "start", KeyboardInterrupt()),
    (Submitter, "__init__", KeyboardInterrupt()),
]


@pytest.mark.parametrize(("owner", "name", "error"), PLACES)
def test_the_same_cell_again_runs_after_an_interrupted_map(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException
) -> None:
    """One presses Ctrl-C just when `map` does not come back; it attached to a run that no client submitted."""
    after(monkeypatch, owner, name, error)
    with pytest.raises(type(error)):
        queue.map(double, range(100), name="again")
    monkeypatch.undo()

    assert list(queue.map(double, range(100), name="again").results(timeout=20)) == [2 * x for x in range(100)]


@pytest.mark.parametrize(("owner", "name", "error"), PLACES)
def test_an_interrupted_map_without_a_name_leaves_no_run(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException
) -> None:
    """Else it stands in every view as one that is being submitted, and nobody can name it."""
    after(monkeypatch, owner, name, error)
    with pytest.raises(type(error)):
        queue.map(double, range(100))

    assert runs_of(queue) == []


def test_an_interrupt_while_the_run_is_opened_drops_it(queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is on its way to the shards when the interrupt comes."""
    link = queue.handle.link
    give = Handle.order

    async def interrupted(self: Handle, order: Order, *, shard: int | None = None) -> int:
        done = await give(self, order, shard=shard)
        if isinstance(order, Open):
            raise KeyboardInterruptOfTheTest
        return done

    class KeyboardInterruptOfTheTest(Exception):
        """A real one would end the client's loop."""

    monkeypatch.setattr(Handle, "order", interrupted)
    with pytest.raises(KeyboardInterruptOfTheTest):
        queue.map(double, range(10))

    assert link.connected
    assert runs_of(queue) == []


@pytest.mark.parametrize("same_lab", [True, False])
def test_a_run_that_could_not_be_let_go_of_is_cut_off_when_it_is_mapped_again(
    lab: dq.Lab, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, *, same_lab: bool
) -> None:
    """Its shard was out of reach all the time, or this process was too busy; its client lives, and submits nothing."""
    monkeypatch.setattr(RunBook, "_let_go", lambda *args: None)
    after(monkeypatch, Handle, "order", OUT_OF_REACH)
    with pytest.raises(CallTimeout):
        queue.map(double, range(100), name="ghost")
    monkeypatch.undo()

    assert len(runs_of(queue)) == 1
    with_lab = lab if same_lab else dq.connect(lab.client.scheduler.address, name="another")
    pool = with_lab.queue(queue.name)
    assert list(pool.map(double, range(100), name="ghost").results(timeout=20)) == [2 * x for x in range(100)]
    if not same_lab:
        with_lab.close()


@pytest.fixture
def ghost(queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run that this process opened, and does not submit."""
    name = f"ghost-{queue.name}"
    with monkeypatch.context() as patched:
        patched.setattr(RunBook, "_let_go", lambda *args: None)
        after(patched, Handle, "order", OUT_OF_REACH)
        with pytest.raises(CallTimeout):
            queue.map(double, range(100), name=name)
    return name


@contextmanager
def shards_on_the_move(lab: dq.Lab, times: int) -> Iterator[None]:
    """Let the scheduler pass over all shards so many times when it cuts off: each is just moved to another worker."""

    def pass_over(times: int, dask_scheduler: Any = None) -> None:
        actors = dask_scheduler.plugins["dqlab"].actors
        ask, left = actors.ask_shards, iter(range(times))

        async def ask_shards(queue: str, call: calls.Call[Any], **more: Any) -> list[Any]:
            passes_over = isinstance(call, calls.CutOffCall) and next(left, None) is not None
            return [] if passes_over else await ask(queue, call, **more)

        actors.ask_shards = ask_shards

    def as_before(dask_scheduler: Any = None) -> None:
        del dask_scheduler.plugins["dqlab"].actors.ask_shards

    lab.client.run_on_scheduler(pass_over, times)
    try:
        yield
    finally:
        lab.client.run_on_scheduler(as_before)


def test_a_run_without_a_submitter_ends_with_an_error_where_it_was_attached_to(
    lab: dq.Lab, queue: dq.QueuePool, ghost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shards were on the move for longer than `map` waits."""
    monkeypatch.setattr(run_book, "LANDING", 0.0)
    with shards_on_the_move(lab, times=1):
        run = queue.map(double, range(100), name=ghost)
        with pytest.raises(SubmissionIncomplete, match="map the same documents"):
            run.wait(timeout=30)

    assert list(queue.map(double, range(100), name=ghost).results(timeout=30)) == [2 * x for x in range(100)]


def test_a_look_whether_a_client_submits_may_get_no_answer(
    lab: dq.Lab, queue: dq.QueuePool, ghost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that stands still costs the look, and not the run that is waited for."""
    monkeypatch.setattr(run_book, "LANDING", 0.0)
    monkeypatch.setattr(run_book, "LOOKS_LEFT", 1)
    looks = []
    seal = RunBook._seal_left

    def unanswered(self: RunBook, run: dq.Run, progress: Any) -> bool:
        looks.append(run.name)
        if len(looks) == 2:  # the first is that of `map`
            raise OUT_OF_REACH
        return seal(self, run, progress)

    monkeypatch.setattr(RunBook, "_seal_left", unanswered)
    with shards_on_the_move(lab, times=1):
        run = queue.map(double, range(100), name=ghost)
        with pytest.raises(SubmissionIncomplete):
            run.wait(timeout=30)
    assert len(looks) >= 3


def test_a_run_that_this_client_still_submits_is_not_cut_off(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Another lab of this process attaches, and both see the whole run."""
    go_on = threading.Event()

    def slowly() -> Any:
        yield from range(50)
        go_on.wait(20)
        yield from range(50, 100)

    first = queue.map(double, slowly(), name="both")
    with dq.connect(lab.client.scheduler.address, name="another") as other:
        second = other.queue(queue.name).map(double, range(100), name="both")
        go_on.set()
        assert list(second.results(timeout=20)) == list(first.results(timeout=20)) == [2 * x for x in range(100)]
    assert first.record()["client"] == lab.client.id, "the other one went on with it"


def test_the_same_cell_again_runs_where_ctrl_c_came_just_after_the_folder_of_the_sink_was_claimed(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    after(monkeypatch, run_book, "claim", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        queue.map(double, range(3), name=queue.name, sink=str(tmp_path / "out"))

    run = queue.map(double, range(3), name=queue.name, sink=str(tmp_path / "out")).wait(30)

    assert list(run.results()) == [0, 2, 4]
