"""Functions of batches and model classes, on a real cluster: in threads, in processes and as coroutines."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dqlab as dq
from dqlab.errors import BadOption, DqlabWarning, RunExists, RunHalted
from tests.kit.waiting import until

pytestmark = pytest.mark.lowest

EXECUTORS = ["thread", "process"]


class Noted:
    """A model that writes into a file what becomes of it."""

    def __init__(self, log: str, add: int = 1, raises: str = "") -> None:
        self.log, self.add = log, add
        note(log, f"made {os.getpid()}")
        if raises:
            raise ValueError(raises)

    def close(self) -> None:
        note(self.log, f"closed {os.getpid()}")


class One(Noted):
    def __call__(self, document: int) -> int:
        return document + self.add


class Many(Noted):
    def __call__(self, documents: list[int]) -> list[int]:
        if 77 in documents:
            raise KeyError("seventy-seven")
        return [document + self.add for document in documents]


class Awaited(Noted):
    async def __call__(self, documents: list[int]) -> list[int]:
        await asyncio.sleep(0)
        return [document + self.add for document in documents]


class Mended(Many):
    def __call__(self, documents: list[int]) -> list[int]:
        return [-document for document in documents]


def note(log: str, line: str) -> None:
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def sizes(documents: list[Any]) -> list[int]:
    time.sleep(0.001)
    return [len(documents)] * len(documents)


def dies(documents: list[int]) -> list[int]:
    if 7 in documents:
        os._exit(3)
    return documents


def hangs(documents: list[int]) -> list[int]:
    if 3 in documents:
        time.sleep(60)
    return documents


def vectors(documents: list[int]) -> dict[str, Any]:
    return {"n": documents, "vector": np.ones((len(documents), 3), dtype="float32")}


def upper(document: str, nlp: Any) -> str:
    return str(nlp(document))


def make_upper() -> Any:
    return str.upper


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "log"
    path.touch()
    return str(path)


def wait_for_end(run: dq.Run) -> None:
    """Wait for a run of which documents fail."""
    with pytest.warns(DqlabWarning, match="failed"):
        run.wait(timeout=60)


def lines(log: str) -> list[str]:
    return Path(log).read_text(encoding="utf-8").splitlines()


def slow_to_make() -> Any:
    time.sleep(0.2)
    return str.upper


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("batch", [None, 2])
def test_a_run_says_how_long_its_set_up_takes(queue: dq.QueuePool, executor: Any, batch: Any) -> None:
    fn = upper if batch is None else uppers
    run = queue.map(fn, ["a", "b", "c"], setup={"nlp": slow_to_make}, batch=batch, executor=executor).wait(timeout=30)
    until(lambda: 0.2 <= run.stats().setup < 5)  # consumers report a moment later
    assert (run.stats().mean_seconds or 0) < 0.1, "no document costs what it takes"


def uppers(documents: list[str], nlp: Any) -> list[str]:
    return list(map(nlp, documents))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_class_is_made_once_in_each_slot_and_called_with_each_document(
    queue: dq.QueuePool, log: str, executor: Any
) -> None:
    run = queue.map(One, range(300), init={"log": log, "add": 5}, executor=executor)
    assert list(run.results()) == list(range(5, 305))
    assert max(Counter(lines(log)).values()) == 1
    other = queue.map(One, range(300), init={"log": log}, executor=executor)  # on the same slots
    assert sum(other.results()) == sum(range(1, 301))
    said = Counter(line.partition(" ")[0] for line in lines(log))
    assert said["closed"] >= 1, "a slot that turned to the other class has ended its first object"


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_document_that_raises_in_a_batch_fails_alone_and_new_code_keeps_the_plan(
    queue: dq.QueuePool, log: str, executor: Any
) -> None:
    run = queue.map(Many, range(500), batch=64, init={"log": log}, executor=executor, retry=dq.Retry(0))
    wait_for_end(run)
    assert (run.counts["acked"], run.counts["dead"]) == (499, 1)
    (letter,) = run.failures()
    assert (letter.ordinal, letter.error) == (77, "KeyError")
    assert run.retry(fn=Mended) == 1
    results = list(run.wait().results())
    assert (results[76], results[77], results[78]) == (77, -77, 79)


def by_key(documents: list[Any]) -> dict[Any, str]:
    return {getattr(document, "key", document): str(document) for document in reversed(documents)}


def test_results_may_be_a_dict_by_the_keys_of_documents(queue: dq.QueuePool, tmp_path: Path) -> None:
    for n in range(5):
        (tmp_path / f"{n}.txt").write_text(str(n))
    listed = dq.Documents.from_glob(str(tmp_path / "*.txt"))
    results = queue.map(by_key, listed, batch=3).results()
    assert [key for key, _ in results.items()] == [f"{n}.txt" for n in range(5)]
    assert list(queue.map(by_key, {"a": 1, "b": 2}.values(), batch=3).results()) == ["1", "2"]


@dataclass
class Length:
    document: int
    length: int


def lengths(documents: list[int]) -> list[Length]:
    print("seen by all")  # noqa: T201 - kept with a document that fails
    if 5 in documents:
        raise ValueError("five")
    return [Length(document, len(str(document))) for document in documents]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_each_result_of_a_batch_is_typed_and_a_failure_has_what_was_printed(queue: dq.QueuePool, executor: Any) -> None:
    run = queue.map(lengths, range(20), batch=8, executor=executor, retry=dq.Retry(0))
    wait_for_end(run)
    assert list(run.results(errors="skip"))[10] == Length(11, 2)
    (letter,) = run.failures()
    assert "seen by all" in str(run.logs(letter.ordinal))


def same(documents: list[Any]) -> list[int]:
    assert len({getattr(each, "language", None) or each["language"] for each in documents}) == 1
    return [len(documents)] * len(documents)


@dataclass
class Text:
    language: str


@pytest.mark.parametrize("make", [Text, lambda language: {"language": language}])
def test_documents_of_a_batch_share_the_value_of_a_key(queue: dq.QueuePool, make: Any) -> None:
    texts = [make("de" if n % 3 else "en") for n in range(600)]
    run = queue.map(same, texts, batch=dq.Batch(50, key="language", max_wait="1m"))
    found = Counter(run.results(timeout=30))
    assert found[50] >= 300, f"most batches are full: {found}"


def test_coroutines_take_batches_too(queue: dq.QueuePool, log: str) -> None:
    run = queue.map(Awaited, range(300), batch=16, init={"log": log})
    assert list(run.results()) == list(range(1, 301))


def test_batches_are_filled_across_leases_and_shards_and_the_end_of_the_input_does_not_wait(
    lab: dq.Lab, queue_name: str
) -> None:
    queue = lab.queue(queue_name, n_queues=3)
    queue.pause()
    run = queue.map(sizes, range(1000), batch=dq.Batch(100, max_wait="1m"))
    assert run.submitter is not None
    run.submitter.join(10)
    queue.resume()
    began = time.monotonic()
    found = Counter(run.results())
    assert time.monotonic() - began < 20
    assert found[100] >= 700, f"most batches are full: {found}"
    until(
        lambda: (batch := run.stats().batch) is not None and batch.documents == 1000
    )  # consumers report a moment later
    batch = run.stats().batch
    assert batch is not None
    assert (batch.size, batch.documents) == (100, 1000)
    assert batch.mean > 60
    queue.close()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_batch_that_kills_its_process_costs_only_the_document_to_blame(queue: dq.QueuePool, executor: Any) -> None:
    run = queue.map(dies, range(100), batch=32, executor=executor, retry=dq.Retry(0))
    wait_for_end(run)
    assert (run.counts["acked"], run.counts["dead"]) == (99, 1)
    assert next(iter(run.failures())).ordinal == 7


def test_limits_count_per_call(queue: dq.QueuePool) -> None:
    run = queue.map(hangs, range(8), batch=8, timeout=0.5, retry=dq.Retry(0))
    wait_for_end(run)
    assert [(letter.ordinal, letter.error) for letter in run.failures()] == [(3, "MessageTimeout")]


class Hangs:
    def __init__(self) -> None:
        time.sleep(60)

    def __call__(self, documents: list[int]) -> list[int]:
        return documents


def test_a_run_whose_set_up_hangs_can_be_cancelled_and_others_go_on(queue: dq.QueuePool) -> None:
    run = queue.map(Hangs, range(8), batch=8, executor="process")
    until(lambda: queue.stats().counts.leased)
    run.cancel()
    assert run.counts["cancelled"] == 8
    assert list(queue.map(len, ["a"], executor="process").results(timeout=30)) == [1]


def test_a_cancelled_batch_ends_at_once_in_its_process(queue: dq.QueuePool) -> None:
    run = queue.map(hangs, range(8), batch=8, executor="process")
    until(lambda: queue.stats().counts.leased)
    run.cancel()
    assert run.counts["cancelled"] == 8


def test_rows_of_an_array_become_rows_of_a_table(queue: dq.QueuePool, tmp_path: Path) -> None:
    run = queue.map(vectors, range(200), batch=64, sink=tmp_path / "out").wait()
    rows = run.table().to_pandas()
    assert list(rows["n"]) == list(range(200))
    assert list(rows["vector"][5]) == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_set_up_that_fails_pauses_the_run_and_blames_no_document(
    queue: dq.QueuePool, log: str, executor: Any
) -> None:
    run = queue.map(Many, range(100), batch=8, init={"log": log, "raises": "no such model"}, executor=executor)
    with pytest.raises(RunHalted, match=r"Many: ValueError: no such model at __init__:\d+"):
        run.wait(timeout=30)
    assert run.counts["dead"] == 0
    assert run.counts["acked"] == 0
    run.retry(fn=Lenient, rest=True)
    assert list(run.wait(timeout=30).results()) == list(range(100))


class Lenient:
    def __init__(self, log: str, raises: str) -> None:
        self.raises = raises

    def __call__(self, documents: list[int]) -> list[int]:
        return documents


class Dies:
    def __init__(self) -> None:
        os._exit(5)

    def __call__(self, document: int) -> int:
        return document


def test_a_process_that_dies_while_it_makes_its_model_pauses_the_run_too(queue: dq.QueuePool) -> None:
    run = queue.map(Dies, range(10), executor="process")
    with pytest.raises(RunHalted, match="exit status 5"):
        run.wait(timeout=30)
    assert run.counts["dead"] == run.counts["acked"] == 0
    run.cancel()


class Interrupted:
    def __init__(self) -> None:
        raise KeyboardInterrupt

    def __call__(self, documents: list[int]) -> list[int]:
        return documents


class Exits(Interrupted):
    def __init__(self) -> None:
        sys.exit("no licence")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(("fn", "said"), [(Interrupted, "KeyboardInterrupt"), (Exits, "SystemExit: no licence")])
def test_a_set_up_that_ends_its_process_pauses_the_run(queue: dq.QueuePool, fn: Any, said: str, executor: Any) -> None:
    run = queue.map(fn, range(20), batch=8, executor=executor)
    with pytest.raises(RunHalted, match=said):
        run.wait(timeout=30)
    assert run.counts["dead"] == run.counts["acked"] == 0
    run.cancel()
    assert list(queue.map(len, ["a"], executor=executor).results(timeout=30)) == [1]  # the slot goes on


def test_a_set_up_that_fails_in_one_process_alone_is_told_and_goes_on(queue: dq.QueuePool, log: str) -> None:
    run = queue.map(FirstFails, range(100), batch=8, init={"log": log})
    with pytest.raises(RunHalted, match="OSError: this machine has no model"):
        run.wait(timeout=30)
    run.resume()  # at once, while what the slot had in hand comes back
    assert list(run.wait(timeout=30).results()) == list(range(100))


class FirstFails:
    def __init__(self, log: str) -> None:
        with suppress(FileExistsError), Path(f"{log}.first").open("x"):
            raise OSError("this machine has no model")

    def __call__(self, documents: list[int]) -> list[int]:
        return documents


def test_setup_makes_what_each_call_gets_as_a_keyword(queue: dq.QueuePool) -> None:
    assert list(queue.map(upper, ["a", "b"], setup={"nlp": make_upper}).results()) == ["A", "B"]


def test_arguments_are_part_of_the_code_version_and_sizes_are_not(queue: dq.QueuePool, log: str) -> None:
    name = f"{queue.name}-versions"
    run = queue.map(Many, range(10), batch=4, init={"log": log}, name=name).wait()
    again = queue.map(Many, range(10), batch=8, init={"log": log}, name=name)
    assert len(again.versions) == len(run.versions) == 1
    with pytest.raises(RunExists, match="other code"):
        queue.map(Many, range(10), batch=8, init={"log": log, "add": 2}, name=name)


class NoCall:
    def __init__(self, a: int, b: int) -> None:
        self.sum = a + b


class Heavy:
    def __init__(self) -> None:
        self.weights = bytes(60_000_000)

    def __call__(self, document: int) -> int:
        return document


@pytest.mark.parametrize(
    ("fn", "more", "problem"),
    [
        (Many, {}, "cannot be made with them: missing a required argument: 'log'"),
        (One, {"init": {"log": "", "other": 1}}, "cannot be made with them"),
        (One, {"init": ["log"]}, "must be a dict"),
        (sizes, {"init": {"a": 1}}, "needs a class as fn"),
        (NoCall, {"init": {"a": 1, "b": 2}}, "needs a class as fn"),
        (NoCall, {}, "a class without __call__"),
        (Heavy(), {}, "Pass its class"),
        (sizes, {"batch": 0}, "a whole number, 1 or more"),
        (sizes, {"batch": "many"}, "'auto'"),
        (sizes, {"batch": True}, "a whole number"),
        (sizes, {"batch": 2.5}, "a whole number"),
        (upper, {"setup": {"nlp": 1}}, "no function"),
        (upper, {}, "cannot be called with one document"),
        (upper, {"setup": {"nlp": make_upper, "other": make_upper}}, "cannot be called with one document"),
        (Awaited, {"init": {"log": ""}, "timeout": 1}, "coroutine function"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_anything_is_submitted(
    lab: dq.Lab, fn: Any, more: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadOption, match=problem):
        lab.map(fn, [1, 2], **more)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_two_runs_with_models_have_a_slot_by_turns_and_not_by_leases(
    queue: dq.QueuePool, tmp_path: Path, executor: Any
) -> None:
    logs = [str(tmp_path / name) for name in "ab"]
    for name in logs:
        Path(name).touch()
    one, two = (
        queue.map(fn, range(4000), batch=16, init={"log": name}, executor=executor)
        for fn, name in zip(SLOW, logs, strict=True)
    )
    assert one.wait(timeout=60).counts["acked"] == two.wait(timeout=60).counts["acked"] == 4000
    slots = len({line for name in logs for line in lines(name)})
    made = sum(line.startswith("made") for name in logs for line in lines(name))
    assert made <= 4 * slots, "each slot makes each, and once more for what it had in hand"


class Slowly(Noted):
    def __call__(self, documents: list[int]) -> list[int]:
        time.sleep(0.002)
        return documents


class AlsoSlowly(Slowly):
    pass


SLOW: list[Any] = [Slowly, AlsoSlowly]
