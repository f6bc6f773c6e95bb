"""`dqlab doctor`, as somebody types it with a sick cluster."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.cli.command import main
from dqlab.clusters_here import Registration, register
from dqlab.errors import DqlabWarning
from dqlab.log import Files
from dqlab.log.files import Lock
from dqlab.testing import FakeClock
from tests.store.workload import busy_queue

WITHOUT_DASK = """
import sys
from dqlab.cli.command import main
status = main(["doctor", "--store", sys.argv[1]])
print(status, sorted({"distributed", "dqlab.cluster"} & set(sys.modules)))
"""


def wrong(x: int) -> None:
    raise ValueError(x)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster of `dqlab up` runs here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_cluster_at_an_address_is_examined(lab: dq.Lab, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", lab.session.link.address, "--json"])

    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert status == (0 if told["healthy"] else 1)
    assert len(told["processes"]) == 5


def test_cluster_of_dqlab_up_is_found_without_an_address(
    lab: dq.Lab, here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "runs"
    store.mkdir()
    register(Registration(name="local", scheduler=lab.session.link.address, store=str(store), reserved="0"))

    for words in ([], ["local"], ["--name", "local", "--store", str(store)]):
        main(["doctor", *words])
        shown = capsys.readouterr().out
        assert shown.startswith("cluster local  ")
        assert f"{store} on " in " ".join(shown.split())


def test_what_the_doctor_advises_can_be_typed_where_it_is_shown(
    lab: dq.Lab, here: None, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shell has no `run`, and a notebook may have another one."""
    address = lab.session.link.address
    pool = lab.queue(queue_name)
    with pytest.warns(DqlabWarning):
        pool.map(wrong, [1, 2, 3], name=f"sick-{queue_name}").wait(timeout=60)

    main(["doctor", address])
    shown = capsys.readouterr().out
    (line,) = {
        word for word in map(str.strip, shown.splitlines()) if word.startswith(f"dqlab failed sick-{queue_name}")
    }
    assert main([*shlex.split(line)[1:], "--at", address]) == 0
    assert "3 dead" in capsys.readouterr().out

    pool.close(force=True)


def test_where_nothing_can_be_looked_at_the_status_is_2(
    here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 2
    assert "no cluster of `dqlab up` runs" in capsys.readouterr().err
    assert main(["doctor", "tcp://127.0.0.1:1", "--timeout", "2s"]) == 2
    assert "no scheduler answers at 'tcp://127.0.0.1:1'" in capsys.readouterr().err
    assert main(["doctor", "--store", str(tmp_path / "none")]) == 2
    assert "there is no such directory" in capsys.readouterr().err
    assert main(["doctor", "--store", str(tmp_path), "--timeout", "soon"]) == 2


@pytest.mark.cluster
def test_store_alone_is_examined_and_needs_no_dask(tmp_path: Path) -> None:
    busy_queue(tmp_path, FakeClock(), seed=1, steps=20, name="pages")

    command = [sys.executable, "-c", WITHOUT_DASK, tmp_path]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout.startswith(f"store {tmp_path}  healthy")
    assert ended.stdout.endswith("0 []\n")


def test_store_with_a_problem_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy_queue(tmp_path, FakeClock(), seed=1, steps=20, name="pages")
    next(tmp_path.glob("pages-*/000/MANIFEST-*")).unlink()

    assert main(["doctor", "--store", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "✕ problem store: shard 0 of queue pages cannot be read" in shown
    assert f"        dqlab store check {tmp_path}" in shown


def test_store_on_a_file_system_without_locks_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unsupported(self: Files, descriptor: int) -> Lock:
        return "unsupported"

    monkeypatch.setattr(Files, "lock", unsupported)

    assert main(["doctor", "--store", str(tmp_path)]) == 1
    assert "supports no locks" in " ".join(capsys.readouterr().out.split())
