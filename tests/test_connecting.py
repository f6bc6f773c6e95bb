"""Connecting by a file that is not there yet, from several threads, and to workers that cannot use the store."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.connecting import opened
from dqlab.errors import ConnectFailed
from tests.waiting import until

pytestmark = pytest.mark.cluster


def write(file: Path, lab: dq.Lab) -> None:
    file.write_text(json.dumps({"address": lab.client.scheduler.address}))


@pytest.mark.parametrize("text", [None, "", '{"addre', "[]", "{}", "7"])
def test_scheduler_file_that_says_nothing_is_waited_for_within_the_limit(tmp_path: Path, text: str | None) -> None:
    """Its job may wait for hours, and Dask waits for the file without end."""
    file = tmp_path / "dq.json"
    if text is not None:
        file.write_text(text)
    began = time.monotonic()

    with pytest.raises(ConnectFailed, match=r"dq\.json.*(no such file.*job wait still|can be read from that file)"):
        dq.connect(scheduler_file=file, timeout=0.3)

    assert time.monotonic() - began < 3


def test_scheduler_file_of_an_earlier_scheduler_is_named(tmp_path: Path) -> None:
    file = tmp_path / "dq.json"
    file.write_text('{"address": "tcp://127.0.0.1:1"}')

    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1.* as .*dq\.json says"):
        dq.connect(scheduler_file=file, timeout=0.5)


def test_scheduler_file_may_come_late(lab: dq.Lab, tmp_path: Path) -> None:
    file = tmp_path / "dq.json"
    file.write_text("{")
    threading.Timer(0.3, write, (file, lab)).start()

    with dq.connect(scheduler_file=file, timeout="20s") as late:
        assert late.stats().workers == lab.stats().workers


def test_nobody_waits_for_another_target_and_all_share_one_lab_of_the_same(lab: dq.Lab, tmp_path: Path) -> None:
    """One thread may wait half an hour for jobs."""
    file = tmp_path / "dq.json"
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(dq.connect, scheduler_file=file, timeout="30s") for _ in range(2)]

        with dq.connect(lab.client.scheduler.address, name="meanwhile") as other:
            assert opened(lab.client.scheduler.address, name="meanwhile") is other
        assert not any(each.done() for each in waiting)
        write(file, lab)
        first, second = (each.result(timeout=30) for each in waiting)

    with first:
        assert first is second


def test_store_that_workers_cannot_use_is_refused_before_a_queue_is_opened(lab: dq.Lab, tmp_path: Path) -> None:
    """Wherever workers come from: it would fail at the first queue, in words about files."""
    address = lab.client.scheduler.address
    store = "/proc/none"

    for target in (address, lab.client):
        with pytest.raises(dq.hpc.StoreNotShared, match="cannot write"):
            dq.connect(target, store=store, name="refused")
    assert opened(address, store=store, name="refused") is None
    with dq.connect(address, store=tmp_path / "new", name="taken") as good:
        assert list(good.map(abs, [-1]).results(timeout=20)) == [1]


def test_connecting_with_a_store_that_is_refused_leaves_no_client_behind(lab: dq.Lab) -> None:
    """Nobody holds the lab that was made, so nobody could close it."""

    def clients(dask_scheduler: Any = None) -> list[str]:
        return sorted(dask_scheduler.clients)

    before = lab.client.run_on_scheduler(clients)
    with pytest.raises(dq.hpc.StoreNotShared):
        dq.connect(lab.client.scheduler.address, store="/proc/none", name="refused")

    until(lambda: lab.client.run_on_scheduler(clients) == before)


def test_host_whose_name_is_looked_up_for_ever_ends_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver behind a lost network answers after minutes, and the thread that waits for it cannot be ended."""
    answers, look_up = threading.Event(), socket.getaddrinfo

    def slow(host: object, *arguments: Any, **options: Any) -> Any:
        if host == "far.example":
            answers.wait(30)
        return look_up(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    began = time.monotonic()
    try:
        with pytest.raises(ConnectFailed, match=r"far\.example"):
            dq.connect("tcp://far.example:8786", timeout=0.5)
        assert time.monotonic() - began < 10
    finally:
        answers.set()
