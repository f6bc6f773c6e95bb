"""What of a run can be made Python: cells and lines."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dqlab.live.next_lines import NotebookNames, names_here, offers, run_here
from dqlab.stats import CodeStats, RunStats
from tests.live.conftest import CODE


def test_cells_call_things_as_the_notebook_does(done: RunStats) -> None:
    """A line that raises NameError is worse than none."""
    clean = replace(done, counts=replace(done.counts, dead=0))
    assert offers(clean, CODE, NotebookNames(run="invoices", lab="here")).results == "invoices.results()"
    assert offers(clean, CODE, NotebookNames(lab="here")).results == "here.attach('parse-invoices').results()"
    assert offers(clean, CODE, NotebookNames(lab="here", magic=True)).results == "%dq results parse-invoices"


def test_results_of_a_run_with_dead_documents_leave_them_out_and_say_so(done: RunStats) -> None:
    """The button inserted a cell that raised RunFailed."""
    dead = done.counts.dead
    note = f"# without the documents that have no result: {dead} dead\n"

    named = offers(done, CODE, NotebookNames(run="run"))
    assert named.results == f'{note}run.results(errors="skip").to_frame()'
    line = offers(done, CODE, NotebookNames(lab="here", magic=True)).results
    assert line == f"{note}%dq results parse-invoices --errors skip"
    cancelled = replace(done, counts=replace(done.counts, dead=0, cancelled=3))
    assert offers(cancelled, CODE, NotebookNames(run="run")).results.startswith(
        "# without the documents that have no result: 3"
    )


def test_the_function_of_a_run_is_a_cell_where_its_source_is_known(done: RunStats) -> None:
    """To be edited, which is how a run is mended."""
    made = offers(done, CODE, NotebookNames())
    assert (made.label, made.code) == ("Insert cell with parse()", CODE.rstrip())
    assert offers(done, CODE, NotebookNames(), newer=True).label == f"Insert cell with parse() v{done.code.version}"
    assert offers(done, None, NotebookNames()).label == ""
    unnamed = replace(done, code=CodeStats("<lambda>", "ab", 1, 1))
    assert offers(unnamed, "lambda x: x", NotebookNames()).label == ""


@pytest.mark.parametrize(
    ("key", "word"),
    [("lux/contract 7.pdf", "'lux/contract 7.pdf'"), (3, "'#5'"), ("x" * 200, "'#5'"), (("a", 1), "'#5'")],
)
def test_a_dead_document_is_run_here_by_its_key_or_its_position(done: RunStats, key: Any, word: str) -> None:
    """Any later run over it has its key too; a cut key may be that of several documents."""
    letter = SimpleNamespace(key=key, ordinal=5)

    assert run_here(letter, done, NotebookNames(magic=True)) == f"%dq debug {word} parse-invoices"
    assert run_here(letter, done, NotebookNames(run="run")) == f"run.debug({word})"
    assert run_here(letter, done, NotebookNames(lab="mine")) == f"mine.attach('parse-invoices').debug({word})"


@pytest.mark.parametrize("key", ["a\nimport os", "a\r\nb", "a\u2028b"])
def test_a_key_cannot_add_a_line_to_a_cell(done: RunStats, key: str) -> None:
    """Keys come from documents; the user runs the cell."""
    hostile: Any = SimpleNamespace(key=key, ordinal=5)
    assert len(run_here(hostile, done, NotebookNames(run="run")).splitlines()) == 1


def test_names_are_those_of_the_notebook(monkeypatch: pytest.MonkeyPatch, source: Any, hand_lab: Any) -> None:
    """The shortest one, and not the ones that IPython keeps for itself."""
    main = SimpleNamespace(_7=source, parsed=source, run=source, papers=hand_lab, other=1)
    monkeypatch.setitem(sys.modules, "__main__", main)  # type: ignore[arg-type]

    assert names_here(source) == NotebookNames("run", "papers", False)
    assert names_here(object()) == NotebookNames("", "papers", False)
