"""Two notebooks and one store: who comes second is told what to type, before anything is started and afterwards."""

from __future__ import annotations

import logging
import os
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab import clusters_here, connecting
from dqlab.clusters_here import Announcement
from dqlab.connecting import StoreHeld
from dqlab.errors import DqlabWarning, RunNotFound
from dqlab.jupyter import commands
from dqlab.lab import Lab
from dqlab.log.errors import OwnerStillAlive
from dqlab.log.log import Log
from dqlab.stats import Counts, QueueState, QueueStats, Snapshot
from dqlab.store.directories import queue_directory, shard_directory
from tests.kit.logs import lines_of

pytestmark = pytest.mark.cluster


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
    """It used to start a cluster of no use."""

    class Started(Exception):
        """A cluster would be started now."""

    def start(*_: Any) -> Lab:
        raise Started

    first = first_notebook(tmp_path / "runs", os.getppid())
    monkeypatch.setattr(clusters_here, "directory", lambda: tmp_path)
    monkeypatch.setattr(clusters_here, "announced", lambda place: [first])
    monkeypatch.setattr(connecting, "_make", start)
    way = r"connect to its cluster: dq\.connect\('tcp://127\.0\.0\.1:4711'\), in a notebook %dq connect tcp://127"
    with pytest.raises(StoreHeld, match=rf"{way}.*Nothing was started here"):
        dq.connect(n=1, store=tmp_path / "runs")
    with pytest.raises(Started):  # and nothing is said of another store
        dq.connect(n=1, store=tmp_path / "others")


def test_a_lab_of_this_process_or_of_one_that_has_ended_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters_here, "directory", lambda: tmp_path)
    for pid in (os.getpid(), 2**22 - 3):
        monkeypatch.setattr(clusters_here, "announced", lambda place, pid=pid: [first_notebook(tmp_path, pid)])
        assert clusters_here.keeper_of(tmp_path) is None


def test_a_run_that_may_be_in_a_queue_held_elsewhere_is_not_said_to_be_none(
    lab: dq.Lab, queue_name: str, tmp_path: Path
) -> None:
    """It is in the store, and well; only another process has it open."""
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


@pytest.fixture
def second(lab: dq.Lab, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab on a store whose only queue another process, with an announced lab, has open."""
    store = tmp_path / "runs"
    dq.QueuePool(lab.client, name=queue_name, durability=dq.Durability.DURABLE, dirpath=store).close()
    held = Log.open(shard_directory(queue_directory(store, queue_name), 0))
    second = Lab(lab.client)
    before = second.session.runs.open_others
    second.keep_in(store)
    monkeypatch.setattr(clusters_here, "directory", lambda: tmp_path)
    monkeypatch.setattr(clusters_here, "announced", lambda place: [first_notebook(store, os.getppid())])
    yield second
    second.session.runs.open_others, second.session.runs.elsewhere = before, ""
    held.close()


def test_the_error_of_a_queue_that_is_held_names_the_line_that_reaches_it(
    second: Lab, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It named a worker to be killed and an option that nobody can give, below a line of the scheduler's log."""
    with pytest.raises(OwnerStillAlive) as raised:
        second.queue(queue_name)

    said = str(raised.value)
    assert queue_name in said
    assert "%dq connect tcp://127.0.0.1:4711." in said
    assert not any(word in said for word in ("takeover", "kill", "end that process"))
    assert [record.message for record in lines_of(caplog, logging.WARNING)] == []


def test_lists_of_a_store_that_is_held_name_its_holder_and_not_that_there_is_nothing(
    second: Lab, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "no runs yet" stood below the names of a store full of runs."""
    other: Any = SimpleNamespace(queues=[], workers=1, totals=None)
    line: Any = SimpleNamespace(lab=second, say=print)

    with pytest.warns(DqlabWarning, match=rf"left out: '{queue_name}', open elsewhere: .*%dq connect tcp://127"):
        found = commands.runs(line, Namespace())

    assert found is None or found
    assert "%dq connect tcp://127.0.0.1:4711" in second.held_elsewhere
    told = {
        "held_elsewhere": second.held_elsewhere,
        "stats": lambda: other,
        "queue_names": second.queue_names,
        "queues": [],
    }
    line.lab = SimpleNamespace(**told)
    assert commands.status(line, Namespace()) is None
    said = capsys.readouterr().out
    assert "open elsewhere: lab" in said
    assert "%dq connect" in said
    line.lab = SimpleNamespace(all_runs=list, **told)
    assert commands.runs(line, Namespace()) is None
    assert "no runs of this lab; queues of the store are open elsewhere: lab" in capsys.readouterr().out


def test_a_lab_that_has_every_queue_of_its_store_open_names_no_other(
    second: Lab, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second notebook connected with the same store; the first one was sent to its cluster, which had no queue."""
    snapshot = Snapshot(at=0.0, seq=1, workers=1, queues=(QueueStats(queue_name, QueueState.RUNNING, Counts()),))
    lab: Any = SimpleNamespace(
        held_elsewhere=second.held_elsewhere,
        stats=lambda: snapshot,
        queues=[SimpleNamespace(name=queue_name, gone=False)],
        queue_names=lambda: [queue_name],
        all_runs=list,
    )
    line: Any = SimpleNamespace(lab=lab, say=print)
    assert second.held_elsewhere

    assert commands.status(line, Namespace()) is not None
    assert commands.runs(line, Namespace()) == []
    assert capsys.readouterr().out == ""


def test_the_warning_of_queues_that_are_left_out_names_the_line_that_asked(second: Lab) -> None:
    """It named a line of dqlab."""
    with (
        pytest.warns(DqlabWarning, match="left out") as caught,
        pytest.raises(RunNotFound),
    ):
        second.attach("nobody-has-this-run")

    assert [warning.filename for warning in caught] == [__file__]
