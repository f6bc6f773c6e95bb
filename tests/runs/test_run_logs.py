"""What documents print is kept with them, whoever writes it and wherever they run."""

# ruff: noqa: T201 - functions that print are what is tested

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption
from dqlab.testing import Gate
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest
ONCE = dq.Retry(0)
EXECUTORS = pytest.mark.parametrize("executor", ["thread", "process"])


def talks(n: int) -> int:
    print("printed", n)
    logging.getLogger("mine").warning("logged %d", n)
    warnings.warn(f"warned {n}", stacklevel=1)
    sys.stderr.write("10%\r20%\rdone\n")
    sys.stdout.buffer.write(b"binary \xff\n")
    thread = threading.Thread(target=print, args=(f"thread {n}",))
    thread.start()
    thread.join()
    if n % 2:
        raise ValueError(n)
    return n


@EXECUTORS
def test_what_a_failed_document_printed_is_kept_with_it(queue: dq.QueuePool, executor: Any) -> None:
    """The oldest wish of those who map functions: a print showed nothing."""
    run = queue.map(talks, range(8), retry=ONCE, executor=executor)
    run.until_over()

    for letter in run.failures():
        for said in ("printed", "logged", "warned", "thread"):
            assert f"{said} {letter.key}\n" in letter.logs
            assert letter.logs.count(said) == 1 + (said == "warned"), "and nothing of its neighbours"
        assert "binary \N{REPLACEMENT CHARACTER}\ndone\n" in letter.logs or "\ndone\nbinary" in letter.logs
        assert run.logs(letter.key) == letter.logs
    assert [run.logs(n) for n in (0, 2)] == ["", ""], "what went well and fast is not kept"


def native(n: int) -> None:
    os.write(1, b"a descriptor\n")
    subprocess.run(["echo", "a child"], check=True)
    ctypes.CDLL(None).puts(b"the C library")
    print("x" * 10_000_000)
    if n == 0:
        raise RuntimeError
    ctypes.string_at(0)


def test_what_anything_in_a_process_writes_is_kept_even_when_it_dies(queue: dq.QueuePool) -> None:
    """A library in C that crashes says why on its standard error, and on nothing else."""
    run = queue.map(native, range(2), retry=ONCE, executor="process")
    run.until_over()

    for n in range(2):
        logs = run.logs(n)
        assert logs.startswith("a descriptor\na child\nthe C library\nxxx")
        assert logs.cut == 10_000_001 + len("a descriptor\na child\nthe C library\n") - 2 * 8192


async def steps(n: int) -> None:
    for step in range(3):
        print(n, step)
        await asyncio.sleep(0.001)
    raise ValueError


def test_a_hundred_coroutines_keep_their_output_apart(queue: dq.QueuePool) -> None:
    run = queue.map(steps, range(100), retry=ONCE)
    run.until_over()

    assert {letter.key: letter.logs for letter in run.failures()} == {
        n: "".join(f"{n} {step}\n" for step in range(3)) for n in range(100)
    }


def says(n: int) -> int:
    print("said", n)
    return n


@EXECUTORS
@pytest.mark.parametrize("logs", ["all", "none"])
def test_logs_all_keeps_what_went_well_and_none_keeps_nothing(queue: dq.QueuePool, executor: Any, logs: Any) -> None:
    run = queue.map(says, range(600), executor=executor, logs=logs)

    assert list(run.results()) == list(range(600))
    assert [run.logs(n) for n in (0, 599)] == (["said 0\n", "said 599\n"] if logs == "all" else ["", ""])


def late(n: int) -> int:
    print("began", n)
    time.sleep(1.2 if n == 20 else 0)
    return n


def test_a_document_much_slower_than_the_others_keeps_its_output_and_is_found(queue: dq.QueuePool) -> None:
    run = queue.map(late, range(40))
    run.until_over()

    assert (run.logs(20), run.logs(19)) == ("began 20\n", "")
    (slowest,) = run.slowest(1)
    assert (slowest.key, slowest.ordinal) == (20, 20)
    assert slowest.seconds == pytest.approx(1.2, abs=0.5)
    assert [each.seconds for each in run.slowest()] == sorted((each.seconds for each in run.slowest()), reverse=True)


@EXECUTORS
def test_a_document_that_runs_shows_what_it_printed_and_how_far_it_is(
    queue: dq.QueuePool, executor: Any, tmp_path: Path
) -> None:
    gate = Gate(tmp_path)

    def long(n: int) -> int:
        for page in dq.track(range(300)):
            if page == 11:
                print("at page 12")
                gate.wait()
        return n

    run = queue.map(long, [7], executor=executor)
    try:
        until(lambda: [(each.document, each.step) for each in queue.unacked()] == [("#0", "12 of 300")])
        until(lambda: run.logs("#0") == "at page 12\n")
        assert run.logs(0, since="1h") == "at page 12\n"
        until(lambda: run.logs(0, since=0) == "")
        assert "(12 of 300)" in queue.unacked()[0].shown_document
    finally:
        gate.open()
    run.until_over()
    with pytest.raises(BadOption, match=r"since=.*Leave it out"):
        run.logs(7, since="1m")


@pytest.mark.parametrize("key", ["nobody", 99, "#99", 1.5, None])
def test_a_key_of_no_document_is_refused(queue: dq.QueuePool, key: Any) -> None:
    run = queue.map(says, range(3))
    run.until_over()

    with pytest.raises(BadOption, match="key="):
        run.logs(key)
    with pytest.raises(BadOption, match="key="):
        run.debug(key)


def odd(n: int) -> int:
    if n % 2:
        raise ValueError(n)
    return n


def odds(numbers: list[int]) -> list[int]:
    return list(map(odd, numbers))


def odd_rows(n: int) -> Iterator[int]:
    yield odd(n)


@pytest.mark.parametrize(("fn", "batch", "value"), [(odd, None, 2), (odds, 2, [2]), (odd_rows, None, [2])])
def test_a_document_runs_here_under_the_debugger_at_the_line_that_fails(
    queue: dq.QueuePool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fn: Any,
    batch: int | None,
    value: Any,
) -> None:
    commands = iter(["p n + 40", "q"])
    monkeypatch.setattr("builtins.input", lambda *prompt: next(commands))
    run = queue.map(fn, range(3), retry=ONCE, batch=batch)
    run.until_over()

    assert run.debug(2) == value
    assert run.debug(1) is None

    said = capsys.readouterr().out
    assert "-> raise ValueError(n)" in said
    assert "41" in said
