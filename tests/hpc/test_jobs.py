"""What is told of jobs: their state, the end of their logs, and how often those that die are submitted again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dqlab.hpc.clusters import FIRST_WAIT, LONGEST_WAIT, Backoff
from dqlab.hpc.systems import SYSTEMS, JobState, ask, log_end

pytestmark = pytest.mark.lowest

SLURM = SYSTEMS["slurm"]


def squeue(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program(directory, monkeypatch, "squeue", script)


def program(directory: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Have a command of that name on the PATH."""
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)


@pytest.mark.cluster
@pytest.mark.parametrize("script", ["exit 0", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"])
def test_job_that_is_not_known_any_more_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    squeue(tmp_path, monkeypatch, script)

    assert ask(SLURM, ["7"]) == {"7": None}


@pytest.mark.cluster
def test_batch_system_that_cannot_be_asked_ends_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its controller is restarted now and then."""
    squeue(tmp_path, monkeypatch, "echo 'Unable to contact slurm controller' >&2; exit 1")
    state = ask(SLURM, ["7"])["7"]
    assert state is not None
    assert state.pending
    assert "Unable to contact" in state.reason

    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    state = ask(SLURM, ["7"])["7"]
    assert state is not None
    assert "does not answer" in state.reason


@pytest.mark.cluster
def test_batch_system_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.hpc.systems.ASK_TIMEOUT", 0.2)
    squeue(tmp_path, monkeypatch, "exec sleep 60")
    state = ask(SLURM, ["7"])["7"]

    assert state is not None
    assert "timed out" in state.reason


@pytest.mark.cluster
def test_all_jobs_are_asked_after_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question for each of two hundred jobs is a burden on everybody's controller, and takes minutes."""
    squeue(tmp_path, monkeypatch, f"echo \"$@\" >> {tmp_path}/asked; echo '7|R|None'; echo '9|PD|Priority'")

    states = ask(SLURM, ["7", "8", "9"])

    assert states == {"7": JobState(False, "None"), "8": None, "9": JobState(True, "Priority")}
    assert len((tmp_path / "asked").read_text().splitlines()) == 1


@pytest.mark.cluster
def test_jobs_that_are_gone_are_told_from_those_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PBS prints about several jobs at once, one of them ended."""
    said = "printf 'Job Id: 7.host\\n  job_state = R\\n'; echo 'qstat: Unknown Job Id 8.host' >&2; exit 153"
    program(tmp_path, monkeypatch, "qstat", said)

    assert ask(SYSTEMS["pbs"], ["7", "8"]) == {"7": JobState(False), "8": None}


def test_keys_are_not_taken_for_a_log(tmp_path: Path) -> None:
    """A private key would stand in an error message, and from there in a notebook."""
    (tmp_path / ".dask-jobqueue.worker.key.a7_bcdef").write_text("PRIVATE")

    assert "no log of job 7" in log_end(tmp_path, "7")[1]


def test_end_of_a_log_is_that_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "dqlab-17.err").write_text("another job\n")
    (tmp_path / "dqlab-7.out").write_text("said\n")
    (tmp_path / "dqlab-7.err").write_text("\n".join(f"line {number}" for number in range(100)))
    path, end = log_end(tmp_path, "7.server")

    assert path == str(tmp_path / "dqlab-7.err")
    assert end.splitlines() == [f"line {number}" for number in range(85, 100)]


def test_log_that_is_not_there_is_said_not_to_be(tmp_path: Path) -> None:
    (tmp_path / "dqlab-7.err").touch()

    assert "no log of job 7" in log_end(tmp_path, "7")[1]
    assert "cannot be read" in log_end(tmp_path / "nowhere", "7")[1]
    assert "no log_directory" in log_end(None, "7")[1]


def test_jobs_that_die_at_once_are_submitted_ever_more_rarely() -> None:
    backoff, now, waits = Backoff(), 0.0, []
    for _ in range(10):
        backoff.died(now)
        assert not backoff.over(now)
        began = now
        while not backoff.over(now):
            now += FIRST_WAIT / 2
        waits.append(now - began)
    assert waits[:3] == [FIRST_WAIT, 2 * FIRST_WAIT, 4 * FIRST_WAIT]
    assert waits[-1] == LONGEST_WAIT

    backoff.came()
    backoff.died(now)
    assert backoff.over(now + FIRST_WAIT)
