"""What of a run can be made Python: cells and lines."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.live.offers import NotebookNames, names_here, offers, run_here
from dqlab.stats import CodeStats, RunStats
from tests.live.conftest import CODE

LETTER = SimpleNamespace(id=7, key="lux/contract 7.pdf")


def test_cells_call_things_as_the_notebook_does(done: RunStats) -> None:
    """A line that raises NameError is worse than none."""
    made = offers(done, CODE, NotebookNames(run="invoices", lab="here"), newer=True)

    clean = replace(done, counts=replace(done.counts, dead=0))
    assert offers(clean, CODE, NotebookNames(run="invoices", lab="here")).results == "invoices.results()"
    assert made.python[:2] == ("invoices.retry(parse)", "invoices.retry(parse, limit=100)")
    assert offers(clean, CODE, NotebookNames(lab="here")).results == "here.attach('parse-invoices').results()"
    assert offers(clean, CODE, NotebookNames(lab="here", magic=True)).results == "%dq results parse-invoices"


def test_results_of_a_run_with_dead_documents_leave_them_out_and_say_so(done: RunStats) -> None:
    """The button inserted a cell that raised RunFailed."""
    dead = done.counts.dead
    note = f"# without the documents that have no result: {dead} dead\n"

    named = offers(done, CODE, NotebookNames(run="run"))
    assert named.results == f'{note}run.results(errors="skip").to_frame()'
    assert 'run.results(errors="skip").to_frame()' in named.python
    line = offers(done, CODE, NotebookNames(lab="here", magic=True)).results
    assert line == f"{note}%dq results parse-invoices --errors skip"
    cancelled = replace(done, counts=replace(done.counts, dead=0, cancelled=3))
    assert offers(cancelled, CODE, NotebookNames(run="run")).results.startswith(
        "# without the documents that have no result: 3"
    )


def test_python_of_a_run_is_what_can_be_done_to_it_now(running: RunStats, done: RunStats) -> None:
    """Each action has its twin, so that a click can become a cell."""
    names = NotebookNames(run="run")
    assert "run.pause()" in offers(running, CODE, names).python
    assert "run.pause()" not in offers(done, CODE, names).python
    clean = replace(done, counts=replace(done.counts, dead=0))
    assert not any("retry" in line for line in offers(clean, CODE, names).python)


def test_the_function_of_a_run_is_a_cell_where_its_source_is_known(done: RunStats) -> None:
    """To be edited, which is how a run is mended."""
    made = offers(done, CODE, NotebookNames())
    assert (made.label, made.code) == ("Insert cell with parse()", CODE.rstrip())
    assert offers(done, CODE, NotebookNames(), newer=True).label == f"Insert cell with parse() v{done.code.version}"
    assert offers(done, None, NotebookNames()).label == ""
    unnamed = replace(done, code=CodeStats("<lambda>", "ab", 1, 1))
    assert offers(unnamed, "lambda x: x", NotebookNames()).label == ""


def test_a_dead_document_is_opened_and_given_to_the_function(done: RunStats, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its key, which any later run over it has too: an id was another message's when the run was started over."""
    monkeypatch.setattr(sys.modules["__main__"], "parse", len, raising=False)
    _, opened, called = run_here(LETTER, done, NotebookNames(magic=True)).split("\n")
    assert opened == "%dq show 'lux/contract 7.pdf' parse-invoices -o letter"
    assert called == "parse(letter.document)"

    _, opened, _ = run_here(LETTER, done, NotebookNames(run="run")).split("\n")
    assert opened == "letter = next(each for each in run.failures() if each.key == 'lux/contract 7.pdf')"

    ordinal: Any = SimpleNamespace(id=7, key=3)
    _, opened, _ = run_here(ordinal, done, NotebookNames(magic=True)).split("\n")
    assert opened == "%dq show 3 parse-invoices -o letter"
    _, opened, _ = run_here(ordinal, done, NotebookNames(run="run")).split("\n")
    assert opened == "letter = next(each for each in run.failures() if each.key == 3)"


def test_a_kernel_without_the_function_or_its_helper_takes_the_one_that_was_sent(
    done: RunStats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart the cell was a NameError: of the function, or of a helper whose cell was not run again."""
    main = sys.modules["__main__"]
    stored = "run.function(letter.version)(letter.document)"

    assert run_here(LETTER, done, NotebookNames(run="run")).split("\n")[2] == stored
    assert run_here(LETTER, done, NotebookNames(magic=True, lab="mine")).split("\n")[2] == (
        "mine.attach('parse-invoices').function(letter.version)(letter.document)"
    )
    exec("def parse(document):\n    return missing_helper(document)", vars(main))
    monkeypatch.setattr(main, "parse", main.parse)  # taken away at the end
    assert run_here(LETTER, done, NotebookNames(run="run")).split("\n")[2] == stored
    monkeypatch.setattr(main, "missing_helper", len, raising=False)
    assert run_here(LETTER, done, NotebookNames(run="run")).split("\n")[2] == "parse(letter.document)"
    monkeypatch.undo()
    del main.parse


def test_a_key_that_no_line_can_hold_is_named_by_its_message(done: RunStats) -> None:
    """A cut one may be that of several documents."""
    long: Any = SimpleNamespace(id=7, key="x" * 200)
    _, opened, _ = run_here(long, done, NotebookNames(magic=True)).split("\n")
    assert opened.startswith("%dq show 7 parse-invoices -o letter    # xxx")
    other: Any = SimpleNamespace(id=7, key=("a", 1))
    _, opened, _ = run_here(other, done, NotebookNames(run="run")).split("\n")
    assert opened == "letter = next(each for each in run.failures() if each.id == 7)    # ('a', 1)"


@pytest.mark.parametrize("key", ["a\nimport os", "a\r\nb", "a\u2028b"])
def test_a_key_cannot_add_a_line_to_a_cell(done: RunStats, key: str) -> None:
    """Keys come from documents; the user runs the cell."""
    hostile: Any = SimpleNamespace(id=7, key=key)
    assert len(run_here(hostile, done, NotebookNames(run="run")).splitlines()) == 3


def test_names_are_those_of_the_notebook(monkeypatch: pytest.MonkeyPatch, source: Any, hand_lab: Any) -> None:
    """The shortest one, and not the ones that IPython keeps for itself."""
    main = SimpleNamespace(_7=source, parsed=source, run=source, papers=hand_lab, other=1)
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]

    assert names_here(source) == NotebookNames("run", "papers", False)
    assert names_here(object()) == NotebookNames("", "papers", False)
