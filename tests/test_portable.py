"""What only Linux has is taken away from every process, and everything is there all the same.

No Mac runs these tests. What Macs lack is missing here too, so that what is done instead is executed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from dqlab import platforms
from dqlab.log.files import Files, mounted

pytestmark = [pytest.mark.lowest, pytest.mark.cluster]

WITHOUT = Path(__file__).parent / "portable"
"""Where the `sitecustomize` is that takes calls away; nothing imports it by hand."""
ROOT = WITHOUT.parents[1]
PATIENCE = 20.0
NOT_PROMISED = [
    "tests/cluster/consumer/test_slot_process.py::test_process_ends_with_the_one_that_started_it",
    "tests/cluster/consumer/test_processes.py::test_killed_worker_leaves_no_process",
]
"""Native code that holds the GIL outlives a killed parent, where the system does not end it."""


def environ(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{WITHOUT}{os.pathsep}{ROOT}",
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "PYTHONWARNINGS": "error::UserWarning",
    }


def run(tmp_path: Path, *command: str, within: float = 50.0) -> str:
    """Run Python without those calls; return what it printed."""
    (tmp_path / "runtime").mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *command],
        env=environ(tmp_path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_tests(tmp_path: Path, paths: Sequence[str], *, within: float) -> None:
    """Run tests of other rooms without those calls."""
    tests = [str(ROOT / "tests" / path) for path in paths]
    options = ["-q", "-p", "no:cacheprovider", "-m", "not slow and not bench", "--rootdir", str(ROOT)]
    options += ["--timeout=180"]  # without `fork` each worker imports everything by itself
    options += [f"--deselect={each}" for each in NOT_PROMISED]
    run(tmp_path, "-m", "pytest", *options, "-c", str(ROOT / "pyproject.toml"), *tests, within=within)


# --- fast: one call at a time ----------------------------------------------------------------


def test_calls_are_taken_from_processes_of_processes(tmp_path: Path) -> None:
    """A test of this file that runs with the calls in place holds nothing."""
    look = "import os, subprocess, sys; print(hasattr(os, 'fdatasync'), hasattr(os, 'pidfd_open'), flush=True)"
    again = f"{look}; subprocess.run([sys.executable, '-c', {look!r}], check=True)"

    assert run(tmp_path, "-c", again).split() == ["False"] * 4


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_log_keeps_what_it_confirmed_without_linux(tmp_path: Path) -> None:
    """A store on a Mac is the same promise: written, synced, closed, read again, locked against a second owner."""
    run_tests(tmp_path, ["log/test_ownership.py", "log/test_log.py"], within=100)


def test_sync_reaches_the_drive_where_fsync_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS `fsync` returns while the drive's cache holds the data; on a share that has no other it has to do."""
    asked: list[int] = []

    def control(descriptor: int, command: int) -> int:
        asked.append(command)
        if len(asked) > 1:
            raise OSError(errno.ENOTSUP, "a share")
        return 0

    synced: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", synced.append)
    sync = platforms._syncing()
    sync(7)
    assert (asked, synced) == ([51], [])
    sync(7)
    assert (asked, synced) == ([51, 51], [7])


def test_sync_that_fails_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that cannot write is no share without the call: what is not on it must not be confirmed."""

    def control(descriptor: int, command: int) -> int:
        raise OSError(errno.EIO, "the device")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    with pytest.raises(OSError, match="the device"):
        platforms._syncing()(7)


@pytest.mark.parametrize("refused", [errno.ENOSYS, errno.EPERM])
def test_old_kernels_and_containers_count_as_without(monkeypatch: pytest.MonkeyPatch, refused: int) -> None:
    """Clusters run kernels of ten years ago, and containers forbid calls that Python has."""

    def refuse(*_: object) -> int:
        raise OSError(refused, "not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    monkeypatch.setattr(os, "memfd_create", refuse)
    assert platforms.pin_process(os.getpid()) is None
    descriptor = platforms.unnamed_file("dqlab-test")
    try:
        assert (os.fstat(descriptor).st_nlink, os.pwrite(descriptor, b"x", 5)) == (0, 1)
    finally:
        os.close(descriptor)


def test_end_of_a_process_is_noticed_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slot waits for a descriptor; what ends has to be there whether or not the system has one for it."""
    import select

    monkeypatch.delattr(os, "pidfd_open")
    before = threading.active_count()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ended = platforms.watch_end(process)
    try:
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        assert not poll.poll(0)
        process.send_signal(signal.SIGKILL)
        assert poll.poll(PATIENCE * 1000)
        assert process.wait(PATIENCE) == -signal.SIGKILL
    finally:
        os.close(ended)
        assert process.stdin is not None
        process.stdin.close()
    limit = time.monotonic() + PATIENCE
    while threading.active_count() > before and time.monotonic() < limit:
        time.sleep(0.01)
    assert threading.active_count() <= before


