"""One slot and its process, without a cluster: what a message may do to it, and what that costs the others."""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.cluster.consumer.process.slot_process import FRUITLESS, SlotProcess
from dqlab.cluster.consumer.running.chunk import Chunk, Lease
from dqlab.cluster.consumer.running.execution import Origin
from dqlab.cluster.consumer.running.threads import SlotThread
from dqlab.cluster.transport.isolation import Isolation
from dqlab.cluster.transport.sealed import blob_hash, open_value, pack_function, seal_function, seal_value
from dqlab.documents import Document
from dqlab.errors import MemoryLimit, MessageTimeout, ProcessDied
from dqlab.failures.failure import Failure
from dqlab.frame import Frame, Kind, Outcome
from dqlab.testing import Gate, Tally
from tests.kit import forking
from tests.kit.descriptors import none_left_open
from tests.kit.waiting import is_alive, until

pytestmark = pytest.mark.cluster

ORIGIN = Origin("consumer/q/0", "worker", 1 << 24)
FOREVER = 60.0


@pytest.fixture(scope="module")
def slot() -> Iterator[SlotProcess]:
    """One for all tests: a process takes a while to start, and most leave it as it was."""
    slot = SlotProcess(ORIGIN)
    yield slot
    slot.close()


def chunk_of(values: Any, function: bytes = b"", **limits: Any) -> Chunk:
    payloads = [seal_value(value) for value in values]
    frame = Frame.decode(Frame.encode(payloads, kind=Kind.ELEMENT, function=blob_hash(function)))
    return Chunk(Lease(0, 1, 1, 60.0, Isolation(**limits).record()), [0], [frame])


def packed(function: Callable[..., Any]) -> bytes:
    return pack_function(seal_function(function), code="c0de")


def results(chunk: Chunk) -> dict[int, Any]:
    return {index: open_value(payload) for index, outcome, payload, _ in chunk.done if outcome is Outcome.ACK}


def failures(chunk: Chunk) -> dict[int, Failure]:
    return {index: Failure.from_bytes(payload) for index, outcome, payload, _ in chunk.done if outcome is Outcome.FAIL}


def run(slot: SlotProcess, function: Callable[..., Any], values: Any, **limits: Any) -> Chunk:
    blob = packed(function)
    chunk = chunk_of(values, blob, **limits)
    slot.run(chunk, blob)
    assert not chunk.todo
    assert len({index for index, *_ in chunk.done}) == chunk.count
    return chunk


THREAD = SlotThread("dq-test")
"""Outlives all tests: Linux kills a process when the thread that started it ends, in the middle of another test."""


def start(slot: SlotProcess, function: Callable[..., Any], values: Any, **limits: Any) -> tuple[Future[None], Chunk]:
    """Run a chunk in a thread, as a slot does."""
    blob = packed(function)
    chunk = chunk_of(values, blob, **limits)
    return THREAD.submit(slot.run, chunk, blob), chunk


# --- what comes back ------------------------------------------------------------------------


def test_results_of_any_kind_come_back_as_from_a_thread(slot: SlotProcess) -> None:
    class Local:
        def __eq__(self, other: object) -> bool:
            return type(other).__name__ == "Local"

    values = [None, b"", "é\ud800", {"a": [1.5]}, lambda: 1, Local(), b"x" * (1 << 20)]

    def made(at: int) -> Any:
        return values[at]

    back = results(run(slot, made, range(7)))

    assert [back[at] for at in (0, 1, 2, 3, 6)] == [values[at] for at in (0, 1, 2, 3, 6)]
    assert back[4]() == 1
    assert type(back[5]).__name__ == "Local"


def test_exceptions_are_told_as_from_a_thread(slot: SlotProcess) -> None:
    """Also sys.exit, and what can be neither pickled nor sent: all end one message."""

    def fail(at: int) -> Any:
        if at == 0:
            return 8 / at
        if at == 1:
            sys.exit("no")
        return threading.Lock() if at == 2 else b"x" * (1 << 24)

    chunk = run(slot, fail, range(4))

    records = {index: Failure.from_bytes(payload) for index, _, payload, _ in chunk.done}
    assert [records[at].error.split(".")[-1] for at in range(4)] == [
        "ZeroDivisionError",
        "SystemExit",
        "ResultRefused",
        "ResultTooLarge",
    ]
    assert "8 / at" in records[0].traceback
    assert "dqlab/cluster" not in records[0].traceback
    assert records[0].at.startswith("fail:")
    assert (records[0].code, records[0].worker) == ("c0de", "worker")


