"""Clusters that were started on this machine are reached by their user, and by nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from distributed import Client
from distributed.comm import CommClosedError, connect, listen
from distributed.comm.addressing import parse_host_port
from distributed.comm.core import FatalCommClosedError

import dqlab as dq
from dqlab.cluster.embedded import sockets

pytestmark = pytest.mark.lowest

NOBODY = 65534
OTHER_USER = """
import glob, os, socket, sys
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
address, directory = sys.argv[1:]
print("sees", sorted(glob.glob(directory + "/*")))
try:
    os.stat(directory + "/" + address.rpartition(":")[2])
except PermissionError as error:
    print("stat", error.strerror)
asking = socket.socket(socket.AF_UNIX)
try:
    asking.connect(directory + "/" + address.rpartition(":")[2])
    print("CONNECTED")
except PermissionError as error:
    print("connect", error.strerror)
"""


def directory_of(lab: dq.Lab) -> Path:
    return Path(lab.session.link.address.removeprefix(sockets.PREFIX).rpartition(":")[0])


def test_other_users_reach_nothing_of_an_embedded_cluster(lab: dq.Lab) -> None:
    """A process that reaches a scheduler or worker of Dask runs code as its user, and can ask for the control token."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    directory = directory_of(lab)
    said = subprocess.run(
        [sys.executable, "-I", "-c", OTHER_USER.format(nobody=NOBODY), lab.session.link.address, str(directory)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert said.stdout.splitlines() == ["sees []", "stat Permission denied", "connect Permission denied"], said.stderr
    mode = directory.stat()
    assert (stat.S_IMODE(mode.st_mode), mode.st_uid) == (0o700, os.geteuid())


def test_embedded_cluster_listens_on_no_port_but_its_dashboards(lab: dq.Lab) -> None:
    """A port that somebody forgets is open to everybody: each process of the cluster is looked at."""

    def open_ports(dask_worker: object = None) -> list[int]:
        import psutil

        found = psutil.Process().net_connections("tcp")
        return [each.laddr.port for each in found if each.status == psutil.CONN_LISTEN]

    def http_port(dask_worker: object) -> int:
        return int(dask_worker.http_server.port)  # type: ignore[attr-defined]

    of_workers, dashboards = lab.client.run(open_ports), lab.client.run(http_port)
    assert of_workers == {address: [port] for address, port in dashboards.items()}
    schedulers = lab.client.run_on_scheduler(lambda dask_scheduler: [s.prefix for s in dask_scheduler.listeners])
    assert schedulers == [sockets.PREFIX]


def test_client_of_the_same_user_needs_the_address_alone(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Other notebooks, `dqlab doctor` and plain Dask clients connect as before."""
    with Client(lab.session.link.address, set_as_default=False) as client:
        assert client.submit(abs, -3).result(timeout=20) == 3
    with dq.connect(lab.session.link.address) as attached:
        assert queue.name in attached.queue_names()
        shown = attached.dashboard, attached.panel("runs")
    link = lab.client.cluster.dashboard_link  # type: ignore[union-attr]
    assert link == f"http://127.0.0.1:{lab.session.http['port']}/status"
    assert shown == (link, link.replace("status", "individual-dq-runs"))


def test_sockets_of_a_strangers_directory_are_not_spoken_to(tmp_path: Path) -> None:
    """A cluster has ended, and another user has made a directory of its name: their answers would be unpickled."""
    sockets.register()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{theirs}/1")
        listening.listen()
        with pytest.raises(FatalCommClosedError, match="can be entered by other users"):
            asyncio.run(connect(f"unix://{theirs}:1", timeout=10))
    if os.geteuid() == 0:
        theirs.chmod(0o700)
        os.chown(theirs, NOBODY, NOBODY)
        assert f"belongs to user {NOBODY}" in sockets.problem_with(str(theirs))

    async def serve() -> None:
        await listen(f"unix://{theirs}:0", lambda comm: comm.close())

    theirs.chmod(0o750)
    with pytest.raises(OSError, match="cannot listen there"):
        asyncio.run(serve())


def test_who_comes_when_too_many_wait_to_be_accepted_tries_again() -> None:
    """The system refuses at once, and that was taken for a connection: its first message ended the attempt for good."""
    sockets.register()
    directory = sockets.make_directory()

    async def come() -> None:
        with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
            listening.bind(f"{directory}/1")
            listening.listen(0)
            await asyncio.to_thread(first.connect, f"{directory}/1")
            with pytest.raises(CommClosedError, match="wait to be accepted"):
                await sockets.Sockets().get_connector().connect(f"{directory}:1")
            listening.accept()[0].close()
            comm = await sockets.Sockets().get_connector().connect(f"{directory}:1")
            await comm.close()

    try:
        asyncio.run(come())
    finally:
        sockets.remove_directory(directory)


def test_large_and_many_messages_arrive_whole() -> None:
    """A socket's buffer is 200 kB: what is larger goes in pieces, in both directions at once."""
    sockets.register()
    directory = sockets.make_directory()

    async def talk() -> None:
        async def answer(comm: object) -> None:
            while True:
                try:
                    await comm.write(await comm.read())  # type: ignore[attr-defined]
                except CommClosedError:
                    return

        async with listen(f"unix://{directory}:0", answer) as listener:
            assert listener.contact_address.startswith(f"unix://{directory}:")
            comm = await connect(listener.contact_address)
            for size in (0, 1, 1 << 16, 1 << 20, 48 << 20):
                await comm.write({"op": bytes(size)})
                assert len((await comm.read())["op"]) == size
            await comm.close()

    try:
        asyncio.run(talk())
        assert list(directory.iterdir()) == [], "a socket that is closed leaves no file"
    finally:
        sockets.remove_directory(directory)


@pytest.mark.parametrize("place", ["x" * 80, "job:7"])
def test_directory_has_a_short_plain_name_wherever_temporary_files_are(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets have paths of 104 bytes at most, and addresses one colon; batch systems like TMPDIRs of their own."""
    base = Path(tempfile.mkdtemp(dir="/tmp"))
    (base / place).mkdir()
    monkeypatch.setattr(sockets.tempfile, "gettempdir", lambda: str(base / place))
    directory = sockets.make_directory()
    try:
        assert parse_host_port(f"{directory}:7") == (str(directory), 7)
        assert len(str(directory)) < 60
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    finally:
        sockets.remove_directory(directory)
        sockets.remove_directory(base)
