"""Announcements: a service keeps its id, its file is its user's alone, and what is over makes room."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab import clusters_here, notebook
from dqlab.clusters_here import SCHEMA, Announcement, announce, announced, forget, seen, sweep, withdraw
from tests.kit import forking

pytest.importorskip("jupyter_core", reason="the extra `lab` is not installed")

ENDED = """
import os, sys
from dqlab.clusters_here import Announcement, announce
announce(
    Announcement(
        name="local",
        dashboard="http://127.0.0.1:1",
        scheduler="tcp://127.0.0.1:1",
        scheduler_id=sys.argv[1],
        token="t",
        embedded=True,
        store=sys.argv[3] or None,
        where="local",
    )
)
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.exit()  # runs the exit handlers that it inherited
if sys.argv[2] == "fork":
    os.wait()
    print(len(os.listdir(os.environ["JUPYTER_RUNTIME_DIR"])), flush=True)
if sys.argv[2] == "killed":
    os.kill(os.getpid(), 9)
"""


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of its own, not made yet."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path / "runtime"


def service(name: str = "local", number: int = 1, **more: Any) -> Announcement:
    given: dict[str, Any] = {
        "id": "",
        "name": name,
        "dashboard": f"http://127.0.0.1:{number}",
        "scheduler": f"tcp://127.0.0.1:{number}",
        "scheduler_id": f"Scheduler-{number}",
        "token": "secret",
        "embedded": True,
        "store": None,
        "where": "local",
    }
    return Announcement(**given | more)


def elsewhere(how: str, runtime: Path, number: int = 7, store: str = "") -> str:
    """Announce an embedded service in a process that then ends; return what it printed."""
    command = [sys.executable, "-c", ENDED, f"Scheduler-{number}", how, store]
    return forking.run(command, capture_output=True, text=True, timeout=30, check=False).stdout


def ids(runtime: Path) -> set[str]:
    return {found.id for found in announced(runtime)}


def test_file_is_readable_by_its_user_alone(runtime: Path) -> None:
    """The token in it opens the controls of the cluster."""
    written = announce(service())

    assert written is not None
    path = runtime / "dq-local.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert announced(runtime) == [written]
    assert {"schema", "id", "name", "dashboard", "scheduler", "scheduler_id", "token", "pid", "host"} <= json.loads(
        path.read_text()
    ).keys()
    assert "secret" not in repr(written)
    withdraw(written)
    assert not list(runtime.glob("*dq-*.json"))


def test_two_services_of_one_name_have_two_ids(runtime: Path) -> None:
    """Two notebooks with a cluster each are two rows."""
    first, second = announce(service(number=1)), announce(service(number=2))
    assert (first and first.id, second and second.id) == ("local", "local-2")
    assert first is not None
    withdraw(first)
    again = announce(service(number=3))
    assert again is not None
    assert again.id == "local"


def test_a_cluster_names_the_kernels_whose_last_lab_is_on_it(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidebar did not follow a notebook to a cluster of `dqlab up`, nor to that of another notebook."""

    def kernels() -> dict[str, tuple[str, ...]]:
        return {each.id: each.kernels for each in announced(runtime)}

    shared = service("up", number=1, pid=os.getppid(), kernels=())
    announce(shared)
    announce(service("own", number=2, kernels=("k-1",)))
    assert kernels() == {"up": (), "own": ("k-1",)}

    joined = announce(replace(shared, kernels=("k-1",), embedded=False))
    announce(replace(shared, kernels=("k-2",), embedded=False))
    announce(replace(shared, kernels=("k-1",), embedded=False))
    assert kernels() == {"up": ("k-1", "k-2"), "own": ()}, "k-1 has two labs: the last one counts"

    assert joined is not None
    monkeypatch.setattr(clusters_here, "kernel_id", lambda: "k-1")
    withdraw(joined)
    assert kernels()["up"] == ("k-1", "k-2"), "another lab of the process is still there"
    withdraw(joined)
    withdraw(joined, ended=True)
    assert kernels() == {"up": ("k-2",), "own": ()}
    announce(service("fresh", number=3, kernels=("k-2",)))
    assert kernels() == {"up": (), "own": (), "fresh": ("k-2",)}, "it was restarted with a cluster of its own"


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("tcp://10.0.0.1:8786", "tcp-10-0-0-1-8786"),
        ("../../etc", "etc"),
        ("文書", "lab"),
        ("a b/c%2f?d#e", "a-b-c-2f-d-e"),
        ("-", "lab"),
        ("x" * 300, "x" * 60),
    ],
)
def test_ids_are_safe_in_addresses(runtime: Path, name: str, id: str) -> None:
    """Names are anything; an id is part of an address and of a file's name."""
    written = announce(service(name))
    assert written is not None
    assert (written.id, written.name) == (id, name)
    assert ids(runtime) == {id}


