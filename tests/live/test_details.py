"""What stands below the figures."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dqlab.live.details import code_pane, consumers, depth_chart, examples, leases, left_chart, needs
from dqlab.stats import Attention, CodeStats, Held, History, RunState, RunStats, Severity, Snapshot, Unacked
from dqlab.texts import block


def test_needs_have_one_thing_to_do_each_and_only_where_it_can_be_done(snapshot: Snapshot) -> None:
    """A run cannot compact a store."""
    lines = needs(snapshot.attention, ("retry", "show"))

    assert [(line.icon, line.label, line.pane) for line in lines] == [
        ("dead", "Fix & retry…", "failures"),
        ("slow", "Show", "leases"),
        ("dead", "Fix & retry…", "failures"),
    ]
    assert [line.label for line in needs(snapshot.attention, ("show",))] == ["", "Show", ""]


def test_chart_of_a_run_begins_with_it_and_ends_behind_the_late_estimate(running: RunStats, past: History) -> None:
    """The fan needs room on the right."""
    chart = left_chart(running, past)

    assert chart.values[0] == 0
    assert chart.values[-1] == pytest.approx(315_894, abs=400)
    assert chart.fan == tuple(sorted(chart.fan))
    assert chart.now < chart.fan[0] < chart.fan[2] < chart.end
    assert (chart.due, chart.band) == ("14:34", "14:32\N{EN DASH}14:38")
    assert [word for _, word in chart.ticks] == ["14:00", "14:10", "14:20", "14:30", "14:40"]
    assert [mark.cell for mark in chart.marks] == ["[12]", "[13]", "[15]"]
    assert chart.label.startswith("Pages left over time: 315,894 now, zero expected at 14:34")


def test_chart_without_an_estimate_ends_now(running: RunStats, past: History) -> None:
    """No fan is drawn that nobody computed."""
    chart = left_chart(replace(running, eta=None), past)

    assert (chart.fan, chart.due) == ((), "")
    assert chart.end == pytest.approx(chart.now * 1.06)


def test_chart_of_a_young_queue_begins_with_it(past: History) -> None:
    """Of "the last 30 min" nine tenths were blank."""
    young = replace(
        past, ready=(None,) * 5 + (500.0, 250.0, 0.0), delayed=(None,) * 5 + (0.0,) * 3, step=10.0, marks=()
    )

    chart = depth_chart(0, young)

    assert chart.values == (500, 250, 0)
    assert chart.title == "Messages waiting, last 20 s"


@pytest.mark.parametrize("state", [RunState.DONE, RunState.CANCELLED])
def test_chart_of_a_run_that_has_ended_ends_with_what_is_left(done: RunStats, past: History, state: RunState) -> None:
    """After a retry or a cancel it stood at its last sample: "about 1,000 left" beside "Left 0"."""
    ended = replace(done, state=state)
    before = left_chart(replace(ended, state=RunState.RUNNING), past)

    chart = left_chart(ended, past)

    assert before.values[-1]
    assert chart.values == (*before.values, ended.progress.left)
    assert chart.now == before.now + chart.step
    assert f"{ended.progress.left} now" in chart.label


def test_chart_without_history_is_a_sentence(running: RunStats) -> None:
    """Axes of nothing say nothing."""
    assert left_chart(running, None).empty
    assert left_chart(running, History(t0=0, step=1)).empty
    assert depth_chart(0, None).empty


def test_consumers_that_are_not_listed_are_counted(snapshot: Snapshot) -> None:
    """The slowest are always listed."""
    table = consumers(snapshot, 200)

    assert table is not None
    assert (table.title, table.troubles) == ("200", "1 slow")
    assert table.caption == "Slowest first · last 60 s · median 63.5 pages/s"
    assert table.more == "and 192 more, all of them faster"
    assert table.rows[-1].fraction == 1
    assert consumers(replace(snapshot, consumers=()), 0) is None


def test_consumers_that_are_silent_or_stuck_are_marked_as_slow_ones_are(snapshot: Snapshot) -> None:
    """Only the dashboard marked one that was stuck, and no view one that was silent."""
    silent, stuck, slow, fine = (replace(each, slow=False) for each in snapshot.consumers[:4])
    odd = replace(silent, silent=40.0, stuck=True), replace(stuck, stuck=True, slow=True), replace(slow, slow=True)
    table = consumers(replace(snapshot, consumers=(*odd, fine)), 4)

    assert table is not None
    assert [row.trouble for row in table.rows] == ["silent", "stuck", "slow", ""]
    assert table.troubles == "1 silent, 1 stuck, 1 slow"


def test_consumers_below_a_run_that_has_ended_are_named_as_those_of_its_queue(snapshot: Snapshot) -> None:
    """They stood there as if they still worked for the run, and were slow for it."""
    table = consumers(snapshot, 200, ended_on="pages")

    assert table is not None
    assert table.caption.startswith("Of queue pages, now that this run has ended · slowest first · last 60 s")
    assert table.troubles == ""


def test_leases_say_which_only_renewal_keeps(snapshot: Snapshot) -> None:
    """Messages held longer than the visibility timeout."""
    held = leases(snapshot)

    assert held.summary.startswith("1 message held longer than 1 min")
    assert [amount for _, amount, late in held.bins if late and amount] == [1]
    assert (held.rows[0].held, held.rows[0].late) == ("4 min 12 s", True)
    assert leases(replace(snapshot, unacked=Unacked())).bins == ()


def test_what_is_held_longest_is_as_old_as_its_function_unless_only_its_lease_is_known(snapshot: Snapshot) -> None:
    """The same document was held for seven minutes here, and for six in each other place of the view."""
    oldest = (Held("c0", 420.0, 50.0, document="a.pdf", running=360.0), Held("c1", 300.0, 50.0))

    held = leases(replace(snapshot, unacked=Unacked(total=2, oldest=oldest)))

    assert held.title == "2 · oldest 6 min"
    assert [(row.document, row.held) for row in held.rows] == [
        ("a.pdf", "6 min"),
        ("1 message, since delivery", "5 min"),
    ]


def test_two_runs_that_fail_alike_are_two_lines_that_name_their_runs(snapshot: Snapshot) -> None:
    """In a queue's view one of them was missing, and neither named its run."""
    failing = Attention(Severity.PROBLEM, "failing", "36 dead", "ValueError", "parse", "retry", "q", "a", "f", 36)

    first, second = needs([failing, replace(failing, run="b")], ("retry",), several=True)

    assert first.key != second.key
    assert (first.detail, second.detail) == ("a · parse", "b · parse")
    assert needs([failing], ("retry",))[0].detail == "parse"


