"""What is asked of a batch system, without one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption
from dqlab.hpc.systems import KINDS, SYSTEMS

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is in the extra hpc")

pytestmark = pytest.mark.lowest

GOLDEN = Path(__file__).parents[1] / "golden" / "jobs"
USUAL: dict[str, Any] = {
    "cores": 4,
    "memory": "8GB",
    "walltime": "90m",
    "drain": "3m",
    "queue": "short",
    "account": "physics",
    "interface": "ib0",
    "resources": {"dq-queue": 1},
    "python": "python3",
    "job_script_prologue": ["module load python"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_job_scripts_are_those_that_were_looked_at(kind: str, tmp_path: Path) -> None:
    """To change one on purpose, write what this test prints into the file, and read it once more."""
    script = dq.hpc.recipe(kind, directory=tmp_path, **USUAL).job_script().replace(str(tmp_path), "DIRECTORY")

    assert script == (GOLDEN / f"{kind}.sh").read_text()


def test_jobs_may_drain_for_a_tenth_of_a_short_walltime(tmp_path: Path) -> None:
    assert dq.hpc.recipe("slurm", directory=tmp_path, walltime="10m").drain == 60
    assert dq.hpc.recipe("slurm", directory=tmp_path, walltime="12h").drain == 180


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"jobs": 0}, "at least 1"),
        ({"jobs": (3, 2)}, "fewest and the most"),
        ({"jobs": "many"}, "fewest and the most"),
        ({"walltime": "30s"}, "at least a minute"),
        ({"walltime": "soon"}, "not a duration"),
        ({"walltime": "10m", "drain": "6m"}, "half of walltime"),
        ({"cores": 0}, "1 or more"),
        ({"memory": "much"}, "not a size"),
        ({"directory": "/with a/space"}, "space"),
        ({"job_extra_directives": "--gres=gpu:1"}, r"Write job_extra_directives=\['--gres=gpu:1'\]"),
        ({"job_script_prologue": "module load x"}, r"Write job_script_prologue=\['module load x'\]"),
        ({"worker_extra_args": "--nthreads"}, "list of lines"),
        ({"job_script_prologue": [1]}, "list of texts"),
        ({"resources": {"dq-queue": "1"}}, "number above zero"),
        ({"resources": "dq-queue=1"}, "amounts by name"),
        ({"security": "yes"}, "True, False or"),
        ({"cores": True}, "1 or more"),
        ({"jobs": True}, "fewest and the most"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        dq.hpc.recipe("slurm", **options)


@pytest.mark.parametrize("directive", ["--array=0-2", " --array=0-2", "-a 0-2"])
def test_job_arrays_are_refused(directive: str) -> None:
    """All tasks of one would be workers of the same name, and all but one would be turned away."""
    with pytest.raises(BadOption, match="job array"):
        dq.hpc.recipe("slurm", job_extra_directives=[directive])


def test_unknown_names_of_recipes_are_refused() -> None:
    """dask-jobqueue would raise for it too, deep in a traceback."""
    with pytest.raises(BadOption, match="Did you mean 'cores'"):
        dq.hpc.recipe("slurm", corse=2)
    with pytest.raises(BadOption, match="one process"):
        dq.hpc.recipe("slurm", processes=2)
    with pytest.raises(BadOption, match="not a batch system"):
        dq.hpc.recipe("cron")
    assert dq.hpc.recipe("slurm", job_cpu=8).options["job_cpu"] == 8


ONLY_LOOKS = """
import signal, sys, threading
import dqlab as dq

def look():
    scripts.append(dq.hpc.recipe("slurm", directory=sys.argv[1]).job_script())

before, scripts = signal.getsignal(signal.SIGINT), []
if sys.argv[2] == "another":
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
else:
    look()
print(len(scripts), signal.getsignal(signal.SIGINT) is before, signal.signal.__module__)
"""


@pytest.mark.cluster
@pytest.mark.parametrize("thread", ["main", "another"])
def test_ctrl_c_interrupts_as_before_wherever_recipes_are_made(thread: str, tmp_path: Path) -> None:
    """dask-jobqueue has it end the process, and cannot be imported by a thread."""
    command = [sys.executable, "-c", ONLY_LOOKS, str(tmp_path), thread]
    looked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert looked.stdout.split() == ["1", "True", "signal"], looked.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_machine_without_the_batch_system_says_so(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(dq.errors.UsageError, match=SYSTEMS[kind].submit):
        getattr(dq.hpc, kind)(directory=tmp_path / "jobs")
    assert not (tmp_path / "jobs").exists()


@pytest.mark.parametrize(
    ("kind", "said", "pending", "reason"),
    [
        ("slurm", "PD|Resources\n", True, "Resources"),
        ("slurm", "R|None\n", False, "None"),
        (
            "pbs",
            "Job Id: 7\n    job_state = Q\n    comment = Not Running: Not enough\n\tcpus\n",
            True,
            "Not enoughcpus",
        ),
        ("pbs", "Job Id: 7\n    job_state = R\n", False, ""),
    ],
)
def test_state_of_a_job_is_read(kind: str, said: str, pending: bool, reason: str) -> None:
    state = SYSTEMS[kind].read(said)

    assert state is not None
    assert state.pending is pending
    assert reason in state.reason


@pytest.mark.parametrize(
    ("kind", "said"),
    [("slurm", ""), ("pbs", "    job_state = F\n")],
)
def test_jobs_that_have_ended_are_known(kind: str, said: str) -> None:
    assert SYSTEMS[kind].read(said) is None
