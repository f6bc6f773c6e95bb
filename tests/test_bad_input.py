"""Whatever a cell hands over: a typed error that says what to do, and a pool that works on afterwards."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.connecting import CONNECT_TIMEOUT
from dqlab.errors import (
    BadOption,
    ConnectFailed,
    MessageTooLarge,
    NotPicklable,
    SubmissionIncomplete,
)
from tests.kit import forking

ONCE = dq.Retry(0)


def same(x: Any) -> Any:
    return x


@pytest.fixture
def pool(queue: dq.QueuePool) -> Iterator[dq.QueuePool]:
    """A queue that has to work after whatever the test did to it."""
    yield queue
    assert list(queue.map(same, range(10)).results(timeout=20)) == list(range(10))


# --- what cannot be sent --------------------------------------------------------------------


def test_function_that_cannot_be_pickled_is_named_with_the_culprit(pool: dq.QueuePool) -> None:
    """ "cannot pickle '_thread.lock' object" alone has cost everybody an afternoon."""
    lock = threading.Lock()

    def guarded(x: int) -> int:
        with lock:
            return x

    with pytest.raises(NotPicklable, match=r"function .*guarded.*variable lock captured by guarded is a _thread.lock"):
        pool.map(guarded, range(3))


def test_argument_that_cannot_be_pickled_is_named_with_its_position(pool: dq.QueuePool) -> None:
    """Which of ten thousand arguments it was."""
    with pytest.raises(NotPicklable, match=r"call 2.*_thread.lock"):
        pool.batch_submit([(same, 0), (same, 1), (same, {"connection": threading.Lock()})])


@pytest.mark.parametrize(
    ("kind", "instead"),
    [
        ("Lab", "map that here"),
        ("QueuePool", "put that here"),
        ("Run", r"list\(run.results\(\)\)"),
        ("Results", r"list\(results\)"),
        ("Failures", r"list\(failures\)"),
    ],
)
def test_a_function_that_uses_what_stays_here_is_refused_with_the_way_out(
    lab: dq.Lab, queue: dq.QueuePool, kind: str, instead: str
) -> None:
    """It named an inner attribute of Dask's client."""
    run = queue.map(abs, [1])
    taken = {"Lab": lab, "QueuePool": queue, "Run": run, "Results": run.results(timeout=30), "Failures": run.failures()}

    def uses(x: int) -> object:
        return there

    there = taken[kind]
    with pytest.raises(NotPicklable, match=rf"variable there captured by uses is a \S+{kind} .* {instead}"):
        queue.map(uses, [1])
    assert list(run.results(timeout=30)) == [1]


def test_element_that_cannot_be_pickled_ends_the_input_at_its_position(pool: dq.QueuePool) -> None:
    """What was submitted before it stays and goes on."""
    run = pool.map(same, [0, 1, 2, threading.Lock(), 4])

    with pytest.raises(SubmissionIncomplete, match="position 3") as caught:
        run.results(timeout=20)

    assert isinstance(caught.value.__cause__, NotPicklable)
    assert list(run.results(errors="skip", timeout=20)) == [0, 1, 2]


def test_message_above_the_limit_is_refused_with_the_way_out(pool: dq.QueuePool) -> None:
    """A document's contents do not belong in a message."""
    with pytest.raises(MessageTooLarge, match=r"limit is 1,048,576.*reference"):
        pool.put(bytes(2 << 20))

    run = pool.map(same, [b"small", bytes(2 << 20)])
    with pytest.raises(SubmissionIncomplete, match="position 1"):
        run.wait(timeout=20)


@pytest.mark.parametrize("name", ["a/b", "../etc", "two words", "", "ends\n"])
def test_name_that_cannot_be_a_directory_is_refused(lab: dq.Lab, name: str) -> None:
    """Names become directories and parts of URLs."""
    with pytest.raises(BadOption, match="Try '"):
        lab.queue(name)

    assert name not in [pool.name for pool in lab.queues]


# --- what comes back ------------------------------------------------------------------------


def test_result_that_cannot_be_pickled_is_a_dead_letter(pool: dq.QueuePool) -> None:
    """One generator returned by mistake costs one document, at once and without retries."""

    def opened(x: int) -> object:
        return threading.Lock() if x == 1 else x

    run = pool.map(opened, range(3)).wait(timeout=20)

    [letter] = run.failures()
    assert (letter.key, letter.error, letter.deliveries) == (1, "ResultRefused", 1)
    assert "of type lock" in letter.message
    assert list(run.results(errors="skip")) == [0, 2]


# --- what functions do ----------------------------------------------------------------------


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=repr)
def test_function_that_leaves_fails_its_document_only(pool: dq.QueuePool, leaving: BaseException) -> None:
    """`sys.exit()` in a script that became a function must not take a worker with it."""

    def leaves(x: int) -> int:
        if x == 1:
            raise leaving
        return x

    run = pool.map(leaves, range(4), retry=ONCE).wait(timeout=20)

    [letter] = run.failures()
    assert (letter.key, letter.error) == (1, type(leaving).__name__)
    assert list(run.results(errors="skip")) == [0, 2, 3]


