"""Waiting for what is paused: the error and the warning name the pause, and the line that ends it."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport.ref import Ref
from dqlab.errors import CallTimeout, DqlabWarning, PutTimeout, WaitTimeout
from dqlab.runs import waiting
from tests.kit.sampled import mostly_slow

WAITS: dict[str, Callable[..., Any]] = {
    "wait": lambda run, **limit: run.wait(**limit),
    "results": lambda run, **limit: run.results(**limit)[:],
    "skip": lambda run, **limit: run.results(errors="skip", **limit)[:],
    "as_completed": lambda run, **limit: list(run.as_completed(**limit)),
}


ENOUGH = 1.5
"""Seconds in which a shard that is open answers on any machine; without an answer, the error names that alone."""


def same(x: int) -> int:
    return x


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warn after a moment."""
    monkeypatch.setattr("dqlab.runs.waiting.LATE", 0.2)
    for module in ("run_wait", "puts"):
        monkeypatch.setattr(f"dqlab.runs.{module}.PARK", 0.1)


def said_while(wait: Callable[[], Any], resume: Callable[[], Any], place: str = __file__) -> list[str]:
    """Return the warnings of a wait that is resumed a second after the first one; others if not of this place."""
    said = list[str]()

    def show(message: Warning | str, category: type[Warning], filename: str, *_: Any) -> None:
        assert issubclass(category, DqlabWarning)
        said.append(str(message))
        places.append(filename)
        if len(said) == 1:
            threading.Timer(1.0, resume).start()

    places = list[str]()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        wait()
    return said if places == [place] else [*said, *places]


@pytest.mark.parametrize("wait", mostly_slow(WAITS, "wait", "as_completed"))
def test_out_of_time_names_the_pause_of_the_run(queue: dq.QueuePool, wait: str) -> None:
    """And the line that ends it."""
    queue.pause()
    run = queue.map(same, range(99)).pause()
    queue.resume()

    with pytest.raises(WaitTimeout, match=r"The run is paused: run\.resume\(\) continues it.*%dq resume") as caught:
        WAITS[wait](run, timeout=ENOUGH)

    assert "Queue" not in str(caught.value)
    run.resume().wait(timeout=30)


@pytest.mark.parametrize("wait", mostly_slow(WAITS, "results"))
def test_out_of_time_names_the_pause_of_the_queue_and_an_input_that_is_not_read(lab: dq.Lab, wait: str) -> None:
    """Ten messages are left of a hundred documents: the others are not read yet."""
    queue = lab.queue(f"paused-{wait}", maxsize=10)
    queue.pause()
    run = queue.map(same, range(100))

    line = re.escape(f"lab.queue({queue.name!r}).resume()")
    said = rf"Its input is not read to its end.*Queue '{queue.name}' is paused: {line} continues it"
    with pytest.raises(WaitTimeout, match=said):
        WAITS[wait](run, timeout=ENOUGH)

    queue.resume()
    run.wait(timeout=30)
    queue.close()


