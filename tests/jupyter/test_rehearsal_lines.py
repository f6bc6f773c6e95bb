"""A cell that rehearses: what it says, that it asks where somebody can answer, and hangs nowhere else."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

import dqlab as dq
from dqlab.errors import Rehearsed
from dqlab.jupyter import prompts
from dqlab.jupyter.prompts import sample_for
from dqlab.stats import CodeStats, Counts, QueueState, QueueStats, RunState, RunStats, Snapshot

CELL = "%%dq submit --over range({n}) {more} -o run\ndef square(x): return x * x"


def test_cell_says_what_the_sample_says_and_waits(connected: Any, capsys: Any, queue: dq.QueuePool) -> None:
    """Without buttons, the lines name the next step; run again with --yes, the cell goes on."""
    name = f"sq-{queue.name}"
    connected.run(CELL.format(n=3000, more=f"--name {name} --rehearse 30 --rate 0.04 --wait"))

    said = capsys.readouterr().out
    assert "rehearsed 30 of 3,000 documents, drawn from the whole input in " in said
    assert "whole run: " in said
    assert "at 0.04 a worker-hour" in said
    assert "--yes" in said
    assert [int(x) ** 2 == int(square) for x, square in re.findall(r"^ {4}(\d+): (\d+)$", said, re.M)] == [True] * 3
    with pytest.raises(Rehearsed):
        connected["run"].wait(timeout=20)

    connected.run(CELL.format(n=3000, more=f"--name {name} --rehearse 30 --yes --wait"))
    assert list(connected["run"].results(timeout=30)) == [x * x for x in range(3000)]


def test_a_cell_over_many_rehearses_by_itself_where_somebody_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal, and where a notebook is played by a program, it would wait for nobody."""
    earlier: tuple[RunStats, ...] = ()

    def sample(rehearse: int | None, documents: object, *, yes: bool) -> int | None:
        stats = Snapshot(0.0, 0, queues=(QueueStats("q", QueueState.EMPTY, Counts(), consumers=4),), runs=earlier)
        return sample_for(rehearse, documents, lambda: stats, abs, yes=yes)

    many, few, unknown = range(20_000), range(20), iter(range(20_000))
    assert sample(None, many, yes=False) is None

    monkeypatch.setattr(prompts, "can_ask", lambda: True)
    monkeypatch.setattr(prompts, "has_a_reader", lambda shell: True)
    assert sample(None, many, yes=False) == 30
    assert sample(None, few, yes=False) is None
    for listed, tried in ((20_000, 30), (20, None)):
        pieces = dq.Documents.from_frame(pa.table({"text": ["a"] * listed}))
        assert sample(None, pieces, yes=False) == tried
        assert sample(None, dq.Documents(["a.pdf"] * listed), yes=False) == tried
    assert sample(None, unknown, yes=False) is None
    assert sample(None, many, yes=True) == 0
    assert sample(0, many, yes=False) == 0
    assert sample(50, few, yes=True) == 50

    long, other = ({"code": CodeStats(name=name), "mean_seconds": 2.0} for name in ("abs", "len"))
    for about, tried in ((long, 30), (other, None)):  # 600 s on four consumers are 1,200 documents of 2 s each
        earlier = (RunStats(name="r", queue="q", state=RunState.DONE, counts=Counts(), **about),)
        assert sample(None, range(1201), yes=False) == tried
        assert sample(None, range(1200), yes=False) is None


def test_a_cell_that_nobody_answers_says_how_to_rehearse_and_runs(connected: Any, capsys: Any) -> None:
    """One line, and no more."""
    connected.run(CELL.format(n=10_001, more="--wait"))

    assert "--rehearse 30 tries 30 documents first" in capsys.readouterr().out
    assert connected["run"].counts["acked"] == 10_001