@pytest.mark.cluster
@pytest.mark.parametrize("how", ["returns", "fork"])
def test_file_goes_with_its_process(runtime: Path, how: str) -> None:
    """A kernel that is shut down leaves nothing; a fork of it that ends takes nothing along."""
    said = elsewhere(how, runtime)
    assert ids(runtime) == set()
    assert how != "fork" or said.split()[-1] == "2"  # the file, and the lock


@pytest.mark.cluster
def test_id_of_a_killed_process_is_taken_over(runtime: Path) -> None:
    """A restarted kernel is the same service: panels that are open find it again."""
    elsewhere("killed", runtime)
    (old,) = announced(runtime)
    assert old.ended

    new = announce(service(number=2))
    assert new is not None
    assert new.id == old.id
    forget(runtime, old)
    withdraw(replace(new, pid=old.pid))
    assert announced(runtime) == [new]


def test_restarted_scheduler_is_the_same_service(runtime: Path) -> None:
    """Attached to by name, at its old address or at another one while no process listens at the old."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        announce(service("papers", port, embedded=False))
        at_once = announce(service("papers", port, scheduler_id="later", embedded=False))
        other = announce(service("papers", 1, embedded=False))
        assert (at_once and at_once.id, other and other.id) == ("papers", "papers-2")
    moved = announce(service("papers", 2, embedded=False))
    assert moved is not None
    assert moved.id == "papers"


def test_scheduler_on_another_machine_keeps_its_id(runtime: Path) -> None:
    """Connecting never waits for a machine that may be gone."""
    announce(service("papers", scheduler="tcp://10.9.9.9:8786", embedded=False))
    new = announce(service("papers", 2, embedded=False))
    assert new is not None
    assert new.id == "papers-2"


def test_files_of_others_are_passed_over(runtime: Path) -> None:
    """What others could have written could send a browser anywhere, with this user's cookies."""
    written = announce(service())
    assert written is not None
    good = (runtime / "dq-local.json").read_text()
    assert '"kernels": []' in good
    for id, text, mode in (
        ("open", good, 0o644),
        ("junk", "{", 0o600),
        ("list", "[]", 0o600),
        ("deep", "[" * 60_000, 0o600),
        ("other-id", good, 0o600),
        (
            "new",
            good.replace(f'"schema": {SCHEMA}', f'"schema": {SCHEMA + 1}').replace('"id": "local"', '"id": "new"'),
            0o600,
        ),
        (
            "typed",
            good.replace('"id": "local"', '"id": "typed"').replace('"embedded": true', '"embedded": "yes"'),
            0o600,
        ),
        ("numbers", good.replace('"id": "local"', '"id": "numbers"').replace('"kernels": []', '"kernels": [1]'), 0o600),
        ("text", good.replace('"id": "local"', '"id": "text"').replace('"kernels": []', '"kernels": "k-1"'), 0o600),
        ("file", good.replace('"id": "local"', '"id": "file"').replace("http://127.0.0.1:1", "file:///etc"), 0o600),
        ("user", good.replace('"id": "local"', '"id": "user"').replace("http://", "http://u:p@"), 0o600),
        (
            "path",
            good.replace('"id": "local"', '"id": "path"').replace('0.1:1",', '0.1:1/x/",'),
            0o600,
        ),
    ):
        path = runtime / f"dq-{id}.json"
        path.write_text(text)
        path.chmod(mode)
    (runtime / "dq-link.json").symlink_to(runtime / "dq-local.json")
    (runtime / "dq-folder.json").mkdir()

    assert ids(runtime) == {"local"}