@pytest.mark.parametrize("wait", mostly_slow(WAITS, "wait"))
def test_a_wait_without_a_limit_warns_once_of_the_pause_of_the_run(queue: dq.QueuePool, soon: None, wait: str) -> None:
    queue.pause()
    run = queue.map(same, range(99)).pause()
    queue.resume()

    [said] = said_while(lambda: WAITS[wait](run), run.resume)

    assert f"run {run.name!r} makes no progress" in said
    assert "run.resume()" in said


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No shard answers while it is set."""
    silent, plain = threading.Event(), Ref.call

    async def call(ref: Ref, function: str, *arguments: Any, **options: Any) -> bytes:
        if silent.is_set():
            await asyncio.sleep(0.05)
            raise CallTimeout(name=ref.name, call=function, seconds=0.05)
        return await plain(ref, function, *arguments, **options)

    monkeypatch.setattr(Ref, "call", call)
    return silent


@pytest.mark.parametrize("wait", mostly_slow(WAITS, "as_completed"))
def test_a_wait_without_a_limit_warns_once_that_no_worker_answers(
    queue: dq.QueuePool, silence: threading.Event, soon: None, wait: str
) -> None:
    """A cluster that was scaled to nothing may come back, so the wait goes on; a script must learn of it."""
    queue.pause()
    run = queue.map(same, range(9))
    assert run.submitter is not None
    run.submitter.join(30)

    def answer() -> None:
        silence.clear()
        queue.resume()

    silence.set()
    [said] = said_while(lambda: WAITS[wait](run), answer)

    assert f"run {run.name!r} makes no progress" in said
    assert f"No worker process answers for queue {queue.name!r}" in said


@pytest.fixture
def unconfirmed(silence: threading.Event, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds within which puts are confirmed."""
    monkeypatch.setattr("dqlab.runs.submit.sender.CONFIRM_WAIT", 0.3)
    return 0.3


def test_a_submission_goes_on_when_a_worker_answers_again(
    queue: dq.QueuePool, silence: threading.Event, unconfirmed: float
) -> None:
    """A cluster that was scaled to nothing may come back while the input is still read."""
    silence.set()
    opened = threading.Timer(5 * unconfirmed, silence.clear)
    silence.clear()
    run = queue.map(same, iter(range(5_000)))
    silence.set()
    opened.start()

    assert run.results(timeout=30)[:] == list(range(5_000))


def test_a_submission_that_gets_no_answer_can_be_cancelled(
    queue: dq.QueuePool, silence: threading.Event, unconfirmed: float
) -> None:
    """It tries for as long as it takes, so something has to end it."""
    run = queue.map(same, iter(threading.Event().wait, None))
    silence.set()
    run_sender = run.submitter.sender if run.submitter is not None else None
    assert run_sender is not None
    run_sender.append(1, b"1")
    silence_ends = threading.Timer(1.0, silence.clear)
    silence_ends.start()

    run_sender.close()
    run_sender.land()
    assert silence.is_set()
    silence_ends.join()
    run.cancel()


def test_puts_that_waited_as_long_are_given_up_together(
    queue: dq.QueuePool, silence: threading.Event, unconfirmed: float
) -> None:
    """One after the other they would take half a minute each, and `flush(None)` all of them in silence."""
    silence.set()
    began = time.monotonic()
    puts = [queue.put(n) if n % 2 else queue.submit(same, n) for n in range(40)]
    for put in puts:
        with pytest.raises(PutTimeout):
            put._handle.link.sync(put._ticket.landed())
    assert time.monotonic() - began < 10 * unconfirmed

    for _ in range(2):
        queue.put(0)
        queue.submit(same, 0)
    with pytest.raises(PutTimeout):
        queue.flush(None)
    silence.clear()
    assert len(queue.put_many([2, 3]).ids) == 2


def test_a_put_of_more_than_the_buffer_ends_when_its_queue_does_not_confirm_it(
    queue: dq.QueuePool, silence: threading.Event, unconfirmed: float
) -> None:
    """It waited for room in the buffer, half a minute for each thousand messages."""
    silence.set()
    began = time.monotonic()
    put = queue.put_many(range(200_000))
    with pytest.raises(PutTimeout):
        _ = put.ids

    assert time.monotonic() - began < 60 * unconfirmed  # it was 200 times that
    silence.clear()
    queue.flush()
    assert queue.counts()["ready"] == 0


def test_an_answer_between_two_that_were_missed_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours may lie between two shards that were made again."""
    monkeypatch.setattr("dqlab.runs.waiting.LATE", 0.0)
    standstill = waiting.Standstill("run 'a'", None)

    standstill.unanswered("q")
    standstill.look("")
    standstill.unanswered("q")
    with pytest.warns(DqlabWarning, match="No worker process answers for queue 'q'"):
        standstill.unanswered("q")
