"""Scripts start a lab without a word about processes, and none outlives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

import dqlab as dq

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

SCRIPT = """
import dqlab as dq

class Page:
    def __init__(self, number): self.number = number

def double(page): return page.number * 2

lab = dq.connect(n=1)
print(list(lab.map(double, [Page(1), Page(2)]).results(timeout=90)), flush=True)
"""
WAITING = """
import os, signal, sys
import dqlab as dq
lab = dq.connect(n=1)
here = lab.client.run(os.getpid)
try:  # the test interrupts as soon as it has read the line
    print(lab.session.link.address.removeprefix("unix://").rpartition(":")[0], *here.values(), flush=True)
    signal.pause()
except KeyboardInterrupt:
    print(len(lab.client.run(os.getpid)), flush=True)
    lab.close()
"""


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "error::UserWarning"}


@pytest.mark.parametrize(
    "how", ["file", pytest.param("-c", marks=pytest.mark.slow), pytest.param("stdin", marks=pytest.mark.slow)]
)
def test_script_needs_no_guard(tmp_path: Path, how: str) -> None:
    """A page of tracebacks that end in "Nanny failed to start" is no beginning; workers do not import the script."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    command = {"file": [str(path)], "-c": ["-c", SCRIPT], "stdin": ["-"]}[how]
    said = subprocess.run(
        [sys.executable, *command],
        input=SCRIPT if how == "stdin" else None,
        capture_output=True,
        text=True,
        timeout=110,
        env=environ(),
        cwd=tmp_path,
        check=False,
    )
    assert (said.returncode, said.stdout.split("\n")[0]) == (0, "[2, 4]"), said.stderr
    assert "Traceback" not in said.stderr
    assert "event=" not in said.stderr  # nobody can act on what a lab logs while it ends


def start(tmp_path: Path) -> tuple[subprocess.Popen[str], Path, list[psutil.Process]]:
    """Start a script with a lab; return it, the directory of its sockets, and all processes that belong to it."""
    script = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        stdout=subprocess.PIPE,
        text=True,
        env=environ(),
        cwd=tmp_path,
        process_group=0,
    )
    assert script.stdout is not None
    directory, *pids = script.stdout.readline().split()
    processes = psutil.Process(script.pid).children(recursive=True)
    assert {int(pid) for pid in pids} <= {process.pid for process in processes}
    return script, Path(directory), processes


def end(script: subprocess.Popen[Any]) -> None:
    with suppress(ProcessLookupError):
        script.kill()
    script.communicate(timeout=10)


def test_nothing_outlives_a_script_that_is_killed(tmp_path: Path) -> None:
    """The system kills the largest process when memory is short: a kernel. Its workers would hold stores and memory."""
    script, directory, processes = start(tmp_path)
    try:
        os.kill(script.pid, signal.SIGKILL)
        script.wait(10)
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive
        gone_within(directory)
    finally:
        end(script)


def gone_within(directory: Path, seconds: float = 5.0) -> None:
    """Wait until a directory is removed; nobody says when it is."""
    deadline = time.monotonic() + seconds
    while directory.exists():
        assert time.monotonic() < deadline, f"{directory} is left"
        time.sleep(0.02)


def test_ctrl_c_in_a_terminal_is_for_the_script_alone(tmp_path: Path) -> None:
    """A terminal sends it to all processes of the group; workers that die of it take the run along."""
    script, directory, processes = start(tmp_path)
    try:
        os.killpg(script.pid, signal.SIGINT)
        said, _ = script.communicate(timeout=30)
        assert said.split() == ["2"], "both workers answered after it"
        _, alive = psutil.wait_procs(processes, timeout=10)
        assert not alive
        gone_within(directory)
    finally:
        end(script)


def test_nursery_that_dies_is_started_again(tmp_path: Path) -> None:
    """It is a process as others are; without it no worker that died could be replaced."""
    import dqlab as dq

    with dq.connect(n=1, name="nursery") as lab:
        (nursery,) = {psutil.Process(pid).ppid() for pid in lab.client.run(os.getpid).values()}
        assert nursery != os.getpid()

        def workers(dask_scheduler: Any) -> set[str]:
            return set(dask_scheduler.workers)

        before = lab.client.run_on_scheduler(workers)
        psutil.Process(nursery).kill()
        deadline = time.monotonic() + 60
        while len(lab.client.run_on_scheduler(workers) - before) < 2:
            assert time.monotonic() < deadline, "not replaced"
            time.sleep(0.05)
        assert list(lab.map(abs, [-1, -2], name="after").results(timeout=90)) == [1, 2]


