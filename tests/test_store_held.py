"""Two notebooks and one store: who comes second is told what to type, before anything is started and afterwards."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab import announce, connecting
from dqlab.announce import Announcement
from dqlab.cluster.link import Link
from dqlab.errors import RunNotFound
from dqlab.lab import Lab
from dqlab.log import Log
from dqlab.store.directories import queue_directory, shard_directory


def first_notebook(store: Path, pid: int) -> Announcement:
    return Announcement(
        id="one",
        name="local",
        dashboard="http://127.0.0.1:1",
        scheduler="tcp://127.0.0.1:4711",
        scheduler_id="s",
        token="t",
        embedded=True,
        store=str(store),
        where="local",
        pid=pid,
        started=time.time(),
    )


def test_a_second_notebook_on_a_store_is_told_how_to_reach_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to start a cluster of its own, and to fail later, with an option in the error that nobody can give."""

    class Started(Exception):
        """A cluster would be started now."""

    def start(*_: Any) -> Lab:
        raise Started

    monkeypatch.setattr(announce, "directory", lambda: tmp_path)
    monkeypatch.setattr(announce, "announced", lambda place: [first_notebook(tmp_path / "runs", os.getppid())])
    monkeypatch.setattr(connecting, "_make", start)
    with pytest.warns(UserWarning, match=r"%dq connect tcp://127\.0\.0\.1:4711\. Here"), pytest.raises(Started):
        dq.connect(n=1, store=tmp_path / "runs")
    with pytest.raises(Started):  # and nothing is said of another store
        dq.connect(n=1, store=tmp_path / "others")


def test_a_lab_of_this_process_or_of_one_that_has_ended_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce, "directory", lambda: tmp_path)
    for pid in (os.getpid(), 2**22 - 3):
        monkeypatch.setattr(announce, "announced", lambda place, pid=pid: [first_notebook(tmp_path, pid)])
        assert announce.keeper_of(tmp_path) is None


def test_a_run_that_may_be_in_a_queue_held_elsewhere_is_not_said_to_be_none(
    lab: dq.Lab, queue_name: str, tmp_path: Path
) -> None:
    """It is in the store, and well; only somebody else has it open."""
    store = tmp_path / "runs"
    dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=store).close()
    held = Log.open(shard_directory(queue_directory(store, queue_name), 0))
    second = Lab(lab.client)
    before = second.session.runs.open_others
    try:
        second.keep_in(store)
        with (
            pytest.warns(UserWarning, match="left out"),
            pytest.raises(RunNotFound, match=rf"may be in '{queue_name}', open elsewhere: process {os.getpid()} on"),
        ):
            second.attach("nobody-has-this-run")
    finally:
        second.session.runs.open_others, second.session.runs.elsewhere = before, ""
        held.close()


def test_a_lab_whose_scheduler_was_killed_is_not_said_to_be_left_as_it_is() -> None:
    """After kill -9 of `dqlab up` nothing was left."""
    client: Any = SimpleNamespace(asynchronous=False, status="closed", scheduler=SimpleNamespace(address="tcp://a:1"))
    link = Link(client)
    assert "may have ended too" in str(link.closed_error())
    link.leave()
    assert "was left as it is" in str(link.named("run 'x'").closed_error())
