"""Whatever blocks for more than two seconds shows what it waits for, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import dqlab as dq
from dqlab import waits
from dqlab.testing.clock import FakeClock
from dqlab.waits import AFTER, NAME, Wait, shown, step


class Drawn:
    """A picture that notes what is drawn."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.cleared = self.ended = 0
        self.seen = threading.Event()

    def draw(self, step: str, waited: float) -> None:
        self.steps.append(step)
        self.seen.set()

    def clear(self) -> None:
        self.cleared += 1

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def drawn() -> Drawn:
    return Drawn()


@pytest.fixture
def wait(drawn: Drawn, clock: FakeClock) -> Wait:
    return Wait("connecting", lambda _: drawn, clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_nothing_is_shown_below_two_seconds(wait: Wait, drawn: Drawn, clock: FakeClock) -> None:
    """A view that comes and goes is worse than none."""
    wait.look()
    clock.advance(AFTER - 0.1)
    wait.look()
    wait.end()

    assert drawn.steps == []
    assert drawn.ended == 0


def test_a_wait_that_lasts_shows_what_it_waits_for_now(wait: Wait, drawn: Drawn, clock: FakeClock) -> None:
    """An empty cell says nothing about how long it will be empty."""
    wait.step("starting 3 workers")
    clock.advance(AFTER)
    wait.look()
    wait.step("checking the store")
    wait.look()
    wait.end()
    wait.look()

    assert drawn.steps == ["starting 3 workers", "checking the store"]
    assert drawn.ended == 1


def test_the_callers_own_work_between_two_results_is_no_wait(wait: Wait, drawn: Drawn, clock: FakeClock) -> None:
    """A loop over `as_completed` that takes a minute for each result waits for nothing."""
    wait.give()
    clock.advance(60)
    wait.look()
    wait.take()
    clock.advance(1)
    wait.look()
    assert drawn.steps == []

    clock.advance(1)
    wait.look()
    wait.give()

    assert len(drawn.steps) == 1
    assert drawn.cleared == 1


def test_what_cannot_be_drawn_here_is_asked_for_once(clock: FakeClock) -> None:
    asked: list[Any] = []
    wait = Wait("x", asked.append, clock)
    for _ in range(3):
        clock.advance(AFTER)
        wait.look()

    assert asked == ["x"]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch, drawn: Drawn) -> Iterator[Drawn]:
    """Somebody looks, and a wait is long at once."""
    monkeypatch.setattr(waits, "_can_be_seen", lambda: True)
    monkeypatch.setattr(waits, "AFTER", 0.0)
    monkeypatch.setattr(waits, "PERIOD", 0.01)
    monkeypatch.setattr("dqlab.live.waits.picture_of", lambda _: drawn)
    yield drawn
    assert threads() == []
    assert waits._current is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit, None])
def test_no_thread_is_left_however_a_wait_ends(seen: Drawn, error: type[BaseException] | None) -> None:
    """Ctrl-C and errors end most long waits."""
    if error is None:
        with shown("x"):
            assert seen.seen.wait(30)
    else:
        with pytest.raises(error), shown("x"):  # noqa: PT012
            assert seen.seen.wait(30)
            raise error

    assert seen.ended == 1


def test_a_wait_inside_another_is_part_of_it(seen: Drawn) -> None:
    """`results` waits for the run and reads pages: one view, not three."""
    with shown("outer"), shown("inner"):
        assert len(threads()) == 1
        step("the step")
        seen.seen.clear()
        assert seen.seen.wait(30)

    assert seen.steps[-1] == "the step"
    assert seen.ended == 1


def test_a_picture_that_raises_ends_no_wait(seen: Drawn, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def broken(_: Any) -> Any:
        seen.seen.set()
        raise RuntimeError("a view is broken")

    monkeypatch.setattr("dqlab.live.waits.picture_of", broken)
    with shown("x"):
        assert seen.seen.wait(30)

    assert "wait_not_shown" in caplog.text


def test_a_script_without_a_terminal_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are read by programs, and batch jobs wait for hours."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with shown("x"):
        assert threads() == []


def test_waits_of_other_threads_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user's thread waits for is its own business."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(waits._can_be_seen()))
    thread.start()
    thread.join()

    assert found == [False]


@pytest.fixture
def held(queue: dq.QueuePool) -> Iterator[dq.Run]:
    """A run whose documents all wait."""
    queue.pause()
    run = queue.map(abs, range(3))
    yield run
    run.drop()


@pytest.mark.parametrize("call", ["wait", "results", "as_completed"])
def test_waits_of_a_run_are_shown_while_they_last(held: dq.Run, seen: Drawn, call: str) -> None:
    """17 s of an empty cell, with nothing but [*] beside it."""
    with pytest.raises(dq.errors.WaitTimeout):
        list(getattr(held, call)(timeout=0.5) or ())

    assert seen.steps
    assert seen.ended == 1


def test_a_call_that_the_cluster_does_not_answer_is_shown_while_it_lasts(
    lab: dq.Lab, seen: Drawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lab.stats()` and `lab.map` stood still for 40 s without a word while `dqlab up` was stopped."""
    monkeypatch.setattr("dqlab.cluster.transport.link.UNSHOWN", 0.0)
    link = lab.session.link

    link.sync(link.scheduler("dq_run_name", stem="asked"))
    assert not seen.steps
    link.sync(asyncio.wait_for(_until(seen), 30))

    assert seen.steps
    assert seen.ended == 1


async def _until(seen: Drawn) -> None:
    """Answer once the wait for it is shown."""
    await asyncio.get_running_loop().run_in_executor(None, seen.seen.wait, 30)


def test_doctor_and_frames_are_shown_too(queue: dq.QueuePool, lab: dq.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds on large clusters and long runs."""
    said: list[Any] = []
    real = waits.shown

    def noted(what: Any) -> Any:
        said.append(what)
        return real(what)

    for module in ("dqlab.checkup.examine", "dqlab.runs.reading.results", "dqlab.connecting"):
        monkeypatch.setattr(f"{module}.shown", noted)
    lab.doctor()
    pytest.importorskip("pandas")
    queue.map(abs, range(3)).results(timeout=30).to_frame()
    with pytest.raises(dq.errors.ConnectFailed):
        dq.connect("tcp://127.0.0.1:9", timeout=0.5)

    assert said == [f"examining lab {lab.name}", "reading 3 results", "connecting"]
