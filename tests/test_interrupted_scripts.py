"""What a script shows when it is interrupted, ends early, or ends its consumers: its own lines, and a sentence."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dqlab as dq
from tests.kit import forking
from tests.kit.sampled import mostly_slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

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


@pytest.mark.slow
def test_a_script_that_ends_before_its_runs_names_them_and_where_their_documents_are(tmp_path: Path) -> None:
    """The sentence named one run and counted the others, though some were in the store and others were lost."""
    said = forking.run(
        [sys.executable, "-c", SEVERAL, str(tmp_path / "runs")], capture_output=True, text=True, timeout=110, check=True
    ).stderr

    for run, where in {"fourth": "lost", "third": "in the store", "second": "lost"}.items():
        assert f"3 of 3 documents of run '{run}' ({where})" in said
    assert "were not done when the cluster ended. What is in the store goes on there" in said


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
    done = forking.run([sys.executable, script, *words], capture_output=True, text=True, timeout=110, check=False)
    said = done.stderr
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT), said
    assert "# the line" in said
    files = {line.split('"')[1] for line in said.splitlines() if line.startswith("  File ")}
    assert files == {str(script)}, said
    return next(line for line in said.splitlines() if line.startswith("KeyboardInterrupt")), said


@pytest.mark.parametrize("waits", mostly_slow(["wait", "results", "as_completed", "ask", "call"], "wait"))
def test_interrupted_script_shows_its_own_lines_and_what_becomes_of_its_run(tmp_path: Path, waits: str) -> None:
    """Ctrl-C printed eight frames of dqlab and of contextlib, and lines that nobody could type any more."""
    sentence, said = interrupted(tmp_path / "script.py", waits, "default")

    left = {"call": "for <PutResult of 1 message", "ask": ""}.get(waits, "for run 'f-1', which was left as it is")
    assert left in sentence
    assert sentence.endswith("KeyboardInterrupt" if waits == "ask" else "Its cluster ends with this script.")
    assert "of 20 documents of run 'f-1' (lost) were not done when the cluster ended" in said


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


READ = """
import sys
import dqlab as dq

def f(x):
    return {"n": x}

def main(lab):
    run = lab.map(f, range(5), name="f-1").wait()
    results = run.results()
    link, raised = type(results._handle.link), []

    def interrupted(*_, **more):
        raise KeyboardInterrupt

    read = {
        "to_frame": results.to_frame,
        "to_arrow": results.to_arrow,
        "list": lambda: list(results),
        "item": lambda: results[3],
        "to_parquet": lambda: run.to_parquet(sys.argv[2]),
        "query": lambda: run.query("select * from results"),
        "join": lambda: run.join(None),
    }[sys.argv[1]]
    import dqlab.datasets.joining
    dqlab.datasets.joining.joined = interrupted
    type(results)._opened = interrupted  # as a page is opened
    read()  # the line

main(dq.connect(n=1))
"""


@pytest.mark.parametrize(
    "read", mostly_slow(["to_frame", "to_arrow", "list", "item", "to_parquet", "query", "join"], "to_frame")
)
def test_interrupted_reading_shows_the_line_and_one_sentence(tmp_path: Path, read: str) -> None:
    """It was a bare KeyboardInterrupt below a line of a file "<string>"."""
    script = tmp_path / "script.py"
    script.write_text(READ)
    done = forking.run(
        [sys.executable, script, read, str(tmp_path / "out")], capture_output=True, text=True, timeout=110, check=False
    )

    said = done.stderr.splitlines()
    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT), said
    assert {line.split('"')[1] for line in said if line.startswith("  File ")} == {str(script)}, said
    assert [line for line in said if line.startswith("KeyboardInterrupt")] == [
        "KeyboardInterrupt: no longer reading results of run 'f-1', which was left as it is. "
        "Its cluster ends with this script."
    ]


IMPORTING = """
import os, signal, sys
import dqlab as dq

class Interrupts:
    def find_spec(self, name, *more):
        if name == "distributed":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
dq.connect(n=1)  # the line
"""


def test_interrupt_while_connect_imports_shows_the_scripts_own_line(tmp_path: Path) -> None:
    """It was 23 to 33 lines, of the frames of imports."""
    script = tmp_path / "script.py"
    script.write_text(IMPORTING)

    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode in (-signal.SIGINT, 128 + signal.SIGINT), done.stderr
    files = [line.split('"')[1] for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert set(files) == {str(script)}, done.stderr
    assert "# the line" in done.stderr


IMPORTING_IN_A_CELL = """
import os, signal, sys
from IPython.core.interactiveshell import InteractiveShell

class Interrupts:
    def find_spec(self, name, *more):
        if name == "distributed":
            os.kill(os.getpid(), signal.SIGINT)

shell = InteractiveShell.instance()
shell.run_cell("import dqlab as dq")
sys.meta_path.insert(0, Interrupts())
shell.run_cell("lab = dq.connect(n=1)")
"""


def test_interrupt_while_connect_imports_is_one_line_below_a_cell(tmp_path: Path) -> None:
    """Without `%load_ext dqlab` it was 55 to 140 lines of imports."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING_IN_A_CELL],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )

    assert done.stdout.strip().splitlines() == ["Interrupted: nothing was started; call it again"], done.stdout
