"""Runs as rows: tables draw these, and widgets take their states and reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dqlab import numbers
from dqlab.live.display import text_of
from dqlab.live.lab_picture import Site, queue_view
from dqlab.live.run_picture import run_view
from dqlab.live.run_rows import run_rows, run_word
from dqlab.live.style import Ink, TextStyle, columns
from dqlab.live.tables import runs_table
from dqlab.stats import Attention, Counts, RunState, RunStats, Severity, Snapshot
from dqlab.stats.attention import failures_of
from tests.live.drawn import screen_of, table_html, table_text


def ended(running: RunStats, name: str, counts: Counts, *, state: RunState = RunState.DONE) -> RunStats:
    return replace(running, name=name, state=state, counts=counts, ended=running.at - 500, eta=None)


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        (Counts(acked=10, dead=3), "some dead"),
        (Counts(dead=10_000), "all dead"),
        (Counts(acked=10, lost=1), "some lost"),
    ],
)
def test_a_run_with_dead_documents_is_never_shown_as_plainly_done(running: RunStats, counts: Counts, word: str) -> None:
    """10,000 dead of 10,000 was a green tick at 100 %."""
    (row,) = run_rows(Snapshot(at=0, seq=0, runs=(ended(running, "x", counts),)))

    assert (row.state, row.ink) == (word, Ink.BAD)
    assert f"\x1b[31m{word}" in table_text(runs_table([ended(running, "x", counts)]), TextStyle(colour=True))


def test_cancelled_run_is_as_far_in_every_view(running: RunStats, snapshot: Snapshot) -> None:
    """The live view of its queue had it at 100 %, and all others at 5.3 %."""
    counts = Counts(acked=50, dead=3, cancelled=947)
    run = replace(ended(running, "given-up", counts, state=RunState.CANCELLED), units=None, total=1_000)
    queue = queue_view(replace(snapshot, runs=(run,)), place=Site(run.queue))

    assert [each.share for each in queue.runs] == ["5.3 %"]
    assert [each.share for each in run_rows(replace(snapshot, runs=(run,)))] == ["5.3 %"]
    assert run_view(run).percent == "5.3 %"
    assert run_view(run).bar_label == "5.3 percent of documents settled"
    assert " 5.3 % " in screen_of(run_view(run))


def test_a_row_has_share_end_dead_speed_code_and_time_taken(snapshot: Snapshot) -> None:
    row = next(row for row in run_rows(snapshot) if row.name == "parse-invoices")

    assert (row.share, row.dead, row.speed, row.code) == ("65.4 %", 212, "451 pages/s", "parse v4")
    assert (row.end, row.took) == ("in 9 to 16 min", "23 min")


def test_speed_and_time_of_an_ended_run_are_those_of_all_of_it(done: RunStats) -> None:
    """The last minute of a run that ended an hour ago was idle."""
    (row,) = run_rows(Snapshot(at=0, seq=0, runs=(replace(done, at=done.at + 900),)))

    assert (row.speed, row.took, row.end) == ("433 pages/s", "35 min", "14:33")


def test_those_that_need_the_user_come_first_then_what_runs_then_what_has_dead(running: RunStats) -> None:
    """What is fine and over is of least interest."""
    fine, bad = ended(running, "fine", Counts(acked=9)), ended(running, "bad", Counts(acked=9, dead=1))
    stuck = replace(running, name="stuck", started=running.started - 9)
    need = Attention(Severity.WARNING, "failing", "3 dead", "KeyError", "", "retry", stuck.queue, "stuck")
    rows = run_rows(Snapshot(at=0, seq=0, runs=(fine, bad, running, stuck), attention=(need,)))

    assert [row.name for row in rows] == ["stuck", running.name, "bad", "fine"]
    assert rows[0].why == "3 dead KeyError"


def test_the_table_fits_80_columns_with_whole_names_and_figures(snapshot: Snapshot, running: RunStats) -> None:
    """Names are typed into the next line."""
    many = [*snapshot.runs, ended(running, "a", Counts(acked=5, dead=10_000))]
    text = table_text(runs_table(many))

    assert max(map(columns, text.split("\n"))) <= 80
    for shown in ("parse-invoices", "some dead", "in 9\N{EN DASH}16 min", "451 pages", "10,000"):
        assert shown in text


def test_the_table_names_owners_where_runs_have_some_and_there_is_room(running: RunStats) -> None:
    """On a cluster that people share, whose run it is comes before what to do about it."""
    runs = [replace(running, name="a", owner="ana, invoices.ipynb"), replace(running, name="b", owner="")]
    wide, narrow = (table_text(runs_table(runs), TextStyle(width=width)) for width in (200, 60))

    assert "owner" in wide.split("\n")[0]
    assert "ana, invoices.ipynb" in wide
    assert "owner" not in narrow
    assert "owner" not in table_text(runs_table(runs[1:]), TextStyle(width=200))


def test_the_table_has_the_set_up_time_of_runs_whose_function_makes_a_model(running: RunStats) -> None:
    """Below a tenth of a second nobody asks for it."""
    runs = [replace(running, name="a", setup=2.5), replace(running, name="b", setup=0.05)]
    head, first, second, *_ = table_text(runs_table(runs), TextStyle(width=200)).split("\n")

    assert "set-up" in head
    assert "2.5 s" in first
    assert second.rstrip().endswith(numbers.UNKNOWN)
    assert "set-up" not in table_text(runs_table(runs[1:]), TextStyle(width=200))


def test_a_run_that_has_nothing_left_but_a_stuck_document_waits_in_amber(running: RunStats) -> None:
    """It was "running", in the colour of those that do, and its widget said "Waiting"."""
    stuck = replace(running, stuck=True)

    assert run_word(stuck) == ("waiting", Ink.WARN)
    assert runs_table([stuck]).rows[0][1].text == "waiting"
    assert run_view(stuck).chip == "Waiting"


def test_the_dead_of_runs_that_have_ended_are_named_with_the_next_line(running: RunStats) -> None:
    """Who was away when the run ended finds it where it is looked for."""
    runs = [ended(running, "my run", Counts(acked=9, dead=3)), ended(running, "b", Counts(dead=4))]

    for drawn in (table_text(runs_table(runs)), table_html(runs_table(runs))):
        assert "7 dead in 2 runs at rest: %dq failed" in drawn


def test_a_status_with_ends_that_are_ahead_names_its_moment(snapshot: Snapshot) -> None:
    """ "in 9 to 16 min" stood in a saved notebook, and nothing said from when on."""
    over = replace(snapshot, runs=tuple(run for run in snapshot.runs if run.resting))

    assert f"as of {numbers.date(snapshot.at)}, 14:22:07" in text_of(snapshot)
    assert "as of" not in text_of(over)


def test_times_in_a_table_that_may_be_saved_are_those_of_the_clock(done: RunStats) -> None:
    """A saved notebook had "last 17 s ago" for ever, and the end of a run "13 s ago"."""
    assert done.ended is not None
    just_now = replace(done, at=done.ended + 5)
    entry = replace(done.classes[0], first=done.ended - 120, last=done.ended)

    table = runs_table([just_now])
    alert = failures_of(just_now, entry)

    ended = numbers.minute(done.ended)
    assert ended in [cell.text for cell in table.rows[0]]
    assert alert.detail.endswith(f" · first {numbers.minute(done.ended - 120)}, last {ended}")
    assert failures_of(just_now, replace(entry, first=done.ended)).detail.endswith(f" · at {ended}")
    assert failures_of(replace(just_now, at=done.ended + 2 * 86_400), entry).detail.endswith(numbers.date(done.ended))
    assert "ago" not in " ".join([alert.detail, *(cell.text for cell in table.rows[0])])
