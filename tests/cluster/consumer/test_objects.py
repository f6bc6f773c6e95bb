"""What a slot has made for its function: made once, ended for another, and by one of a machine at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dqlab.cluster.consumer.running.execution import Work
from dqlab.cluster.consumer.running.models import Objects, SetupFailed
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
