"""A run is never silently that of other code or other documents, and nothing is run twice."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import RunExists
from dqlab.testing import Tally
from tests.runs.never_stale import ATTACHES, CASES, NEW, REFUSES, REFUSES_INPUT, Case
from tests.runs.test_code import cell

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "never-stale.md"
SAID = {
    ATTACHES: "attaches: nothing is run again",
    REFUSES: "is refused at once, and the run is left as it is",
    REFUSES_INPUT: "is refused by `wait` and `results`, and the run is left as it is",
    NEW: "is a new run",
}
BESIDE = "def g(x):\n    return x + {}\n"


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module and some files, in the path of this process alone."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("dq_beside", None)
    (tmp_path / "dq_beside.py").write_text(BESIDE.format(1))
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    return tmp_path


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_never_stale(case: Case, lab: dq.Lab, queue: dq.QueuePool, beside: Path) -> None:
    """Otherwise yesterday's results come back without a word, or an hour's work is done again."""
    tally, name = Tally(beside, "calls"), f"run-{queue.name}"
    start = (
        f"from pathlib import Path\nfrom dqlab.testing import Tally\ntally = Tally(Path({str(beside)!r}), 'calls')\n"
    )

    def documents(expression: str) -> Any:
        return dq.Documents.from_glob(beside / "*.txt") if expression == "files" else eval(expression)

    first = cell(start + (case.first if case.documents[0] != "files" else case.first.replace("x + 1", "x.text()")))
    before = queue.map(first["f"], documents(case.documents[0]), name=name, retry=dq.Retry(0)).wait(timeout=30)
    pool, source = queue, start + case.second
    if case.how == "retry":
        assert before.retry(cell(source)["f"]) == 1
        before.wait(timeout=30)
    calls = len(tally)
    assert calls == before.counts["acked"] + (case.how == "retry")

    if case.how == "reload":
        (beside / "dq_beside.py").write_text(BESIDE.format(22))
        importlib.reload(sys.modules["dq_beside"])
    if case.how == "file":
        (beside / "b.txt").write_text("other")
        os.utime(beside / "b.txt", ns=(1, 1))
    if case.documents[1] == "files":
        source = source.replace("x + 1", "x.text()")
    second, again = cell(source)["f"], documents(case.documents[1])
    if case.how == "another kernel":
        with Client(lab.client.scheduler.address, set_as_default=False) as client:  # type: ignore[union-attr]
            there = dq.QueuePool(client, name=queue.name)
            assert there.map(second, again, name=name).wait(timeout=30).id == before.id
        assert len(tally) == calls
        return
    if case.how == "queue":
        pool = lab.queue(f"{queue.name}-other")
    wanted = {"rename": f"{name}-other", "unnamed": None}.get(case.how, name)

    if case.outcome == REFUSES:
        with pytest.raises(RunExists, match="other code"):
            pool.map(second, again, name=wanted)
    elif case.outcome == REFUSES_INPUT:
        with pytest.raises(RunExists, match="documents"):
            pool.map(second, again, name=wanted).results(timeout=30)
    else:
        run = pool.map(second, again, name=wanted)
        run.results(timeout=30)
        assert (run.id == before.id) is (case.outcome == ATTACHES)
    if case.how == "queue":
        pool.close()
    assert len(tally) == (calls * 2 if case.outcome == NEW else calls)


def test_page_holds_the_table() -> None:
    """What the page promises is what is tested, row by row."""
    rows = [f"| {case.what} | {SAID[case.outcome]} |" for case in CASES]

    assert len(CASES) >= 24
    text = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if row not in text] == []
    assert text.count("\n| ") == len(CASES) + 1
