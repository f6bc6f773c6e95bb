"""The ancestor's defects, each as the promise that takes its place.

Numbers are those of the list of defects found in daskqueue when it was read and run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.metadata import requires
from itertools import accumulate
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab import ConsumerBaseClass, ConsumerPool, QueuePool
from dqlab.errors import QueueFull
from dqlab.runs.submit import sender
from tests.kit.sampled import mostly_slow

# As in a notebook: functions travel by value, with the helpers they name.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def queue_of(client: Client, **options: Any) -> closing[QueuePool]:
    return closing(QueuePool(client, **options))


def note(path: Path, text: str) -> None:
    """Append a line; atomic, so processes may share the file."""
    descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, f"{text}\n".encode())
    os.close(descriptor)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_work_longer_than_its_lease_runs_once(client: Client, tmp_path: Path) -> None:
    """Defect 1: the sweep took back every unacked message, however young, and ran it twice."""
    ran = tmp_path / "ran"

    def slow(i: int, seconds: float) -> int:
        note(ran, str(i))
        time.sleep(seconds)
        return i

    with queue_of(client, ack_timeout=0.9, retry=True) as pool:
        pool.batch_submit([(slow, 0, 2.0), (slow, 1, 2.0), (slow, 2, 0.01), (slow, 3, 0.01)])
        consumers = ConsumerPool(client, pool, n_consumers=2)
        consumers.start()
        consumers.join()

        assert sorted(lines(ran)) == ["0", "1", "2", "3"]
        assert sorted(consumers.results().values()) == [0, 1, 2, 3]


def test_only_finished_work_counts_as_done(client: Client) -> None:
    """Defect 2: without retry, failed and slow work was recorded as success when the sweep met it."""

    def fails() -> None:
        raise ValueError("no such page")

    def slow() -> str:
        time.sleep(0.8)
        return "late but done"

    with queue_of(client, ack_timeout=0.3, retry=False) as pool:
        put = pool.batch_submit([(fails,), (slow,)])
        consumers = ConsumerPool(client, pool)
        consumers.start()
        consumers.join()

        assert consumers.results() == {put.ids[1]: "late but done"}
        assert [letter.id for letter in pool.dead()] == [put.ids[0]]
        assert pool.counts()["acked"] == 1


def test_transient_queue_retries_what_failed_and_goes_on(client: Client, tmp_path: Path) -> None:
    """Defect 3: retry=True on a transient queue lost the message and ended redelivery for good."""
    attempts = tmp_path / "attempts"

    def fails_twice(name: str) -> str:
        note(attempts, name)
        if attempts.read_text().splitlines().count(name) < 3:
            raise OSError("not yet")
        return name

    with queue_of(client, retry=dq.Retry(3, backoff=0.01)) as pool:
        consumers = ConsumerPool(client, pool)
        consumers.start()
        assert pool.submit(fails_twice, "first").results(timeout=20) == ["first"]
        assert pool.submit(fails_twice, "second").results(timeout=20) == ["second"]
        consumers.join()

        assert lines(attempts) == ["first"] * 3 + ["second"] * 3


def test_join_waits_for_work_that_was_acked_early(client: Client) -> None:
    """Defect 4: join stopped the consumer between ack and execution; 20 tasks gave 10 results."""

    def task(i: int) -> int:
        time.sleep(0.005)
        return i

    with queue_of(client) as pool:
        pool.batch_submit([(task, i) for i in range(20)])
        consumers = ConsumerPool(client, pool, batch_size=20, early_ack=True, max_concurrency=1)
        consumers.start()
        consumers.join()

        assert list(consumers.results().values()) == list(range(20))


def test_exceptions_are_retried_and_then_listed(client: Client, tmp_path: Path) -> None:
    """Defect 5: exceptions vanished; join said done, and nothing told that two of three had failed."""
    attempts = tmp_path / "attempts"

    def parse(text: str) -> int:
        note(attempts, text)
        return int(text)

    with queue_of(client, retry=dq.Retry(0, backoff=0.01)) as pool:
        pool.batch_submit([(parse, "1"), (parse, "one"), (parse, "two")])
        consumers = ConsumerPool(client, pool, retries=2)
        consumers.start()
        consumers.join()

        assert list(consumers.results().values()) == [1]
        assert [(d.error, d.exceptions, d.argument[0]) for d in pool.dead()] == [
            ("ValueError", 3, ("one",)),
            ("ValueError", 3, ("two",)),
        ]
        assert "invalid literal" in pool.dead()[0].traceback
        assert len(lines(attempts)) == 7


def test_late_ack_of_an_expired_lease_records_the_message_once(client: Client, tmp_path: Path) -> None:
    """Defect 8: a late ack raised in a task that was not awaited, or acked a newer delivery of another message."""
    ran = tmp_path / "ran"

    def holds_the_gil_at_first() -> str:
        first = not ran.exists()
        note(ran, "ran")
        if first:  # PyDLL keeps the GIL: the worker cannot renew the lease meanwhile
            ctypes.PyDLL(None).usleep(1_500_000)
        return "done"

    with queue_of(client, ack_timeout=0.6) as pool:
        put = pool.submit(holds_the_gil_at_first)
        consumers = ConsumerPool(client, pool, n_consumers=2)
        consumers.start()
        assert put.results(timeout=20) == ["done"]
        other = pool.submit(len, "abc")
        consumers.join()

        assert consumers.results() == {put.ids[0]: "done", other.ids[0]: 3}
        assert pool.counts()["acked"] == 2
        assert len(lines(ran)) > 1, "the lease was meant to expire"


@pytest.mark.parametrize("early_ack", [False, True])
def test_plain_values_reach_process_item(client: Client, early_ack: bool) -> None:
    """Defect 9: raw items, as in the ancestor's own copy example, killed the fetch loop; join hung."""

    class Upper(ConsumerBaseClass):
        def process_item(self, item: str) -> str:
            return item.upper()

    with queue_of(client) as pool:
        pool.put("a")
        pool.put_many(["b", "c"])
        consumers = ConsumerPool(client, pool, Upper, early_ack=early_ack)
        consumers.start()
        consumers.join()

        assert list(consumers.results().values()) == ["A", "B", "C"]


