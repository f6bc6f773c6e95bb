"""Documents of a run run again: their old results stay until the new ones are there, and no row comes twice."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.datasets.table import QueryError
from dqlab.errors import BadOption, RunError, RunExists

pytestmark = pytest.mark.filterwarnings("ignore:.*failed. run.failures:dqlab.errors.DqlabWarning")


def old(x: int) -> int:
    return x


def new(x: int) -> int:
    if x == 7:
        raise KeyError("seven")
    return x + 1000


def test_documents_run_again_in_their_places(queue: dq.QueuePool, queue_name: str) -> None:
    run = queue.map(old, range(50), name=queue_name, retry=dq.Retry(0)).wait()
    assert run.redo(new, keys=[3, 7, 40]) == 3
    run.wait()
    expected: list[Any] = [x + 1000 if x in (3, 40) else x for x in range(50)]
    assert list(run.results(errors="return")) == list(run.results(errors="skip")) == expected
    assert run.counts["acked"] == 49
    assert [letter.ordinal for letter in run.failures()] == [7]
    assert [(each.version, each.results) for each in run.versions] == [(1, 47), (2, 2)]
    assert sorted(x for _, x in run.as_completed()) == sorted(expected)
    assert queue.map(old, range(50), name=run.name).id == run.id  # its documents are the same as before
    assert run.redo(old, keys=[7]) == 1
    run.wait()
    assert list(run.results()) == expected
    assert run.redo(old) == 50
    assert list(run.wait().results()) == list(range(50))


@pytest.mark.parametrize("keyed", [False, True])
def test_documents_whose_results_meet_a_condition_run_again(
    queue: dq.QueuePool, queue_name: str, *, keyed: bool
) -> None:
    rows = [{"id": f"k{x}", "x": x} for x in range(20)]
    documents = dq.Documents.from_frame(pd.DataFrame(rows), key="id") if keyed else rows
    run = queue.map(lambda row: {"x": row["x"], "by": "old"}, documents, name=queue_name).wait()
    assert run.redo(lambda row: {"x": row["x"], "by": "new"}, where="x % 7 == 3") == 3
    assert [row["x"] for row in run.wait().results() if row["by"] == "new"] == [3, 10, 17]
    with pytest.raises(BadOption, match="keys="):
        run.redo(keys=[3], where="x == 3")
    with pytest.raises(QueryError, match="nope"):
        run.redo(where="nope == 3")


def test_a_run_in_batches_takes_new_code_after_its_end(queue: dq.QueuePool, queue_name: str) -> None:
    """Its plan stands beside the newest function, which the queue keeps although nothing is left to run."""
    run = queue.map(lambda xs: xs, range(30), name=queue_name, batch=7).wait()
    run.accept_code(lambda xs: [x + 0 for x in xs])
    assert not run.compare(lambda xs: list(xs), sample=10).changed
    other = dq.Run(run.name, run.id, run.handle, None, run.on_drop, run.beside, run.updates)  # as in another process
    assert other.redo(lambda xs: [x + 1 for x in xs], keys=[3], documents=range(30)) == 1
    assert list(other.wait().results()) == [x + (x == 3) for x in range(30)]


def test_a_redo_that_cannot_be_right_runs_nothing(queue: dq.QueuePool, queue_name: str) -> None:
    run = queue.map(old, range(5), name=queue_name).wait()
    with pytest.raises(RunExists, match="other documents"):
        run.redo(new, documents=range(1, 6))
    with pytest.raises(BadOption, match="has no result"):
        run.redo(new, keys=[99])
    with pytest.raises(BadOption, match="in a list"):
        run.redo(new, keys="a.pdf")
    run.cancel()
    assert list(run.results()) == list(range(5))
    assert len(run.versions) == 1


def test_a_run_whose_input_can_be_read_only_once_asks_for_it(queue: dq.QueuePool, queue_name: str) -> None:
    run = queue.map(old, iter(range(5)), name=queue_name).wait()
    with pytest.raises(RunError, match="only once"):
        run.redo(new)
    assert run.redo(new, keys=[1], documents=range(5)) == 1
    assert list(run.wait().results()) == [0, 1001, 2, 3, 4]