def test_a_class_is_retried_with_newer_code_at_once_and_many_a_few_first(snapshot: Snapshot) -> None:
    """The button beside the failure took the reader to a table where the button is."""
    failing = Attention(Severity.PROBLEM, "failing", "61 dead", "KeyError", "", "retry", "q", "a", "f", 61)

    few, many = needs([failing, replace(failing, amount=212)], ("retry",), mended="parse v2")

    assert (few.label, few.ready) == ("Retry 61 with parse v2", True)
    assert (many.label, many.ready) == ("Retry 212 with parse v2…", False)


def test_documents_name_the_code_they_ran_as_the_run_does() -> None:
    """0cbcb7 and v2 were the same."""
    code = CodeStats("parse", "0cbcb7", 2)
    letters = [SimpleNamespace(key="a", deliveries=1, version=v, traceback="") for v in ("0cbcb71a", "99aa00bb", "")]

    _, rows = examples("f", letters, code=code)

    assert [row.version for row in rows] == ["v2", "code 99aa00", "\N{EN DASH}"]


def test_each_version_of_a_runs_code_is_credited_with_what_it_did() -> None:
    """ "outline v2" stood below a run although v1 had done 674 of its 733 documents."""

    def caption(*did: int) -> str:
        return code_pane(CodeStats("parse", "a4", len(did), 8, did=did), None).caption  # type: ignore[union-attr]

    assert caption(3_212, 44_998).endswith("from cell [8]: v2 44,998 documents, v1 3,212")
    assert caption(0, 1).endswith(": v2 1 document")
    assert caption(674, 0).endswith(": v2 0 documents, v1 674")
    assert caption(1, 2, 3, 4, 5).endswith(": v5 5 documents, v4 4, v3 3, earlier ones 3")


def test_block_keeps_lines_and_mends_the_rest() -> None:
    """Sources and tracebacks come from anywhere."""
    assert block("a\tb\r\n\x1b[31mc\x00\n") == "a   b\n\N{REPLACEMENT CHARACTER}[31mc\N{REPLACEMENT CHARACTER}"
    assert block("x" * 50, limit=10) == "x" * 10 + "\n…"
