"""Other code over a sample of a run: only the new code runs, the run stays, and counts add up."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dqlab as dq
from dqlab.errors import BadOption, RunError, RunExists
from dqlab.runs.compare.comparing import compare
from dqlab.runs.compare.comparison import Became, Comparison
from dqlab.testing import Tally

pytestmark = pytest.mark.filterwarnings("ignore:.*failed. run.failures:dqlab.errors.DqlabWarning")
NOTHING = dq.Retry(0)


def old(x: int) -> dict[str, Any]:
    if x % 50 == 7:
        raise KeyError("abstract")
    return {"x": x, "label": "a"}


def new(x: int) -> dict[str, Any]:
    if x % 100 in (7, 13):
        raise ValueError("too long")
    return {"x": x, "label": "b" if x % 20 == 0 else "a"}


@pytest.fixture
def run(queue: dq.QueuePool, queue_name: str) -> dq.Run:
    """A run of which one in fifty has failed."""
    return queue.map(old, range(2000), name=queue_name, retry=NOTHING).wait()


def truth() -> int:
    """How many of its documents the new code changes: 100 labels, 20 that fail and 20 that work."""
    return 140


def test_new_code_alone_runs_over_the_sample(queue: dq.QueuePool, queue_name: str, tmp_path: Path) -> None:
    """Old values are read from the run, which stays as it was; nothing of the comparison is left behind."""
    first, second = Tally(tmp_path, "old"), Tally(tmp_path, "new")

    def before(x: int) -> int:
        first.add(x)
        return x

    def after(x: int) -> int:
        second.add(x)
        return x + (x % 10 == 0)

    run = queue.map(before, range(1000), name=queue_name).wait()
    found = run.compare(after, sample=100)

    assert len(first) == 1000
    assert sorted(map(int, second.seen())) == [each.ordinal for each in found.pairs]
    assert len(set(second.seen())) == 100
    assert [each.ordinal for each in found.changed] == [each.ordinal for each in found.pairs if each.ordinal % 10 == 0]
    assert all((each.before, each.after) == (each.ordinal, each.ordinal + 1) for each in found.changed)
    assert list(run.results()) == list(range(1000))
    assert len(run.versions) == 1
    assert [each.name for each in queue.session.runs if each.queue == queue.name] == [queue_name]
    assert [each.ordinal for each in run.compare(after, sample=100).pairs] == [each.ordinal for each in found.pairs]


def test_dead_documents_are_a_stratum_and_counts_add_up(run: dq.Run) -> None:
    """Without them nothing would show what newly works."""
    found = run.compare(new, sample=300)

    assert sum(found.counts.values()) == found.sample == 300
    assert found.counts[Became.NEWLY_WORKS] + found.counts[Became.STILL_FAILS] == 30
    for each in found.pairs:
        fails, failed = each.ordinal % 100 in (7, 13), each.ordinal % 50 == 7
        labels = Became.CHANGED if each.ordinal % 20 == 0 else Became.EQUAL
        expected = Became.NEWLY_FAILS if fails else labels
        expected = (Became.STILL_FAILS if fails else Became.NEWLY_WORKS) if failed else expected
        assert each.became is expected, each
        assert each.error.startswith("ValueError: too long" if fails else "KeyError: 'abstract'" if failed else "")
    assert found.share.low <= truth() / 2000 <= found.share.high
    assert str(found).startswith("v1 → v2 on 300 of 2,000 documents: ")
    assert list(found.to_frame().became[:3]) == [str(each.became) for each in found.pairs[:3]]


def test_sample_of_which_all_fail_is_compared(run: dq.Run) -> None:
    """A comparison never pauses itself."""

    def fails(x: int) -> int:
        raise KeyError("abstract")

    found = run.compare(fails, sample=200)
    assert found.counts[Became.NEWLY_FAILS] + found.counts[Became.STILL_FAILS] == 200
    assert not run.compare(old, sample=200).changed


def test_what_is_marked_is_compared_and_named(queue: dq.QueuePool, queue_name: str) -> None:
    """A change of what was wrong is wanted, one of what was right is not; and both count in the share as they are."""
    run = queue.map(old, range(2000), name=queue_name, retry=NOTHING, rehearse=30)
    done = [each.ordinal for each in run.rehearsal.tried if each.outcome == "done"]
    run.marks.right(*done[:8]).wrong(*done[8:12])
    run.go().wait()

    found = run.compare(new, sample=300)

    assert {each.ordinal: each.marked for each in found.pairs if each.marked is not None} == {
        ordinal: at < 8 for at, ordinal in enumerate(done[:12])
    }
    assert found.sample == 300
    wrong = sum(ordinal % 20 == 0 or ordinal % 100 == 13 for ordinal in done[8:12])
    assert f"of 4 marked wrong {wrong} would change, of 8 marked right " in found.summary
    assert found.share.low <= truth() / 2000 <= found.share.high


def test_equal_and_score_are_the_users(run: dq.Run) -> None:
    """What is not compared is equal; and only a score says what is better."""
    found = run.compare(new, sample=300, equal=dq.same("x"), score=lambda key, value: value["label"] == "b")
    assert not found.counts[Became.CHANGED]
    assert "better for" in found.summary
    assert "better" not in run.compare(new, sample=300).summary

    def raises(one: Any, other: Any) -> bool:
        raise TypeError("no")

    for option in ("equal", "score"):
        with pytest.raises(BadOption, match=f"{option}=.*raised TypeError: no at document"):
            run.compare(new, sample=20, **{option: raises})  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="is a function"):
        run.compare(new, equal=1)  # type: ignore[arg-type]


def test_noise_of_the_old_code_is_shown_beside(queue: dq.QueuePool, queue_name: str) -> None:
    """For coroutines and functions with random numbers by itself; for others if asked."""

    async def guesses(x: int) -> int:
        return random.randrange(10**9)  # each repeat changes, so that chance cannot fail this test

    def counts(x: int) -> int:
        return x

    run = queue.map(guesses, range(300), name=queue_name).wait()
    found = run.compare(guesses, sample=100)
    assert len(found.noise or ()) == 30
    assert {each.ordinal for each in found.noise or ()} <= {each.ordinal for each in found.pairs}
    assert found.beyond_noise is False
    assert "of 30 repeats of the old code changed too" in found.summary
    assert run.compare(guesses, sample=100, noise=0).noise is None

    async def draws(x: int) -> int:
        return x

    assert run.compare(counts, sample=20).noise is not None  # the old code may vary
    assert queue.map(draws, range(50)).wait().compare(draws, sample=20).noise is not None
    sure = queue.map(counts, range(100)).wait()
    assert sure.compare(counts, sample=50).noise is None
    assert "noise: 0 of 5 repeats" in sure.compare(counts, sample=50, noise=5).summary


def test_rows_of_a_sink_are_the_same_as_what_was_returned(queue: dq.QueuePool, queue_name: str, tmp_path: Path) -> None:
    """Although arrays come back as lists, and a missing key as null."""

    def row(x: int) -> dict[str, Any]:
        return {"x": x, "pair": (x, x), "array": np.arange(2.0)} | ({"more": 1} if x % 2 else {})

    run = queue.map(row, range(100), name=queue_name, sink=str(tmp_path / "out")).wait()
    assert run.compare(row, sample=40).counts[Became.EQUAL] == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def test_repeated_keys_are_paired_by_position(queue: dq.QueuePool, queue_name: str, tmp_path: Path) -> None:
    """Each document has its own old value."""
    for at in range(40):
        (tmp_path / str(at)).mkdir()
        (tmp_path / str(at) / "same.txt").write_text(str(at))
    docs = [doc for at in range(40) for doc in dq.Documents.from_glob(f"{tmp_path}/{at}/*.txt")]
    run = queue.map(lambda doc: int(doc.text()), docs, name=queue_name).wait()
    assert {each.key for each in docs} == {"same.txt"}
    assert run.compare(lambda doc: float(doc.text()), sample=30).counts[Became.EQUAL] == 30


def test_first_differences_come_while_it_runs(queue: dq.QueuePool, queue_name: str) -> None:
    """At once when the first pair has ended, though the last takes longer."""

    def slow(x: int) -> int:
        time.sleep(1.5 if x == 59 else 0.0)
        return -x - 1

    run = queue.map(int, range(60), name=queue_name).wait()
    came: list[tuple[float, Comparison]] = []
    started = time.monotonic()
    options: dict[str, Any] = {"equal": None, "score": None, "noise": 0}
    compare(run, slow, sample=60, seen=lambda found: came.append((time.monotonic() - started, found)), **options)
    first = next(at for at, found in came if found.changed)
    assert first < came[-1][0] - 0.7
    assert len(came[-1][1].pairs) == 60


def test_interrupted_comparison_leaves_nothing_behind(queue: dq.QueuePool, run: dq.Run) -> None:
    """Ctrl-C drops what runs beside, and the run is as it was."""

    def interrupt(found: Comparison) -> None:
        raise KeyboardInterrupt

    options: dict[str, Any] = {"equal": None, "score": None, "noise": 0}
    with pytest.raises(KeyboardInterrupt):
        compare(run, new, sample=100, seen=interrupt, **options)
    assert [each.name for each in queue.session.runs if each.queue == queue.name] == [run.name]
    assert run.counts["acked"] == 1960


@pytest.mark.parametrize("elements", [[*range(1, 2001)], [*range(1999)]], ids=["other", "shorter"])
def test_changed_input_is_refused(queue: dq.QueuePool, queue_name: str, elements: list[int]) -> None:
    """A pair of two documents would say nothing."""
    given = list(range(2000))
    run = queue.map(old, given, name=queue_name, retry=NOTHING).wait()
    assert run.submitter is not None
    run.submitter.elements = elements
    with pytest.raises(RunExists, match="other documents"):
        run.compare(new)


def test_what_cannot_be_compared_is_refused(queue: dq.QueuePool, queue_name: str) -> None:
    """Before anything runs, with the next step."""
    once = queue.map(int, iter(range(10)), name=queue_name).wait()
    with pytest.raises(RunError, match="can be read only once"):
        once.compare(int)
    none = queue.map(int, range(10))
    queue.pause()
    waiting = queue.map(int, range(10))
    with pytest.raises(RunError, match="has an outcome yet"):
        waiting.compare(int)
    queue.resume()
    other = dq.Run(none.name, none.id, none.handle, beside=none.beside)
    with pytest.raises(RunError, match="not known in this process"):
        other.compare(int)
    assert not other.compare(int, documents=list(range(10))).changed
    with pytest.raises(RunExists, match="other documents"):
        other.compare(int, documents=list(range(1, 11)))
    for bad in ({"sample": 0}, {"sample": 1.5}, {"noise": -1}):
        with pytest.raises(BadOption):
            none.compare(int, **bad)  # type: ignore[arg-type]
    with pytest.raises(BadOption):
        none.compare(3)  # type: ignore[arg-type]


def test_batches_and_setup_are_those_of_the_run(queue: dq.QueuePool, queue_name: str) -> None:
    """The new code is called as the run's own, although the queue no longer keeps that."""

    def double(xs: list[int], add: int) -> list[int]:
        return [2 * x + add for x in xs]

    def triple(xs: list[int], add: int) -> list[int]:
        return [3 * x + add for x in xs]

    run = queue.map(double, range(100), name=queue_name, batch=10, setup={"add": lambda: 1}).wait()
    found = run.compare(triple, sample=20)
    assert [each.after for each in found.pairs] == [3 * each.ordinal + 1 for each in found.pairs]
