"""The edited cell, run again: the run in view, a choice of lines or buttons, and no red error."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import RunExists
from dqlab.jupyter.prompts import Choice
from dqlab.testing import Gate

CELL = "%%dq submit --over {over} --name edited --retries 0 {more} -o run\ndef invert(x): return {body}"


def write(notebook: Any, body: str, *, more: str = "", over: str = "[1, 0]") -> None:
    notebook.run(CELL.format(more=more, body=body, over=over))


@pytest.fixture
def edited(connected: Any, capsys: Any) -> Any:
    """A run with one dead document of two, and its cell run again with other code."""
    write(connected, "1 / x", more="--wait --on-existing new")
    capsys.readouterr()
    write(connected, "x and 1 / x")
    return connected


def test_edited_cell_shows_the_run_and_says_how_to_go_on(edited: Any, capsys: Any) -> None:
    """README promises this loop; it ended in a red error, and the view was gone."""
    said = capsys.readouterr().out

    assert "edited: this run exists with other code (invert)." in said
    assert "invert is defined as in this cell now. Choose:" in said
    assert "    %dq retry edited --fn invert    # its 1 failed document with this code" in said
    assert "    --on-existing new " in said
    assert "--rest" not in said  # nothing waits
    assert "on_existing=" not in said
    assert edited["invert"](0) == 0
    assert edited["run"].name == "edited"


def test_results_of_an_edited_cell_are_refused_until_the_user_has_chosen(edited: Any) -> None:
    """The next cell of a "Run All" must not go on with yesterday's results."""
    run = edited["run"]

    with pytest.raises(RunExists, match="%dq retry edited --fn invert"):
        run.results(errors="skip")
    edited.run("%dq retry edited --fn invert")

    assert list(run.results(timeout=20)) == [1.0, 0]


@pytest.mark.parametrize(("option", "versions"), [("retry-failed", 2), ("new", 1)])
def test_option_chooses_beforehand(edited: Any, option: str, versions: int) -> None:
    """Who knows what he wants writes it into the line."""
    write(edited, "x and 1 / x", more=f"--wait --on-existing {option}")

    assert list(edited["run"].results()) == [1.0, 0]
    assert len(edited["run"].versions) == versions


PRESSES: dict[str, tuple[Callable[[Choice], str], str]] = {
    "Retry failed documents with this code": (Choice.retry, "Retried 1 document with invert v2 at "),
    "Compare on a sample": (Choice.compare, "1 newly works"),
    "Start over": (Choice.start_over, "edited was started over at "),
    "Keep it": (Choice.keep, "edited was kept, with the results of the code it had"),
}


