"""How work flows: bounds, fair shares, nothing held up, leases renewed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.errors import BadOption, CallTimeout, QueueFull
from dqlab.runs.submit import sender
from dqlab.testing import Gate, Tally

pytestmark = pytest.mark.lowest


class Noted:
    """Notes each call, then takes its time."""

    def __init__(self, tally: Tally, seconds: float = 0.0) -> None:
        self.tally, self.seconds = tally, seconds

    def __call__(self, x: int) -> int:
        self.tally.add(x)
        end = time.perf_counter() + self.seconds
        while time.perf_counter() < end:
            time.sleep(0.001)
        return x


def same(x: int) -> int:
    return x


def kilobyte(x: int) -> bytes:
    return bytes([x % 256]) * 1000


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    return Tally(tmp_path)


def make(lab: dq.Lab, name: str, **options: object) -> Iterator[dq.QueuePool]:
    pool = lab.queue(name, **options)  # type: ignore[arg-type]
    yield pool
    pool.close()


@pytest.fixture
def impatient(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue whose leases last a second and a half."""
    yield from make(lab, queue_name, visibility_timeout=1.5)


@pytest.fixture
def narrow(lab: dq.Lab, queue_name: str) -> Iterator[dq.QueuePool]:
    """A queue with room for a hundred messages."""
    yield from make(lab, queue_name, maxsize=100)


def test_function_longer_than_its_lease_runs_once(impatient: dq.QueuePool, tally: Tally) -> None:
    """Leases are renewed while the executor lives: slow is not dead."""
    run = impatient.map(Noted(tally, seconds=3.0), range(2))

    assert list(run.results(timeout=20)) == [0, 1]
    assert sorted(tally.seen()) == ["0", "1"]


def test_map_waits_for_room_and_loses_nothing(narrow: dq.QueuePool) -> None:
    """A hundred thousand documents pass through a queue with room for a hundred, in order and complete."""
    run = narrow.map(same, range(10_000))

    assert list(run.results(timeout=50)) == list(range(10_000))
    assert run.counts["acked"] == 10_000


def test_map_over_a_full_queue_holds_none_of_its_input(narrow: dq.QueuePool, tmp_path: Path) -> None:
    """The input is taken as there is room, give or take a buffer: it may be larger than memory."""
    taken = 0
    gate = Gate(tmp_path)

    def numbers() -> Iterator[int]:
        nonlocal taken
        while taken < 1_000_000:
            taken += 1
            yield taken

    def held(x: int) -> int:
        gate.wait()
        return x

    run = narrow.map(held, numbers())
    gate.until_arrived(2)
    counts = run.counts

    assert counts["ready"] + counts["leased"] <= 100
    assert taken < 20_000
    run.cancel()
    gate.open()


def test_full_queue_without_consumers_refuses_with_the_way_out(
    client: object, lab: dq.Lab, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting for room that no consumer makes would hang the notebook."""
    assert sender.ROOM_WAIT <= 5
    monkeypatch.setattr(sender, "ROOM_WAIT", 0.5)
    pool = dq.QueuePool(lab.client, name=queue_name, maxsize=10)
    pool.put_many(range(10)).ids  # noqa: B018 - waits until they are in

    began = time.monotonic()
    with pytest.raises(QueueFull, match=r"10 of 10 messages.*Start consumers") as caught:
        pool.put(11).ids  # noqa: B018

    assert time.monotonic() - began < 3.5
    assert (caught.value.queue, caught.value.messages, caught.value.maxsize) == (queue_name, 10, 10)
    pool.purge("ready")
    assert len(pool.put(11).ids) == 1
    pool.close()


def test_slow_document_holds_up_no_other(queue: dq.QueuePool, tmp_path: Path) -> None:
    """One book among leaflets: while one consumer reads it, the other takes over the rest of its lease."""
    gate = Gate(tmp_path)

    def read(pages: int) -> int:
        if pages == 1000:
            gate.wait()
        return pages

    run = queue.map(read, [1] * 3 + [1000] + [1] * 600)
    stream = run.as_completed(timeout=10)
    leaflets = [next(stream) for _ in range(603)]
    gate.open()

    assert (3, 1000) not in leaflets
    assert list(stream) == [(3, 1000)]


@pytest.mark.parametrize("leaflets", [1, 5, 40])
def test_few_documents_behind_a_slow_one_are_moved_too(queue: dq.QueuePool, tmp_path: Path, leaflets: int) -> None:
    """However small the rest looks, it does not wait for hours."""
    gate = Gate(tmp_path)

    def read(pages: int) -> int:
        if pages == 1000:
            gate.wait()
        return pages

    run = queue.map(read, [1] * 200 + [1000] + [1] * leaflets)
    stream = run.as_completed(timeout=10)
    early = [value for _, value in (next(stream) for _ in range(200 + leaflets))]
    gate.open()

    assert 1000 not in early
    run.wait(timeout=20)


def test_results_come_back_equal_from_the_log_of_a_transient_queue(lab: dq.Lab, queue_name: str) -> None:
    pool = lab.queue(queue_name)
    run = pool.map(kilobyte, range(3000))

    results = run.results(timeout=30)

    [stats] = pool.handle.link.sync(pool.handle.ask_all(calls.StatsCall()))
    assert stats.stored > 3_000_000
    assert list(results) == [kilobyte(x) for x in range(3000)]
    assert results[17] == kilobyte(17)
    assert sorted(run.as_completed()) == [(x, kilobyte(x)) for x in range(3000)]
    pool.close()


def test_options_of_a_queue_are_checked_before_it_is_made(lab: dq.Lab, queue_name: str) -> None:
    """A queue with half of its options would be worse than none."""
    for options in ({"maxsize": 0}, {"visibility_timeout": "soon"}, {"max_deliveries": -1}, {"max_bytes": "no"}):
        with pytest.raises(BadOption, match=next(iter(options))):
            lab.queue(queue_name, **options)

    assert queue_name not in [pool.name for pool in lab.queues]


def test_shard_that_is_long_in_coming_back_does_not_end_a_wait(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a limit of one's own does."""
    run = queue.map(abs, range(10))
    asked, missed = run._progress, [1, 2, 3]

    def now_and_then(**options: Any) -> Any:
        if missed:
            missed.pop()
            raise CallTimeout(name="queue/q/0", call="resolve", seconds=10)
        return asked(**options)

    monkeypatch.setattr(run, "_progress", now_and_then)
    run.wait(timeout=20)
    assert not missed


def test_run_that_has_ended_is_ended_in_the_labs_statistics(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """The next line, as in Run All, showed no run, or one that is submitting with nothing done."""
    for n in range(5):
        run = queue.map(abs, range(20 + n)).wait(timeout=30)
        [seen] = [each for each in lab.stats().runs if each.name == run.name]
        assert (seen.state.value, seen.counts.acked) == ("done", 20 + n)
        run.drop()


def test_what_was_done_is_in_the_statistics_of_the_next_line(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """A queue that was paused was shown as running, and a run that was dropped was still there."""
    run = queue.map(abs, range(3)).wait(timeout=30)
    for _ in range(5):
        queue.pause()
        assert lab.stats().queue(queue.name).state == "paused"
        queue.resume()
        assert lab.stats().queue(queue.name).state != "paused"
    run.drop()
    assert run.name not in {each.name for each in lab.stats().runs}
