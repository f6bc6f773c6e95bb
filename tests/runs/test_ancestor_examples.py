"""What daskqueue's README and example scripts do, step by step, under the same names."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client

from dqlab import ConsumerBaseClass, ConsumerPool, QueuePool
from dqlab.errors import BadOption


@pytest.fixture
def queue_pool(client: Client) -> Iterator[QueuePool]:
    """A pool as the scripts make it; closed at the end, which they leave to the process."""
    pool = QueuePool(client, n_queues=1)
    yield pool
    pool.close()


def test_readme_usage_runs_submitted_functions_and_returns_results(client: Client, queue_pool: QueuePool) -> None:
    """The first thing a user of the ancestor tries: start consumers, submit, join, read results."""

    def process_item() -> int:
        return sum(i * i for i in range(10**4))

    consumer_pool = ConsumerPool(client, queue_pool, n_consumers=5)
    consumer_pool.start()
    for _ in range(5):
        queue_pool.submit(process_item)
    consumer_pool.join()
    results = consumer_pool.results()

    assert list(results.values()) == [process_item()] * 5


def copy_list(start: Path, target: Path, size: int) -> list[tuple[str, str]]:
    """Pairs of source and destination, each destination new."""
    sources = sorted(start.iterdir())
    return [(str(sources[i % len(sources)]), str(target / str(uuid.uuid4()))) for i in range(size)]


def folders(tmp_path: Path) -> tuple[Path, Path]:
    start, target = tmp_path / "from", tmp_path / "to"
    start.mkdir()
    target.mkdir()
    for i in range(3):
        (start / f"{i}.txt").write_text(f"page {i}")
    return start, target


def copy_worker() -> type[ConsumerBaseClass]:
    """A consumer class of a notebook: it travels by value."""

    class CopyWorker(ConsumerBaseClass):
        def process_item(self, item: tuple[str, str]) -> None:
            import shutil

            src, dst = item
            shutil.copy(src, dst)

    return CopyWorker


def test_perf_copy_copies_every_file_that_was_put(client: Client, queue_pool: QueuePool, tmp_path: Path) -> None:
    """perf_copy.py: a class with process_item, consumers first, then lists of plain values."""
    start, target = folders(tmp_path)
    consumer_pool = ConsumerPool(client, queue_pool, copy_worker(), 2)
    consumer_pool.start()

    for _ in range(10):
        queue_pool.put_many(copy_list(start, target, size=10))
    consumer_pool.join()

    assert len(list(target.iterdir())) == 100
    assert {path.read_text() for path in target.iterdir()} == {"page 0", "page 1", "page 2"}


def test_distributed_copy_spreads_over_many_queues_and_consumers(client: Client, tmp_path: Path) -> None:
    """distributed_copy.py: five queues, more consumers than workers, files put while they run."""
    start, target = folders(tmp_path)
    queue_pool = QueuePool(client, 5)
    consumers = ConsumerPool(client, queue_pool, copy_worker(), n_consumers=6)
    consumers.start()

    for _ in range(10):
        queue_pool.put_many(copy_list(start, target, size=10))
    consumers.join()

    assert len(list(target.iterdir())) == 100
    assert len(consumers.results()) == 100
    queue_pool.close()


def test_perf_cpu_bound_submits_a_batch_then_starts(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """perf_cpu_bound.py: everything is in the queues before the first consumer exists."""

    def slowinc(x: int, delay: float) -> int:
        time.sleep(delay)
        return x + 1

    queue_pool = QueuePool(client, n_queues=3)
    consumer_pool = ConsumerPool(client, queue_pool, n_consumers=6, max_concurrency=10000)
    queue_pool.batch_submit([(slowinc, 1, 0.01) for _ in range(300)])

    consumer_pool.start(timeout=1)
    consumer_pool.join(timestep=0.001, print_timestep=0.05, progress=True)

    assert list(consumer_pool.results().values()) == [2] * 300
    assert "QueuePool" in str(queue_pool)
    assert "ConsumerPool of 6" in str(consumer_pool)
    assert "messages left" in capsys.readouterr().err
    queue_pool.close()


def test_perf_func_adds_what_was_submitted_and_refuses_what_is_no_function(
    client: Client, queue_pool: QueuePool
) -> None:
    """perf_func.py: one consumer, positional arguments; its main() submits a number for a function."""

    def general_add(x: int, y: int) -> int:
        return x + y

    consumer_pool = ConsumerPool(client, queue_pool, n_consumers=1)
    consumer_pool.start()
    for i in range(10):
        queue_pool.submit(general_add, i, i + 1)
    with pytest.raises(BadOption, match="not a function"):
        queue_pool.submit(1, 2, 3)  # type: ignore[arg-type]
    consumer_pool.join()

    assert sorted(consumer_pool.results().values()) == [2 * i + 1 for i in range(10)]


def test_perf_io_bound_reads_files_and_shows_its_pools(client: Client, queue_pool: QueuePool) -> None:
    """perf_io_bound.py: pools are printed before and after, which must not wait for anything."""

    def open_file() -> bytes:
        with Path("/dev/urandom").open("rb") as file:
            return file.read(100)

    consumer_pool = ConsumerPool(client, queue_pool, n_consumers=2)
    before = f"{queue_pool} {consumer_pool}"
    consumer_pool.start()
    for _ in range(5):
        queue_pool.submit(open_file)
    consumer_pool.join()

    assert [len(value) for value in consumer_pool.results().values()] == [100] * 5
    assert f"{queue_pool} {consumer_pool}" == before
