"""A sample runs first, and the rest waits for its user: nothing runs twice, and nothing is lost, whoever dies."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, DqlabWarning, NotPicklable, Rehearsed, RunCancelled, RunError, RunExists
from dqlab.runs.submit.sender import RunSender
from dqlab.stats import RunState
from dqlab.testing import Tally
from tests.kit import forking
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
SCRIPT = """
    import sys
    from pathlib import Path
    import dqlab as dq
    from dqlab.runs.submit.mapping import Submitter
    from dqlab.runs.submit.sampling import SampleSubmitter
    from dqlab.testing import Tally
    from tests.runs.test_rehearsal import counted, held_up

    place, address, queue, folder = sys.argv[1:]
    lab = dq.connect(address, name="first")
    if place == "sample":
        reading = SampleSubmitter.reading
        SampleSubmitter.reading = lambda self: held_up(reading(self), 12, self.sender)
    run = lab.queue(queue).map(counted(Tally(Path(folder), "seen")), range(5000), name=queue, rehearse=30)
    run.submitter.join(60)
    if place == "rest":
        reading = Submitter.reading
        Submitter.reading = lambda self: held_up(reading(self), 1000, self.sender)
        run.go()
        run.submitter.join(600)
    print("ready", flush=True)
    sys.stdin.read()
