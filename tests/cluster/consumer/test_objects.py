"""What a slot has made for its function: made once, ended for another, and by one of a machine at a time."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from threading import Event
from typing import Any

import pytest

from dqlab.cluster.consumer.running import functions
from dqlab.cluster.consumer.running.execution import Work
from dqlab.cluster.consumer.running.functions import Objects, SetupFailed
from dqlab.plan import Plan


def test_one_at_a_time_makes_its_objects_on_a_machine() -> None:
    """While a model loads it may take twice its memory."""
    making, most = list[int](), list[int]()

    def make() -> str:
        making.append(1)
        most.append(len(making))
        time.sleep(0.02)
        making.pop()
        return "made"

    def ready(n: int) -> Any:
        return Objects().ready(b"h", Work(lambda x, made: made, plan=Plan(setup={"made": make})), 0.0).call(1)

    with ThreadPoolExecutor(4) as several:
        assert list(several.map(ready, range(4))) == ["made"] * 4
    assert max(most) == 1


def test_what_hangs_while_it_makes_its_objects_stops_nobody_once_it_is_left() -> None:
    """A run whose model never loads was cancelled, and the next run waited for two minutes."""
    begun, end, hangs = Event(), Event(), Objects()

    def make() -> None:
        begun.set()
        assert end.wait(30)

    def ready(objects: Objects, setup: Any) -> Work:
        return objects.ready(b"h", Work(lambda x, made: x, plan=Plan(setup={"made": setup})), 0.0)

    with ThreadPoolExecutor(2) as several:
        hanging = several.submit(ready, hangs, make)
        assert begun.wait(30)
        hangs.leave()
        assert several.submit(ready, Objects(), str).result(20).call(1) == 1
        end.set()
        assert hanging.result(20).call(1) == 1


@pytest.mark.cluster
def test_objects_that_fork_keep_nobody_from_making_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with loaders in processes of its own held the turn for as long as it lived."""
    monkeypatch.setattr(functions, "TURN_S", 30.0)

    def make(process: Any) -> Any:
        process.start()
        return process

    loader, began = get_context("fork").Process(target=signal.pause), time.monotonic()
    for setup in (partial(make, loader), str):
        Objects().ready(b"h", Work(lambda x, made: x, plan=Plan(setup={"made": setup})), 0.0)
    loader.kill()
    loader.join()
    assert time.monotonic() - began < 20


def test_a_function_of_another_hash_ends_the_objects_of_the_first() -> None:
    ended, made = list[str](), Objects()

    class Model:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, x: int) -> str:
            return self.name

        def close(self) -> None:
            ended.append(self.name)
            raise OSError("nobody needs it any more")

    def called(name: str) -> Any:
        return made.ready(name.encode(), Work(Model, plan=Plan(init={"name": name})), 0.0).call(1)

    assert [called(name) for name in ("a", "a", "b", "a")] == ["a", "a", "b", "a"]
    assert ended == ["a", "b"]
    assert (made.seconds(b"a") > 0, made.seconds(b"b")) == (True, 0.0)


def test_what_failed_is_tried_again_only_for_what_was_leased_later() -> None:
    """The run pauses at the first failure, and a try may take minutes."""
    tries, made = list[int](), Objects()

    def make() -> None:
        tries.append(1)
        raise ValueError("no model")

    work = Work(len, plan=Plan(setup={"nlp": make}))
    for leased_at in (time.monotonic(), 0.0, time.monotonic() + 60):
        with pytest.raises(SetupFailed, match="len"):
            made.ready(b"x", work, leased_at)
    assert len(tries) == 2
