"""`%dq` and `%%dq` as people write them, in a real shell on a real cluster."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.error import UsageError
from traitlets import TraitError

import dqlab as dq
from dqlab.errors import DqlabWarning, RunExists
from dqlab.live.display import Mode, mode
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest

FAILING = """
%%dq submit --over [4, 0, 2, 0] --name {name} --retries 0 --wait -o run
def divide(x):
    return 8 / x
"""


@pytest.fixture
def failed(connected: Any, queue_name: str) -> Any:
    """A notebook in which a run of four documents has two dead ones."""
    connected.run(FAILING.format(name=f"fails-{queue_name}").strip())
    return connected


# --- submitting --------------------------------------------------------------------------------


def test_last_function_of_the_cell_is_mapped_and_stays(connected: Any) -> None:
    """The cell is where people write and mend it."""
    connected.run(
        "%%dq submit --over range(5) -o run\nhalf = 2\n\ndef one(x): return x\n\ndef double(x): return half * x"
    )

    assert list(connected["run"].results()) == [0, 2, 4, 6, 8]
    assert connected["double"](21) == 42
    assert inspect.getsource(connected["double"]) == "def double(x): return half * x\n"


def test_function_of_a_cell_runs_in_processes_when_it_is_limited(connected: Any) -> None:
    """What a parser may do to its process, the cell says in the line that submits it."""
    connected.run(
        "%%dq submit --over range(3) --timeout 20s --memory 2GB --max-messages-per-process 9 --retries 0 -w -o run\n"
        "import os\ndef parse(x): return os._exit(9) if x == 1 else x"
    )

    run = connected["run"]
    assert list(run.results(errors="skip")) == [0, 2]
    assert "ended itself with exit status 9" in run.failures()[0].message


def test_submission_that_attaches_to_a_run_that_goes_on_says_so(
    connected: Any, queue: dq.QueuePool, capsys: Any, tmp_path: Any
) -> None:
    """ "Nothing runs again" was all that was said while 51 documents still ran."""
    connected["gate"] = str(tmp_path / "gate")
    connected.run("import pathlib, time\ndef held(x):\n    while not pathlib.Path(gate).exists(): time.sleep(0.02)")
    connected.run("%dq submit held --over range(7) --name held --on-existing new -o run")
    capsys.readouterr()

    connected.run("%dq submit held --over range(7) --name held -o run")
    said = capsys.readouterr().out
    (tmp_path / "gate").touch()

    assert "Attached to run 'held' (7 documents, 7 of them not done yet: they go on); nothing runs again" in said
    connected["run"].wait(timeout=30)


def test_submission_of_other_documents_is_refused_while_the_first_goes_on(
    connected: Any, queue: dq.QueuePool, capsys: Any
) -> None:
    """Wrong pattern, edited at once: the cell showed the old documents' run as that of the new ones."""
    goes_on = threading.Event()

    def listing() -> Iterator[int]:
        yield from range(3)
        goes_on.wait(30)

    connected["listing"] = listing()
    try:
        connected.run("%dq submit abs --over listing --name slow --on-existing new -o run")
        connected.run("%dq submit abs --over range(10) --name slow -o run")
        said = capsys.readouterr().out
        assert "so far" in said
        assert "nothing runs again" in said
    finally:
        goes_on.set()
    with pytest.raises(RunExists, match="these are more"):
        connected.run("run.wait(timeout=30)")
    connected.run("run")
    assert "these are more" in capsys.readouterr().out


def test_variables_of_a_function_are_seen(connected: Any) -> None:
    """`%dq` inside a function works on what is around it."""
    connected.run(
        "def go(values):\n    run = %dq submit abs --over [v - 1 for v in values] --wait\n    return run.results()"
    )

    assert list(connected.run("go([0, 1, 2])")) == [1, 0, 1]


def test_cell_that_raises_submits_nothing(connected: Any, lab: dq.Lab, capsys: Any) -> None:
    """Its own traceback is shown, and the line says what did not happen."""
    before = len(lab.runs)

    error = connected.fails("%%dq submit --over range(3)\ndef f(x): return x\n1 / 0")

    assert "raised ZeroDivisionError" in str(error)
    assert "division by zero" in capsys.readouterr().out
    assert len(lab.runs) == before