def test_one_consumer_empties_every_queue(client: Client) -> None:
    """Defect 10: with fewer consumers than queues some were never read, and join hung."""
    with queue_of(client, n_queues=4) as pool:
        for i in range(4):
            pool.batch_submit([(abs, -i)] * 3).ids  # noqa: B018 - confirmed, so each put is at least one frame
        sizes = pool.get_queue_size()
        consumers = ConsumerPool(client, pool, n_consumers=1)
        consumers.start()
        consumers.join()

        assert all(sizes[shard] for shard in range(4)), "each queue was meant to hold something"
        assert sorted(consumers.results().values()) == sorted([0, 1, 2, 3] * 3)
        assert sum(pool.get_queue_size().values()) == 0


def test_idle_consumers_cost_next_to_nothing(client: Client) -> None:
    """Defect 11: one idle consumer on one empty queue burned 27 % of a core; nothing polls here."""
    with queue_of(client) as pool:
        consumers = ConsumerPool(client, pool, n_consumers=4)
        consumers.start()
        assert pool.submit(len, "abc").results() == [3]

        before = client.run(time.process_time)
        threading.Event().wait(1.0)
        after = client.run(time.process_time)

        # Three Dask workers alone take up to 0.12 s; four consumers that poll would take more than 1 s.
        assert sum(after.values()) - sum(before.values()) < 0.4
        consumers.cancel()


@pytest.mark.cluster
def test_dead_consumer_costs_neither_messages_nor_results() -> None:
    """Defect 12: one dead worker made join and results raise; its results were gone."""

    def slow(i: int) -> int:
        time.sleep(0.05)
        return i

    with dq.connect(n=2, name="one-dies") as lab, queue_of(lab.client) as pool:
        put = pool.batch_submit([(slow, i) for i in range(40)])
        consumers = ConsumerPool(lab.client, pool, n_consumers=2)
        consumers.start()
        victim = pool.submit(os.getpid).results(timeout=20)[0]

        os.kill(victim, signal.SIGKILL)
        consumers.join()

        assert put.results() == list(range(40))
        assert len(consumers.results()) == 41


