"""The code of a comparison becomes that of its run, or an edit is declared equal; views say who made what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, DqlabWarning, RunError, RunExists
from dqlab.runs.compare.comparison import Comparison

pytestmark = pytest.mark.filterwarnings("ignore:.*failed. run.failures:dqlab.errors.DqlabWarning")
NOTHING = dq.Retry(0)


def old(x: int) -> int:
    if x % 50 == 7:
        raise KeyError("abstract")
    return x


def new(x: int) -> int:
    return x + (x % 20 == 0)


def same(x: int) -> int:
    if x % 50 == 7:
        raise KeyError("abstract")
    return int(x)


def more(x: int) -> int:
    return x + 1


@pytest.fixture
def run(queue: dq.QueuePool, queue_name: str) -> dq.Run:
    """A run of which one in fifty has failed."""
    return queue.map(old, range(200), name=queue_name, retry=NOTHING).wait()


@pytest.fixture
def found(run: dq.Run) -> Comparison:
    """What the new code changes in it."""
    return run.compare(new, sample=50)


def test_accepted_code_is_that_of_the_run(queue: dq.QueuePool, run: dq.Run, found: Comparison) -> None:
    """Its cell attaches; results stay until their documents run again, and the versions say who made them."""
    with pytest.raises(RunExists, match="other code"):
        queue.map(new, range(200), name=run.name)
    assert run.accept(found) == 0
    assert queue.map(new, range(200), name=run.name).name == run.name
    assert [(each.version, each.results) for each in run.versions] == [(1, 196), (2, 0)]
    assert list(run.results(errors="skip")) == [x for x in range(200) if x % 50 != 7]
    assert run.accept(run.compare(new, sample=50)) == 0  # again changes nothing
    assert len(run.versions) == 2


def test_what_failed_runs_again_with_the_accepted_code(run: dq.Run, found: Comparison, tmp_path: Path) -> None:
    """Then two versions made the results, which can be read apart; who publishes them is warned."""
    assert run.accept(found, redo="failed") == 4
    run.wait()
    assert [each.results for each in run.versions] == [196, 4]
    assert list(run.results(code=2)) == [7, 57, 107, 157]
    assert len(run.results(code=1)) == 196
    assert list(run.results(code=2).keys()) == [7, 57, 107, 157]
    with pytest.warns(DqlabWarning, match="of several code versions: 196 results by v1, 4 results by v2"):
        run.publish(tmp_path / "out")
    assert run.compare(new, sample=200).versions == "v1, v2 → v2"


def test_declared_equal_code_attaches_and_is_not_mixed(
    queue: dq.QueuePool, run: dq.Run, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Nothing runs again; what is retried with it later counts as of the same code."""
    assert run.accept_code(same) is run
    assert [(each.results, each.note) for each in run.versions] == [(196, ""), (0, "changes no result")]
    assert list(queue.map(same, range(200), name=run.name).results("skip")) == list(run.results("skip"))
    run.publish(tmp_path / "out")
    assert not [each for each in recwarn if "several code versions" in str(each.message)]
    with pytest.raises(BadOption):
        run.accept_code(3)  # type: ignore[arg-type]


def test_versions_are_compared_by_their_source(run: dq.Run) -> None:
    """Lines that differ, and nothing of versions that the run never had."""
    run.accept_code(same)
    lines = run.diff(1, 2).splitlines()
    assert "-    return x" in lines
    assert "+    return int(x)" in lines
    assert run.diff(1, 1) == ""
    for one, other in ((0, 1), (1, 3), ("1", 2)):
        with pytest.raises(BadOption, match="number of a version, 1 to 2"):
            run.diff(one, other)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="number of a version"):
        run.results("skip", code=3)
    for wrong in ({"errors": "return"}, {"merge": sum}):
        with pytest.raises(BadOption, match="chooses among results"):
            run.results(code=1, **wrong)  # type: ignore[call-overload]


@pytest.mark.parametrize("what", ["none", "other run", "redo", "newer code", "new run", "input", "early"])
def test_what_cannot_be_accepted_is_refused(queue: dq.QueuePool, run: dq.Run, found: Comparison, what: str) -> None:
    """And the run stays as it was."""
    given: Any = found
    expected: tuple[type[Exception], str] = BadOption, "Nothing changed"
    if what == "none":
        given = "v2"
    elif what == "other run":
        other = queue.map(old, range(60), retry=NOTHING).wait()
        given, expected = other.compare(new, sample=10), (BadOption, "is of run")
    elif what == "newer code":
        run.accept_code(same)
        expected = RunError, "has got other code since"
    elif what == "input":
        given, expected = replace(found, input="of other documents"), (RunExists, "other documents than were compared")
    elif what == "early":
        given = replace(found, pairs=found.pairs[:3])
    elif what == "new run":
        run.drop()
        run = queue.map(old, range(60), name=run.name, retry=NOTHING).wait()
        expected = BadOption, "or of an earlier one of that name"
    before = len(run.versions)
    with pytest.raises(expected[0], match=expected[1]):
        run.accept(given, **({"redo": "some"} if what == "redo" else {}))
    assert len(run.versions) == before
