"""`%%dq compare`: the cell's code over a sample, with what differs as text and as HTML."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.error import UsageError

import dqlab as dq
from dqlab.live.display import drawn
from dqlab.live.layout import compared_parts
from dqlab.runs.compare.comparison import Comparison

CELL = "%%dq compare {name} --sample 100 {more}\ndef half(x): return {{'half': x // 2, 'odd': x % 2 + (x % 10 == 0)}}"


@pytest.fixture
def name(connected: Any, queue: dq.QueuePool) -> str:
    """A finished run."""
    name = f"half-{queue.name}"
    cell = f"%%dq submit --over range(500) --name {name} -q {queue.name} -o run -w\n"
    connected.run(cell + "def half(x): return {'half': x // 2, 'odd': x % 2}")
    return name


def test_cell_compares_its_function_and_shows_what_differs(connected: Any, capsys: Any, name: str) -> None:
    """The first differences while it runs, then all; the run has its old code still."""
    capsys.readouterr()
    connected.run(CELL.format(name=name, more="-o found"))
    said, found = capsys.readouterr().out, connected["found"]

    assert isinstance(found, Comparison)
    assert found.summary in said
    assert all(each.ordinal % 10 == 0 for each in found.changed)
    assert f"{found.changed[0].key} changed: {{'odd': 0}} → {{'odd': 1}}" in said
    assert len(connected["run"].versions) == 1
    bundle = drawn(*compared_parts(found))
    assert "v1 → v2 on 100 of 500 documents: " in bundle["text/plain"]
    assert "document  became   before      after" in bundle["text/plain"]
    assert all(len(each) <= 80 for each in bundle["text/plain"].splitlines()[:10])
    assert "<td" in bundle["text/html"]


def test_line_compares_a_function_with_options_and_keeps_it_in_a_variable(
    connected: Any, capsys: Any, name: str
) -> None:
    """Expressions are those of the notebook."""
    connected.run("import dqlab as dq")
    connected.run("def other(x): return {'half': x // 2 + 1e-9, 'odd': x % 2}")
    connected.run(f"%dq compare {name} --fn other --sample 50 --equal dq.close(abs=1e-6) --noise 5 -o found")
    assert not connected["found"].changed
    assert "50 equal · 0 changed" in capsys.readouterr().out

    connected.run(f"%dq compare {name} --fn other --sample 50 --score 'lambda key, value: value[\"half\"]' -o found")
    assert "better for 50" in connected["found"].summary


def test_wrong_lines_say_what_is_missing(connected: Any, name: str) -> None:
    """Nothing runs."""
    assert "which function" in str(connected.fails(f"%dq compare {name}"))
    assert "NameError" in str(connected.fails(f"%dq compare {name} --fn half --equal unknown"))
    error = connected.fails(CELL.format(name=name, more="--fn half"))
    assert isinstance(error, UsageError)
    assert "The cell was not run" in str(error)
    assert "take a cell" in str(connected.fails("%%dq retry\ndef f(x): return x"))
