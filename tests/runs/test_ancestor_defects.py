"""The ancestor's defects, each as the promise that takes its place.

Numbers are those of the list of defects found in daskqueue when it was read and run.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import cloudpickle
import pytest
from distributed import Client, LocalCluster

from dqlab import ConsumerPool, QueuePool

# As in a notebook: functions travel by value, with the helpers they name.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def queue_of(client: Client, **options: Any) -> closing[QueuePool]:
    return closing(QueuePool(client, **options))


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
