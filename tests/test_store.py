"""Labs with a store: what one process confirmed, another has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

import dqlab as dq
from dqlab.errors import BadOption, RunNotFound, SubmissionIncomplete
from tests.kit import forking

pytestmark = pytest.mark.cluster

SCRIPT = """
    import sys
    from concurrent.futures import Future

    import dqlab as dq

    def double(x):
        return 2 * x

    half = Future()

    def documents():
        yield from range(1500)
        half.result(30).submitter.sender.flush(30)  # confirmed, not only counted: counts run ahead of the disk
        print("ready", flush=True)
        sys.stdin.read()

    if __name__ == "__main__":
        lab = dq.connect(n=1, store=sys.argv[1])
        done = lab.map(double, range(1000), name="done")
        done.wait(timeout=60)
        waiting = lab.queue("other").map(double, range(1000, 3000), name="waiting", consumers=None)
        waiting.submitter.join(30)
        half.set_result(lab.queue("halves").map(abs, documents(), name="half"))
        half.result().submitter.join(600)
"""


def kill_when_ready(folder: Path, text: str) -> None:
    """Run a script with a store until it says that it is ready, then kill it and its cluster."""
    script = folder / "first.py"
    script.write_text(textwrap.dedent(text))
    first = forking.Popen(
        [sys.executable, str(script), str(folder / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline() == "ready\n"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    first.stdin.close()


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dq.Lab]:
    """A lab on the store of a process that was killed with its cluster."""
    folder = tmp_path_factory.mktemp("killed")
    kill_when_ready(folder, SCRIPT)
    with dq.connect(n=1, store=folder / "store", name="second") as lab:
        yield lab


def test_runs_of_a_killed_process_are_listed_in_another(second: dq.Lab) -> None:
    """A user who comes back on Monday need not remember the names of the runs."""
    found = {run.name: run for run in second.all_runs()}

    assert set(found) == {"done", "waiting", "half"}
    assert found["done"].counts.acked == 1000
    assert found["done"].share == 1


def test_runs_of_a_killed_process_and_its_cluster_are_attached_and_go_on_in_another(second: dq.Lab) -> None:
    """Results that were there are read, messages that waited are processed, and no queue need be named."""
    assert list(second.attach("done").results(timeout=60)) == [2 * x for x in range(1000)]
    assert list(second.attach("waiting").results(timeout=60)) == [2 * x for x in range(1000, 3000)]
    with pytest.raises(RunNotFound, match="Did you mean 'waiting'") as caught:
        second.attach("waitin")
    assert "no store" not in str(caught.value)
    assert second.queue().submit(abs, -1).durability == "always"
    assert second.queue("passing", durable=False).submit(abs, -1).durability == "transient"


def test_a_durable_queue_of_a_lab_without_a_store_is_refused(lab: dq.Lab) -> None:
    with pytest.raises(BadOption, match="store="):
        lab.queue("x", durable=True)


def test_run_whose_submission_was_cut_off_with_its_cluster_is_completed_by_the_same_documents(second: dq.Lab) -> None:
    with pytest.raises(SubmissionIncomplete, match=r"1,500.*the process that submitted it ended"):
        second.attach("half").wait(timeout=60)
    run = second.queue("halves").map(abs, range(3000), name="half")
    assert list(run.results(timeout=60)) == list(range(3000))
    assert run.counts["acked"] == sum(run.counts.values()) == 3000
