"""Runs whose submitting process dies: never a silent gap, never a duplicate."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import CallTimeout, RunExists, SubmissionIncomplete
from tests.kit import forking
from tests.kit.waiting import until

ROOT = Path(__file__).parents[3]
SCRIPT = """
    import sys
    import dqlab as dq
    from tests.runs.submit.test_cut_off import double

    def documents():
        yield from range(3000)
        print("half", flush=True)
        sys.stdin.read()

    lab = dq.connect(sys.argv[1], name="first")
    lab.queue(sys.argv[2]).map(double, documents(), name="cut", consumers=None).submitter.join(600)
"""


def double(x: int) -> int:
    return 2 * x


def all_there(pool: dq.QueuePool, n: int) -> None:
    """Wait until a queue holds so many messages, 30 s at most."""
    deadline = time.monotonic() + 30
    while (there := sum(pool.counts().values())) < n:
        assert time.monotonic() < deadline, f"{there} of {n} messages are there after 30 s"
        time.sleep(0.01)  # for those that are to put them


def submit_half_and_die(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Run a process that submits 3,000 of its documents and is killed."""
    child = forking.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), lab.client.scheduler.address, queue.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        all_there(queue, 3000)
        child.kill()
        child.wait()


def held_up(pool: dq.QueuePool, n: int, go_on: threading.Event, note: Callable[[], object] = bool) -> Iterator[int]:
    """Before the last one, those before it are recorded."""
    yield from range(n - 1)
    all_there(pool, n - 1)
    note()
    yield n - 1
    go_on.wait(60)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that left is given up at once."""
    monkeypatch.setattr("dqlab.cluster.scheduler.queues.AWAY", 0.1)


@pytest.mark.usefixtures("soon")
def test_run_of_a_killed_client_is_incomplete_until_its_documents_are_mapped_again(
    lab: dq.Lab, queue: dq.QueuePool
) -> None:
    submit_half_and_die(lab, queue)

    run = lab.attach("cut")
    with pytest.raises(SubmissionIncomplete, match=r"3,000.*the process that submitted it ended.*again to go on"):
        run.wait(timeout=30)
    assert run.state == "incomplete"

    again = queue.map(double, range(5000), name="cut")
    assert list(again.results(timeout=60)) == [2 * x for x in range(5000)]
    assert again.counts["acked"] == sum(again.counts.values()) == 5000


@pytest.fixture
def cut(queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> Iterator[dq.Run]:
    """A run whose input goes on, though the shards have been told that its client is gone."""
    go_on = threading.Event()

    def note() -> None:
        monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.05)

    run = queue.map(double, held_up(queue, 4000, go_on, note), name=f"cut-{queue.name}", consumers=None)
    submitter = run.submitter
    assert submitter is not None
    all_there(queue, 4000)
    until(lambda: run._progress().record.submitted >= 3999)
    run.handle.link.sync(run.handle.ask_all(calls.CutOffCall([run.handle.link.client.id])))
    object.__setattr__(run, "submitter", None)
    monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 1.0)  # those that go on with it need no note for each
    yield run
    go_on.set()
    submitter.join(30)


def test_other_documents_do_not_complete_a_run_that_was_cut_off(queue: dq.QueuePool, cut: dq.Run) -> None:
    """How far it got was recorded, with a hash of the documents, while it was submitted."""
    with pytest.raises(RunExists, match="other documents"):
        queue.map(double, range(1, 5001), name=cut.name).wait(timeout=30)
    assert sum(cut.counts.values()) == 4000


def test_documents_behind_a_silent_input_are_compared_too(queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was recorded with the next element alone: of a burst before a long silence only the number was known."""
    monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.05)
    go_on = threading.Event()
    run = queue.map(double, held_up(queue, 1000, go_on), name=f"burst-{queue.name}")
    submitter = run.submitter
    assert submitter is not None
    all_there(queue, 1000)
    limit = time.monotonic() + 20
    while run._progress().record.submitted < 1000 and time.monotonic() < limit:
        time.sleep(0.005)
    assert run._progress().record.submitted == 1000
    run.handle.link.sync(run.handle.ask_all(calls.CutOffCall([run.handle.link.client.id])))
    object.__setattr__(run, "submitter", None)

    with pytest.raises(RunExists, match="other documents"):
        queue.map(double, range(10**6, 10**6 + 2000), name=run.name).results(timeout=30)
    go_on.set()
    submitter.join(30)