@pytest.mark.parametrize("label", PRESSES)
def test_button_does_what_it_says(
    edited: Any, lab: dq.Lab, label: str, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One click, in place of reading an error and typing a line; a live view of the run follows it."""
    shown: list[dq.Run] = []
    monkeypatch.setattr("dqlab.jupyter.prompts.watch", shown.append)
    invert = edited["invert"]
    choice = Choice(
        edited["run"],
        invert,
        lambda: queue.map(invert, [1, 0], name="edited", on_existing="new"),
        lambda: lab.attach("edited"),
        lambda: lab.attach("edited").compare(invert, sample=300),
    )
    assert list(choice.labels) == list(PRESSES)

    said = choice.labels[label]()

    assert PRESSES[label][1] in said
    made = [1.0] if label in ("Compare on a sample", "Keep it") else [1.0, 0]
    assert list(lab.attach("edited").results(errors="skip", timeout=20)) == made
    assert [run.name for run in shown] == ([] if label == "Compare on a sample" else ["edited"])


def test_button_wakes_the_view_that_the_cell_has(edited: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one took its place in an output that need not show it, and left it at "done, 76 dead"."""
    woken: list[dq.Run] = []
    monkeypatch.setattr("dqlab.jupyter.prompts.look_again", lambda run: woken.append(run) is None)
    monkeypatch.setattr("dqlab.jupyter.prompts.watch", lambda run: pytest.fail("a second view"))

    Choice(edited["run"], edited["invert"], lambda: edited["run"], lambda: edited["run"], str).retry()

    assert woken == [edited["run"]]


def test_after_starting_over_the_cells_variable_and_the_lines_speak_of_the_new_run(
    connected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next cell is `run.results()`: it met the run that the button had just dropped."""
    offered: list[Choice] = []
    monkeypatch.setattr("dqlab.jupyter.commands.offer", lambda choice, *_: offered.append(choice))
    write(connected, "1 / x", more="--wait --on-existing new")
    write(connected, "x and 1 / x")
    connected.run("mine, other = run, 'other'")

    offered[0].start_over()

    assert list(connected["run"].results(timeout=20)) == [1.0, 0]
    assert list(connected.run("%dq results")) == [1.0, 0]
    assert connected["mine"] is connected["run"]
    assert connected["other"] == "other"


def test_rest_of_a_run_gets_the_new_code(connected: Any, tmp_path: Path, capsys: Any) -> None:
    """After a retry in mid-run the head said v2, while what waited ran v1 to its end."""
    gate = Gate(tmp_path)
    connected["gate"] = gate
    write(connected, "(gate.wait(), 'old')[1]", over="range(300)", more="--on-existing new")
    gate.until_arrived(1)
    write(connected, "'new'", over="range(300)")
    said = capsys.readouterr().out
    assert "%dq retry edited --fn invert --rest" in said

    connected.run("%dq retry edited --fn invert")
    assert "--rest gives documents that wait this code too" in capsys.readouterr().out
    connected.run("%dq retry edited --fn invert --rest")
    assert "the rest of the run has this code too" in capsys.readouterr().out
    running = connected["run"].counts["leased"]  # a few, or some more where the first ones took long to start
    gate.open()

    values = list(connected["run"].results(timeout=40))
    assert len(values) == 300
    assert values.count("old") <= running < 150
    assert values.count("new") >= 300 - running


def test_cell_names_what_could_not_be_compared(connected: Any, capsys: Any) -> None:
    """In the words of a line, each time it is run."""
    connected.run(
        "class Opaque:\n    def __reduce_ex__(self, protocol):\n        if protocol == 4: raise TypeError\n"
        "        return Opaque, ()\nmodel = Opaque()"
    )
    cell = "%%dq submit --over range(2) --name opaque --wait -o run\ndef f(x): return model is None"
    connected.run(cell)
    assert "cannot compare" not in capsys.readouterr().out
    for _ in range(2):
        connected.run(cell)
        assert "cannot compare `model`: use --on-existing new if it changed" in capsys.readouterr().out


def test_lines_that_name_an_edited_run_refuse_its_old_results_until_it_is_kept(edited: Any) -> None:
    """They gave them out, in silence: the name stands for what the cell above has just mapped."""
    for line in ("%dq results edited", "%dq wait edited", "%dq results"):
        error = edited.fails(line)
        assert isinstance(error, RunExists), line
        assert "%dq attach edited" in str(error)

    edited.run("%dq attach edited -o kept")

    assert list(edited.run("%dq results edited --errors skip")) == [1.0]
    assert list(edited["kept"].results(errors="skip")) == [1.0]


def test_each_refusal_has_the_traceback_of_its_own_cell(edited: Any) -> None:
    """One error object was raised again and again, and showed the lines of all cells that had asked."""
    first, second = edited.fails("run.results()"), edited.fails("run.wait()")

    assert first is not second
    lines = [frame.line for frame in traceback.extract_tb(second.__traceback__)]
    assert "run.wait()" in lines
    assert "run.results()" not in lines


def test_variable_holds_the_new_run_also_when_waiting_for_it_fails(connected: Any) -> None:
    """The advice of the error says `run.failures()`: of this run, and not of the one before."""
    connected.run("%dq submit len --over ['a','bb'] --name good -w -o run")
    connected.fails("%dq submit len --over (1/0 for _ in 'ab') --name bad -w -o run")

    assert connected["run"].name == "bad"


def test_a_cell_whose_folder_has_grown_offers_an_update(
    connected: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the cell, and what it would do; it was an error, and only at `wait`."""
    offered: list[Choice] = []
    monkeypatch.setattr("dqlab.jupyter.commands.offer", lambda choice, *_: offered.append(choice))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    connected["docs"] = dq.Documents.from_glob(f"{tmp_path}/*.txt")
    cell = "%%dq submit --over docs --name grown-folder {}-o run\ndef read(document): return document.text(){}"
    connected.run(cell.format("-w ", ""))
    (tmp_path / "c.txt").write_text("c.txt")
    connected.run(cell.format("", ""))

    assert list(offered[0].labels) == ["Update", "Start over", "Keep it"]
    with pytest.raises(RunExists, match="--on-existing update"):  # the next cell must not take yesterday's for today's
        connected["run"].results()
    monkeypatch.setattr("dqlab.jupyter.prompts.watch", lambda run: None)
    assert "1 new, 0 changed, 0 gone; 2 kept" in offered[0].update()
    assert sorted(connected["run"].results(timeout=20)) == ["a.txt", "b.txt", "c.txt"]
    connected.run(
        "%%dq compare grown-folder -o found\ndef other(document): return document.text()"
    )  # the run by its name
    assert connected["found"].counts["equal"] == 3
    capsys.readouterr()
    connected.run(cell.format("-w ", ""))  # nothing is left to do
    assert "run 'grown-folder': nothing to do, 3 documents listed at" in capsys.readouterr().out
    assert len(connected["run"].results()) == 3

    (tmp_path / "d.txt").write_text("d.txt")  # the code as well
    connected.run(cell.format("", ".upper()"))
    assert list(offered[1].labels) == ["Start over", "Compare on a sample", "Update", "Keep it"]
    offered[1].update()
    assert sorted(connected["run"].results(timeout=20)) == ["D.TXT", "a.txt", "b.txt", "c.txt"]


def test_a_line_updates_a_run_from_what_it_was_mapped_over(connected: Any, capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    connected["docs"] = dq.Documents.from_glob(f"{tmp_path}/*.txt")
    connected.run("%%dq submit --over docs --name lined -w -o run\ndef read(document): return document.text()")
    (tmp_path / "b.txt").write_text("b")
    capsys.readouterr()

    assert connected.run("%dq update lined --plan") is None
    assert "run 'lined': 1 new, 0 changed, 0 gone; 1 kept" in capsys.readouterr().out
    assert connected.run("%dq update lined -o plan --plan") is None
    assert len(connected["plan"].new) == 1
    connected.run("%dq update lined;")
    assert list(connected["run"].wait().results()) == ["a", "b"]
    (tmp_path / "a.txt").unlink()
    connected.run("%dq update lined --keep-gone --trust size --over docs;")
    assert "nothing to do, 1 document listed" in capsys.readouterr().out.splitlines()[-1]
    connected.run("%dq submit len --over iter(['a']) --name once -w;")
    assert "can be read only once. Name its documents: --over" in str(connected.fails("%dq update once"))