def test_cell_without_function_is_not_run(connected: Any) -> None:
    """There is nothing to map, and half-run cells help nobody."""
    error = connected.fails("%%dq submit --over range(3)\nx = 5")

    assert "defines no function" in str(error)
    assert "x" not in connected.shell.user_ns


@pytest.mark.parametrize(
    ("line", "run"),
    [
        ("--over nowhere", True),
        ("--over 5", True),
        ("--over [1] --name a/b", True),
        ("--over [1] --timeout soon", True),
        ("--over [1] -o defined_here", True),
        ("--over [1] --retires 3", False),
        ("--over [1] --executor fibre", False),
        ("defined_here --over [1]", False),
    ],
)
def test_refused_submission_says_whether_its_cell_was_run(connected: Any, lab: dq.Lab, line: str, run: bool) -> None:
    """Its definitions were there, and "Nothing was done" was what it said."""
    before = len(lab.runs)

    said = str(connected.fails(f"%%dq submit {line}\ndef defined_here(x): return x"))

    assert said.endswith(" The cell was run; nothing was submitted." if run else " The cell was not run.")
    assert ("defined_here" in connected.shell.user_ns) is run
    assert "Nothing was done" not in said
    assert said.lower().count("nothing was submitted") == run
    assert len(lab.runs) == before


def test_cell_that_is_not_python_shows_where(connected: Any, capsys: Any) -> None:
    """The syntax error is Python's own, with its caret."""
    error = connected.fails("%%dq submit --over range(3)\ndef f(x: return x")

    assert "raised SyntaxError" in str(error)
    assert "def f(x: return x" in capsys.readouterr().out


# --- values ------------------------------------------------------------------------------------


def test_line_has_the_value_of_its_twin(failed: Any) -> None:
    """`x = %dq failed` is `x = run.failures()`."""
    failures = failed.run("f = %dq failed\nf")

    assert [letter.error for letter in failures] == ["ZeroDivisionError"] * 2
    assert list(failed.run("%dq results --errors skip")) == [2.0, 4.0]
    assert failed.run("%dq results --table").to_pandas()["value"].tolist() == [2.0, 4.0]


def test_failed_prints_classes_and_lines_that_can_be_run(failed: Any, capsys: Any) -> None:
    """What stands below the table is typed next: as it stands there, it works."""
    until(lambda: failed["run"].stats().classes)  # where a lab has many runs, an end is not waited for
    capsys.readouterr()
    failed.run("%dq failed")

    lines = capsys.readouterr().out.splitlines()
    assert any("ZeroDivisionError" in line and "100 %" in line for line in lines), lines
    show = next(line.strip() for line in lines if "%dq show" in line)
    assert failed.run(show).error == "ZeroDivisionError"


def test_out_stores_the_value_and_shows_nothing(failed: Any, capsys: Any) -> None:
    """The last line of a cell otherwise shows itself."""
    capsys.readouterr()

    value = failed.run("%dq failed -o dead")

    assert value is None
    assert len(failed["dead"]) == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "line",
    [
        "%dq submit invert --over [1,0] --name ended --on-existing new --retries 0 -w -o ended",
        "%dq wait ended -o again",
    ],
)
def test_wait_that_stores_the_run_says_how_it_ended(connected: Any, capsys: Any, line: str) -> None:
    """With -o the run does not show itself: six dead documents of a run that "is done" went by unseen."""
    connected.run("def invert(x):\n    return 1 / x")
    connected.run("%dq submit invert --over [1,0] --name ended --on-existing new --retries 0 -o run")
    connected["run"].wait(timeout=30)
    capsys.readouterr()

    connected.run(line)

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("ended  done, 1 dead  2 documents in ")


def test_semicolon_keeps_a_value_from_showing_itself(failed: Any, capsys: Any) -> None:
    """As at the end of any cell."""
    capsys.readouterr()

    failed.run("%dq wait;")

    assert capsys.readouterr().out == ""