def test_record_that_did_not_arrive_is_sent_again(queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard that was busy for a moment would leave a burst unrecorded until the next element."""
    monkeypatch.setattr("dqlab.runs.submit.mapping.NOTE_EVERY", 0.05)
    ask, refused, go_on = Handle.ask, list[str](), threading.Event()

    async def busy(self: Handle, shard: int, call: calls.Call[Any], *parts: Any, **options: Any) -> Any:
        if isinstance(call, calls.ControlCall) and call.message["op"] == "submitted" and len(refused) < 3:
            refused.append(call.method)
            raise CallTimeout(name="queue", call=call.method, seconds=30)
        return await ask(self, shard, call, *parts, **options)

    monkeypatch.setattr(Handle, "ask", busy)
    run = queue.map(double, held_up(queue, 100, go_on), name=f"busy-{queue.name}")
    limit = time.monotonic() + 20
    while run._progress().record.submitted < 100 and time.monotonic() < limit:
        time.sleep(0.005)
    assert (run._progress().record.submitted, len(refused)) == (100, 3)
    go_on.set()
    assert list(run.results(timeout=30)) == [2 * x for x in range(100)]


def test_generator_that_was_read_partly_cannot_go_on_in_the_middle_and_says_so(
    queue: dq.QueuePool, cut: dq.Run
) -> None:
    """One that yields all documents can: they are compared with those that are there."""
    begun = (x for x in range(5000))
    for _ in range(2000):
        next(begun)

    with pytest.raises(RunExists, match=r"an iterator, which cannot begin in the middle of a run: pass a new one"):
        queue.map(double, begun, name=cut.name).wait(timeout=30)
    again = queue.map(double, (x for x in range(5000)), name=cut.name)
    assert list(again.results(timeout=60)) == [2 * x for x in range(5000)]
    assert sum(again.counts.values()) == 5000


def test_runs_of_other_clients_are_left_alone(queue: dq.QueuePool) -> None:
    go_on = threading.Event()
    run = queue.map(double, held_up(queue, 10, go_on), name=f"mine-{queue.name}")
    run.handle.link.sync(run.handle.ask_all(calls.CutOffCall(["another"])))
    go_on.set()
    assert list(run.results(timeout=30)) == [2 * x for x in range(10)]


def test_run_all_at_once_after_the_kernel_died_goes_on_without_waiting(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """No shard waits for a client that another one replaces: the same documents are taken at once."""
    submit_half_and_die(lab, queue)

    run = queue.map(double, range(5000), name="cut")
    assert list(run.results(timeout=60)) == [2 * x for x in range(5000)]
    assert sum(run.counts.values()) == 5000


def test_pages_are_known_of_all_that_a_resumed_submission_puts(queue: dq.QueuePool) -> None:
    """Behind what is there already, the first one decides whether there are pages, as in a first submission."""
    documents = list(dq.Documents.stdlib())[:20]
    run = queue.map(len_of, documents, name=f"pages-{queue.name}", consumers=None)
    assert run.submitter is not None
    run.submitter.join(30)
    run.handle.link.sync(run.handle.ask_all(calls.ControlCall({"op": "reopen", "run": run.id})))
    run.handle.link.sync(run.handle.ask_all(calls.CutOffCall([run.handle.link.client.id])))
    object.__setattr__(run, "submitter", None)
    again = queue.map(len_of, [*documents, *documents], name=run.name, consumers=None)
    assert again.submitter is not None
    again.submitter.join(30)
    assert again.submitter.error is None
    units = again.stats().units
    assert units is not None
    assert units.ready == 2 * sum(document.page_count or 0 for document in documents)


def len_of(document: dq.Document) -> int:
    return len(document.bytes())
