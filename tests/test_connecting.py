"""Connecting by a file that is not there yet, from several threads, and to workers that cannot use the store."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

import dqlab as dq
from dqlab import connecting
from dqlab.connecting import check_store_here, opened
from dqlab.errors import BadOption, ConnectFailed
from dqlab.store.probe import Probe
from tests.kit.waiting import until

pytestmark = [pytest.mark.lowest, pytest.mark.cluster]


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


@pytest.mark.parametrize("timeout", [0, "0s", -1])
def test_no_time_to_connect_is_refused_and_not_waited_for(timeout: float | str, tmp_path: Path) -> None:
    """`timeout=0` waited half a second, and then reported that nothing had answered within 0 s."""
    for given in ({"target": "tcp://127.0.0.1:9"}, {"scheduler_file": tmp_path / "none"}):
        with pytest.raises(BadOption, match="timeout"):
            dq.connect(**given, timeout=timeout)  # type: ignore[arg-type]


def test_scheduler_file_may_come_late(lab: dq.Lab, tmp_path: Path) -> None:
    file = tmp_path / "dq.json"
    file.write_text("{")
    threading.Timer(0.3, write, (file, lab)).start()

    with dq.connect(scheduler_file=file, timeout="20s") as late:
        assert late.stats().workers == lab.stats().workers


def test_no_call_waits_for_another_target_and_all_share_one_lab_of_the_same(lab: dq.Lab, tmp_path: Path) -> None:
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


def test_store_that_workers_cannot_use_is_refused_before_a_queue_is_opened(
    lab: dq.Lab, queue_name: str, tmp_path: Path
) -> None:
    """Wherever workers come from: it would fail at the first queue, in words about files."""
    address = lab.client.scheduler.address
    store = "/proc/none"

    for target in (address, lab.client):
        with pytest.raises(dq.errors.BadOption, match="cannot write"):
            dq.connect(target, store=store, name="refused")
    assert opened(address, store=store, name="refused") is None
    with dq.connect(address, store=tmp_path / "new", name="taken") as good:
        queue = good.queue(queue_name)  # durable, on the cluster of all tests
        assert list(queue.map(abs, [-1]).results(timeout=20)) == [1]
        queue.close()


@pytest.mark.parametrize("store", ["/proc/none", "/proc/none/below"])
def test_store_in_which_this_machine_makes_no_file_is_refused_before_anything_starts(store: str) -> None:
    """It connected at once, and the first queue failed, in words about the disk of a log."""
    children = psutil.Process().children(recursive=True)

    with pytest.raises(BadOption, match=r"/proc.*Nothing was started.*store='runs/'"):
        dq.connect(n=1, store=store)

    assert psutil.Process().children(recursive=True) == children


WITHOUT_RIGHTS = """
import os, sys
from pathlib import Path

from dqlab.connecting import check_store_here
from dqlab.errors import BadOption

if os.geteuid() == 0:
    os.seteuid(65534)
for store in sys.argv[1:]:
    try:
        check_store_here(Path(store))
    except BadOption as refused:
        print(refused)
"""


def test_store_without_permission_is_refused_and_named() -> None:
    """Somebody else's folder, or one that was made read-only."""
    with tempfile.TemporaryDirectory(prefix="dqlab-") as folder:
        place, closed = Path(folder), Path(folder) / "closed"
        closed.mkdir(mode=0o700 if os.geteuid() == 0 else 0o000)
        place.chmod(0o555)
        child = subprocess.run(
            [sys.executable, "-c", WITHOUT_RIGHTS, place / "runs", place, closed / "runs"],
            capture_output=True, text=True, timeout=50, check=True,
        )  # fmt: skip
        place.chmod(0o755)

    new, there, below = child.stdout.splitlines()
    assert f"this process cannot write to store {place}/runs." in new
    assert f"this process cannot write to store {place}." in there
    assert f"cannot use store {closed}/runs: " in below


def test_disk_without_room_is_no_reason_to_refuse_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs can be read there, and dropped, which makes room."""
    for free in (0, 1):
        monkeypatch.setattr(connecting, "probe", lambda store, free=free: Probe(str(store), free=free))
        with pytest.raises(BadOption) if free else nullcontext():
            check_store_here(tmp_path)


def test_connecting_with_a_store_that_is_refused_leaves_no_client_behind(lab: dq.Lab) -> None:
    """No variable holds the lab that was made, so it could not be closed."""

    def clients(dask_scheduler: Any = None) -> list[str]:
        return sorted(dask_scheduler.clients)

    before = lab.client.run_on_scheduler(clients)
    with pytest.raises(dq.errors.BadOption):
        dq.connect(lab.client.scheduler.address, store="/proc/none", name="refused")

    until(lambda: lab.client.run_on_scheduler(clients) == before)


def test_host_whose_name_is_looked_up_forever_ends_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_name_that_cannot_be_looked_up_now_is_tried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that does not answer says nothing of the host."""

    def fails(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fails)

    with pytest.raises(ConnectFailed, match=r"its name could not be looked up.*Temporary failure"):
        dq.connect("tcp://some-node:8786", timeout=0.6)