def test_run_is_named_by_name_or_variable_or_not_at_all(failed: Any) -> None:
    """The last run is meant most of the time."""
    run = failed["run"]

    assert failed.run("%dq wait") is run
    assert failed.run("%dq wait run") is run
    assert failed.run(f"%dq wait {run.name}") is run


def test_run_attached_to_again_is_the_last_one(connected: Any) -> None:
    """It is the one on the screen, though another was made after it."""
    connected.run("%dq submit abs --over range(2) --name older --wait -o older")
    connected.run("%dq submit abs --over range(2) --name newer --wait -o newer")

    connected.run("%dq submit abs --over range(2) --name older --wait -o again")

    assert connected.run("%dq wait").name == "older"


def test_status_shows_every_queue(failed: Any, queue: dq.QueuePool, capsys: Any) -> None:
    """As text for people, not as the object that it is."""
    snapshot = failed.run("%dq status")

    shown = capsys.readouterr().out
    assert snapshot.queue(queue.name) is not None
    assert queue.name in shown
    assert "Snapshot(" not in shown


def test_runs_lists_those_of_other_clients_too(failed: Any, lab: dq.Lab, capsys: Any) -> None:
    """After a restart of the kernel `lab.runs` is empty, and the runs are still there."""
    run, other = failed["run"], lab.queue("listed").map(abs, range(3), name="listed-run", on_existing="new")
    other.wait(timeout=30)
    lab.session.runs._runs.clear()  # as in a process that made none

    found = failed.run("%dq runs")

    assert {run.name, "listed-run"} <= {each.name for each in found}
    assert lab.runs == []
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("listed-run"))
    assert line.split()[1:4] == ["done", "100", "%"]
    assert "abs v1" in line
    other.drop()


def test_drop_says_what_it_would_delete_first(failed: Any, lab: dq.Lab, capsys: Any) -> None:
    """As `cancel` does: results are gone for good."""
    run = failed["run"]
    capsys.readouterr()

    failed.run(f"%dq drop {run.name}")
    assert "2 results and 2 failures would be deleted permanently. To do it: add -y" in capsys.readouterr().out
    assert run.counts["dead"] == 2

    failed.run(f"%dq drop {run.name} -y")
    assert f"{run.name} is dropped: 2 results and 2 failures deleted" in capsys.readouterr().out
    assert run.name not in {each.name for each in lab.all_runs()}
    assert "arguments are required: RUN" in str(failed.fails("%dq drop -y"))


# --- failures ----------------------------------------------------------------------------------


def test_retry_takes_the_function_as_it_is_defined_now(failed: Any, capsys: Any) -> None:
    """Edit the cell, run it, retry: no names to repeat."""
    failed.run("def divide(x):\n    return 8 / x if x else None")

    failed.run("%dq retry -o again")

    assert failed["again"] == 2
    assert "2 documents sent again with divide as it is defined now" in capsys.readouterr().out
    assert list(failed["run"].results()) == [2.0, None, 4.0, None]


def test_retry_takes_limits_and_a_note(failed: Any, capsys: Any) -> None:
    """The same words as of `submit`."""
    failed.run("%dq retry --memory 1GB --timeout 60 --note 'in a process' --where \"error == 'ZeroDivisionError'\"")

    assert "(in a process)" in capsys.readouterr().out
    run = failed["run"]
    assert run.wait(timeout=60).versions[-1].note == "in a process"
    assert run.record()["codes"][-1]["process"]["timeout"] == 60


def test_retry_without_the_function_uses_the_code_it_had(failed: Any, capsys: Any) -> None:
    """A notebook that only attached has no function of that name."""
    del failed.shell.user_ns["divide"]

    failed.run("%dq retry --out again")

    assert "with the code it had; no divide is defined here" in capsys.readouterr().out
    assert failed["run"].wait().counts["dead"] == 2


