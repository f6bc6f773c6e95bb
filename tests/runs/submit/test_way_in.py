"""The way in: whatever an input holds or raises, and whatever becomes of a put, who waits gets an answer."""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.documents import Document
from dqlab.errors import NotPicklable, PutFailed, SubmissionIncomplete
from dqlab.runs.submit.sender import RunSender, Sender, UnsentFrame
from tests.kit.sampled import mostly_slow


def same(x: Any) -> Any:
    return x


def key_of(document: Document) -> str:
    return document.key


def documents(n: int, pages: Callable[[int], Any]) -> Iterator[Document]:
    return (Document(f"{i}.pdf", "", f"/{i}.pdf", n_pages=pages(i)) for i in range(n))


# --- inputs ---------------------------------------------------------------------------------


def test_page_counts_that_are_floats_lose_nothing(queue: dq.QueuePool) -> None:
    """So pandas gives them; the run was once done, with 0 of 20 results."""
    run = queue.map(key_of, documents(20, lambda i: 3.0), executor="thread")

    assert list(run.results(timeout=20)) == [f"{i}.pdf" for i in range(20)]


@pytest.mark.parametrize("pages", [math.nan, -1, 1 << 32])
def test_one_bad_page_count_ends_the_input_there_with_the_documents_name(queue: dq.QueuePool, pages: float) -> None:
    """One in five thousand once kept `wait` from returning at all."""
    run = queue.map(key_of, documents(2000, lambda i: pages if i == 1500 else 1), executor="thread")

    with pytest.raises(dq.DqlabError, match=r"'1500\.pdf'"):
        run.wait(timeout=20)
    assert list(run.results(errors="skip", timeout=20)) == [f"{i}.pdf" for i in range(1500)]


class Odd(BaseException):
    """Nothing that `except Exception` sees."""


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Unsealable:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (Odd("odd"), NotPicklable), (Speechless(), NotPicklable)],
)
def test_nothing_of_a_put_is_queued_when_one_of_its_values_cannot_be(
    queue: dq.QueuePool, error: BaseException, raised: type[BaseException]
) -> None:
    """Half of a list would be worse than none of it."""
    with pytest.raises(raised):
        queue.batch_submit([(same, 1), (same, Unsealable(error))])

    assert queue.submit(same, 3).results(timeout=20) == [3]
    assert queue.counts()["acked"] == 1


# --- puts -----------------------------------------------------------------------------------


def broken(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let the second call that puts frames fail in an unforeseen way."""
    ask, puts = Handle.ask, iter(range(1 << 30))

    async def failing(self: Handle, shard: int, call: calls.Call[Any], *args: Any, **options: Any) -> Any:
        if isinstance(call, calls.PutCall) and next(puts) == 1:
            raise error
        return await ask(self, shard, call, *args, **options)

    monkeypatch.setattr(Handle, "ask", failing)


@pytest.mark.parametrize(
    "error", [pytest.param(ValueError("odd"), marks=pytest.mark.slow), OverflowError(), asyncio.CancelledError()]
)
def test_a_put_with_an_unforeseen_error_reaches_its_waiting_caller(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Its documents vanished once: the run was done without them, or `wait` never returned."""
    broken(monkeypatch, error)

    run = queue.map(same, range(20_000), name="unforeseen")
    with pytest.raises(PutFailed, match=type(error).__name__):
        run.wait(timeout=20)
    monkeypatch.undo()

    assert run.state != "done"
    assert list(queue.map(same, range(20_000), name="unforeseen").results(timeout=30)) == list(range(20_000))


def test_a_single_put_with_an_unforeseen_error_raises_and_the_next_one_works(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be the queue's already, so no other frame may have it."""
    assert queue.submit(same, 0).results(timeout=20) == [0]
    broken(monkeypatch, ValueError("odd"))

    assert queue.submit(same, 1).results(timeout=20) == [1]
    refused = queue.submit(same, 2)
    with pytest.raises(PutFailed, match="odd"):
        refused.results(timeout=20)
    assert queue.submit(same, 3).results(timeout=20) == [3]
    queue.flush()


@pytest.mark.parametrize("where", mostly_slow(["gather", "_encode", "_confirmed"], "gather"))
def test_a_defect_anywhere_in_a_sender_reaches_who_waits(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """No task may end with its error in a log that nobody reads."""

    def defective(*args: Any) -> Any:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(RunSender, where, defective)
    run = queue.map(same, range(10))

    with pytest.raises(PutFailed, match="a defect"):
        run.wait(timeout=20)
    del run
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_a_run_whose_documents_do_not_add_up_is_never_done(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else goes wrong on the way: what was read is what was confirmed, or somebody is told."""
    confirmed = Sender._confirmed

    def forgetful(self: Sender, batch: UnsentFrame, first: int | None) -> None:
        confirmed(self, batch, first)
        self.here[batch.shard] -= batch.ordinal == 0

    monkeypatch.setattr(Sender, "_confirmed", forgetful)
    run = queue.map(same, range(10), name="adds-up")

    with pytest.raises(SubmissionIncomplete, match="1 of 10 documents"):
        run.wait(timeout=20)
    assert run.submitter is not None
    assert run.submitter.join(20)
    limit = time.monotonic() + 20
    while run.counts["acked"] < 10:  # the error comes while documents run
        assert time.monotonic() < limit
        time.sleep(0.005)
    assert run.state == "incomplete"
