"""Runs whose messages run in processes, on a cluster: what users choose, what they see, what stays behind."""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import BadOption
from dqlab.testing import Gate
from tests.kit.cells import of_a_cell
from tests.kit.waiting import is_alive, until

pytestmark = pytest.mark.cluster

CHILD = "dqlab.cluster.consumer.process.child"


def children(client: Client) -> set[int]:
    """Processes for messages, of all workers."""

    def mine() -> list[int]:
        return [child.pid for child in psutil.Process().children() if CHILD in child.cmdline()]

    return {pid for pids in client.run(mine).values() for pid in pids}


@of_a_cell
def where(_: Any) -> tuple[int, int]:
    return os.getpid(), os.getppid()


async def coroutine(x: int) -> int:
    return x


def test_document_that_crashes_is_retried_then_dead_and_the_only_one(queue: dq.QueuePool) -> None:
    """As if it had raised: its workers live on, and no other message counts a delivery."""
    workers = set(queue.session.link.client.run(os.getpid).values())

    def parse(x: int) -> int:
        if x == 123:
            ctypes.string_at(0)
        return x

    run = queue.map(parse, range(500), executor="process", retry=dq.Retry(1, backoff=0.01)).wait(timeout=50)

    [letter] = run.failures()
    assert (letter.ordinal, letter.deliveries, letter.reason) == (123, 2, "1 retry used up")
    assert "died of signal 11 (SIGSEGV)" in letter.message
    assert "ctypes.string_at(0)" in letter.traceback
    assert list(run.results(errors="skip")) == [x for x in range(500) if x != 123]
    assert set(queue.session.link.client.run(os.getpid).values()) == workers


def test_limits_choose_a_process_and_nothing_chooses_a_thread(queue: dq.QueuePool) -> None:
    workers = set(queue.session.link.client.run(os.getpid).values())

    limited = queue.map(where, range(20), timeout="30s", memory="1GB", max_messages_per_process=1000).results()
    plain = queue.map(where, range(20)).results()

    assert {parent for _, parent in limited} <= workers
    assert {pid for pid, _ in plain} <= workers


