"""The process that workers are forked from, and what a nanny learns of one: nothing waits for what has failed."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab import platforms
from dqlab.cluster.embedded import cluster as embedded
from dqlab.cluster.embedded import nursery
from dqlab.cluster.embedded.cluster import Forked

pytestmark = pytest.mark.cluster

NOWHERE = b"\x80\x05\x8c\x07nowhere\x94\x8c\x05Error\x94\x93\x94."
"""Pickle of a class in a module that this process cannot import."""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing, in place of a worker."""
    made = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield made
    made.kill()
    made.wait(20)


def test_a_worker_that_sends_what_cannot_be_read_has_failed_and_ends(process: subprocess.Popen[bytes]) -> None:
    """A preload raised an error of its own class: `dq.connect()` waited for that worker for ever."""

    async def part() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        ended: list[Forked] = []
        forked = Forked(process.pid, reader, writer, ended.append)
        with theirs:
            theirs.sendall(nursery._HEAD.pack(len(NOWHERE)) + NOWHERE)
            with pytest.raises(ModuleNotFoundError, match="nowhere"):
                await asyncio.wait_for(forked.listening, 20.0)
            await forked.join(20.0)
        assert ended == [forked]
        assert not forked.is_alive()
        assert await asyncio.to_thread(process.wait, 20.0) < 0

    asyncio.run(part())


@pytest.mark.parametrize("forks", [True, False])
def test_a_nursery_that_cannot_make_a_process_says_so_and_lives_on(
    forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of processes one worker could not be replaced, and with the nursery all others died."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(platforms, "forks", lambda: forks)
    monkeypatch.setattr(os, "fork" if forks else "posix_spawn", refuse)
    monkeypatch.setattr(nursery.signal, "set_wakeup_fd", lambda *_, **__: -1)
    monkeypatch.setattr(nursery.signal, "signal", lambda *_: None)
    control, theirs = socket.socketpair()
    asked, worker = socket.socketpair()
    with control, theirs, asked:
        with worker:
            socket.send_fds(control, [b"+"], [worker.fileno()])
        control.shutdown(socket.SHUT_WR)
        made = nursery.ForkServer(theirs, os.getppid())
        assert made.live() is None, "it ends with who asks it, and not before"
        for end in made._own:
            with contextlib.suppress(OSError):
                os.close(end)
        kind, error = nursery._taken(nursery._receiver(asked))
    assert kind == nursery.FAILED
    assert error.errno == errno.EAGAIN


def test_a_worker_that_cannot_be_forked_raises_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask's nanny reports it, and what tends the cluster tries again."""

    class Refusing:
        def poll(self) -> None:
            pass

    async def part() -> None:
        made = embedded.Nursery()
        made._control, theirs = socket.socketpair()
        made._process = Refusing()  # type: ignore[assignment]

        async def answer() -> None:
            _, (descriptor,), _, _ = await asyncio.to_thread(socket.recv_fds, theirs, 1, 1)
            with socket.socket(fileno=descriptor) as worker:
                worker.sendall(nursery._failure(OSError(errno.EAGAIN, "no more processes")))

        answering = asyncio.create_task(answer())
        with made._control, theirs:
            with pytest.raises(OSError, match="no more processes"):
                await asyncio.wait_for(made.fork(lambda _: None), 20.0)
            await answering

    asyncio.run(part())


def test_cluster_whose_nursery_cannot_start_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failed `dq.connect()`, at the limit of processes, left one."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(embedded.sockets.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(embedded.subprocess, "Popen", refuse)
    with pytest.raises(OSError, match=os.strerror(errno.EAGAIN)):
        dq.connect(n=1, name="refused")
    assert list(tmp_path.iterdir()) == []


def test_start_that_is_abandoned_does_not_wait_for_a_worker_that_hangs(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that workers load at their start may wait for ever; Ctrl-C must not."""
    monkeypatch.setattr(embedded, "END_WITHIN", 0.05)

    async def part() -> None:
        made = embedded.Nursery()
        made._process = process
        made._control, theirs = socket.socketpair()

        async def answer() -> None:
            _, (descriptor,), _, _ = await asyncio.to_thread(socket.recv_fds, theirs, 1, 1)
            worker = socket.socket(fileno=descriptor)
            worker.sendall(nursery.packed(nursery.STARTED, process.pid))
            with worker:
                code = await asyncio.to_thread(process.wait, 20.0)
                worker.sendall(nursery.packed(nursery.EXIT, code))

        answering = asyncio.create_task(answer())
        with made._control, theirs:
            forked = await asyncio.wait_for(made.fork(lambda _: None), 20.0)
            made.abandon()
            assert await asyncio.wait_for(forked.listening, 20.0) is None
            with pytest.raises(embedded.Abandoned):
                made.settle()
            await answering

    asyncio.run(part())
