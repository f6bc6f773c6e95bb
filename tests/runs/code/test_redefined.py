"""A function that a notebook defines again after a run has used it."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import DqlabWarning
from dqlab.runs.code import versions
from dqlab.runs.code.versions import Redefined, code_version

FIRST = "def parse(text):\n    return int(text)\n"
SECOND = "def parse(text):\n    return int(text or 0)\n"


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What is `__main__` in a kernel."""
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    return module


def run_cell(notebook: ModuleType, source: str) -> None:
    exec(compile(source, "<cell>", "exec"), notebook.__dict__)


def short(function: Any) -> str:
    return code_version(function).short


def test_a_function_with_other_code_is_found(notebook: ModuleType) -> None:
    """That is the fix, and what a retry should take."""
    run_cell(notebook, FIRST)
    before = short(notebook.parse)
    found = Redefined()
    assert found.newer("parse", before) is None

    run_cell(notebook, SECOND)

    assert found.newer("parse", before) is notebook.parse
    assert found.newer("parse", short(notebook.parse)) is None  # it was retried with it


def test_a_value_that_it_reads_counts_once_a_cell_has_changed_it(
    notebook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function is the same object, and does something else."""
    cells = iter(range(10))
    monkeypatch.setattr(versions, "running_cell", lambda: next(cells))
    run_cell(notebook, "LIMIT = 1\ndef parse(text):\n    return text[:LIMIT]\n")
    before = short(notebook.parse)
    found = Redefined()
    assert found.newer("parse", before) is None

    run_cell(notebook, "LIMIT = 2\n")

    assert found.newer("parse", before) is notebook.parse


def test_a_version_is_computed_once_for_each_definition(notebook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view looks once a second, and a large value takes seconds to read."""
    computed: list[object] = []
    monkeypatch.setattr(versions, "code_version", lambda fn: computed.append(fn) or code_version(fn))
    run_cell(notebook, FIRST)
    found = Redefined()

    for _ in range(5):
        found.newer("parse", "0c2b41")

    assert computed == [notebook.parse]


def test_a_value_that_raises_when_it_is_compared_does_not_disturb_the_view(
    notebook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a function reads may raise anything."""

    def refuse(function: Any) -> Any:
        raise RuntimeError(function)

    monkeypatch.setattr(versions, "code_version", refuse)
    run_cell(notebook, FIRST)
    assert Redefined().newer("parse", "0c2b41") is None


@pytest.mark.cluster
def test_a_retry_without_a_function_says_that_the_notebook_has_another_one(
    queue: dq.QueuePool, notebook: ModuleType
) -> None:
    """The old code ran again, and failed again, without a word."""
    run_cell(notebook, FIRST)
    run = queue.map(notebook.parse, ["", "1"], name=f"run-{queue.name}", retry=dq.Retry(0))
    with pytest.warns(DqlabWarning, match="failed"):
        run.wait(timeout=20)
    run_cell(notebook, SECOND)

    with pytest.warns(DqlabWarning, match=r"the code that it had, parse v1.*run\.retry\(fn=parse\)"):
        assert run.retry() == 1
    run.until_over(timeout=20)

    assert run.retry(fn=notebook.parse) == 1
    assert list(run.results(timeout=20)) == [0, 1]