@pytest.mark.parametrize("listed", [False, True], ids=["a glob", "a list"])
def test_documents_that_native_code_parses_choose_a_process(queue: dq.QueuePool, tmp_path: Path, listed: bool) -> None:
    """One PDF of a hundred thousand crashes its parser; nobody thinks of that before."""
    for name in ("a.PDF", "b.pdf", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    workers = set(queue.session.link.client.run(os.getpid).values())
    files = dq.Documents.from_glob(tmp_path / "*.[pP]*")
    papers = list(files) if listed else files

    assert {parent for _, parent in queue.map(where, papers).results()} <= workers
    for thread in (
        queue.map(where, papers, executor="thread"),
        queue.map(where, dq.Documents.from_glob(tmp_path / "*.txt")),
        queue.map(where, dq.Documents(iter(files))),
    ):
        assert {pid for pid, _ in thread.results()} <= workers
    assert queue.map(coroutine_of_key, papers).results()[:] == ["a.PDF", "b.pdf"]


@of_a_cell
async def coroutine_of_key(document: dq.Document) -> str:
    return document.key


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executor": "thread", "timeout": 1}, r"timeout=1: needs a process: a thread cannot be killed"),
        ({"executor": "thread", "memory": "1GB"}, r"memory='1GB': needs a process"),
        ({"executor": "fork"}, r"is 'auto', 'thread' or 'process'"),
        ({"timeout": 0}, r"timeout=0.0: a number of seconds above zero"),
        ({"timeout": "soon"}, r"not a duration"),
        ({"memory": "much"}, r"not a size"),
        ({"max_messages_per_process": 0}, r"max_messages_per_process=0: a whole number"),
        ({"gpus": 0}, r"gpus=0: is a number above zero"),
        ({"gpus": True}, r"gpus=True: is a number above zero"),
        ({"gpus": 1.5}, r"gpus=1.5: is a whole number, or a share of one device"),
        ({"gpus": 1, "executor": "thread"}, r"gpus=1: needs a process: what it sees is set before its first import"),
        ({"fn": coroutine, "gpus": 1}, r"gpus=1: the function is a coroutine function.*Devices are for plain"),
        ({"resources": {"GPU": "all"}}, r"is a number above zero"),
        ({"resources": ["GPU"]}, r"amounts by name, as \{'GPU': 1\}"),
        ({"resources": {"gpus": 1}}, r"resources='gpus': is no resource of Dask"),
        ({"fn": coroutine, "executor": "process"}, r"executor='process': the function is a coroutine function"),
        ({"fn": coroutine, "timeout": "2s"}, r"timeout='2s': the function is a coroutine function.*asyncio.timeout"),
    ],
)
def test_what_cannot_be_is_refused_at_once(queue: dq.QueuePool, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        queue.map(**({"fn": where, "documents": [1]} | options))


def test_run_keeps_its_process_when_it_is_opened_again_and_retried(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    """The options belong to the run: neither a new cluster nor a mended function brings it back into a thread."""

    def make() -> dq.QueuePool:
        return dq.QueuePool(client, n_queues=2, name=queue_name, durability=dq.Durability.DURABLE, dirpath=tmp_path)

    def fail(_: int) -> None:
        raise ValueError

    pool = make()
    pool.map(fail, range(10), name="kept", timeout="20s", retry=dq.Retry(0)).wait(timeout=30)
    pool.close()

    again = make()
    run = again.session.runs.attach("kept")
    again.session.serve(again)
    with pytest.raises(BadOption, match="coroutine function"):
        run.retry(coroutine)
    run.retry(where)

    assert {parent for _, parent in run.results(timeout=30)} <= set(client.run(os.getpid).values())
    again.close()


def test_cancel_kills_what_runs(queue: dq.QueuePool, client: Client, tmp_path: Path) -> None:
    """No slot waits for a document that is not wanted; its result counts nowhere."""
    gate = Gate(tmp_path)

    def stuck(_: int) -> None:
        gate.arrived.add(os.getpid())
        ctypes.PyDLL(None).sleep(60)

    run = queue.map(stuck, range(4), executor="process")
    pids = gate.until_arrived(2)

    run.cancel()

    until(lambda: all(not is_alive(int(pid)) for pid in pids), 5)
    assert run.counts["cancelled"] == 4
    assert list(queue.map(abs, [-1], executor="process").results(timeout=20)) == [1]


def test_closed_queue_leaves_no_process(lab: dq.Lab, client: Client, queue_name: str) -> None:
    before = children(client)
    pool = lab.queue(queue_name)
    pool.map(where, range(100), executor="process").wait(timeout=30)
    assert children(client) - before

    pool.close()

    until(lambda: children(client) <= before)  # it is killed by then, and there until its worker has read that


def test_killed_worker_leaves_no_process(tmp_path: Path) -> None:
    """SIGKILL leaves no time to clean up, and native code that holds the GIL hears of no closed pipe."""
    gate = Gate(tmp_path)

    def stuck(_: int) -> None:
        gate.arrived.add(f"{os.getpid()} {os.getppid()}")
        ctypes.PyDLL(None).sleep(60)

    with dq.connect(n=1, name="orphans") as lab:
        lab.map(stuck, [0], executor="process")
        [arrived] = gate.until_arrived()
        child, worker = map(int, arrived.split())

        os.kill(worker, signal.SIGKILL)

        until(lambda: not is_alive(child), 5)


def test_crash_after_early_ack_is_not_tried_again(lab: dq.Lab, queue_name: str) -> None:
    """At most once: what was handed to a process that died was handed out."""
    pool = lab.queue(queue_name, early_ack=True)

    run = pool.map(lambda x: os._exit(4) if x == 5 else x, range(20), executor="process").wait(timeout=30)

    assert [letter.reason for letter in run.failures()] == ["not retried after early ack"]
    assert list(run.results(errors="skip")) == [x for x in range(20) if x != 5]
    pool.close()
