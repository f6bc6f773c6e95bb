"""What a notebook shows when a call of dqlab raises: the user's lines, and the sentence."""

from __future__ import annotations

import re
import sys
import traceback
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import NoAttribute, rendering
from dqlab.live.details import examples
from dqlab.notebook import with_cells
from dqlab.runs.code.versions import code_version

BROKEN = """
def broken():
    yield 1
    raise LookupError("the share is gone")
"""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shown(connected: Any, capsys: Any) -> Any:
    """Runs a cell that fails; returns what it printed."""

    def run(cell: str) -> str:
        capsys.readouterr()
        connected.fails(cell)
        return COLOURS.sub("", capsys.readouterr().out)

    return run


def test_error_shows_the_users_line_and_the_sentence(connected: Any, shown: Any) -> None:
    """Two hundred lines of our own code hide both."""
    text = shown("def look():\n    return lab.attach('nowhere')\n\nlook()")

    assert "return lab.attach('nowhere')" in text
    assert "----> 4 look()" in text
    assert "RunNotFound: no run named 'nowhere'" in text
    assert "/dqlab/" not in text
    assert "interactiveshell.py" not in text


def test_a_script_shows_the_users_frames_and_the_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence stood below the frames of five files of ours."""
    printed: list[str] = []
    monkeypatch.setattr(rendering, "shell", lambda: None)
    monkeypatch.setattr(sys, "excepthook", lambda *about: printed.extend(traceback.format_exception(*about)))
    with rendering.interruptible(""):
        pass
    for fails in (lambda: dq.nope, lambda: 1 / 0):
        with pytest.raises((NoAttribute, ZeroDivisionError)) as raised:
            fails()
        sys.excepthook(raised.type, raised.value, raised.tb)

    text = "".join(printed)
    assert set(re.findall(r'File "(.*?)"', text)) == {__file__}
    assert "NoAttribute: dqlab has no 'nope'" in text
    assert "ZeroDivisionError" in text
    assert raised.tb is raised.value.__traceback__, "what is not of dqlab is as it was"


@pytest.mark.parametrize(
    "cell",
    [
        "lab.map(len)",
        "lab.map(len, ['a'], retires=3)",
        "lab.submit(len, 'a')",
        "dq.map(len, ['a'], retires=3)",
        "dq.mop(len)",
        "run.result()",
    ],
)
def test_mistake_in_a_call_shows_no_frame_of_ours(connected: Any, shown: Any, cell: str) -> None:
    """A first mistake showed a wrapper of ours, or the module's `__getattr__`."""
    connected.run("import dqlab as dq\nrun = lab.map(len, ['a'])")

    text = shown(cell)

    assert f"----> 1 {cell}" in text
    assert "/dqlab/" not in text
    assert text.count("\n") < 10


def test_debugger_is_given_everything(connected: Any, shown: Any) -> None:
    """`%debug` starts from what the interpreter keeps."""
    shown("lab.attach('nowhere')")

    files = [frame.f_code.co_filename for frame in frames(sys.last_traceback)]

    assert files[-1].endswith("dqlab/runs/run_book.py")


def frames(trace: Any) -> list[Any]:
    """The frames of a traceback, outermost first."""
    return [] if trace is None else [trace.tb_frame, *frames(trace.tb_next)]


@pytest.mark.parametrize("waiting", ["run.wait(timeout=30)", "%dq wait run"])
def test_error_of_the_users_iterable_stays_in_sight(connected: Any, shown: Any, waiting: str) -> None:
    """It is the one to mend, and it was raised in another thread."""
    connected.run(BROKEN)
    connected.run("run = lab.queue('tracebacks').map(abs, broken())")

    text = shown(waiting)

    assert 'raise LookupError("the share is gone")' in text
    assert "direct cause" in text
    assert "SubmissionIncomplete: the input of run" in text
    assert "mapping.py" not in text
    connected.run("lab.queue('tracebacks').close()")


def test_interrupted_connect_shows_one_line(notebook: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """A bare `KeyboardInterrupt` under a page of what waited; whether something was left behind, nothing said."""

    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("dqlab.connecting._make", interrupted)
    for line in ("%dq connect -n 1", "import dqlab; dqlab.connect(n=1)"):
        notebook.shell.run_cell(line)
        text = COLOURS.sub("", capsys.readouterr().out)

        assert "Interrupted: not connected; what was started for it has ended. The same line connects again." in text
        assert "Traceback" not in text


def test_interrupted_wait_shows_one_line(connected: Any, shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty-five lines of what waited say nothing about the run."""

    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    connected.run("run = lab.map(abs, [1], name='interrupted')")
    monkeypatch.setattr("dqlab.runs.run.Run._progress", interrupted)
    for line in ("run.wait()", "run.results()", "list(run.as_completed())"):
        text = shown(line)

        assert text.startswith("Interrupted: no longer waiting for run 'interrupted', which was left as it is.")
        assert text.count("\n") == 1
        assert "lab.attach('interrupted').wait() waits again" in text
        assert "lab.attach('interrupted').cancel() gives it up." in text
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr("dqlab.runs.run.Run.until_over", interrupted)
        text = shown("%dq wait interrupted")
        assert text.startswith("Interrupted: no longer waiting for interrupted; it is done")
        assert text.count("\n") == 1
    connected.run("run.drop()")


@pytest.mark.parametrize(
    ("file", "cell"),
    [
        ("/tmp/ipykernel_77/679148874.py", "<cell>"),
        ("/var/folders/x1/T/ipykernel_77/679148874.py", "<cell>"),
        ("C:\\Temp\\ipykernel_77\\679148874.py", "<cell>"),
        ("<ipython-input-3-5c0dd9a4b1f2>", "cell [3]"),
    ],
)
def test_cell_of_another_kernel_is_a_cell_too(file: str, cell: str) -> None:
    """After a restart, and in a terminal, a traceback led to a file that never was."""
    trace = f'Traceback (most recent call last):\n  File "{file}", line 2, in f\nValueError: é'

    assert with_cells(trace).splitlines()[1] == f"  {cell}, line 2, in f"
    assert with_cells(trace.replace(file, "/home/ana/mine.py")) == trace.replace(file, "/home/ana/mine.py")


def test_function_of_a_submitting_cell_has_the_number_of_its_prompt(connected: Any, shown: Any) -> None:
    """IPython 9 has counted on by the time the cell's own code runs in it: [13] failed in "cell [14]"."""
    number = connected.shell.execution_count
    connected.run("%%dq submit --over [0] --retries 0 --wait -o run\ndef invert(x):\n    return 1 / x")

    assert f"cell [{number}], line 3, in invert" in examples("", list(connected["run"].failures()))[1][0].traceback
    assert code_version(connected["invert"]).cell == number
    assert [version.cell for version in connected["run"].versions] == [number]
    assert f"Cell In[{number + 1}], line 2" in shown("%%dq submit --over [0]\n1 / 0\ndef other(x): return x")
    connected["run"].drop()
