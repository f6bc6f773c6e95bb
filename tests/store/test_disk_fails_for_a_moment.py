"""Each tool of a store, while each of its system calls in turn fails for a moment; then everything is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dqlab.errors import DqlabError
from dqlab.log.errors import CannotOpen, DiskFailed, ManifestCorrupt, RecordCorrupt
from dqlab.log.writer import LogOptions
from dqlab.store.directories import (
    StoredQueue,
    keep_queue,
    queue_directory,
    read_queue,
    shard_directory,
    stored_queues,
)
from dqlab.store.durable_shard import MOSTLY, DurableShard, compaction, run_through
from dqlab.store.verbs import Level, check, export, show
from dqlab.testing import FakeClock
from tests.kit.descriptors import count_files
from tests.kit.disks import ERRNOS, FlakySystem
from tests.store.test_export import contents
from tests.store.workload import OPTIONS, RUNS, Workload, make_queue

UNTRUE = (CannotOpen, ManifestCorrupt, RecordCorrupt)
"""What no disk that fails for a moment makes true."""
_OTHER_REASONS = ("[Errno 24]", "[Errno 28]", "[Errno 122]")
WINDOWS = (1, 2, 1 << 30)
CLOCK = FakeClock()
READING: dict[str, Callable[[Path], Any]] = {
    "show": lambda store: show(store, CLOCK),
    "check": lambda store: check(store, CLOCK),
    "export": lambda store: list(export(store, CLOCK)),
    "list": lambda store: stored_queues(store),
    "describe": lambda store: read_queue(queue_of(store)),
}
CHANGING: dict[str, Callable[[Path], Any]] = {
    "compact": lambda store: compact(store),
    "open": lambda store: opened(store).journal.log.close(),
    "keep": lambda store: keep_queue(queue_of(store), StoredQueue("q", 1, {})),
    "keep another": lambda store: keep_queue(store / "new" / "r", StoredQueue("r", 1, {})),
}


def queue_of(store: Path) -> Path:
    return queue_directory(store, "q")


def opened(store: Path) -> DurableShard:
    options = LogOptions(sync="os", segment_bytes=4000, reserve_bytes=0)
    return DurableShard.open(
        shard_directory(queue_of(store), 0), "q", 0, OPTIONS, log_options=options, clock=CLOCK, random=Random(0)
    )


def compact(store: Path) -> None:
    shard = opened(store)
    try:
        run_through(compaction(shard, below=MOSTLY))
    finally:
        shard.journal.log.close()


def held(store: Path) -> tuple[dict[str, Any], bool]:
    """Return everything that the queue holds, and whether something was lost."""
    durable = opened(store)
    found, log = contents(durable), durable.journal.log
    log.close()
    return found, bool(log.corrupt or log.recovery.checkpoint_lost or durable.skipped)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue with two checkpoints, segments in front of them, and records behind."""
    store = tmp_path_factory.mktemp("whole")
    load = Workload(shard_directory(make_queue(store, "q", 1), 0), CLOCK, 3)
    load.begin()
    load.put(RUNS[0], 5)
    for _ in range(3):
        load.steps(8)
        load.durable.journal.log.roll()
        load.durable.checkpoint()()
    load.steps(4)
    load.reopen()  # leases and what else a shard forgets at its end are settled
    load.close()
    return store


