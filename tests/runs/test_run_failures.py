"""Failures: retried while that may help, then dead letters that say why, then mended by new code."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
import time
import types
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from distributed import Client

import dqlab as dq
from dqlab.cluster.transport import queue_calls
from dqlab.errors import BadOption, DqlabWarning, RunError, RunFailed
from dqlab.live.tables import failures_table
from dqlab.rules.ranges import shard_of
from dqlab.testing import Tally
from tests.kit.cells import of_a_cell
from tests.kit.waiting import until
from tests.live.drawn import table_text
from tests.runs.code.test_code import cell

pytestmark = pytest.mark.lowest


@of_a_cell
class Flaky:
    """Raises on its first `failures` calls for each element, in whatever process."""

    def __init__(self, directory: Path, failures: int) -> None:
        self.tally, self.failures = Tally(directory), failures

    def __call__(self, x: int) -> int:
        self.tally.add(x)
        if self.tally.seen().count(str(x)) <= self.failures:
            raise OSError(f"disk {x} is busy")
        return x


@pytest.mark.parametrize("fails", [True, False])
def test_a_wait_raises_what_failed_where_a_script_asks_for_it(
    queue: dq.QueuePool, fails: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """A nightly script with dead documents ended with status 0."""
    run = queue.map(needs_text, [1, 2, 3 if fails else 4], retry=dq.Retry(0))
    if fails:
        with pytest.raises(RunFailed, match="1 of 3 documents"):
            run.wait(timeout=30, errors="raise")
    else:
        assert run.wait(timeout=30, errors="raise") is run
    assert not recwarn.list
    with pytest.raises(BadOption, match="errors='skip'"):
        run.wait(errors="skip")  # type: ignore[arg-type]


def needs_text(x: int) -> int:
    if x == 3:
        raise dq.Reject("no text in it")
    return x


def divides_by_zero(x: int) -> float:
    return x / 0


def needs_a_package(x: int) -> int:
    import a_package_nobody_has  # type: ignore[import-not-found]

    return int(a_package_nobody_has.value) + x


def parse(x: int) -> int:
    if x % 10 == 3:
        raise KeyError(f"page {x}")
    if x % 10 == 7:
        raise ValueError(f"bad number {x}")
    return x


def parse_better(x: int) -> int:
    return -x


def title(document: dq.Document) -> str:
    raise ValueError(f"no title in {document.key}")


ONCE = dq.Retry(0)


def test_document_whose_retries_are_used_up_is_a_dead_letter(queue: dq.QueuePool, tmp_path: Path) -> None:
    """It says why, where, how often and with which code, so that the cell can be mended."""
    flaky = Flaky(tmp_path, failures=99)
    run = queue.map(flaky, [42], retry=dq.Retry(2, backoff="10ms")).wait(timeout=20)

    [letter] = run.failures()

    assert len(flaky.tally) == 3
    assert (letter.error, letter.message, letter.key, letter.ordinal) == ("OSError", "disk 42 is busy", 0, 0)
    assert (letter.deliveries, letter.exceptions, letter.reason) == (3, 3, "2 retries used up")
    assert letter.version == run.versions[0].short
    assert re.fullmatch(r"\w+:\d+", letter.at)
    assert 'raise OSError(f"disk {x} is busy")' in letter.traceback
    assert "dqlab/cluster" not in letter.traceback
    assert letter.argument == 42


def test_dead_letter_of_a_document_carries_its_key_and_the_document(queue: dq.QueuePool, tmp_path: Path) -> None:
    """The table of failures names files; the file can be opened from there."""
    document = dq.Document("reports/a.txt", "v1", str(tmp_path / "a.txt"))
    run = queue.map(title, [document], retry=ONCE).wait(timeout=20)

    [letter] = run.failures()

    assert (letter.key, letter.document) == ("reports/a.txt", document)


@pytest.mark.parametrize(
    ("function", "error"),
    [(needs_text, "Reject"), (needs_a_package, "ModuleNotFoundError"), (divides_by_zero, "ZeroDivisionError")],
)
def test_failure_that_would_come_again_is_not_retried(queue: dq.QueuePool, function: object, error: str) -> None:
    """Retrying a missing package for minutes only hides that it is missing."""
    assert callable(function)
    run = queue.map(function, [3], retry=dq.Retry(5, backoff="1m")).wait(timeout=10)

    [letter] = run.failures()

    assert (letter.error, letter.deliveries, letter.reason) == (error, 1, "not retried")


def test_document_of_a_class_that_workers_cannot_import_is_the_only_one_that_fails(
    lab: dq.Lab, queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask's own tasks of such a class end the worker that reads them, and the next one, and wait for ever."""
    module = types.ModuleType("only_on_the_client")
    exec("class Strange: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = lab.client.run(os.getpid)

    run = queue.map(bool, [1, module.Strange(), 0], retry=ONCE).wait(timeout=20)

    [letter] = run.failures()
    assert (letter.error, letter.ordinal) == ("ModuleNotFoundError", 1)
    assert list(run.results(errors="skip")) == [True, False]
    assert lab.client.run(os.getpid) == before


def test_failed_run_raises_with_the_first_failure(queue: dq.QueuePool) -> None:
    """The cell's last line must say what went wrong, for which document, and what to do."""
    run = queue.map(parse, range(10), retry=ONCE)

    with pytest.raises(RunFailed, match="2 of 10") as caught:
        run.results(timeout=20)

    assert "document 3" in str(caught.value) or "KeyError" in str(caught.value)
    assert "run.retry(fn=...)" in str(caught.value)


def test_function_that_was_sent_is_there_with_its_helpers(queue: dq.QueuePool) -> None:
    """A new kernel has neither, and a failure is looked into there."""
    names = cell("limit = 3\ndef helper(x):\n    return x + limit\ndef f(x):\n    return helper(x) // 0\n")
    run = queue.map(names["f"], [1], retry=ONCE).wait(timeout=20)
    letter = run.failures()[0]
    names.clear()

    with pytest.raises(ZeroDivisionError):
        run.function(letter.version)(letter.document)
    with pytest.raises(BadOption, match=letter.version):
        run.function("none")
    run.retry(fn=cell("def f(x):\n    return x\n")["f"])
    run.wait(timeout=20)
    with pytest.raises(RunError, match=r"run\.source"):
        run.function()


@of_a_cell
async def fetched(x: Any) -> Any:
    return x


@of_a_cell
def fetches(x: Any) -> Any:
    return fetched(x)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_coroutine_that_nothing_awaited_names_the_way_out(
    queue: dq.QueuePool, executor: Literal["thread", "process"], capfd: pytest.CaptureFixture[str]
) -> None:
    """It was an error of pickle, with a RuntimeWarning in the cell whose line is one of ours."""
    one = queue.map(fetches, [1], executor=executor).wait(timeout=60).failures()[0]

    assert (one.error, one.deliveries) == ("ResultRefused", 1)
    assert "called fetched()" in one.message
    assert "`async def`, and write `return await fetched(...)`" in one.message
    assert "never awaited" not in capfd.readouterr().err


def the_method(doc: Any) -> Any:
    return doc.text


async def the_method_later(doc: Any) -> Any:
    return doc.text


@pytest.mark.parametrize("function", [the_method, the_method_later])
def test_method_that_was_not_called_is_not_a_result(
    queue: dq.QueuePool, function: Callable[[Any], Any], tmp_path: Path
) -> None:
    """`lambda r: r.text` was done with 100 %, and its results were methods."""
    (tmp_path / "a.txt").write_text("one")

    one = queue.map(function, dq.Documents.from_glob(f"{tmp_path}/*.txt")).wait(timeout=60).failures()[0]

    assert (one.error, one.deliveries) == ("ResultRefused", 1)
    assert "Write text(), with the parentheses" in one.message


def test_retry_of_what_no_failure_matches_warns_and_names_what_there_is(queue: dq.QueuePool) -> None:
    """A misspelt class returned 0, and its user waited for results that no consumer computed."""
    run = queue.map(parse, range(20), retry=ONCE).wait(timeout=20)
    there = r"There are: (Key|Value)Error \w+ \(2\), (Key|Value)Error \w+ \(2\)\."

    with pytest.warns(DqlabWarning, match=rf"no failure of run .* matches error == 'ValueErorr'.*{there}"):
        assert run.retry(where="error == 'ValueErorr'") == 0
    with pytest.warns(DqlabWarning, match=r"no failure of run .* matches fingerprint '0'.*(Key|Value)Error \w+ \(2\)"):
        assert run.retry(fingerprint="0") == 0
    assert len(run.failures().to_frame().query("error == 'KeyError'")) == 2
    run.retry(parse_better)
    run.wait(timeout=20)
    assert run.retry(where="error == 'ValueError'") == 0  # nothing has failed: nothing to report


def test_retry_sends_only_the_chosen_and_with_the_new_code(queue: dq.QueuePool) -> None:
    """Fixing one bug must not re-run what that bug did not touch, nor what was fine."""
    run = queue.map(parse, range(100), retry=ONCE).wait(timeout=20)
    assert (run.counts["acked"], run.counts["dead"]) == (80, 20)

    assert run.retry(parse_better, where="error == 'KeyError'") == 10
    run.wait(timeout=20)

    assert (run.counts["acked"], run.counts["dead"]) == (90, 10)
    values = run.results(errors="skip")
    assert dict(values.items()) == {x: -x if x % 10 == 3 else x for x in range(100) if x % 10 != 7}
    assert {letter.error for letter in run.failures()} == {"ValueError"}
    assert [version.name for version in run.versions] == ["parse", "parse_better"]
    assert run.stats().code.version == 2
    assert run.stats().code.did == (80, 10)


@pytest.mark.parametrize("where", [None, "error in ('KeyError', 'ValueError')"], ids=["all", "chosen"])
def test_retry_of_the_first_few_leaves_the_others_dead(queue: dq.QueuePool, where: str | None) -> None:
    """They show whether the new code is right, before it runs over all."""
    run = queue.map(parse, range(100), retry=ONCE).wait(timeout=20)

    assert run.retry(parse_better, where, limit=3) == 3
    run.wait(timeout=20)

    assert run.counts["acked"] + run.counts["dead"] == 100
    assert 17 <= run.counts["dead"] <= 20
    assert run.stats().code.version == 2
    for limit in (0, -1, 2.5, "3", True):
        with pytest.raises(BadOption, match="limit"):
            run.retry(limit=limit)  # type: ignore[arg-type]


def test_a_message_that_took_too_long_is_chosen_by_the_name_of_its_error(queue: dq.QueuePool) -> None:
    """The how-to filters by this name; which module defines the class is nobody's business."""
    run = queue.map(_slow_or_broken, [0.0, 30.0, -1.0], timeout="500ms", retry=dq.Retry(0))
    run.wait(timeout=30)

    assert run.retry(where="error == 'MessageTimeout'", fn=_zero) == 1
    assert list(run.results(errors="skip")) == [0.0, 0.0]


@of_a_cell
def _slow_or_broken(seconds: float) -> float:
    time.sleep(seconds)  # longer than the time it is given; refuses what is negative
    return seconds


@of_a_cell
def _zero(_: float) -> float:
    return 0.0


def test_retry_without_a_function_runs_the_newest_code(queue: dq.QueuePool) -> None:
    """Once mended, the run stays mended."""
    run = queue.map(parse, range(10), retry=ONCE).wait(timeout=20)
    run.retry(parse_better, where=lambda letter: letter.key == 3)
    run.wait(timeout=20)

    assert run.retry() == 1

    assert list(run.results(timeout=20)) == [-x if x in (3, 7) else x for x in range(10)]


@pytest.mark.parametrize("shard", [0, 1])
def test_retry_runs_the_newest_code_also_where_another_shard_alone_had_work_for_it(
    lab: dq.Lab, queue_name: str, shard: int
) -> None:
    """That shard forgot the code with its last document, and the others retried with the old code, in silence."""
    pool = lab.queue(queue_name, n_queues=2)
    run = pool.map(parse, range(10_000), retry=ONCE).wait(timeout=30)
    first = {letter.key for letter in run.failures() if shard_of(letter.id) == shard}
    assert 0 < run.retry(parse_better, where=lambda letter: letter.key in first) == len(first) < 2_000
    run.wait(timeout=20)

    assert run.retry() == 2_000 - len(first)

    values = run.results(timeout=20)
    assert list(values) == [-x if x % 10 in (3, 7) else x for x in range(10_000)]
    assert run.retry() == 0
    pool.close(force=True)


def first_of(rules: dict[str, int]) -> Any:
    """Return a function that fails where a rule comes first that is not "right"."""

    def choose(x: int) -> str:
        found = next(iter(rules))
        if found != "right":
            raise KeyError(found)
        return found

    return choose


def test_retry_runs_the_later_of_two_functions_that_versions_do_not_tell_apart(queue: dq.QueuePool) -> None:
    """The order of a dictionary is not a part of a version; the run went back to the values that had failed."""
    run = queue.map(first_of({"wrong": 1, "right": 2}), range(20), retry=ONCE).wait(timeout=20)
    mended = first_of({"right": 2, "wrong": 1})
    assert run.retry(mended, where=lambda letter: letter.ordinal == 0) == 1
    run.wait(timeout=20)

    assert run.retry() == 19

    assert list(run.results(timeout=20)) == ["right"] * 20
    assert len(run.versions) == 1


def test_retry_without_a_function_beside_a_retry_with_one_leaves_the_new_version_the_newest(
    queue: dq.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It brought the version along that it had looked up before, and each later retry ran that."""
    run = queue.map(parse, range(20), retry=ONCE).wait(timeout=20)
    look_up, better = queue_calls.newest_code, run._new_code(parse_better)

    async def meanwhile(*asked: Any) -> dict[str, Any]:
        found = await look_up(*asked)
        monkeypatch.setattr(queue_calls, "newest_code", look_up)
        await queue_calls.retry(run.handle, run.id, better)  # another client
        return found

    monkeypatch.setattr(queue_calls, "newest_code", meanwhile)
    run.retry()
    run.wait(timeout=20)
    assert [version.name for version in run.versions] == ["parse", "parse_better"]

    run.retry()
    assert list(run.results(timeout=20)) == [-x if x % 10 in (3, 7) else x for x in range(20)]


def test_wrong_expression_is_refused_before_anything_is_sent(queue: dq.QueuePool) -> None:
    """A slip in `where` must not retry everything."""
    run = queue.map(parse, range(10), retry=ONCE).wait(timeout=20)

    with pytest.raises(BadOption):
        run.retry(where="error = 'KeyError'")

    assert run.counts["dead"] == 2


def test_failures_are_a_sequence_and_a_table(queue: dq.QueuePool) -> None:
    """Looked at by index, by slice, in a loop and with pandas."""
    failures = queue.map(parse, range(100), retry=ONCE).wait(timeout=20).failures()

    assert len(failures) == 20
    assert [letter.key for letter in failures] == [x for x in range(100) if x % 10 in (3, 7)]
    assert (failures[0].key, failures[-1].key) == (3, 97)
    assert [letter.key for letter in failures[1:3]] == [7, 13]
    frame = failures.to_frame()
    assert list(frame.index)[:2] == [3, 7]
    assert sorted(set(frame["error"])) == ["KeyError", "ValueError"]
    assert "20 dead documents" in repr(failures)


def test_failures_list_all_their_classes(queue: dq.QueuePool) -> None:
    """A view named `%dq failed` for what is beyond eight classes, and that named run.failures(): the same table."""

    def fails(place: int) -> None:
        raise type(f"Error{place % 14}", (Exception,), {})(place)

    run = queue.map(fails, range(30), retry=ONCE, stop_if=None, name="many").wait(timeout=20)
    until(lambda: sum(entry.dead for entry in run.stats().classes) == 18)

    failures = run.failures()
    assert len(run.stats().classes) == 8
    assert sorted((entry.error.rpartition(".")[2], entry.dead) for entry in failures.classes) == sorted(
        (f"Error{at}", 3 if at < 2 else 2) for at in range(14)
    )
    text = table_text(failures_table(failures))
    assert "more: run.failures()" not in text
    assert text.count("%dq show") == 8
    assert {entry.versions for entry in failures.classes} == {("fails v1",)}


def test_a_dead_letter_of_a_put_is_found_with_the_queue(queue: dq.QueuePool) -> None:
    """Plain calls have no run to ask."""
    put = queue.submit(needs_text, 3)

    with pytest.raises(RunFailed):
        put.results(timeout=30)

    assert [letter.id for letter in queue.dead()] == put.ids


def test_one_failure_class_is_looked_at_and_sent_again_by_its_fingerprint(queue: dq.QueuePool) -> None:
    """A button stands beside a class, and means that class alone."""
    run = queue.map(parse, range(40), retry=dq.Retry(0)).wait(timeout=30)
    marks = dict[str, str]()
    while len(marks) < 2:  # the last report of a starved worker comes later than statistics wait for it
        marks = {entry.error: entry.fingerprint for entry in run.stats().classes}

    examples = run.examples(marks["KeyError"], 2)

    assert {letter.error for letter in examples} == {"KeyError"}
    assert len(examples) == 2
    assert "parse" in examples[0].traceback
    assert run.examples("no such class") == []
    assert run.retry(fn=parse_better, fingerprint=marks["KeyError"]) == 4
    assert {letter.error for letter in run.wait(timeout=30).failures()} == {"ValueError"}


def test_scale_of_a_run_says_when_its_consumers_are_of_a_consumer_pool(client: Client, queue_name: str) -> None:
    """A set of consumers that was made by hand is scaled by hand; silence would look like success."""
    with contextlib.closing(dq.QueuePool(client, name=queue_name)) as pool:
        run = pool.map(parse, range(3), consumers=None)
        with pytest.raises(BadOption, match="ConsumerPool"):
            run.scale(2)
        run.cancel()


@of_a_cell
def not_here() -> None:
    raise ImportError("no such library on this worker")


@of_a_cell
class OpensNowhere:
    def __call__(self, document: dq.Document) -> str:
        return document.key

    def __reduce__(self) -> tuple[Any, ...]:
        return not_here, ()


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_documents_whose_function_cannot_be_opened_keep_their_keys(queue: dq.QueuePool, executor: str) -> None:
    """Else the table of failures counts 0, 1, 2, and nobody finds the document that it is about."""
    documents = [dq.Document(f"{n}.txt", "", f"/nowhere/{n}.txt") for n in range(3)]
    run = queue.map(OpensNowhere(), documents, executor=executor).wait(timeout=50)

    assert [(letter.key, letter.error) for letter in run.failures()] == [(f"{n}.txt", "ImportError") for n in range(3)]


@of_a_cell
class Busy:
    """A service that answers each document's first two requests with "later"."""

    def __init__(self, directory: Path) -> None:
        self.tally = Tally(directory)

    def __call__(self, x: int) -> int:
        self.tally.add(x)
        if self.tally.seen().count(str(x)) <= 2:
            raise dq.Later("10ms")
        return x

    async def __call_async__(self, x: int) -> int:
        return self(x)


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_a_function_that_asks_for_later_gets_its_document_again_and_nothing_counts(
    queue: dq.QueuePool, tmp_path: Path, kind: str
) -> None:
    """Retries are for failures: none is used up, none is shown, and one more still is a failure."""
    busy = Busy(tmp_path)
    run = queue.map(
        busy.__call_async__ if kind == "coroutine" else busy,
        range(20),
        retry=dq.Retry(0),
        executor="process" if kind == "process" else "thread",
    )

    assert list(run.results(timeout=30)) == list(range(20))
    assert len(busy.tally.seen()) == 60
    assert len(run.failures()) == 0


def test_later_takes_durations_and_refuses_others() -> None:
    assert dq.Later("2m").fields["seconds"] == 120
    with pytest.raises(BadOption, match="more than 30 days"):
        dq.Later(1e12)
    assert str(pickle.loads(pickle.dumps(dq.Later(1.5)))) == "not now; try again in 1.5 s"
    for wrong in (-1, "soon", float("nan")):
        with pytest.raises(BadOption, match="delay"):
            dq.Later(wrong)


def test_a_document_that_is_put_off_by_nothing_does_not_come_back_in_a_hot_loop(
    queue: dq.QueuePool, tmp_path: Path
) -> None:
    """`raise dq.Later(0)` ran a document thousands of times in a second, without end."""
    assert dq.Later(0).fields["seconds"] == dq.Later("0s").fields["seconds"] == 0.1
    tally = Tally(tmp_path)

    @of_a_cell
    def never(x: int) -> int:
        tally.add(time.time())
        raise dq.Later(0)

    run = queue.map(never, [1])
    until(lambda: len(tally.seen()) >= 4)
    run.cancel()

    times = [float(each) for each in tally.seen()]
    assert min(later - sooner for sooner, later in pairwise(times)) >= 0.09


def test_a_retry_with_what_is_not_a_function_sends_nothing_again(queue: dq.QueuePool, queue_name: str) -> None:
    """Each document failed again, with an error about the text in place of its own."""
    run = queue.map(int, ["x"], name=f"run-{queue_name}", retry=dq.Retry(0))
    run.wait(timeout=30)

    with pytest.raises(BadOption, match="is not a function"):
        run.retry(fn="int")  # type: ignore[arg-type]

    assert run.counts["dead"] == 1
    assert run.failures()[0].error == "ValueError"
    assert len(run.versions) == 1


def test_failures_left_by_a_retry_of_a_part_belong_to_the_version_before(queue: dq.QueuePool) -> None:
    """They stood in the view as failures of v2, which had none of that kind."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec("def parse(x):\n    if x == 0: return 1 / x\n    raise ValueError(x)", made)
    run = queue.map(made["parse"], [0, 1, 2], retry=dq.Retry(0))
    run.wait(timeout=60)
    exec("def parse(x):\n    if x == 0: raise LookupError\n    raise KeyError(x)", made)

    assert run.retry(made["parse"], where="error == 'ZeroDivisionError'") == 1
    run.wait(timeout=60)

    def versions() -> dict[str, tuple[str, ...]]:
        return {each.error: each.versions for each in run.failures().classes}

    deadline = time.monotonic() + 60
    while "LookupError" not in versions() and time.monotonic() < deadline:  # it is reported within a second
        time.sleep(0.05)
    assert versions() == {"ValueError": ("parse v1",), "LookupError": ("parse v2",)}