def test_dead_document_is_found_and_shown(failed: Any, capsys: Any) -> None:
    """Its error, its traceback, and what it was."""
    letter = failed.run("%dq show 1")

    shown = capsys.readouterr().out
    assert (letter.ordinal, letter.document, letter.deliveries) == (1, 0, 1)
    assert "ZeroDivisionError: division by zero" in shown
    assert "in divide" in shown
    assert failed.run(f"%dq show {letter.id}").id == letter.id


# --- stopping ----------------------------------------------------------------------------------


def test_cancel_asks_first(connected: Any, queue: dq.QueuePool, capsys: Any) -> None:
    """What is given up does not come back."""
    connected.run(f"%dq pause {queue.name}")
    connected.run("%dq submit abs --over range(9) -o run")

    connected.run("%dq cancel")
    said, left = capsys.readouterr().out, connected["run"].counts["ready"]
    given_up = connected.run("%dq cancel -y")

    assert "9 documents without a result would be cancelled" in said
    assert (left, given_up) == (9, 9)
    assert connected["run"].counts["cancelled"] == 9


def test_paused_run_goes_on(connected: Any, queue: dq.QueuePool) -> None:
    """Runs and queues are paused by the same word."""
    connected.run(f"%dq pause {queue.name}")
    connected.run("%dq submit abs --over range(9) -o run")
    connected.run("%dq pause run")
    connected.run(f"%dq resume {queue.name}")
    assert connected["run"].counts["acked"] == 0

    connected.run("%dq resume")

    assert len(connected["run"].results(timeout=30)) == 9


def test_two_labs_must_be_told_apart(notebook: Any, lab: dq.Lab) -> None:
    """A line that acts on the wrong cluster is worse than one that asks."""
    notebook["first"], notebook["second"] = lab, dq.Lab(lab.client)

    error = notebook.fails("%dq status")

    assert "several labs are open: first, second. Say which: %dq connect first" in str(error)


def test_names_that_ipython_gives_to_what_cells_show_are_no_labs_of_the_user(notebook: Any, lab: dq.Lab) -> None:
    """ "several labs are open: _23, lu, x2" named one that nobody had named."""
    notebook["lab"], notebook["_23"] = lab, dq.Lab(lab.client)

    assert notebook.run("%dq status").lab == lab.stats().lab


# --- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("%dq staus", "%dq has no command 'staus'. Did you mean status?"),
        ("%dq submit abs --ovr x", "%dq submit has no option --ovr. Did you mean --over?"),
        ("%dq submit abs --over nowhere", "--over nowhere: NameError: name 'nowhere' is not defined"),
        ('%dq submit abs --over "nowhere/*.txt"', "nowhere"),
        ("%dq submit lab --over [1]", "lab is a Lab, not a function"),
        ("%dq submit --over [1]", "which function?"),
        ("%dq submit abs --over 5", "cannot be iterated"),
        ("%dq submit abs --over [1] --name a/b", "Try 'a-b'"),
        ("%dq submit abs --over [1", "never closed"),
        ("%%dq status\n1", "only %%dq submit and %%dq compare take a cell"),
        ("%%dq submit abs --over [1]\ndef f(x): return x", "only %%dq submit and %%dq compare take a cell"),
        ("%dq wait --timeout soon", "Write seconds, or '90s'"),
    ],
)
def test_mistake_is_one_line_without_traceback(connected: Any, capsys: Any, line: str, said: str) -> None:
    """Our own frames would tell a user nothing."""
    connected.run("%dq submit abs --over [1] --wait -o run")
    capsys.readouterr()

    error = connected.fails(line)

    shown = capsys.readouterr()
    assert isinstance(error, UsageError)
    assert said in shown.err
    assert shown.err.count("\n") == 1
    assert "Traceback" not in shown.out


def test_error_of_a_run_is_one_line_and_keeps_its_type(failed: Any, capsys: Any) -> None:
    """`except dq.RunFailed` works around a magic as around the call."""
    capsys.readouterr()

    error = failed.fails("%dq results")

    shown = capsys.readouterr().out
    assert isinstance(error, dq.RunFailed)
    assert shown.startswith("RunFailed: 2 of 4 documents of run")
    assert shown.count("\n") == 1


# --- the extension -----------------------------------------------------------------------------