def test_one_process_serves_chunks_of_several_functions(slot: SlotProcess) -> None:
    first = results(run(slot, lambda _: os.getpid(), range(50)))
    second = results(run(slot, lambda x: (x, os.getpid()), range(50)))

    [pid] = set(first.values())
    assert second == {at: (at, pid) for at in range(50)}
    assert pid != os.getpid()


def test_function_finds_modules_where_its_worker_does(
    slot: SlotProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what `sys.path` is there, the environment of what it starts shows nothing."""
    (tmp_path / "of_the_user.py").write_text("ANSWER = 42")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = os.environ.get("PYTHONPATH")

    def answer(_: int) -> Any:
        import of_the_user  # type: ignore[import-not-found]

        return of_the_user.ANSWER, os.environ.get("PYTHONPATH")

    assert results(run(slot, answer, [0])) == {0: (42, before)}


# --- what dies ------------------------------------------------------------------------------


def crash_c(_: int) -> None:
    ctypes.string_at(0)


def leave(_: int) -> None:
    os._exit(3)


def kill_itself(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("crash", "said", "at"),
    [
        (crash_c, "died of signal 11 (SIGSEGV)", "crash_c"),
        (leave, "ended itself with exit status 3", ""),
        (kill_itself, "died of signal 9 (SIGKILL), sent by another process", ""),
    ],
)
def test_crash_ends_one_message_and_names_what_it_died_of(
    slot: SlotProcess, crash: Callable[[int], None], said: str, at: str
) -> None:
    def work(x: int) -> int:
        if x == 30:
            crash(x)
        return x

    chunk = run(slot, work, range(100))

    [(index, failure)] = failures(chunk).items()
    assert index == 30
    assert failure.error.endswith(ProcessDied.__name__)
    assert said in failure.message
    assert failure.at.startswith(at)
    assert results(chunk) == {x: x for x in range(100) if x != 30}


def hang(_: int) -> None:
    time.sleep(FOREVER)


def hang_with_the_gil(_: int) -> None:
    ctypes.PyDLL(None).sleep(int(FOREVER))


@pytest.mark.parametrize("stuck", [hang, hang_with_the_gil])
def test_message_over_its_time_is_killed_and_says_where_it_was(slot: SlotProcess, stuck: Callable[[int], None]) -> None:
    def work(x: int) -> int:
        if x == 3:
            stuck(x)
        return x

    began = time.monotonic()
    chunk = run(slot, work, range(10), timeout=0.3)

    [(index, failure)] = failures(chunk).items()
    assert index == 3
    assert failure.error.endswith(MessageTimeout.__name__)
    assert "exceeded timeout of 0.3 s" in failure.message
    assert failure.at.startswith(stuck.__name__)
    assert len(results(chunk)) == 9
    assert time.monotonic() - began < 10


def test_message_over_its_memory_is_killed(slot: SlotProcess) -> None:
    def work(x: int) -> int:
        kept = [bytes(1 << 20) for _ in range(100_000 if x == 3 else 1)]
        return len(kept)

    chunk = run(slot, work, range(10), memory=300 * 10**6)

    [(index, failure)] = failures(chunk).items()
    assert index == 3
    assert failure.error.endswith(MemoryLimit.__name__)
    assert "used more than 300 MB" in failure.message
    assert len(results(chunk)) == 9


def test_memory_left_by_earlier_messages_fails_no_message(slot: SlotProcess) -> None:
    """An idle process that is nearly full is replaced before a message pays for the others."""
    left = "kept = globals().setdefault('kept', [])\nkept.append(b'x' * 100_000_000)"

    def leak(_: int) -> int:
        exec(left, globals())
        return os.getpid()

    pids = [results(run(slot, leak, [0], memory=280 * 10**6))[0] for _ in range(6)]

    assert len(set(pids)) > 1


def test_document_that_crashes_is_named_by_its_key(slot: SlotProcess) -> None:
    """The slot never opens what users put; the process notes the key before the function begins."""
    documents = [Document(f"né/{at}.pdf", "", "/nowhere") for at in range(10)]

    def parse(document: Document) -> str:
        if document.key.endswith("5.pdf"):
            os._exit(1)
        return document.key

    chunk = run(slot, parse, documents)

    assert [key for index, _, _, key in sorted(chunk.done)] == [document.key for document in documents]
    assert failures(chunk)[5].key == "né/5.pdf"


def test_what_cannot_be_opened_fails_one_message(slot: SlotProcess) -> None:
    class Unopenable:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    chunk = run(slot, lambda x: x, [1, Unopenable(), 3])

    assert results(chunk) == {0: 1, 2: 3}
    assert failures(chunk)[1].error == "ValueError"


def test_process_that_cannot_start_fails_messages_in_the_end(
    slot: SlotProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is to blame, but waiting for ever helps nobody either."""
    slot.close()
    started = []

    class Dead(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, arguments: list[str], **options: Any) -> None:
            started.append(arguments)
            super().__init__(["false"], **options)

    monkeypatch.setattr(subprocess, "Popen", Dead)

    chunk = run(slot, abs, [1])

    assert "ended itself with exit status 1 before it began" in failures(chunk)[0].message
    assert len(started) == FRUITLESS


# --- what goes on ---------------------------------------------------------------------------


def test_process_is_replaced_after_as_many_messages_as_it_may_run(slot: SlotProcess) -> None:
    pids = results(run(slot, lambda _: os.getpid(), range(25), max_messages=10))

    assert [list(pids.values()).count(pid) for pid in dict.fromkeys(pids.values())] == [10, 10, 5]


def test_replaced_processes_leave_no_descriptor(slot: SlotProcess) -> None:
    run(slot, abs, [1])

    with none_left_open():
        run(slot, lambda x: os._exit(1) if x == 1 else x, range(3))
        run(slot, abs, range(3), max_messages=2)
        run(slot, abs, [1])


def test_slow_message_keeps_none_behind_it(slot: SlotProcess, tmp_path: Path) -> None:
    """What is given ahead comes back as soon as one takes long, so that others can have it."""
    gate = Gate(tmp_path)

    def work(x: int) -> int:
        if x == 50:
            gate.wait()
        return x

    ended, chunk = start(slot, work, range(100))
    gate.until_arrived()
    until(lambda: len(chunk.todo) == 49)
    assert chunk.give_back(1000) is not None
    gate.open()
    ended.result(30)

    assert sorted(results(chunk)) == list(range(51))


def test_cancel_kills_the_message_that_runs(slot: SlotProcess, tmp_path: Path) -> None:
    """It counts nowhere, and neither do those behind it; the others go on."""
    tally = Tally(tmp_path)

    def work(x: int) -> int:
        tally.add(x)
        if x == 1:
            hang_with_the_gil(x)
        return x

    ended, chunk = start(slot, work, range(4))
    until(lambda: len(tally) == 2)
    chunk.cancel([(1, 3)])
    ended.result(10)

    assert results(chunk) == {0: 0, 3: 3}
    assert {index for index, outcome, *_ in chunk.done if outcome is Outcome.RETURN} == {1, 2}


def test_what_a_message_started_is_killed_with_it(
    slot: SlotProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally(tmp_path)

    def work(_: int) -> None:
        child = subprocess.Popen(["sleep", "60"])
        tally.add(child.pid)
        child.wait()

    ended, _ = start(slot, work, [0], timeout=60)
    until(lambda: len(tally))
    looks = itertools.count(1)
    later = {"monotonic": lambda: time.monotonic() + 61 * next(looks)}  # whenever its clock began, it is over
    monkeypatch.setattr("dqlab.cluster.consumer.process.slot_process.time", SimpleNamespace(**vars(time) | later))
    ended.result(30)

    [pid] = tally.seen()
    until(lambda: not is_alive(int(pid)))


def test_slot_that_stops_kills_what_runs(slot: SlotProcess, tmp_path: Path) -> None:
    tally = Tally(tmp_path)

    def work(_: int) -> None:
        tally.add(os.getpid())
        hang_with_the_gil(0)

    ended, _ = start(slot, work, [0])
    until(lambda: len(tally) == 1)
    slot.stopping = True
    ended.result(10)

    slot.stopping = False
    assert not is_alive(int(tally.seen()[0]))


def test_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """SIGKILL leaves no time to clean up; native code that holds the GIL hears nothing of closed pipes."""
    script = f"""
import sys
from pathlib import Path
from dqlab.cluster.consumer.process.slot_process import SlotProcess
from tests.cluster.consumer.test_slot_process import ORIGIN, chunk_of, note_and_hang, packed
SlotProcess(ORIGIN).run(chunk_of([{str(tmp_path)!r}]), packed(note_and_hang))
"""
    worker = forking.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[3])
    noted = Tally(tmp_path, "pids")
    until(lambda: len(noted) == 1)
    [pid] = noted.seen()
    assert is_alive(int(pid))

    worker.kill()
    worker.wait()

    until(lambda: not is_alive(int(pid)))


def note_and_hang(directory: str) -> None:
    Tally(Path(directory), "pids").add(os.getpid())
    hang_with_the_gil(0)
