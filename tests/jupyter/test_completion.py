"""What the Tab key offers."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.core.completer import provisionalcompleter

import dqlab as dq
from dqlab.jupyter.magics import candidates


def parse(document: object) -> object:
    return document


NAMES: dict[str, Any] = {"docs": [1, 2], "parse": parse, "text": "no documents", "_hidden": []}


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("%dq su", ["submit"]),
        ("failed = %dq fa", ["failed"]),
        ("%%dq ", ["submit"]),
        ("%dq submit ", ["parse"]),
        ("%dq submit parse --over ", ["docs"]),
        ("%dq submit parse --on-", ["--on-existing"]),
        ("%dq submit parse --on-existing n", ["new"]),
        ("%dq submit --queue default pa", ["parse"]),
        ("%dq results --errors ", ["raise", "skip", "return"]),
        ("%dq retry --where err", ["error"]),
        ("%dq retry --where error --m", ["--memory"]),
        ("%dq ru", ["runs"]),
        ("%dq runs -", ["-o", "--out"]),
        ("%dq dro", ["drop"]),
        ("%dq drop my-run -", ["--data", "-y", "--yes"]),
        ("%dq nonsense x", []),
    ],
)
def test_words_that_fit_are_offered(text: str, offered: list[str]) -> None:
    """Commands, options, choices, and variables of the right kind; no others."""
    found = candidates(text, NAMES, None)

    assert found is not None
    assert found[0] == offered


@pytest.mark.parametrize("text", ["print(docs)", "%dqx su", "x = 5 %dq su", "%timeit dq.connect()"])
def test_other_lines_are_left_alone(text: str) -> None:
    """Python's own completion goes on as before."""
    assert candidates(text, NAMES, None) is None


def test_runs_and_queues_are_offered_by_name(lab: dq.Lab, queue: dq.QueuePool) -> None:
    """Their names are long, and nobody remembers them."""
    run = queue.map(abs, [1], name=f"run-of-{queue.name}")
    names = {"mine": run}

    runs = candidates("%dq watch ", names, lab)
    dropped = candidates("%dq drop run-o", names, lab)
    both = candidates("%dq pause ", names, lab)
    queues = candidates("%dq submit parse --over docs -q ", names, lab)

    assert runs is not None
    assert {run.name, "mine"} <= set(runs[0])
    assert dropped is not None
    assert run.name in dropped[0]
    assert both is not None
    assert {run.name, "mine", queue.name} <= set(both[0])
    assert queues is not None
    assert queue.name in queues[0]


def test_shell_offers_our_words_alone(connected: Any) -> None:
    """Python's keywords and variables are noise in the middle of a command."""
    connected["docs"] = [1, 2]

    for line, start, offered in (("%dq res", 4, ["results", "resume"]), ("%dq submit f --over ", 20, ["docs"])):
        with provisionalcompleter():
            found = list(connected.shell.Completer.completions(line, len(line)))
        assert [(each.start, each.end, each.text) for each in found] == [(start, len(line), word) for word in offered]
