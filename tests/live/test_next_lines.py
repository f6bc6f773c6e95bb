"""What is to be typed next: about what needs the user, and what of a run can be made Python."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import dqlab as dq
from dqlab.jupyter.grammar import COMMANDS
from dqlab.live.next_lines import NotebookNames, cluster_of, failed_lines, names_here, next_line, offers, run_here
from dqlab.stats import Attention, AttentionKind, CodeStats, Counts, RunState, RunStats, Severity, Snapshot
from dqlab.stats.attention import brief
from dqlab.stats.snapshot import plain
from tests.live.conftest import CODE

KINDS = tuple(AttentionKind)
WITHOUT_A_LINE = {
    AttentionKind.LOST,
    AttentionKind.MISSING,
    AttentionKind.SINK,
    AttentionKind.LEAVING,
    AttentionKind.AT_REST,
    AttentionKind.OTHER,
}
"""Their own words name what to do, or nothing helps."""


def need(kind: AttentionKind, action: str = "") -> Attention:
    return Attention(Severity.WARNING, kind, "it", "is so", "", action, queue="a queue", run="it's", target="f1")


@pytest.mark.parametrize("kind", KINDS)
def test_lines_are_commands_that_exist_and_name_what_they_are_about(kind: AttentionKind) -> None:
    """A line that is copied from a view has to run."""
    assert brief(need(kind))
    line = next_line(need(kind))
    assert bool(line) == (kind not in WITHOUT_A_LINE)
    if line.startswith("%dq "):
        assert line.split()[1] in COMMANDS
    if " " in line and "doctor" not in line:
        assert "it's" in line or "a queue" in line


def test_run_whose_documents_all_failed_is_not_to_be_resumed() -> None:
    """The rest would fail too."""
    assert next_line(need(AttentionKind.STOPPED, "retry")) == '%dq failed "it\'s"'
    assert next_line(need(AttentionKind.STOPPED, "resume")) == '%dq resume "it\'s"'


def test_kinds_of_a_newer_scheduler_have_no_line() -> None:
    """Which is better than an error in place of a page."""
    newer = plain(need(AttentionKind.HELD)) | {"kind": "of a newer version"}

    [known] = Snapshot.from_dict({"at": 0, "seq": 0, "attention": [newer]}).attention

    assert (known.kind, known.text, next_line(known)) == (AttentionKind.OTHER, "is so", "")


def test_of_many_runs_with_failures_three_are_named() -> None:
    """They fit in a line."""
    runs = [RunStats(f"r{n}", "q", RunState.DONE, Counts(dead=1)) for n in range(5)]

    assert failed_lines(runs) == ["%dq failed r0", "%dq failed r1", "%dq failed r2"]


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


def test_labs_queues_and_runs_name_their_cluster(lab: dq.Lab, queue_name: str) -> None:
    """Where none is named, offers about a run of one cluster would apply to that of another."""
    with closing(lab.queue(queue_name)) as queue:
        run = queue.map(abs, range(2), consumers=None)

        for each in (lab, queue, run):
            assert cluster_of(each) == lab.client.scheduler.address
        run.cancel()


def test_what_has_no_connection_names_none() -> None:
    """A view of hand-made numbers is drawn all the same."""
    assert cluster_of(object()) == ""
