"""A forked process has the lab's objects and none of its threads: it is told so, and never waits for them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dqlab as dq

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def in_a_fork(works: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Return what each piece of work raised in a forked process, as class and text; it has 20 s for all."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        raised = {}
        for name, work in works.items():
            try:
                work()
                raised[name] = ""
            except BaseException as error:  # noqa: BLE001 - reported, and nothing of the tests goes on here
                raised[name] = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(raised).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {}


@pytest.fixture
def run(queue: dq.QueuePool) -> Iterator[dq.Run]:
    """Done, so that waiting for it would take no time."""
    return queue.map(abs, range(10), name="forked").wait(timeout=20)


def test_everything_that_asks_a_lab_in_a_forked_process_raises(lab: dq.Lab, queue: dq.QueuePool, run: dq.Run) -> None:
    """multiprocessing forks on Linux, so a helper process gets the lab by closure, and waited for ever."""
    put, consumers, results = queue.submit(abs, -1), dq.ConsumerPool(lab.client, queue), run.results()
    raised = in_a_fork(
        {
            "counts": lambda: run.counts,
            "wait": lambda: run.wait(),
            "results": lambda: run.results(),
            "read": lambda: list(results),
            "as_completed": lambda: list(run.as_completed()),
            "map": lambda: queue.map(abs, [1]),
            "map by name": lambda: lab.map(abs, [1], name="forked"),
            "submit": lambda: queue.submit(abs, 1),
            "put": lambda: put.results(),
            "flush": lambda: queue.flush(None),
            "queue": lambda: lab.queue("another"),
            "attach": lambda: lab.attach("forked"),
            "stats": lambda: lab.stats(),
            "doctor": lambda: lab.doctor(),
            "start": consumers.start,
            "join": consumers.join,
            "pause": queue.pause,
            "drop": run.drop,
            "close": queue.close,
        }
    )

    assert {name: text for name, text in raised.items() if "this is a fork" not in text} == {}
    assert len(raised) == 19
    assert list(run.results(timeout=20)) == list(range(10))


def test_closing_a_lab_in_a_forked_process_leaves_it_to_its_owner(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """A fork that ends its `with` block, or runs the exit handlers, is not to end the parent's cluster."""
    assert in_a_fork({"close": lab.close}) == {"close": ""}

    assert queue.submit(abs, -1).results(timeout=20) == [1]


def test_connecting_in_a_forked_process_does_not_return_the_parents_lab(lab: dq.Lab) -> None:
    """The same arguments give the same lab, in one process."""
    address = lab.client.scheduler.address
    with dq.connect(address, name="forked") as parents:
        raised = in_a_fork({"connect": lambda: dq.connect(address, name="forked")})

        assert "this is a fork" in raised["connect"]
        assert "spawn" in raised["connect"]
        assert not parents.ended