@contextmanager
def one_worker(threads: int) -> Iterator[Client]:
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=1, threads_per_worker=threads, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:this cluster has too few workers")
def test_cluster_of_one_thread_is_enough() -> None:
    """Defect 13: constructors blocked inside a task; one worker of one thread hung at construction."""
    with one_worker(threads=1) as client, queue_of(client, n_queues=2) as pool:
        consumers = ConsumerPool(client, pool, n_consumers=2)
        consumers.start()
        pool.batch_submit([(abs, -1), (abs, -2)])
        consumers.join()

        assert sorted(consumers.results().values()) == [1, 2]


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore:this cluster has too few workers")
@pytest.mark.parametrize("early_ack", mostly_slow([False, True], False))
def test_max_concurrency_is_a_limit(tmp_path: Path, early_ack: bool) -> None:
    """Defect 14: max_concurrency=1 ran four at once; finished tasks were counted, late acks twice."""

    def busy(events: Path) -> None:
        note(events, "+1")
        time.sleep(0.02)
        note(events, "-1")

    async def waits(events: Path) -> None:
        import asyncio

        note(events, "+1")
        await asyncio.sleep(0.02)
        note(events, "-1")

    def most_at_once(client: Client, function: Callable[[Path], Any], limit: int) -> int:
        events = tmp_path / f"{function.__name__}-{limit}"
        with queue_of(client) as pool:
            pool.batch_submit([(function, events)] * 32)  # eight leases: three slots cannot take them all at once
            consumers = ConsumerPool(client, pool, batch_size=4, early_ack=early_ack, max_concurrency=limit)
            consumers.start()
            consumers.join()
        return max(accumulate(map(int, lines(events))))

    with one_worker(threads=4) as client:
        assert [most_at_once(client, busy, limit) for limit in (1, 3)] == [1, 3]
        assert most_at_once(client, waits, 1) == 1
        assert 2 <= most_at_once(client, waits, 6) <= 6


def test_full_queue_refuses_loudly_and_makes_producers_wait(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 17: put_many was not awaited, timeouts were swallowed, no limit could be set on the pool."""
    monkeypatch.setattr(sender, "ROOM_WAIT", 0.1)
    with queue_of(client, maxsize=10) as pool:
        kept = pool.batch_submit([(abs, -1)] * 10)
        refused = pool.put_nowait("one too many")
        with pytest.raises(QueueFull, match="10 of 10 messages"):
            refused.ids  # noqa: B018
        pool.put("nobody asks what became of it")
        with pytest.raises(QueueFull, match="no consumer"):
            pool.flush()
        pool.flush()

        monkeypatch.undo()
        consumers = ConsumerPool(client, pool)
        consumers.start()
        waited = pool.batch_submit([(abs, -2)] * 50)  # five times what fits
        consumers.join()

        assert kept.results() + waited.results() == [1] * 10 + [2] * 50


def test_results_belong_to_the_ids_that_submit_returned(client: Client) -> None:
    """Defect 18: submit returned no id, results were keyed by a hash, a batch took no keywords and needed len()."""

    def power(base: int, *, exponent: int) -> int:
        return int(base**exponent)

    with queue_of(client, n_queues=2) as pool:
        one = pool.submit(power, 5, exponent=3)
        many = pool.batch_submit((power, (i,), {"exponent": 2}) for i in range(100))
        positional = pool.batch_submit([(divmod, 7, 2)], sync_mode=True, batch_size=1000)
        consumers = ConsumerPool(client, pool, n_consumers=2)
        consumers.start()
        consumers.join()
        results = consumers.results()

        assert results[one.ids[0]] == 125
        assert [results[id] for id in many.ids] == many.results() == [i * i for i in range(100)]
        assert [results[id] for id in positional.ids] == [(3, 1)]
        assert len(set(one.ids + many.ids + positional.ids)) == len(results) == 102


def test_function_travels_once_and_may_be_local(client: Client) -> None:
    """Defect 19: each message carried its function's pickle, and a local lambda could not be sent at all."""
    table = os.urandom(200_000)

    with queue_of(client) as pool:
        pool.batch_submit([(lambda i: table[i], i) for i in range(3)])
        look_up = lambda i: table[i]  # noqa: E731
        pool.batch_submit([(look_up, i) for i in range(100)])
        pool.flush()
        nbytes = pool[0].stats()["lanes"][0]["nbytes"]
        consumers = ConsumerPool(client, pool, n_consumers=2)
        consumers.start()
        consumers.join()

        assert nbytes < 5_000
        assert list(consumers.results().values()) == list(table[:3]) + list(table[:100])


def test_second_start_makes_no_second_set_of_consumers(client: Client) -> None:
    """Defect 20: start() twice orphaned a fetch loop, which went on unseen."""
    with queue_of(client) as pool:
        consumers = ConsumerPool(client, pool, n_consumers=2)
        consumers.start()
        names = [consumer.name for consumer in consumers]
        consumers.start()
        pool.batch_submit([(abs, -i) for i in range(50)])
        consumers.join()

        assert [name for name in names if "consumer" in name] == names
        assert consumers.nb_consumed() == 50
        assert pool[0].stats()["consumers"] == 0
        with pytest.raises(dq.DqlabError, match="start"):
            consumers[0].stats()


def test_what_it_imports_is_declared() -> None:
    """Defect 20: sortedcontainers and cloudpickle were imported but not required."""
    declared = " ".join(requires("dqlab") or [])

    assert "sortedcontainers" in declared
    assert "cloudpickle" in declared
