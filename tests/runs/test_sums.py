"""Processed documents and kept results must add up; where they do not, everybody who looks is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport import calls
from dqlab.cluster.transport.orders import Drop, Open, RecordSubmitted, Seal
from dqlab.cluster.transport.reports import ShardReport
from dqlab.errors import ResultsMissing
from dqlab.rules.puts import Submitted
from dqlab.rules.result_index import ResultIndex
from dqlab.rules.states import State


def lose_results(client: Client, queue: str, run: bytes, lo: int, hi: int) -> None:
    """Let a shard forget some results of a run, as no line of it should."""

    def lose(dask_worker: Any) -> None:
        for key, actor in dask_worker.state.actors.items():
            if str(key).startswith(f"dq-queue/{queue}/0-"):
                book, kept = actor.books[run], ResultIndex()
                for stretch in book.results:
                    for at in range(stretch.piece.n):
                        ordinal = stretch.piece.ordinal + at
                        if not lo <= ordinal < hi:
                            piece = type(stretch.piece)(stretch.piece.first + at, ordinal, 1)
                            kept.add(type(stretch)(piece, stretch.place, stretch.at + at))
                book.results = kept
                actor._confirmed.note(run, book)  # its stretches have other numbers
                actor.shard.activity.touch(run)  # an ended run is reported once
                actor._reporter.touch()

    client.run(lose)


WAYS: dict[str, Callable[[dq.Run], object]] = {
    "wait": lambda run: run.wait(timeout=30),
    "results": lambda run: run.results(timeout=30),
    "as_completed": lambda run: list(run.as_completed(timeout=30)),
}


def test_acked_documents_without_results_are_named_to_every_client(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Results that were thrown away made a list that was short, and no longer beside its documents."""
    run = queue.map(abs, range(100), name=queue.name)
    run.wait(timeout=30)
    lose_results(lab.client, queue.name, run.id, 40, 43)

    for way in WAYS.values():
        with pytest.raises(ResultsMissing, match=r"3 of 100 processed documents .* at position 40 to 42") as raised:
            way(run)
        assert raised.value.ranges == [(40, 43)]

    assert list(run.results(errors="skip")) == [x for x in range(100) if not 40 <= x < 43]
    limit = time.monotonic() + 20
    while not any(need.kind == "missing" for need in run.snapshot().attention):  # that of all queues is cut
        assert time.monotonic() < limit
        lab.wait_for_change(lab.stats().seq, timeout=0.5)
    assert any(f"3 results missing of run {run.name}" in finding.what for finding in lab.doctor().findings)


def test_documents_that_no_shard_has_are_missed(lab: dq.Lab, queue_name: str) -> None:
    """A run of three shards whose second one had forgotten it was done, with the results of the others."""
    queue = lab.queue(queue_name, n_queues=3)
    run = queue.map(abs, range(30_000), name=queue_name)
    run.wait(timeout=30)
    codes, had = run.record()["codes"], sum(lane.counts[State.ACKED] for lane in reports_of(queue)[1].lanes)
    assert had > 0
    give = lambda order: lab.session.link.sync(queue.handle.order(order, shard=1))  # noqa: E731
    give(Drop(run.id))
    give(Open(run.id, {"name": run.name, "codes": codes}))
    give(Seal(run.id, [0, 0, 0], None, RecordSubmitted(run.id, Submitted(), run.id)))

    for way in WAYS.values():
        with pytest.raises(ResultsMissing, match=f"{had:,} of 30,000 processed documents .* no shard"):
            way(run)
    queue.close(force=True)


def reports_of(queue: dq.QueuePool) -> list[ShardReport]:
    return queue.handle.link.sync(queue.handle.ask_all(calls.StatsCall()))


def test_a_run_with_failures_retries_and_cancelled_documents_adds_up(queue: dq.QueuePool) -> None:
    """What has no result for a good reason is no alarm."""

    def odd(x: int) -> int:
        if x % 2:
            return x
        raise ValueError(x)

    run = queue.map(odd, range(50), name=queue.name, retry=dq.Retry(1, backoff=0.01))
    run.wait(timeout=30)
    assert len(run.results(errors="skip")) == 25
    run.retry(fn=abs, where="message == '4'")
    run.wait(timeout=30)
    run.cancel()
    assert len(run.results(errors="skip")) == 26
