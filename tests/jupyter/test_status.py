"""`%dq status` in the order that somebody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab.jupyter.grammar import COMMANDS
from dqlab.live import display as shown
from dqlab.live.display import RUNS_OF_STATUS, text_of
from dqlab.live.run_rows import SortBy, sorted_by
from dqlab.stats import Attention, Counts, RunState, RunStats, Severity, Snapshot
from tests.kit.waiting import until


@pytest.mark.parametrize(("by", "first"), [(SortBy.NAME, "a-fine"), (SortBy.DEAD, "z-dead"), (SortBy.TOOK, "long")])
def test_status_sorts_its_runs_by_what_is_asked_for(by: SortBy, first: str) -> None:
    """Which of twenty runs has most dead documents is not read off a list by need."""
    fine = RunStats("a-fine", "q", RunState.DONE, Counts(acked=9), total=9, started=3.0, ended=4.0, at=9.0)
    long = RunStats("long", "q", RunState.DONE, Counts(acked=9), total=9, started=1.0, ended=7.0, at=9.0)
    dead = RunStats("z-dead", "q", RunState.DONE, Counts(dead=9), total=9, started=2.0, ended=3.0, at=9.0)
    snapshot = Snapshot(at=9.0, seq=1, runs=(long, dead, fine), runs_total=3)

    text = text_of(sorted_by(snapshot, by))

    names = [line.split()[0] for line in text.splitlines() if line.startswith(("a-fine", "long", "z-dead"))]
    assert names[0] == first
    assert len(names) == 3


def test_the_run_with_most_dead_is_first_of_more_runs_than_are_listed() -> None:
    """The first twenty were cut off before they were sorted."""
    runs = [RunStats(f"run-{n}", "q", RunState.DONE, Counts(acked=9, dead=n), total=9 + n, at=9.0) for n in range(30)]
    snapshot = Snapshot(at=9.0, seq=1, runs=tuple(runs), runs_total=40)

    text = text_of(sorted_by(snapshot, SortBy.DEAD))

    names = [line.split()[0] for line in text.splitlines() if line.startswith("run-")]
    assert names == [f"run-{n}" for n in range(29, 29 - RUNS_OF_STATUS, -1)]
    assert "and 20 more" in text
    assert "435 dead in 29 runs at rest" in text


@pytest.mark.cluster
def test_status_counts_the_documents_that_a_function_puts_off(connected: Any) -> None:
    """They were counted as delayed, and a run of such documents stood there without a reason."""
    connected.run("import dqlab as dq\ndef ask(x): raise dq.Later('1h')")
    connected.run("%dq submit ask --over range(12) --name asks --on-existing new -o asks")
    lab = connected["lab"]

    until(lambda: (run := lab.stats().run("asks")) is not None and run.put_off == 12)

    assert "12 documents put off by their function" in text_of(lab.stats())
    connected["asks"].drop()


def test_the_line_offers_each_order_there_is() -> None:
    """The grammar spells them out, so that a shell loads nothing to complete them."""
    assert COMMANDS["status"].options["--sort"].choices == [str(each) for each in SortBy]


def test_what_needs_the_user_is_listed_or_counted() -> None:
    """The widget had four lines, and the printed status three, without a word about the fourth."""
    needs = [Attention(Severity.PROBLEM, "failing", f"{n} dead", "KeyError", run=f"r{n}") for n in range(5)]
    snapshot = Snapshot(at=9.0, seq=1, attention=tuple(needs), attention_total=7)

    bundle = shown._snapshot_bundle(snapshot)

    for drawn in bundle.values():
        assert all(f"{n} dead" in drawn for n in range(5))
        assert "and 2 more: %dq doctor" in drawn
