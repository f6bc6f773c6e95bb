"""`dqlab up` and `connect("local")`: a cluster that outlives notebooks, and how they find it."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import dqlab as dq
from dqlab.cli.command import main
from dqlab.clusters_here import (
    Announcement,
    NoLocalCluster,
    Registration,
    announced,
    directory,
    find,
    register,
    registrations,
    unregister,
)
from dqlab.errors import BadOption, ConnectFailed, UsageError
from tests.kit import forking

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

PATIENCE = 20.0

FIRST = """
import dqlab as dq

def double(x):
    return 2 * x

if __name__ == "__main__":
    with dq.connect("local") as lab:
        lab.map(double, range(1000), name="doubles").wait(timeout=30)
"""
SECOND = """
import dqlab as dq

if __name__ == "__main__":
    with dq.connect("local") as lab:
        print(sum(lab.attach("doubles").results(timeout=30)), lab.queue().durability.name)
"""


@dataclass
class Up:
    """One `dqlab up`, and the processes it has started."""

    process: subprocess.Popen[str]
    ready: str

    @property
    def group(self) -> list[psutil.Process]:
        """It and all that it started."""
        main = psutil.Process(self.process.pid)
        return [main, *main.children(recursive=True)]


@contextmanager
def running(*options: str) -> Iterator[Up]:
    """Run `dqlab up`, in a session of its own; killed at the end if it still runs."""
    process = forking.Popen(
        [sys.executable, "-m", "dqlab", "up", "-n", "1", *options],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield Up(process, process.stdout.readline())
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of files of its own, for this process and those it starts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return registrations()


@pytest.fixture
def ended() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def services(pid: int) -> list[Announcement]:
    """What Jupyter's servers find of a process."""
    place = directory()
    return [found for found in announced(place) if found.pid == pid] if place is not None else []


def registration(name: str, store: str | None = "/no/store", **fields: object) -> Registration:
    return Registration(name=name, scheduler="tcp://127.0.0.1:9", store=store, reserved="0", **fields)  # type: ignore[arg-type]


def run(tmp_path: Path, text: str) -> str:
    script = tmp_path / "script.py"
    script.write_text(text)
    done = forking.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- real clusters ---------------------------------------------------------------------------


def test_runs_of_one_process_are_there_for_the_next_until_sigterm_ends_everything(tmp_path: Path, state: Path) -> None:
    """A notebook may close; the cluster, its queues and their results stay. At the end nothing is left behind."""
    store = tmp_path / "runs"
    with running("--store", str(store)) as up:
        (file,) = state.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(state.stat().st_mode) == 0o700
        assert f'store {store}; in a notebook: dq.connect("local");' in up.ready
        expected = [("local", True, str(store))] if directory() is not None else []
        assert [(each.name, each.embedded, each.store) for each in services(up.process.pid)] == expected

        run(tmp_path, FIRST)
        assert run(tmp_path, SECOND) == f"{sum(range(0, 2000, 2))} DURABLE\n"

        group = up.group
        assert len(group) >= 3  # itself, a consumer, the queues
        up.process.terminate()
        assert up.process.wait(PATIENCE) == 0
        _, alive = psutil.wait_procs(group, timeout=PATIENCE)
        assert not alive
        assert not list(state.iterdir())
        assert not services(up.process.pid)
        assert up.process.stdout is not None
        assert up.process.stdout.read() == f"dqlab up: local ended; queues closed and kept in {store}: 1\n"


@pytest.mark.slow
def test_results_of_a_cluster_that_was_killed_are_there_when_it_is_up_again(tmp_path: Path, state: Path) -> None:
    """kill -9 of every process, as a machine that runs out of memory does; and one name stands for one cluster."""
    options = "--store", str(tmp_path / "runs"), "--name", "night"
    with running(*options) as up:
        lab = dq.connect("local")
        assert (lab.name, lab.store, dq.connect("local")) == ("night", tmp_path / "runs", lab)
        lab.map(abs, range(-1000, 0), name="before").wait(timeout=30)
        twin = subprocess.run(
            [sys.executable, "-m", "dqlab", "up", *options], capture_output=True, text=True, check=False
        )
        assert twin.returncode == 1
        assert f"cluster 'night' of `dqlab up` runs already, in process {up.process.pid}" in twin.stderr

        group = up.group
        os.killpg(up.process.pid, signal.SIGKILL)
        up.process.wait()
        psutil.wait_procs(group, timeout=PATIENCE)
        lab.close()
    assert list(state.iterdir())

    with running(*options), dq.connect("local", name="night", store=tmp_path / "runs") as lab:
        assert list(lab.attach("before").results(timeout=30)) == list(range(1000, 0, -1))
        assert list(lab.map(abs, [-1]).results(timeout=30)) == [1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-n", "0"], "n=0: must be a number of processes"),
        (["--port", "99999"], "port=99999: is 0 to 65535"),
        (["--name", "my cluster"], "Try 'my-cluster'"),
        (["--store", __file__], "is a file"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_starts(
    words: list[str], said: str, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up", *words]) == 1

    assert said in capsys.readouterr().err
    assert not state.exists() or not list(state.iterdir())


# --- files -----------------------------------------------------------------------------------


def test_without_a_cluster_the_error_says_how_to_start_one() -> None:
    with pytest.raises(NoLocalCluster, match=r"`dqlab up --store runs/`, then connect again") as caught:
        dq.connect("local")

    assert isinstance(caught.value, ConnectFailed)


def test_a_file_whose_process_is_gone_is_told_of_and_removed(state: Path, ended: int) -> None:
    """The command that is offered starts it again as it was."""
    register(registration("night", "/data/runs", pid=ended))

    with pytest.raises(NoLocalCluster, match=rf"Process {ended} of cluster 'night', store /data/runs, has ended") as it:
        dq.connect("local", name="night")

    assert "`dqlab up --name night --store /data/runs`" in str(it.value)
    assert not list(state.iterdir())


def test_a_file_that_this_version_cannot_read_keeps_its_name(state: Path) -> None:
    """Half-written at a crash, or by another version, whose cluster may run."""
    path = register(registration("night"))
    path.write_text("{")
    with pytest.raises(BadOption, match=rf"night.*{path}.*delete that file"):
        register(registration("night"))
    assert path.read_text() == "{"


def test_a_cluster_that_ends_leaves_the_file_of_its_successor(state: Path, ended: int) -> None:
    first = registration("night")
    path = register(first)
    path.unlink()
    register(registration("night", "/data/runs"))

    unregister(path, first)

    assert find("night").store == "/data/runs"


def test_of_several_clusters_one_has_to_be_named() -> None:
    with ExitStack() as files:
        for name in ("day", "night"):
            found = registration(name)
            files.callback(unregister, register(found), found)

        with pytest.raises(UsageError, match=r"'day' \(store /no/store\), 'night'.*name='day'"):
            dq.connect("local")
        assert find("night").name == "night"
        with pytest.raises(NoLocalCluster, match=r"named 'noon'.*Running: 'day', store /no/store"):
            find("noon")
        with pytest.raises(UsageError, match="--name night-2"):
            register(registration("night"))


@pytest.mark.parametrize("store", ["/data/runs", None])
def test_another_store_than_that_of_the_cluster_is_refused(store: str | None) -> None:
    """Its queues are in one place; both are named."""
    register(registration("night", store))

    with pytest.raises(BadOption, match=r"/data/mine.*'night'.*(store /data/runs|without a store)"):
        dq.connect("local", store="/data/mine")
