"""Documents that kill their process, among slow and fast ones, in several queues on workers with several threads."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster

import dqlab as dq
from dqlab.errors import ActorGone, DqlabWarning, RunStalled

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

SEEDS = int(os.environ.get("DQLAB_DEADLY_SEEDS", "6"))
FIRST = int(os.environ.get("DQLAB_DEADLY_FIRST", "0"))


def _thread(x: tuple[int, float, bool]) -> int:
    number, seconds, deadly = x
    time.sleep(seconds)
    if deadly:
        os._exit(7)
    return number


async def _coroutine(x: tuple[int, float, bool]) -> int:
    number, seconds, deadly = x
    await asyncio.sleep(seconds)
    if deadly:
        os._exit(7)
    return number


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_exactly_the_documents_that_kill_their_process_are_dead(tmp_path: Path, seed: int) -> None:
    """All others have a result, whichever queue they are of and however slow they are."""
    rng = random.Random(seed)
    workers, threads = rng.randint(3, 4), rng.randint(1, 4)
    kinds: list[Callable[..., Any]] = [_thread, _coroutine]
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, dashboard_address=":0") as cluster,
        dq.connect(cluster, store=tmp_path if rng.random() < 0.5 else None) as lab,
    ):
        runs = []
        for q in range(rng.randint(1, 3)):
            n = rng.choice([1, 8, 40, 400])
            slow = rng.choice([0.0, 0.0005, 0.3, 1.0]) if n <= 40 else rng.choice([0.0, 0.002])
            deadly = set(rng.sample(range(n), k=min(n, rng.choice([0, 1, 2]))))
            inputs = [
                (i, rng.choice([0.0, 0.2]) if i in deadly else rng.random() * slow, i in deadly) for i in range(n)
            ]
            pool = lab.queue(f"q{q}")
            runs.append((pool.map(rng.choice(kinds), inputs), n, deadly))
        for run, n, deadly in runs:
            _wait(run)
            assert {failure.ordinal for failure in run.failures()} == deadly, f"seed {seed}: {run.failures()}"
            assert list(run.results(errors="skip")) == [i for i in range(n) if i not in deadly]
            assert run.counts["acked"] == n - len(deadly)
            causes = [(failure.error, failure.reason) for failure in run.failures()]
            assert all(error == "ProcessDied" or "its consumer died" in reason for error, reason in causes)


def _wait(run: dq.Run) -> None:
    """Wait for a run's end; on a slow machine all workers may be restarting for longer than a run waits for one."""
    until_s = time.monotonic() + 240
    while True:
        try:
            run.wait(timeout=max(1.0, until_s - time.monotonic()))
        except RunStalled:
            assert time.monotonic() < until_s
        else:
            return


def test_document_that_kills_the_only_worker_ends_in_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue died with it and leased it again, for ever. What was confirmed stays in the store."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.MOST_DEATHS", 4)  # the scheduler is in this process

    def work(x: int) -> int:
        if x == 3:
            os._exit(7)
        return x

    with LocalCluster(n_workers=1, threads_per_worker=2, dashboard_address=":0") as cluster, ExitStack() as stack:
        with pytest.warns(DqlabWarning, match="too few workers"):
            lab = stack.enter_context(dq.connect(cluster, store=tmp_path))
        run = lab.queue("q").map(work, range(10), name="ten")
        with pytest.raises(ActorGone, match=r"the last of 4 .*executor='process'"):
            _wait(run)
        lab.client.wait_for_workers(1, timeout=30)
        again = lab.queue("q").map(work, range(10), name="ten", executor="process", on_existing="new")
        again.wait(timeout=60)
        assert [failure.ordinal for failure in again.failures()] == [3]
