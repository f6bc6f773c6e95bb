"""Durable queues on a real cluster: what was confirmed is there when the queue is opened again."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import BadOption, ResultsMissing

pytestmark = pytest.mark.lowest


def durable(client: Client, name: str, store: Path, **options: object) -> dq.QueuePool:
    return dq.QueuePool(client, name=name, durability=dq.Durability.DURABLE, dirpath=store, **options)  # type: ignore[arg-type]


def double(x: int) -> int:
    return 2 * x


def odd_only(x: int) -> int:
    if x % 2 == 0:
        raise ValueError(f"{x} is even")
    return x


def test_confirmed_messages_are_there_when_the_queue_is_opened_again(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    pool = durable(client, queue_name, tmp_path)
    put = pool.put_many(range(3000))
    ids = put.ids
    assert put.durability == "always"
    pool.close()

    again = durable(client, queue_name, tmp_path)

    assert again.counts()["ready"] == 3000
    assert min(again.put_many([1]).ids) > max(ids)
    again.close()


def test_results_and_failures_of_a_run_are_there_when_the_queue_is_opened_again(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    pool = durable(client, queue_name, tmp_path)
    run = pool.map(odd_only, range(2000), name="odd", retry=dq.Retry(0))
    run.wait(timeout=60)
    before = run.results(errors="skip")[:]
    assert len(before) == 1000
    pool.close()

    again = durable(client, queue_name, tmp_path)
    back = again.session.runs.attach("odd")

    assert back.counts["dead"] == 1000
    assert back.results(errors="skip")[:] == before
    assert back.failures()[0].error == "ValueError"
    again.session.serve(again)
    assert back.retry(double) == 1000
    back.wait(timeout=60)
    assert sum(back.results()) == sum(x if x % 2 else 2 * x for x in range(2000))
    again.close()


def test_a_run_goes_on_where_it_was_when_its_queue_is_opened_again(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    """No consumer serves the first one; the second finds function and messages in the log."""
    pool = durable(client, queue_name, tmp_path)
    run = pool.map(double, range(500), name="later", consumers=None)
    run.submitter.join(30)  # type: ignore[union-attr]
    pool.close()

    again = durable(client, queue_name, tmp_path, served=True)
    back = again.session.runs.attach("later")
    again.session.serve(again)

    assert list(back.results(timeout=60)) == [2 * x for x in range(500)]
    again.close()


def test_the_number_of_shards_is_that_with_which_the_queue_was_made(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    pool = durable(client, queue_name, tmp_path, n_queues=3)
    pool.put_many(range(10))
    pool.flush()
    pool.close()

    again = durable(client, queue_name, tmp_path)

    assert len(again) == 3
    assert again.counts()["ready"] == 10
    again.close()


def test_a_durable_queue_without_a_directory_is_refused(client: Client, queue_name: str) -> None:
    with pytest.raises(BadOption, match="dirpath="):
        dq.QueuePool(client, name=queue_name, durability=dq.Durability.DURABLE)


def test_run_with_a_damaged_frame_ends_and_names_how_many_documents_are_lost(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    """Everything else has its result; no client waits for what cannot be read."""
    pool = durable(client, queue_name, tmp_path)
    run = pool.map(len, [f"document {n:05}" for n in range(2500)], name="hurt", consumers=None)
    run.submitter.join(30)  # type: ignore[union-attr]
    pool.close()
    (segment,) = [path for path in tmp_path.rglob("*.seg") if b"document 01500" in path.read_bytes()]
    content = bytearray(segment.read_bytes())
    content[content.index(b"document 01500")] ^= 1
    segment.write_bytes(content)

    again = durable(client, queue_name, tmp_path, served=True)
    back = again.session.runs.attach("hurt")
    with pytest.raises(ResultsMissing, match="damaged files of shard 0"):
        back.wait(timeout=60)

    lost = back.counts["lost"]  # those of one frame; how many depends on how fast they were put
    assert 0 < lost <= 1000
    assert len(back.results(errors="skip")) == 2500 - lost
    with pytest.raises(ResultsMissing, match=f"{lost:,} of 2,500") as said:
        back.results()
    assert any(lo <= 1500 < hi for lo, hi in said.value.ranges)
    again.close()


def test_compaction_gives_back_the_space_of_what_is_settled_and_keeps_the_rest(
    client: Client, queue_name: str, tmp_path: Path
) -> None:
    pool = durable(client, queue_name, tmp_path)
    kept = pool.put_many([bytes(10_000)] * 20)
    pool.flush()
    run = pool.map(len, [bytes(10_000) for _ in range(300)], name=f"sizes-{queue_name}")
    pool.session.serve(pool)
    run.wait(timeout=60)
    run.drop()
    seen: list[tuple[int, int]] = []

    gave = pool.compact(lambda done, of: seen.append((done, of)))

    assert gave.bytes_after < gave.bytes_before / 4
    assert seen
    again = pool.compact()
    assert again.bytes_after <= gave.bytes_after + 1000
    assert len(kept.ids) == 20
    assert pool.counts()["dead"] + pool.counts()["ready"] + pool.counts()["leased"] == 20
    pool.close()