MOUNTS_OF_A_MAC = b"""\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse, protect)
map auto_home on /System/Volumes/Data/home (autofs, automounted, nobrowse)
//ana@files/group on /Volumes/group (old) files (smbfs, nodev, nosuid, mounted by ana)
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/Users/ana/runs", "apfs"),
        ("/System/Volumes/Data/home/ana", "autofs"),
        ("/Volumes/group (old) files/runs", "smbfs"),
    ],
)
def test_file_system_is_known_on_a_mac(place: str, kind: str) -> None:
    """The log of a hung owner is taken over on a disk that no other machine can see, and kept on an unknown one."""
    assert mounted(platforms.mounts_of(MOUNTS_OF_A_MAC), place.encode()) == kind


def test_file_system_is_known_without_proc(tmp_path: Path) -> None:
    """The command `mount` says what the kernel's own list would."""
    look = "from dqlab.log.files import Files; from pathlib import Path; print(Files().filesystem(Path('.')))"

    assert run(tmp_path, "-c", look).strip() == Files().filesystem(tmp_path) != ""


def test_lock_is_seen_without_the_list_of_locks(tmp_path: Path) -> None:
    """A queue that a living notebook has closed counted as open: it could not be inspected or repaired on a Mac."""
    look = f"""
import fcntl
from pathlib import Path
from dqlab import platforms
path = Path({str(tmp_path / "lock")!r})
with path.open("w") as file:
    seen = [platforms.is_locked(path)]
    fcntl.flock(file, fcntl.LOCK_EX)
    seen.append(platforms.is_locked(path))
    fcntl.flock(file, fcntl.LOCK_UN)
    print(*seen, platforms.is_locked(path))
"""
    assert run(tmp_path, "-c", look).split() == ["False", "True", "False"]


def test_process_ends_with_its_parent_without_the_death_signal(tmp_path: Path) -> None:
    """What is left of a killed notebook keeps a core busy, and a queue's messages, until somebody looks."""
    child = (
        "import os, time\nfrom dqlab import platforms\nplatforms.die_with(os.getppid())\n"
        "print('here', flush=True)\nwhile True: time.sleep(60)"
    )
    parent = (
        f"import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "print(child.pid, flush=True)\nchild.wait()"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", parent], env=environ(tmp_path), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    with started.stdout:
        left = psutil.Process(int(started.stdout.readline()))
        assert started.stdout.readline() == "here\n"
        assert left.is_running()
        started.kill()
        started.wait(PATIENCE)
    assert not psutil.wait_procs([left], timeout=PATIENCE)[1]


def test_windows_is_named_with_the_way_out(tmp_path: Path) -> None:
    """`No module named 'fcntl'` tells nobody what to do."""
    # The modules of the standard library for Windows are not here: shutil, which Python 3.13 brings in, comes first.
    script = "import shutil, sys\nsys.platform = 'win32'\nimport dqlab"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ(tmp_path), capture_output=True, text=True, timeout=50, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "ImportError: dqlab does not run on Windows" in last
    assert "wsl --install" in last


# --- slow: everything at once ----------------------------------------------------------------

WORKS = """
import os, subprocess
import dqlab as dq
from dqlab import platforms
from dqlab.errors import DqlabWarning
assert not hasattr(os, "pidfd_open") and not platforms.forks()

def area(side):
    if side == 3:
        os.kill(os.getpid(), 9)
    return side * side

with dq.connect(n=2, store="runs/") as lab:
    assert lab.client.run(lambda: hasattr(os, "pidfd_open") or hasattr(os, "fdatasync")).values()
    assert not any(lab.client.run(lambda: hasattr(os, "pidfd_open") or hasattr(os, "fdatasync")).values())
    run = lab.map(area, range(6), name="areas", executor="process")
    try:
        run.wait(timeout=60)
    except DqlabWarning:
        print("the wait has warned")
    print(run.results(errors="skip").to_frame()["value"].tolist(), [each.error for each in run.failures()])
"""
"""A run in child processes, one killed by its message, in a store."""


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_run_with_a_crash_ends_without_linux(tmp_path: Path) -> None:
    """Cluster, store, processes and the account of a crash together, as a Mac has them."""
    said = run(tmp_path, "-c", WORKS, within=150)

    assert said.splitlines()[-2:] == ["the wait has warned", "[0, 1, 4, 16, 25] ['ProcessDied']"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(["log", "store"], id="log and store"),
        pytest.param(
            [
                "cluster/consumer/test_slot_process.py",
                "cluster/consumer/test_pipes.py",
                "cluster/consumer/test_processes.py",
            ],
            id="slots",
        ),
        pytest.param(
            ["cluster/scheduler/test_supervisor.py", "cluster/test_death.py", "cluster/shard/test_durable.py"],
            id="supervision",
        ),
        pytest.param(["test_scripts.py", "test_sockets.py", "test_store_held.py"], id="scripts"),
    ],
)
def test_rooms_keep_their_promises_without_linux(tmp_path: Path, paths: list[str]) -> None:
    """What each room promises is promised on a Mac."""
    run_tests(tmp_path, paths, within=580)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quickstart_runs_without_linux(tmp_path: Path) -> None:
    """The first thing that somebody with a Mac does."""
    said = run(tmp_path, "-m", "dqlab", "demo", within=280)

    assert " failed then retried" in said.splitlines()[-1]
