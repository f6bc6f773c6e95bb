"""What stands below the figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dqlab.live.details import code_pane, consumers, depth_chart, held_rows, leases, left_chart, needs, pulse
from dqlab.stats import CodeStats, Eta, Held, History, RunStats, Snapshot, Unacked
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


def test_chart_without_history_is_a_sentence(running: RunStats) -> None:
    """Axes of nothing say nothing."""
    assert left_chart(running, None).empty
    assert left_chart(running, History(t0=0, step=1)).empty
    assert depth_chart(0, None).empty


def test_estimate_of_another_day_names_the_day(running: RunStats, past: History) -> None:
    """14:34 tomorrow is not in twelve minutes."""
    late = running.at + 90_000
    chart = left_chart(replace(running, eta=Eta(late, late, late)), past)

    assert chart.due == "22 Nov 15:22"
    assert len(chart.ticks) <= 7


def test_consumers_that_are_not_listed_are_counted(snapshot: Snapshot) -> None:
    """The slowest are always listed."""
    table = consumers(snapshot, 200)

    assert table is not None
    assert (table.title, table.slow) == ("200", "1 slow")
    assert table.caption == "Slowest first · last 60 s · median 63.5 pages/s"
    assert table.more == "and 192 more, all of them faster"
    assert table.rows[-1].fraction == 1
    assert consumers(replace(snapshot, consumers=()), 0) is None


def test_leases_say_which_only_renewal_keeps(snapshot: Snapshot) -> None:
    """Messages held longer than the visibility timeout."""
    held = leases(snapshot)

    assert held.summary.startswith("1 message held longer than 1 min")
    assert [amount for _, amount, late in held.bins if late and amount] == [1]
    assert (held.rows[0].held, held.rows[0].late) == ("4 min 12 s", True)
    assert leases(replace(snapshot, unacked=Unacked())).bins == ()


@pytest.mark.parametrize(("seconds", "held", "ends_in"), [(5.96, "5 s", "5 s"), (754.0, "12 min 34 s", "12 min")])
def test_end_of_a_lease_is_one_unit_away(snapshot: Snapshot, seconds: float, held: str, ends_in: str) -> None:
    """Its column is as narrow as its title; how long a message is held is what people look for."""
    oldest = (Held("c0", seconds, seconds),)

    (row,) = held_rows(replace(snapshot, unacked=replace(snapshot.unacked, oldest=oldest)))

    assert (row.held, row.ends_in) == (held, ends_in)


def test_code_of_no_known_name_is_not_shown() -> None:
    """Plain puts have none."""
    assert code_pane(CodeStats("?"), None) is None
    pane = code_pane(CodeStats("parse", "a41f9c", 4, 15), None)
    assert pane is not None
    assert pane.text == "the source is not known"


def test_pulse_of_a_run_is_a_line_of_blocks(past: History) -> None:
    """For hosts that show nothing but text."""
    line = pulse(past)

    assert set(line.line) <= set(" ▁▂▃▄▅▆▇█")
    assert len(line.line) == 25
    assert pulse(History(t0=0, step=1)).line == ""


def test_block_keeps_lines_and_mends_the_rest() -> None:
    """Sources and tracebacks come from anywhere."""
    assert block("a\tb\r\n\x1b[31mc\x00\n") == "a   b\n\N{REPLACEMENT CHARACTER}[31mc\N{REPLACEMENT CHARACTER}"
    assert block("x" * 50, limit=10) == "x" * 10 + "\n…"