def of_none(*given: Any) -> int:
    return _of_none(*given)  # its own signature takes anything


def _of_none() -> int:
    return 1


def test_function_of_no_argument_fails_with_pythons_own_words(pool: dq.QueuePool) -> None:
    """A signature that does not fit is the user's most frequent slip."""
    [letter] = pool.map(of_none, [1], retry=ONCE).wait(timeout=20).failures()

    assert letter.error == "TypeError"
    assert "positional argument" in letter.message


# --- the notebook's own classes -------------------------------------------------------------

SCRIPT = """
    import dataclasses, enum, sys
    import dqlab as dq
    from distributed import Client

    @dataclasses.dataclass
    class Page:
        number: int

        def next(self):
            return Page(self.number + 1)

    class Colour(enum.Enum):
        RED = 1

    class Torn(Exception):
        pass

    def turn(page):
        if page.number == 13:
            raise Torn(Colour.RED)
        return page.next(), Colour.RED

    def main():
        with Client(sys.argv[1], set_as_default=False) as client:
            pool = dq.QueuePool(client, name=sys.argv[2])
            run = pool.map(turn, [Page(n) for n in range(20)], retry=dq.Retry(0)).wait(timeout=20)
            values = run.results(errors="skip")
            assert all(isinstance(page, Page) and colour is Colour.RED for page, colour in values)
            assert [page.number for page, _ in values] == [n + 1 for n in range(20) if n != 13]
            [letter] = run.failures()
            assert letter.error == "Torn", letter.error
            assert letter.argument == Page(13)
            print("all well")

    main()
"""


def test_classes_of_the_notebook_travel_by_value(lab: dq.Lab, queue_name: str, tmp_path: Path) -> None:
    """Everything in a notebook lives in __main__, where no worker can import it."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))

    ran = forking.run(
        [sys.executable, str(script), lab.client.scheduler.address, queue_name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.stdout.strip() == "all well", ran.stderr
    lab.queue(queue_name).close()


# --- where nothing listens ------------------------------------------------------------------


def test_connecting_where_nothing_listens_fails_fast_and_says_what_to_do() -> None:
    """A wrong port must not look like a slow cluster."""
    began = time.monotonic()

    with pytest.raises(ConnectFailed, match=r"127.0.0.1:1'.*nothing listens there.*dask scheduler"):
        dq.connect("tcp://127.0.0.1:1", timeout=1)

    assert time.monotonic() - began < 3
    assert CONNECT_TIMEOUT <= 5


def test_a_refusal_is_named_though_the_last_attempt_had_no_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "CancelledError" whenever the deadline fell into an attempt."""

    async def cut_off(address: str, **_: Any) -> None:
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError as error:
            raise OSError(f"Timed out trying to connect to {address}") from error

    monkeypatch.setattr("distributed.comm.core.connect", cut_off)

    with pytest.raises(ConnectFailed, match="nothing listens there"):
        dq.connect("tcp://127.0.0.1:1", timeout=1)


@pytest.mark.parametrize("patience", [None, "20s"])
def test_a_socket_that_is_not_there_is_named_at_once(tmp_path: Path, patience: str | None) -> None:
    """It was "somebody listens there, and does not answer", after five seconds."""
    (tmp_path / "kept").mkdir(mode=0o700)
    began = time.monotonic()

    for folder, reason in (("gone", r"gone cannot be read .*its cluster has ended"), ("kept", "kept has no socket 7")):
        with pytest.raises(ConnectFailed, match=rf"{reason}.*Nothing was started"):
            dq.connect(f"unix://{tmp_path / folder}:7", timeout=patience)

    assert time.monotonic() - began < 2


@pytest.mark.parametrize(("target", "hint"), [("loacl", "did you mean 'local'"), ("my-cluster", "HOST:PORT")])
def test_a_text_that_is_no_address_is_refused_with_the_forms_that_there_are(target: str, hint: str) -> None:
    """ "No scheduler answered within 5 s (missing port number)" came after 0.2 s."""
    with pytest.raises(ConnectFailed, match=hint) as caught:
        dq.connect(target)
    assert "tcp://HOST:PORT" in str(caught.value)


def test_message_above_its_queues_bound_is_refused_at_once(lab: dq.Lab, queue_name: str) -> None:
    """It would wait for ever for room that the queue never has."""
    pool = lab.queue(queue_name, max_bytes=1000)
    run = pool.map(len, [b"x", bytes(5000), b"y"])

    with pytest.raises(SubmissionIncomplete, match="MessageTooLarge") as caught:
        run.wait(timeout=20)

    assert caught.value.position == 1
    pool.close()


def test_one_text_is_no_list_of_documents(queue: dq.QueuePool) -> None:
    """Its characters are hardly what was meant."""
    with pytest.raises(dq.DqlabError, match=r"Pass \[text\]"):
        queue.map(same, "papers/*.txt")
