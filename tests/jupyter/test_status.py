"""`%dq status` in the order that somebody asked for."""

from __future__ import annotations

from typing import Any

import pytest

from dqlab.live import display as shown
from dqlab.live.display import text_of
from dqlab.live.layout import snapshot_parts
from dqlab.stats import Attention, Severity, Snapshot
from tests.kit.waiting import until


@pytest.mark.cluster
def test_status_counts_the_documents_that_a_function_puts_off(connected: Any) -> None:
    """They were counted as delayed, and a run of such documents stood there without a reason."""
    connected.run("import dqlab as dq\ndef ask(x): raise dq.Later('1h')")
    connected.run("%dq submit ask --over range(12) --name asks --on-existing new -o asks")
    lab = connected["lab"]

    until(lambda: (run := lab.stats().run("asks")) is not None and run.put_off == 12)

    assert "12 documents put off by their function" in text_of(lab.stats())
    connected["asks"].drop()


def test_what_needs_the_user_is_listed_or_counted() -> None:
    """The widget had four lines, and the printed status three, without a word about the fourth."""
    needs = [Attention(Severity.PROBLEM, "failing", f"{n} dead", "KeyError", run=f"r{n}") for n in range(5)]
    snapshot = Snapshot(at=9.0, seq=1, attention=tuple(needs), attention_total=7)

    bundle = shown.drawn(*snapshot_parts(snapshot))

    for drawn in bundle.values():
        assert all(f"{n} dead" in drawn for n in range(5))
        assert "and 2 more: %dq doctor" in drawn