CUT_SHORT = """
import sys, time
from pathlib import Path
import dqlab as dq

GO = sys.argv[2]

def f(x):
    while x >= 3 and not Path(GO).exists():
        time.sleep(0.05)
    return x

lab = dq.connect(n=2, store=sys.argv[3] or None)
run = lab.map(f, range(20), name="f-1")
while run.counts["acked"] < 3:
    time.sleep(0.05)
{end}
"""
ENDS = {
    "nothing": "",
    "close": "lab.close()",
    "with": "with lab: pass",
    "twice": "lab.close(); lab.close()",
    "cancelled": "run.cancel(); lab.close()",
    "cancelled at exit": "run.cancel()",
    "done": "Path(GO).touch(); run.wait()",
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("store", ["", "runs"])
def test_a_script_that_ends_before_its_run_says_what_was_not_done(tmp_path: Path, end: str, store: str) -> None:
    """Exit code 0, no output, and 7 of 20 documents done."""
    place = str(tmp_path / store) if store else ""
    script = CUT_SHORT.replace("{end}", ENDS[end])
    said = subprocess.run(
        [sys.executable, "-c", script, "", str(tmp_path / "go"), place],
        env={**os.environ, "PYTHONWARNINGS": "default"},  # in a run of tests it may make an error of the warning
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    ).stderr

    quiet = end.startswith(("cancelled", "done"))
    sentence = "17 of 20 documents of run 'f-1' were not done when the cluster ended"
    next_step = (
        "they and its 3 results are in the store; they go on when you connect to the store again: dq.connect(store="
        if store
        else "they and its 3 results are lost, for queue 'default' was in memory: call run.wait() first"
    )
    assert said.count(sentence) == said.count(next_step) == (0 if quiet else 1), said
    assert "Traceback" not in said


SEVERAL = """
import sys, time
import dqlab as dq

def f(x):
    time.sleep(0 if x else 60)
    return x

lab = dq.connect(n=1, store=sys.argv[1])
lab.map(f, [1, 2], name="done").wait()
memory = lab.queue("quick", durable=False)
for name, pool in {"first": lab, "second": memory, "third": lab, "fourth": memory, "last": lab}.items():
    run = pool.map(f, [0, 0, 0], name=name)
    run.submitter.join(20)
run.cancel()
"""


def test_a_script_that_ends_before_its_runs_names_them_and_where_their_documents_are(tmp_path: Path) -> None:
    """It named one, and "2 more of its runs", some of which were in the store, and others gone."""
    said = subprocess.run(
        [sys.executable, "-c", SEVERAL, str(tmp_path / "runs")], capture_output=True, text=True, timeout=110, check=True
    ).stderr

    assert "3 of 3 documents of run 'fourth' were not done when the cluster ended; they are lost, for queue" in said
    assert (
        "So it is with run 'third' (3 of 3 documents, in the store), run 'second' (3 of 3 documents, lost), "
        "run 'first' (3 of 3 documents, in the store)." in said
    )


INTERRUPTED = """
import os, signal, sys, threading, time
import dqlab as dq

def f(x):
    time.sleep(2)

def main(lab, queue):
    run = lab.queue(queue).map(f, range(20), name="f-1")
    wait = {"wait": run.wait, "results": run.results, "as_completed": lambda: list(run.as_completed())}
    wait["ask"] = lambda: [lab.queue_names() for _ in iter(int, 1)]
    wait["call"] = lambda: lab.queue(queue).submit(f, 1).results()
    run.submitter.join(20)
    threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT)).start()
    wait[sys.argv[1]]()  # the line

main(dq.connect(sys.argv[3]) if sys.argv[3:] else dq.connect(n=1), sys.argv[2])
"""


def interrupted(script: Path, *words: str) -> tuple[str, str]:
    """Return the line in which a script that was interrupted ends, and all that it wrote; it shows its own lines."""
    script.write_text(INTERRUPTED)
    done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, timeout=110, check=False)
    said = done.stderr
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT), said
    assert "# the line" in said
    files = {line.split('"')[1] for line in said.splitlines() if line.startswith("  File ")}
    assert files == {str(script)}, said
    return next(line for line in said.splitlines() if line.startswith("KeyboardInterrupt")), said


@pytest.mark.parametrize("waits", ["wait", "results", "as_completed", "ask", "call"])
def test_interrupted_script_shows_its_own_lines_and_what_becomes_of_its_run(tmp_path: Path, waits: str) -> None:
    """Ctrl-C printed eight frames of dqlab and of contextlib, and lines that nobody could type any more."""
    sentence, said = interrupted(tmp_path / "script.py", waits, "default")

    left = {"call": "for <PutResult of 1 message", "ask": ""}.get(waits, "for run 'f-1', which was left as it is")
    assert left in sentence
    assert sentence.endswith("KeyboardInterrupt" if waits == "ask" else "Its cluster ends with this script.")
    assert "of 20 documents of run 'f-1' were not done when the cluster ended; they are lost" in said


def test_interrupted_script_names_the_way_back_to_a_run_that_goes_on(
    tmp_path: Path, lab: dq.Lab, queue: dq.QueuePool
) -> None:
    """Its variables end with it, and the cluster does not."""
    address = lab.session.link.address
    sentence, said = interrupted(tmp_path / "script.py", "wait", queue.name, address)

    there = f"dq.connect({address!r}).attach('f-1')"
    assert sentence.endswith(f"which was left as it is. {there}.wait() waits again, {there}.cancel() gives it up.")
    assert "were not done" not in said
    assert 0 < lab.attach("f-1").cancel() <= 20
    lab.attach("f-1").drop()


DEADLY = """
import os, sys
import dqlab as dq

def f(x):
    if x == 5:
        os._exit(3)
    return x

with dq.connect(n=1) as lab:
    run = lab.map(f, range(20), executor=sys.argv[1])
    run.until_over()
    print(run.counts["dead"], run.failures()[0].message)
"""


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_function_that_ends_its_process_writes_no_lines_of_dask(executor: str) -> None:
    """A document that killed five consumers brought six "Restarting worker (status=Status.running)" into the cell."""
    done = subprocess.run(
        [sys.executable, "-c", DEADLY, executor], capture_output=True, text=True, timeout=110, check=True
    )

    assert done.stdout.startswith("1 "), done.stdout
    assert done.stderr == ""