@pytest.mark.cluster
def test_what_is_over_is_swept_after_a_week(runtime: Path) -> None:
    """For a week it can be opened again."""
    elsewhere("killed", runtime, store="/data/runs")
    (old,) = announced(runtime)
    living = announce(service("papers", 2))
    assert living is not None
    (runtime / ".dq-x.1.tmp").touch()
    (runtime / ".dq-y.1.tmp").touch()
    os.utime(runtime / ".dq-x.1.tmp", (1, 1))
    seen(runtime, living.id, 1.0)

    sweep(runtime)
    assert ids(runtime) == {"local", "papers"}
    assert seen(runtime, old.id, time.time() - 8 * 86_400) == pytest.approx(time.time() - 8 * 86_400, abs=5)
    sweep(runtime)
    assert ids(runtime) == {"papers"}
    assert [path.name for path in runtime.glob(".dq-*.tmp")] == [".dq-y.1.tmp"]


def test_nothing_is_announced_where_it_cannot_be(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that is missing must not keep anybody from working."""
    runtime.parent.joinpath("runtime").write_text("a file, not a directory")
    assert announce(service()) is None
    withdraw(service())


def test_without_jupyter_a_cluster_is_announced_for_the_commands_of_a_shell(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script on a server without Jupyter was out of reach: `dqlab status` found nothing there."""
    monkeypatch.setitem(sys.modules, "jupyter_core.paths", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(runtime.parent / "state"))
    written = announce(service())

    assert written is not None
    assert announced(runtime.parent / "state" / "dqlab" / "services") == [written]
    withdraw(written)


def test_lab_is_announced_until_it_is_closed(runtime: Path, lab: dq.Lab) -> None:
    """Whether its cluster ends with it or not: once no process looks, its address may be another one's any day."""
    address = lab.client.scheduler.address
    with dq.connect(address, name="papers") as attached:
        (found,) = announced(runtime)
        assert (found.id, found.scheduler, found.embedded, found.token) == (
            "papers",
            address,
            False,
            attached.session.token,
        )
        assert attached.service == found.id
        assert found.dashboard == f"http://127.0.0.1:{lab.session.http['port']}"
    assert ids(runtime) == set()


def test_only_a_kernel_has_the_id_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sidebar follows the notebook in front by it."""
    assert clusters_here.kernel_id() == ""

    class Application:
        connection_file = "/run/user/jupyter/kernel-0f8a1c7e-52c1-4a5b-9d3e-7b0f44a10000.json"

        @classmethod
        def initialized(cls) -> bool:
            return True

        @classmethod
        def instance(cls) -> Application:
            return cls()

    monkeypatch.setitem(sys.modules, "ipykernel.kernelapp", SimpleNamespace(IPKernelApp=Application))

    assert clusters_here.kernel_id() == "0f8a1c7e-52c1-4a5b-9d3e-7b0f44a10000"


@pytest.mark.parametrize(
    ("jupyter", "named", "main", "name"),
    [
        (True, "~/work/papers.ipynb", None, "papers.ipynb in ~/work"),
        (True, "/data/papers.ipynb", "~/bin/ipykernel", "papers.ipynb in /data"),
        (True, None, None, ""),
        (False, "~/work/papers.ipynb", "~/daily.py", "daily.py in ~"),
        (False, None, "/opt/tool/__main__.py", "tool in /opt"),
        (False, None, None, ""),
    ],
)
def test_a_cluster_is_named_after_its_notebook_or_script(
    monkeypatch: pytest.MonkeyPatch, jupyter: bool, named: str | None, main: str | None, name: str
) -> None:
    """The sidebar listed `local`, `local-2` and `local-3`."""
    monkeypatch.setattr(notebook, "in_jupyter", lambda: jupyter)
    monkeypatch.setattr(notebook, "shell", lambda: None)
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__=main and str(Path(main).expanduser())))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if named:
        monkeypatch.setenv("JPY_SESSION_NAME", str(Path(named).expanduser()))

    assert notebook.program() == name