def test_display_is_chosen_by_config(notebook: Any) -> None:
    """Also in a configuration file, as for any other magic."""
    assert notebook.run("%config DQMagics.display") == "static"

    notebook.run("%config DQMagics.display = 'text'")

    assert mode() is Mode.TEXT
    with pytest.raises(TraitError, match="'live', 'static', 'text'"):
        notebook.shell.magics_manager.registry["DQMagics"].display = "colourful"


def test_help_is_shown_by_the_question_mark(notebook: Any, capsys: Any) -> None:
    """`%dq?`, `%dq` and `%dq -h` are the same manual."""
    notebook.run("%dq")
    manual = capsys.readouterr().out.strip()
    notebook.run("%dq -h")

    assert capsys.readouterr().out.strip() == manual
    assert notebook.shell.find_line_magic("dq").__doc__ == manual
    assert notebook.shell.find_cell_magic("dq").__doc__ == manual


def test_loading_again_leaves_one_of_everything(notebook: Any) -> None:
    """`%reload_ext` is what people do after an upgrade."""
    shell = notebook.shell
    counts = len(shell.Completer.custom_matchers), len(shell.configurables)

    notebook.run("%reload_ext dqlab")

    assert (len(shell.Completer.custom_matchers), len(shell.configurables)) == counts


def test_unloading_takes_the_magic_away(notebook: Any) -> None:
    """A kernel is left as it was."""
    notebook.run("%unload_ext dqlab")

    assert notebook.shell.find_line_magic("dq") is None
    notebook.run("%load_ext dqlab")


@pytest.mark.usefixtures("connected")
def test_a_warning_of_dqlab_is_its_sentence_alone() -> None:
    """The path of our source, and a line of it, stood around every sentence; others keep theirs."""
    own = warnings.formatwarning(DqlabWarning("look out"), DqlabWarning, "/x/lab.py", 7)
    others = warnings.formatwarning(UserWarning("look out"), UserWarning, "/x/lab.py", 7)

    assert own == "look out\n"
    assert others.startswith("/x/lab.py:7: UserWarning: look out")


def test_documents_are_shown_before_they_are_submitted(connected: Any, tmp_path: Path, capsys: Any) -> None:
    """What a line is about to run over, with the line that runs it."""
    for at in range(6):
        (tmp_path / f"{at}.txt").write_text("text")
    connected["papers"] = dq.Documents.from_glob(tmp_path / "*.txt")

    connected.run("%dq documents papers[1:]")
    printed = capsys.readouterr().out
    connected.run("%dq documents [papers[0]] -o one")

    assert "1.txt" in printed
    connected.run("%dq documents papers")
    assert "%%dq submit --over papers --watch -o run" in capsys.readouterr().out
    assert list(connected["one"]) == [connected["papers"][0]]
    assert capsys.readouterr().out == ""
    with pytest.raises(UsageError, match="from_glob"):
        connected.run("%dq documents str(5)")


def test_files_are_named_where_documents_are_expected(connected: Any, tmp_path: Path) -> None:
    """So that one cell has all: run on another day, it takes the files of that day."""
    for at in range(3):
        (tmp_path / f"{at}.txt").write_text("text")

    connected.run(f"%dq submit repr --over '{tmp_path}/*.txt' --wait -o run")
    connected.run(f"%dq documents {tmp_path}/*.txt -o listed")

    assert [doc.key for doc in connected["listed"]] == [key for key, _ in connected["run"].results().items()]


def test_the_last_class_of_a_cell_with_a_call_is_mapped_in_batches(connected: Any) -> None:
    connected.run("docs = list(range(100))")
    connected.run(
        "%%dq submit --over docs --batch 16 -o run -w\n"
        "class Twice:\n"
        "    def __init__(self, factor=2):\n"
        "        self.factor = factor\n"
        "    def __call__(self, docs):\n"
        "        return [self.factor * doc for doc in docs]\n"
    )
    assert connected.run("list(run.results())") == list(range(0, 200, 2))
    assert "number nor `auto`" in str(connected.fails("%dq submit len --over docs --batch many"))
