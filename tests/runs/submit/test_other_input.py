"""Other documents under the name of a run that is still being submitted are refused, as they are afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import RunCancelled, RunExists
from dqlab.testing import Tally
from tests.kit.sampled import mostly_slow


def listing(*names: str) -> list[dq.Document]:
    """Documents `a` or `a@v2`."""
    parts = [name.partition("@") for name in names]
    return [dq.Document(key, version or "v1", f"/nowhere/{key}") for key, _, version in parts]


WAS = listing(*"abcd")
OTHERS = {
    "grown": listing(*"abcde"),
    "shrunk": listing(*"abc"),
    "reordered": listing(*"acbd"),
    "disjoint": listing(*"wxyz"),
    "changed version": listing("a", "b@v2", "c", "d"),
    "equal": listing(*"abcd"),
}


TIMES = [(False, "attach"), (False, "retry-failed"), (True, "attach")]
"""Whether other documents come while the first ones are submitted, and what is asked for."""
WAYS = [(other, *way) for other, way in product(OTHERS, TIMES)]
EACH_TIME = WAYS[::2]
"""All documents, and all times."""


def same(x: int) -> int:
    return x


def held(elements: Iterable[Any], until: threading.Event, at: int = 2) -> Iterator[Any]:
    """Wait for the event before one of the elements, 30 s at most."""
    for ordinal, element in enumerate(elements):
        if ordinal == at:
            until.wait(30)
        yield element


@pytest.fixture
def goes_on() -> Iterator[threading.Event]:
    """What the input of the first `map` waits for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.runs.run_book.COMPARING", 0.0)
    monkeypatch.setattr("dqlab.runs.run_book.AT_ONCE", 0.0)


@pytest.mark.parametrize(("other", "submitting", "on_existing"), mostly_slow(WAYS, *EACH_TIME))
def test_run_attaches_to_the_same_documents_alone(
    queue: dq.QueuePool, tmp_path: Path, goes_on: threading.Event, other: str, submitting: bool, on_existing: Any
) -> None:
    """Wrong pattern, mended at once, cell run again: the results were those of the old listing, without a word."""
    tally, name = Tally(tmp_path), f"run-{queue.name}"

    def fails(document: dq.Document) -> str:
        tally.add(document.key)
        if document.key == "b":
            raise ValueError
        return document.key

    def mended(document: dq.Document) -> str:
        tally.add(document.key)
        return document.key

    retries = on_existing == "retry-failed"
    first = queue.map(fails if retries else mended, held(WAS, goes_on), name=name, retry=dq.Retry(0))
    if not submitting:
        goes_on.set()
        first.wait(timeout=30)

    again = None
    try:
        again = queue.map(mended, iter(OTHERS[other]), name=name, on_existing=on_existing)
        assert again.id == first.id
    except RunExists:  # compared before `map` looked
        assert other != "equal"
    goes_on.set()

    if other == "equal":
        assert list(again.results(timeout=30)) == list("abcd")
        assert sorted(tally.seen()) == sorted("abcdb" if retries else "abcd")
        return
    for ask in () if again is None else (again.wait, again.results, lambda timeout: list(again.as_completed(timeout))):
        with pytest.raises(RunExists, match="documents"):
            ask(timeout=30)
    same_again = queue.map(mended, WAS, name=name, on_existing=on_existing).wait(timeout=30)
    assert list(same_again.results(timeout=30)) == list("abcd")
    assert sum(same_again.counts.values()) == 4


def test_retry_failed_while_the_first_input_goes_on_is_refused_with_both_ways_out(
    queue: dq.QueuePool, goes_on: threading.Event
) -> None:
    """Nobody knows yet whether the documents are the same, and the submission may wait for this very retry."""
    first = queue.map(same, held(range(5), goes_on), name=f"run-{queue.name}")
    with pytest.raises(RunExists, match=rf"still being submitted.*after its end.*attach\('{first.name}'\)\.retry"):
        queue.map(same, range(5), name=first.name, on_existing="retry-failed")
    goes_on.set()

    assert list(first.results(timeout=30)) == list(range(5))


def test_other_documents_of_another_client_are_refused_while_the_first_submits(
    lab: dq.Lab, queue: dq.QueuePool, goes_on: threading.Event
) -> None:
    """The other one is a kernel that nobody thinks of any more."""
    first = queue.map(same, held(range(5), goes_on), name=f"run-{queue.name}")
    with Client(lab.client.scheduler.address, set_as_default=False) as client:
        second = dq.QueuePool(client, name=queue.name).map(same, range(10, 15), name=first.name)
        goes_on.set()
        with pytest.raises(RunExists, match="other documents"):
            second.results(timeout=30)
    assert list(first.results(timeout=30)) == list(range(5))


def test_cancelling_ends_the_submission_and_who_attached_meanwhile(
    queue: dq.QueuePool, goes_on: threading.Event
) -> None:
    """Neither thread goes on for a run that nobody wants."""
    first = queue.map(same, held(range(5), goes_on), name=f"run-{queue.name}")
    again = queue.map(same, range(5), name=first.name)
    first.cancel()

    for run in (first, again):
        with pytest.raises(RunCancelled):
            run.results(timeout=30)
        assert run.submitter is not None
        assert run.submitter.join(30)


def test_map_over_other_documents_raises_and_leaves_variables_of_earlier_cells_alone(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried on five under the same name, the variable was the old run: dropping it dropped the old results."""
    monkeypatch.setattr("dqlab.runs.run_book.AT_ONCE", 20.0)
    full = queue.map(same, range(1000), name=f"run-{queue.name}").wait(timeout=30)

    with pytest.raises(RunExists, match="1,000 documents, these are 5"):
        queue.map(same, range(5), name=full.name)

    assert list(full.results(timeout=30)) == list(range(1000))


@pytest.mark.parametrize("act", ["cancel", "drop", "retry"])
@pytest.mark.parametrize("compared", [True, False], ids=["compared", "still compared"])
def test_order_to_a_run_that_has_other_documents_is_refused(
    lab: dq.Lab,
    queue: dq.QueuePool,
    act: str,
    compared: bool,
    goes_on: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`map` has returned when a slow listing turns out to differ: `drop` deleted the results that were there."""
    monkeypatch.setattr("dqlab.runs.run_wait.COMPARED", 20.0 if compared else 0.05)
    full = queue.map(same, range(1000), name=f"run-{queue.name}").wait(timeout=30)
    test = queue.map(same, held(range(999), goes_on), name=full.name)
    if compared:
        goes_on.set()
    why = "1,000 documents, these are 999" if compared else r"still compared with.*It was left as it is.*lab\.attach"

    with pytest.raises(RunExists, match=why):
        getattr(test, act)()

    assert not compared or "these are 999" in str(test)
    kept = lab.attach(full.name)
    assert list(kept.results(timeout=30)) == list(range(1000))
    goes_on.set()
    with pytest.raises(RunExists, match="1,000 documents, these are 999"):
        test.wait(timeout=30)
    kept.drop()
    assert full.name not in [run.name for run in lab.runs]