class Sweep:
    """An operation, repeated with each of its system calls failing."""

    def __init__(self, store: Path, system: FlakySystem, operation: Callable[[Path], Any]) -> None:
        self.store, self.system, self.operation = store, system, operation
        self.wrong: list[str] = []
        self.cases = 0

    def run(self, number: str = "EIO", first: int = 1 << 30, n: int = 0) -> Any:
        """Return the answer, None when there is none."""
        self.system.begin(number, first, n)
        try:
            return self.operation(self.store)
        except DqlabError as error:
            self._judge(error)
        except Exception as error:  # noqa: BLE001 - whatever it is belongs into the verdict
            self.say(f"not an error of ours: {type(error).__name__}: {error}")
        finally:
            self.system.end()
        return None

    def say(self, what: str) -> None:
        self.wrong.append(what[:400])

    def _judge(self, error: DqlabError) -> None:
        if isinstance(error, UNTRUE) and not (isinstance(error, CannotOpen) and self.system.number == "EACCES"):
            self.say(f"untrue: {type(error).__name__}: {error}")
        if isinstance(error, DiskFailed) and any(reason in str(error) for reason in _OTHER_REASONS):
            self.say(f"another reason: {error}")

    def each(self, *, every: bool, judge: Callable[[Any], None], step: int = 1) -> None:
        """Fail each call in turn, with every fault; or each `step`-th call with one of them."""
        self.run()
        made = list(self.system.made)
        assert made
        chosen = list(product(ERRNOS, WINDOWS))
        for at, call in list(enumerate(made))[:: 1 if every else step]:
            for number, n in chosen if every else [chosen[5 * at % len(chosen)]]:
                before = len(self.wrong)
                answer = self.run(number, at, n)
                judge(answer)
                self.cases += 1
                self.wrong[before:] = [f"{number} at {at} ({call}), {n}: {what}" for what in self.wrong[before:]]
        assert not self.wrong, f"{len(self.wrong)} of {self.cases}:\n" + "\n".join(self.wrong[:12])


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


@EVERY
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", READING)
def test_a_tool_that_reads_says_what_failed_and_changes_nothing(
    name: str, every: bool, whole: Path, store: Path, fingerprint: Callable[[Path], str]
) -> None:
    shutil.copytree(whole, store / "store")
    before = fingerprint(store / "store")
    with FlakySystem(store / "store").installed() as system:
        sweep = Sweep(store / "store", system, READING[name])
        expected = sweep.run()
        assert expected

        def judge(answer: Any) -> None:
            if name == "check" and answer is not None:
                for finding in (finding for shard in answer.shards() for finding in shard.findings):
                    if finding.level is Level.LOST and "Nothing that was confirmed" in finding.text:
                        sweep.say(f"contradicts itself: {finding.text}")
            elif name == "export" and answer is not None:
                # Not the queue's name, which is that of its directory while its description cannot be read.
                if [json.loads(row) | {"queue": ""} for row in answer] != [
                    json.loads(row) | {"queue": ""} for row in expected
                ]:
                    sweep.say("other messages, and no error")
            elif name in ("list", "describe") and answer not in (None, expected) and system.number != "EACCES":
                sweep.say("another answer, and no error")

        sweep.each(every=every, judge=judge)
        again = sweep.run()
    assert str(again) == str(expected)
    assert fingerprint(store / "store") == before
    assert count_files(store) == 0


@pytest.mark.long
@EVERY
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", CHANGING)
def test_a_tool_that_writes_loses_nothing(name: str, every: bool, whole: Path, store: Path) -> None:
    place = store / "store"
    shutil.copytree(whole, place)
    expected = held(place)[0]
    with FlakySystem(place).installed() as system:

        def operation(place: Path) -> Any:
            system.end()
            shutil.rmtree(place)
            shutil.copytree(whole, place)
            system.begin(*faults)
            return CHANGING[name](place)

        faults: tuple[Any, ...] = ()
        sweep = Sweep(place, system, operation)
        plain = sweep.run

        def run(*wanted: Any) -> Any:
            nonlocal faults
            faults = wanted
            return plain()

        sweep.run = run  # type: ignore[method-assign]

        def judge(answer: Any) -> None:
            found, damaged = held(place)
            if found != expected or damaged:
                sweep.say("something is gone" if not damaged else "reported as damaged")
            if name == "keep another" and answer is not None and read_queue(place / "new" / "r") != answer:
                sweep.say("not kept")

        sweep.each(every=every, judge=judge, step=2 if name == "compact" else 1)
    assert count_files(store) == 0
