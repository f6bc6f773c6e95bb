"""Results: complete, in document order, whatever finished first."""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cluster.transport.queue_calls import Handle
from dqlab.errors import DqlabWarning, RunFailed, WaitTimeout
from dqlab.frame import Settlement
from dqlab.runs.reading.results import OpenedStretch, Results
from dqlab.testing import Gate
from tests.kit.sampled import examples
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest


def square(x: int) -> int:
    return x * x


def odd_only(x: int) -> int:
    if x % 2 == 0:
        raise dq.Reject(f"{x} is even")
    return x


@pytest.fixture
def documents(tmp_path: Path) -> list[dq.Document]:
    """Three documents with keys, out of alphabetical order."""
    return [dq.Document(name, "v1", str(tmp_path / name)) for name in ("c.txt", "a.txt", "b/ä.txt")]


def test_results_are_a_sequence_in_document_order(queue: dq.QueuePool) -> None:
    """A list comprehension over the same documents would give the same."""
    results = queue.map(square, range(2500)).results()

    expected = [square(x) for x in range(2500)]
    assert len(results) == 2500
    assert list(results) == expected
    assert (results[0], results[1234], results[-1], results[-2500]) == (0, 1234**2, 2499**2, 0)
    assert results[10:20] == expected[10:20]
    assert results[990:1010] == expected[990:1010]
    assert results[::-500] == expected[::-500]
    assert results[-3:] == expected[-3:]
    assert results[5:5] == []
    with pytest.raises(IndexError):
        _ = results[2500]


def test_run_over_nothing_is_done_with_no_results(queue: dq.QueuePool) -> None:
    """An empty folder is no error."""
    with pytest.warns(DqlabWarning, match="no documents"):
        results = queue.map(square, []).results()

    assert (len(results), list(results)) == (0, [])


def test_failed_documents_raise_unless_told_otherwise(queue: dq.QueuePool) -> None:
    """A missing result must be asked for, never overlooked."""
    run = queue.map(odd_only, range(5))

    with pytest.raises(RunFailed, match="3 of 5 documents"):
        run.results()

    kept = run.results(errors="skip")
    assert list(kept.items()) == [(1, 1), (3, 3)]
    assert (len(kept), kept[1], kept[-2]) == (2, 3, 1)
    placed = run.results(errors="return")
    assert [type(value).__name__ for value in placed] == ["DeadLetter", "int", "DeadLetter", "int", "DeadLetter"]
    assert (placed[1], placed[2].message) == (1, "rejected: 2 is even")


@pytest.mark.parametrize("done", [0, 7])
def test_cancelled_documents_keep_the_others_in_their_places(queue: dq.QueuePool, done: int) -> None:
    """They were left out: paired with the input, values stood beside other documents."""

    def some(x: int) -> int:
        if x >= 40 - done:
            return 10 * x
        if x == 3:
            raise dq.Reject("never")
        raise dq.Later(1000)

    documents = [dq.Document(f"d{x}", "v1", f"d{x}") for x in range(40)]
    run = queue.map(lambda document: some(int(document.key[1:])), documents)
    until(lambda: run.counts["delayed"] == 39 - done)
    run.cancel()

    placed = run.results(errors="return", timeout=30)
    kinds = [type(value).__name__ for value in placed]
    assert kinds == ["CancelledDocument"] * 3 + ["DeadLetter"] + ["CancelledDocument"] * (36 - done) + ["int"] * done
    assert [value for value in placed if isinstance(value, int)] == [10 * x for x in range(40 - done, 40)]
    assert list(placed.keys()) == [f"d{x}" for x in range(40)]
    assert str(placed[0]) == "d0: cancelled"
    assert list(run.results(errors="skip")) == [10 * x for x in range(40 - done, 40)]


def test_as_completed_yields_what_is_done_while_the_rest_runs(queue: dq.QueuePool, tmp_path: Path) -> None:
    """The first result is there before the last document has begun to end."""
    gate = Gate(tmp_path)

    def held(x: int) -> int:
        if x == 0:
            gate.wait()
        return x

    run = queue.map(held, range(200))
    stream = run.as_completed(timeout=20)
    early = [next(stream) for _ in range(100)]
    gate.open()

    assert (0, 0) not in early
    assert sorted([*early, *stream]) == [(x, x) for x in range(200)]


def test_wait_that_ends_early_leaves_the_run_alone(queue: dq.QueuePool, tmp_path: Path) -> None:
    """Interrupting a cell detaches; the work goes on."""
    gate = Gate(tmp_path)

    def held(x: int) -> int:
        gate.wait()
        return x

    run = queue.map(held, range(3))

    with pytest.raises(WaitTimeout, match="3 messages left"):
        run.wait(timeout="100ms")

    gate.open()
    assert list(run.results(timeout=20)) == [0, 1, 2]


