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
from dqlab.runs.code import versions
from dqlab.testing import Tally
from tests.runs.code.test_code import cell
from tests.runs.never_stale import ATTACHES, CASES, NEW, REFUSES, REFUSES_INPUT, Case

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "never-stale.md"
SAID = {
    ATTACHES: "attaches: nothing is run again",
    REFUSES: "is refused at once, and the run is left as it is",
    REFUSES_INPUT: "is refused by `wait` and `results`, and the run is left as it is",
    NEW: "is a new run",
}
BESIDE = "def g(x):\n    return x + {}\n"


def _edit(folder: Path, step: int) -> None:
    for path in (folder / "dq_beside.py", folder / "dq_package" / "beside.py"):
        path.write_text(BESIDE.format(step))


def _between(case: Case, folder: Path) -> None:
    if case.how in ("edit", "reload"):
        _edit(folder, 22)
    if case.how == "reload":
        importlib.reload(sys.modules["dq_beside"])
    if case.how == "file":
        (folder / "b.txt").write_text("other")
        os.utime(folder / "b.txt", ns=(1, 1))


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module and some files, in the path of this process alone."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name in [name for name in sys.modules if name.startswith(("dq_beside", "dq_over", "dq_package"))]:
        del sys.modules[name]
    (tmp_path / "dq_package").mkdir()
    (tmp_path / "dq_package" / "__init__.py").write_text("")
    (tmp_path / "dq_over.py").write_text("import dq_beside\n")
    _edit(tmp_path, 1)
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

    _between(case, beside)
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
    if case.how in ("edit", "reload"):
        assert sorted(pool.map(second, again).results(timeout=30)) == [n + 22 for n in again]
        calls *= 2
    if case.how == "queue":
        pool.close()
    assert len(tally) == (calls * 2 if case.outcome == NEW else calls)


LIKE = {
    "the order of a dictionary": (
        "V = {'a': 'old', 'b': 'new'}",
        "V = {'b': 'new', 'a': 'old'}",
        "next(iter(V.values()))",
    ),
    "the end of a long list": ("V = [('old',)]", "V = [('new',)]", "V[-1][0]"),
}


@pytest.mark.parametrize("what", LIKE)
@pytest.mark.parametrize("way", ["on_existing", "name"])
def test_new_run_never_gives_the_values_of_an_older_one(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch, what: str, way: str
) -> None:
    """Workers kept a cached function by its code version, in which the order of a dictionary does not count."""
    first, second, look = LIKE[what]
    if "list" in what:  # only the first parts count for a version
        monkeypatch.setattr(versions, "_MOST_PARTS", 1_000)
        first, second = (
            f"V = [(0, n) for n in range(1_200)]\n{text.replace('V =', 'V +=')}" for text in (first, second)
        )
    text = "{}\nimport functools\n@functools.cache\ndef get():\n    return {}\ndef f(x):\n    return get()\n"
    name = f"run-{queue.name}"
    old, new = (cell(text.format(values, look))["f"] for values in (first, second))
    assert versions.code_version(old).hash == versions.code_version(new).hash
    assert set(queue.map(old, range(4), name=name).results(timeout=30)) == {"old"}

    how: dict[str, Any] = {"name": name, "on_existing": "new"} if way == "on_existing" else {"name": f"{name}-2"}
    assert set(queue.map(new, range(4), **how).results(timeout=30)) == {"new"}


def test_page_holds_the_table() -> None:
    """What the page promises is what is tested, row by row."""
    rows = [f"| {case.what} | {SAID[case.outcome]} |" for case in CASES]

    assert len(CASES) >= 24
    text = PAGE.read_text(encoding="utf-8")
    assert [row for row in rows if row not in text] == []
    assert text.count("\n| ") == len(CASES) + 1
