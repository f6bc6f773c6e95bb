"""What to do when workers are gone is what the error says, and it works."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from distributed import Client, LocalCluster

import dqlab as dq
from dqlab.errors import ActorGone, CallTimeout, DocumentsLost, DqlabError, WorkersGone


def same(x: int) -> int:
    return x


def lose_all_workers(lab: dq.Lab) -> None:
    lab._cluster.scale(0)
    deadline = time.monotonic() + 30
    while lab.stats().workers:
        assert time.monotonic() < deadline
        lab.wait_for_change(lab.stats().seq, timeout=0.2)


def ask_until_it_is_gone(run: dq.Run) -> None:
    deadline = time.monotonic() + 30
    while True:
        assert time.monotonic() < deadline
        with suppress(CallTimeout):  # the registry waits a little for a worker
            _ = run.done


@pytest.fixture
def hurt(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dq.Lab, dq.Run]]:
    """A lab whose workers all ended, and a run it had."""
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.ALONE_AFTER", 0.2)
    monkeypatch.setattr("dqlab.cluster.scheduler.actors.RESOLVE_WAIT", 0.5)
    lab = dq.connect(n=1, name="hurt")
    run = lab.map(same, range(10)).wait(timeout=30)
    lose_all_workers(lab)
    yield lab, run
    lab.close()


def test_lab_without_workers_says_what_works_and_it_does(hurt: tuple[dq.Lab, dq.Run]) -> None:
    """Advice that fails with the next error is worse than none; a repr is looked at most when something is wrong."""
    lab, run = hurt
    assert "no worker" in repr(lab)

    with pytest.raises(ActorGone, match=r"its messages and results are lost; .* Connect again, with lab = dq.connect"):
        ask_until_it_is_gone(run)
    with pytest.raises(WorkersGone, match=r"lab 'hurt'.*dq.connect\(\) or %dq connect -o lab"):
        lab.map(same, [1])
    assert lab.ended
    again = dq.connect(n=1, name="hurt")

    assert again is not lab
    assert lab.closed
    assert repr(lab) == "<Lab 'hurt': closed; dq.connect() opens one>"
    assert list(again.map(same, range(3)).results(timeout=30)) == [0, 1, 2]
    again.close()


def test_queue_whose_worker_died_goes_on_without_being_opened_again() -> None:
    """Mapping again works without a word more, and what is lost of the old run is said."""
    with dq.connect(n=1, name="replaced") as lab:
        pool = lab.queue("held")
        run = pool.map(same, range(10)).wait(timeout=30)
        held = lab.client.run(lambda dask_worker: [str(key) for key in dask_worker.state.actors])
        [address] = [at for at, keys in held.items() if any(key.startswith("dq-queue/held/") for key in keys)]
        os.kill(lab.client.run(os.getpid, workers=[address])[address], signal.SIGKILL)
        while run.counts["lost"] < 10:
            pass

        assert not pool.gone
        assert lab.queue("held") is pool
        assert list(pool.map(same, range(5)).results(timeout=30)) == list(range(5))
        with pytest.raises(DocumentsLost, match="10 of 10"):
            run.wait(timeout=20)


def test_scheduler_that_is_gone_is_connected_to_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """`dq.connect(address)` must not hand out what no longer answers."""
    monkeypatch.setattr("dqlab.lab.LOOK_TIMEOUT", 0.5)
    cluster = LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0")
    address = cluster.scheduler_address
    lab = dq.connect(address, timeout=5)
    assert not lab.ended
    cluster.close()

    with pytest.raises(DqlabError):
        dq.connect(address, timeout=0.3)

    assert lab.closed
    assert isinstance(lab.client, Client)


def test_lab_shows_itself_in_one_helpful_line(lab: dq.Lab) -> None:
    """Where, how many, where to look, and what next."""
    assert "\n" not in repr(lab)
    assert repr(lab).startswith(f"<Lab 'tests' at {lab.client.scheduler.address}: 2 consumer processes, dashboard http")
    assert "%%dq submit --over" in repr(lab)