def test_coroutines_run_at_most_as_many_at_a_time_as_allowed(queue: dq.QueuePool) -> None:
    """A hundred at a time in one consumer, so that a server is not flooded."""

    class Crowd:
        now = most = 0

    async def crowded(x: int) -> int:
        Crowd.now += 1
        Crowd.most = max(Crowd.most, Crowd.now)
        await asyncio.sleep(0.001)
        Crowd.now -= 1
        return Crowd.most

    assert 1 <= max(queue.map(crowded, range(1000)).results(timeout=30)) <= 100


def test_counts_agree_with_the_snapshot_after_a_run(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Views draw the snapshot; people check it against `run.counts`."""
    run = queue.map(odd_only, range(101)).wait(timeout=30)

    snapshot = lab.stats()
    while (seen := snapshot.run(run.name)) is None or not seen.finished:
        snapshot = lab.wait_for_change(snapshot.seq)

    assert run.counts == {
        "ready": 0,
        "delayed": 0,
        "leased": 0,
        "acked": 50,
        "dead": 51,
        "cancelled": 0,
        "lost": 0,
    }
    assert (seen.counts.acked, seen.counts.dead, seen.counts.all, seen.total) == (50, 51, 101, 101)
    assert sum(entry.dead for entry in run.stats().classes) == 51
    assert queue.counts() == run.counts
    assert run.stats().counts == seen.counts


def row_or_nothing(x: int) -> dict[str, int] | None:
    if x == 1:
        raise ValueError("no table")
    return None if x == 2 else {"number": x, "square": x * x}


def test_columns_survive_rows_that_are_missing(queue: dq.QueuePool) -> None:
    """One document without a table used to cost the columns of all others."""
    run = queue.map(row_or_nothing, range(5), retry=dq.Retry(0)).wait(timeout=30)
    some, all_of_them = (run.results(errors=how).to_frame() for how in ("skip", "return"))

    assert some.columns.tolist() == ["number", "square"]
    assert some["square"].dropna().tolist() == [0, 9, 16]
    assert some.index.tolist() == [0, 2, 3, 4]
    assert all_of_them.columns.tolist() == ["number", "square", "error"]
    assert all_of_them["square"].dropna().tolist() == [0, 9, 16]
    assert "ValueError: no table" in all_of_them["error"][1]
    assert all_of_them["error"].dropna().index.tolist() == [1]


@pytest.mark.parametrize("errors", ["skip", "return"])
def test_results_taken_before_a_retry_are_read_by_whole_pages_after_it(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, errors: Any
) -> None:
    """Results of retried documents stand between those that were there: each cost a call for a page more."""
    run = queue.map(odd_only, range(2000), retry=dq.Retry(0), stop_if=None).wait(timeout=60)
    results = run.results(errors=errors)
    run.retry(fn=abs)
    run.wait(timeout=60)
    asked: list[tuple[int, int]] = []
    plain = Results._ask

    async def ask(self: Results, at: int, stop: int) -> Any:
        asked.append((at, stop))
        return await plain(self, at, stop)

    monkeypatch.setattr(Results, "_ask", ask)

    expected = list(range(1, 2000, 2)) if errors == "skip" else list(range(2000))
    assert list(results) == expected
    assert results[5:-5:7] == expected[5:-5:7]
    assert len(asked) <= 4


class Sized(Results):
    """Results of some sizes, in pages that are cut at `PAGE_BYTES` as a shard does."""

    def __init__(self, sizes: list[int], page_bytes: int) -> None:
        super().__init__("sized", SimpleNamespace(), b"", [(10, 10 + len(sizes))])  # type: ignore[arg-type]
        self.sizes, self.page_bytes = sizes, page_bytes
        self.fetched: list[tuple[int, int]] = []

    def _fetch(self, at: int, stop: int) -> tuple[list[OpenedStretch], int]:
        end, nbytes = at, 0
        while end < stop and nbytes < self.page_bytes:
            nbytes, end = nbytes + self.sizes[end], end + 1
        self.fetched.append((at, end))
        return [OpenedStretch(10 + at, list(range(at, end)))], nbytes

    def held(self) -> int:
        """Return the bytes of pages in memory, without those of the last one."""
        return sum(nbytes for _, nbytes in self._kept[1:])


@given(st.lists(st.integers(0, 120), min_size=1, max_size=300), st.randoms(use_true_random=False))
@settings(max_examples=examples(200), deadline=None)
def test_values_of_any_size_are_read_by_position_with_few_calls(sizes: list[int], at_random: random.Random) -> None:
    """Pages are cut where they are large enough, so that a page may end before the position that it was to contain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dqlab.runs.reading.results.PAGE_VALUES", 50)
        patch.setattr("dqlab.runs.reading.results.PAGE_BYTES", 200)
        patch.setattr("dqlab.runs.reading.results.KEPT_BYTES", 800)
        patch.setattr("dqlab.runs.reading.results.VALUE_BYTES", 1)
        pages = sum(sizes) / 200 + len(sizes) / 50 + 1

        for read in (range(len(sizes)), range(len(sizes) - 1, -1, -1)):
            results = Sized(sizes, 200)
            assert [results[at] for at in read] == list(read)
            assert len(results.fetched) <= 4 * pages

        results = Sized(sizes, 200)
        for at in at_random.choices(range(len(sizes)), k=100):
            assert results[at] == at
            assert results.held() <= 800


@pytest.mark.parametrize("errors", ["raise", "return"])
@pytest.mark.parametrize("durable", [False, True])
def test_results_of_any_size_come_in_order(
    lab: dq.Lab, queue_name: str, tmp_path: Path, errors: Any, durable: bool
) -> None:
    """Small ones between some that fill a page, and one above that: each page is cut elsewhere."""

    def sized(n: int) -> bytes:
        return n.to_bytes(4, "little") * (n * 7919 % 2_000 * (300 if n % 97 == 5 else 4) + (5 << 18) * (n == 250))

    more: dict[str, Any] = {"durability": dq.Durability.DURABLE, "dirpath": tmp_path} if durable else {}
    pool = dq.QueuePool(lab.client, name=queue_name, served=True, **more)
    run = pool.map(sized, range(500)).wait(timeout=60)
    results = run.results(errors=errors)

    assert all(value == sized(n) for n, value in enumerate(results))
    assert results[123] == sized(123)
    assert results[240:260] == [sized(n) for n in range(240, 260)]
    assert dict(run.as_completed()) == {n: sized(n) for n in range(500)}
    pool.close()


def test_the_next_page_is_on_its_way_while_one_is_opened(queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening large results takes as long as fetching them: one after the other they took the sum of both."""
    run = queue.map(lambda n: bytes([n]) * 1_000_000, range(30)).wait(timeout=60)
    plain_ask, plain_open = Results._ask, Results._opened
    asked, cut = set[int](), 0

    async def ask(self: Results, at: int, stop: int) -> Any:
        asked.add(at)
        return await plain_ask(self, at, stop)

    def opening(self: Results, found: Any, at: int, stop: int, **how: Any) -> Any:
        nonlocal cut
        rest = self._reached(found, at, stop)
        if rest < stop:
            until(lambda: rest in asked, 10)
            cut += 1
        return plain_open(self, found, at, stop, **how)

    monkeypatch.setattr(Results, "_ask", ask)
    monkeypatch.setattr(Results, "_opened", opening)

    assert [value[0] for value in run.results()] == list(range(30))
    assert cut > 1


def test_a_page_is_decoded_in_the_readers_thread_and_its_bytes_are_free_while_it_is_read(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's event loop keeps every connection alive; and values beside their bytes are twice the memory."""
    run = queue.map(lambda n: {"n": n, "text": "x" * 1000}, range(3000)).wait(timeout=60)
    threads, decoded = set[threading.Thread](), list[weakref.ref[Any]]()

    class Page(bytearray):
        """Bytes that a weak reference can watch."""

    plain = Handle.ask

    async def ask(self: Handle, *given: Any, **how: Any) -> tuple[Any, list[memoryview]]:
        answer, parts = await plain(self, *given, **how)
        return answer, [memoryview(Page(part)) for part in parts]

    def decode(part: bytes | memoryview) -> Settlement:
        threads.add(threading.current_thread())
        decoded.append(weakref.ref(part.obj))  # type: ignore[union-attr]
        return Settlement.decode(part)

    monkeypatch.setattr(Handle, "ask", ask)
    monkeypatch.setattr("dqlab.runs.reading.results.Settlement", SimpleNamespace(decode=decode))
    monkeypatch.setattr("dqlab.runs.reading.results.READ_VALUES", 1000)

    read = []
    for page in run.results()._pages(0, 3000):
        read += [value["n"] for stretch in page for value in stretch.values]
        assert all(stretch.lineage is not None for stretch in page)
        assert [each for each in decoded if each() is not None] == []
    streamed = []
    for key, _ in run.as_completed():
        streamed.append(key)
        assert [each for each in decoded if each() is not None] == []

    assert read == sorted(streamed) == list(range(3000))
    assert threads == {threading.current_thread()}


def test_page_that_another_thread_has_replaced_is_not_looked_into(queue: dq.QueuePool) -> None:
    """A server answers by ``results[i]`` from several threads: one ended with a bare StopIteration."""

    class Shared(Results):
        """Another thread is faster each time, and reads somewhere else."""

        _kept = property(lambda self: (), lambda self, kept: None)  # type: ignore[assignment]

    results = queue.map(abs, range(10)).results()
    results.__class__ = Shared

    assert [results[7], results[-10]] == [7, 0]