"""


def counted(seen: Tally) -> Any:
    """Return a function that doubles, and counts its calls."""

    def double(x: int) -> int:
        seen.add(x)
        return 2 * x

    return double


def double(x: int) -> int:
    return 2 * x


def odd_fails(x: int) -> int:
    if x % 2:
        raise KeyError("abstract")
    return x


def fails(x: int) -> int:
    raise KeyError("abstract")


def held_up(elements: Any, n: int, sender: RunSender) -> Iterator[Any]:
    """Yield the first elements, and no others until this process is killed."""
    for at, element in enumerate(elements):
        if at == n:
            until(lambda: sender.held.size >= n)
            print("ready", flush=True)  # noqa: T201 - for the parent
            sys.stdin.read()
        yield element


@pytest.fixture
def seen(tmp_path: Path) -> Tally:
    """Counts calls, also those of a process that is killed."""
    return Tally(tmp_path, "seen")


def test_sample_runs_first_and_the_rest_after_go(queue: dq.QueuePool, queue_name: str, seen: Tally) -> None:
    """Each document runs once, under its own position."""
    run = queue.map(counted(seen), range(2000), name=queue_name, rehearse=30)
    rehearsal = run.rehearsal
    assert rehearsal.total == 2000
    assert [each.outcome for each in rehearsal.tried] == ["done"] * 30
    assert [each.value for each in rehearsal.tried] == [2 * each.ordinal for each in rehearsal.tried]
    assert list(rehearsal.table.index) == [each.ordinal for each in rehearsal.tried]
    assert run.state is RunState.INCOMPLETE
    assert run.stats().why == "rehearsed 30 of 2,000 documents"
    with pytest.raises(Rehearsed, match=r"has rehearsed 30 of 2,000 documents.*run\.go\(\) submits the rest"):
        run.wait(timeout=20)
    assert len(run.results(errors="skip", timeout=20)) == 30

    assert list(run.go().results(timeout=60)) == [2 * x for x in range(2000)]
    assert run.go() is run  # nothing waits any more
    assert str(run.rehearsal).startswith("rehearsed 30 of 2,000 documents, drawn from the whole input: 30 done")
    assert sorted(map(int, seen.seen())) == list(range(2000))
    assert queue.map(counted(seen), range(2000), name=queue_name, rehearse=30).stats().finished


@pytest.mark.long
@pytest.mark.parametrize("place", ["question", "sample", "rest"])
def test_kernel_that_dies_costs_no_document_and_no_second_run(
    lab: dq.Lab, queue: dq.QueuePool, seen: Tally, place: str
) -> None:
    """While it asks, in the middle of the sample, and after go: mapping again takes up where it was."""
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), place, lab.client.scheduler.address, queue.name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with forking.Popen([*command, str(seen.directory)], text=True, cwd=ROOT, **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
        child.wait()
    if place == "question":
        with pytest.raises(Rehearsed):
            lab.attach(queue.name).wait(timeout=30)
        with pytest.raises(RunError, match="Map the same documents under its name again"):
            lab.attach(queue.name).go()
        with pytest.raises(RunError, match="Map the same documents under its name again"):
            lab.attach(queue.name).rehearse(100)
        with pytest.raises(RunExists, match="other documents"):
            queue.map(counted(seen), range(1, 5001), name=queue.name)

    again = {} if place == "question" else {"rehearse": 30}
    run = queue.map(counted(seen), range(5000), name=queue.name, **again)  # type: ignore[arg-type]
    if place != "rest":  # it asks again, with the same documents
        assert len(run.rehearsal.tried) == 30
        with pytest.raises(Rehearsed):
            run.wait(timeout=30)
        assert len(seen) == 30
        run.go()

    assert list(run.results(timeout=60)) == [2 * x for x in range(5000)]
    assert sorted(map(int, seen.seen())) == list(range(5000))


def test_a_larger_rehearsal_adds_to_the_first(queue: dq.QueuePool, queue_name: str, seen: Tally) -> None:
    """ "Rehearse 100" runs seventy more."""
    fn = counted(seen)
    assert len(queue.map(fn, range(3000), name=queue_name, rehearse=30).rehearsal.tried) == 30
    run = queue.map(fn, range(3000), name=queue_name, rehearse=100)

    assert len(run.rehearsal.tried) == 100
    assert len(seen) == 100
    assert run.stats().why == "rehearsed 100 of 3,000 documents"
    assert len(run.rehearse(120).rehearsal.tried) == 120  # as the button does
    assert len(seen) == 120
    run = queue.map(fn, range(3000), name=queue_name, rehearse=0)  # in a script, nobody is asked
    assert list(run.results(timeout=60)) == [2 * x for x in range(3000)]
    assert len(seen) == 3000


def test_an_iterator_gives_its_first_documents_and_says_so(queue: dq.QueuePool, queue_name: str, seen: Tally) -> None:
    """What follows is unknown, so there is no estimate; and none of it is lost while the run waits."""
    elements, fn = iter(range(500)), counted(seen)
    run = queue.map(fn, elements, name=queue_name, rehearse=20)
    assert [each.ordinal for each in run.rehearsal.tried] == list(range(20))
    assert run.rehearsal.estimate() is None
    assert str(run.rehearsal).startswith("rehearsed the first 20 documents of an iterator in ")
    assert "an iterator does not say how many documents follow" in str(run.rehearsal)
    assert queue.map(fn, elements, name=queue_name, rehearse=20) is run  # the cell was run again
    assert [each.ordinal for each in run.rehearse(30).rehearsal.tried] == list(range(30))
    assert queue.map(fn, elements, name=queue_name, rehearse=20) is run

    assert list(run.go().results(timeout=60)) == [2 * x for x in range(500)]
    assert len(seen) == 500


@pytest.mark.parametrize("elements", [range(30), iter(range(30)), []], ids=["all", "iterator", "none"])
def test_fewer_documents_than_the_sample_run_at_once(queue: dq.QueuePool, elements: Any) -> None:
    """There is nothing to ask."""
    run = queue.map(double, elements, rehearse=30)
    with pytest.warns(DqlabWarning) if elements == [] else pytest.MonkeyPatch.context():
        found = list(run.results(timeout=30))

    assert found in ([], [2 * x for x in range(30)])
    with pytest.raises(RunError, match="was not rehearsed"):
        _ = run.rehearsal
    with pytest.raises(RunError, match="does not wait for `go`"):
        run.rehearse(100)


def test_sample_of_which_all_fail_has_no_estimate_and_its_cell_is_corrected(
    queue: dq.QueuePool, queue_name: str
) -> None:
    """The rest runs the code with which the sample was retried."""
    run = queue.map(fails, range(1000), name=queue_name, rehearse=30, retry=dq.Retry(0))
    said = str(run.rehearsal)
    assert "30 failed (KeyError: 'abstract' (fails:" in said
    assert said.endswith("no estimate, since no document of the sample is done")
    assert len(run.rehearsal.failures) == 30

    assert run.retry(fn=double) == 30
    assert "30 done" in str(run.rehearsal)
    assert list(run.go().results(timeout=60)) == [2 * x for x in range(1000)]
    assert len(run.versions) == 2


def test_failures_of_a_sample_are_named_and_the_others_estimated(queue: dq.QueuePool) -> None:
    """Money is named with a rate alone, and a wrong rate is refused."""
    run = queue.map(odd_fails, range(1000), rehearse=30, retry=dq.Retry(0))
    rehearsal = run.rehearsal
    dead = [each for each in rehearsal.tried if each.outcome == "failed"]
    assert [each.ordinal for each in dead] == [each.ordinal for each in rehearsal.tried if each.ordinal % 2]

    found = rehearsal.estimate(slots=4, rate=0.5)
    assert found is not None
    assert found.price is not None
    assert (found.documents, found.slots) == (1000, 4)
    assert found.worker_hours.low <= found.worker_hours.likely <= found.worker_hours.high
    assert found.price.likely == pytest.approx(0.5 * found.worker_hours.likely)
    assert found.nbytes is not None
    assert found.nbytes.low > 1000
    assert "at 0.5 a worker-hour" in str(found)
    assert "costs" not in rehearsal.text()
    for rate in ("0.04", True, -1, float("nan")):
        with pytest.raises(BadOption, match="rate"):
            rehearsal.estimate(rate=rate)  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="slots"):
        rehearsal.estimate(slots=0)
    run.cancel()


def test_estimate_names_the_limit_that_binds(queue: dq.QueuePool) -> None:
    """More slots do not help there."""
    run = queue.map(double, range(30_000), rehearse=12, limit="6000/min")
    found = run.rehearsal.estimate(slots=64)

    assert found is not None
    assert found.seconds.likely == pytest.approx(300)
    assert "bound by its limit of 6,000 a minute" in str(found)
    run.cancel()


@pytest.mark.parametrize(
    ("terms", "bound"),
    [
        ({"limit": {"tokens": "600k/min"}}, "its limit of 600,000 tokens a minute"),
        ({"budget": "2 eur"}, "its budget, which pays for about 200 documents"),
        ({"budget": "2000 eur"}, "computing"),
    ],
    ids=["tokens", "budget", "enough"],
)
def test_estimate_names_what_the_sample_spends(queue: dq.QueuePool, terms: dict[str, Any], bound: str) -> None:
    """By what a document of it has cost."""

    def pays(x: int) -> None:
        dq.spend(tokens=1000, eur=0.01)

    run = queue.map(pays, range(30_000), rehearse=12, **terms)
    found = run.rehearsal.estimate(slots=64)

    assert found is not None
    assert found.bound == bound
    assert found.seconds.likely == pytest.approx(30_000 / 600 * 60) or "tokens" not in bound
    run.cancel()


def test_marks_say_how_many_results_are_right(queue: dq.QueuePool, queue_name: str) -> None:
    """Crashes are seen, wrong answers are not; who maps again still has the marks."""
    run = queue.map(odd_fails, range(0, 20_000, 2), name=queue_name, rehearse=30)
    keys = list(run.rehearsal.table.index)
    assert (len(run.marks), repr(run.marks), run.marks.share) == (0, "no result is marked", (0.0, 1.0))

    assert repr(run.marks.right(*keys[:28]).wrong(*keys[27:])) == "27 of 30 right: 74 to 97 %"
    assert run.rehearsal.text().endswith("marked: 27 of 30 right: 74 to 97 %")
    for wrong in (-1, [], "a.pdf"):
        with pytest.raises(BadOption, match="Nothing was marked"):
            run.marks.right(keys[29], wrong)
    run.marks.forget(keys[0])
    again = queue.map(odd_fails, range(0, 20_000, 2), name=queue_name, rehearse=30)
    assert again.marks.to_dict() == {key: key in keys[1:27] for key in keys[1:]}
    run.cancel()


def test_estimate_says_how_many_slots_end_by_then(queue: dq.QueuePool) -> None:
    """And that no number does, where a limit binds."""
    run = queue.map(lambda x: time.sleep(0.02), range(20_000), rehearse=12)
    later = datetime.now(UTC) + timedelta(seconds=60)
    found = run.rehearsal.estimate(by=later)
    assert found is not None
    assert found.needed is not None
    assert 7 <= found.needed <= 20  # 400 seconds of work in 60
    assert found.slots == found.needed
    assert f"whole run: {found.needed} slots to be done in " in str(found)
    assert (fewer := run.rehearsal.estimate(found.needed - 1)) is not None
    assert fewer.seconds.high > 59
    with pytest.raises(BadOption, match="in the past"):
        run.rehearsal.estimate(by=datetime.now(UTC))
    with pytest.raises(BadOption, match="by"):
        run.rehearsal.estimate(by="tomorrow")
    run.cancel()

    slow = queue.map(double, range(30_000), rehearse=12, limit="6000/min").rehearsal
    found = slow.estimate(by=datetime.now(UTC) + timedelta(seconds=60))
    assert found is not None
    assert found.needed is None
    assert "no number of slots ends in " in str(found)
    assert "bound by its limit of 6,000 a minute" in str(found)


class Model:
    def __init__(self) -> None:
        time.sleep(0.3)

    def __call__(self, x: int) -> int:
        return x


def test_set_up_is_kept_apart_and_the_peak_of_memory_named(queue: dq.QueuePool) -> None:
    """A sample of thirty would otherwise pay for a model that is loaded once."""
    run = queue.map(Model, range(1000), rehearse=30)
    found = run.rehearsal.estimate()

    assert found is not None
    assert 0.3 <= found.setup < 3
    assert found.worker_hours.high * 3600 < 10
    assert found.peak is not None
    assert found.peak > 10 << 20
    assert "a process · set-up " in str(found)
    run.cancel()


def test_cancel_ends_the_question(queue: dq.QueuePool, queue_name: str) -> None:
    """And a cancelled run does not go on."""
    run = queue.map(double, range(1000), name=queue_name, rehearse=30)
    assert len(run.rehearsal.tried) == 30

    run.cancel()

    assert run.state is RunState.CANCELLED
    with pytest.raises(RunCancelled):
        run.wait(timeout=20, errors="raise")
    run.go()
    assert run.counts["acked"] == sum(run.counts.values()) == 30


def test_files_that_came_while_the_run_waited_are_refused_before_anything_runs(
    queue: dq.QueuePool, queue_name: str, tmp_path: Path
) -> None:
    """Every position after a new file would have another file's document."""
    for at in range(50):
        (tmp_path / f"f{at:02}.txt").write_text("x" * (at + 1))
    listing = dq.Documents.from_glob(str(tmp_path / "*.txt"))
    run = queue.map(lambda doc: doc.size, listing, name=queue_name, rehearse=9)
    assert {each.stratum for each in run.rehearsal.tried} == {"small", "middle", "large"}
    (tmp_path / "a.txt").write_text("new")

    with pytest.raises(RunExists, match="other documents"):
        run.go()
    assert sum(run.counts.values()) == 9

    (tmp_path / "a.txt").unlink()
    assert list(run.go().results(timeout=60)) == list(range(1, 51))


def test_rows_are_drawn_by_row_groups(queue: dq.QueuePool, tmp_path: Path) -> None:
    """A row group is decoded once for three of its rows."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"n": range(3000)}), tmp_path / "rows.parquet", row_group_size=100)
    rows = dq.Documents.from_parquet(str(tmp_path / "rows.parquet"))
    run = queue.map(lambda row: row["n"], rows, rehearse=30)

    assert len({each.ordinal // 100 for each in run.rehearsal.tried}) == 10
    assert "drawn by row groups from 10 of 30" in str(run.rehearsal)
    assert list(run.go().results(timeout=60)) == list(range(3000))


def test_an_input_that_cannot_be_sent_is_refused_before_there_is_a_run(queue: dq.QueuePool, queue_name: str) -> None:
    """As is a number of documents that is none."""
    with pytest.raises(NotPicklable, match="element 7"):
        queue.map(double, [*range(7), (x for x in "ab")], name=queue_name, rehearse=3)
    for wrong in (-1, True, "30"):
        with pytest.raises(BadOption, match="rehearse"):
            queue.map(double, range(7), name=queue_name, rehearse=wrong)  # type: ignore[arg-type]
    assert queue_name not in [run.name for run in queue.session.runs.everything()]
