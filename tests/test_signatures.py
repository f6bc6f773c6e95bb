"""What Shift-Tab and the Tab key show."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import dqlab as dq


def same(x: int) -> int:
    return x


def names(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "client"}


def test_lab_map_shows_what_pool_map_takes() -> None:
    """`**options` completes to nothing."""
    assert names(dq.Lab.map) == names(dq.QueuePool.map)


def test_lab_queue_shows_what_a_queue_pool_takes() -> None:
    """All but the ancestor's second name for the same, and where a durable queue is: the lab knows its store."""
    assert names(dq.Lab.queue) - {"durable"} == names(dq.QueuePool) - {"ack_timeout", "durability", "dirpath"}


def test_helps_name_their_parameters() -> None:
    """A signature without `**kwargs` is what the help prints first."""
    for function in (
        dq.connect,
        dq.Lab.map,
        dq.Lab.queue,
        dq.QueuePool,
        dq.QueuePool.map,
        dq.ConsumerPool,
        dq.Run.retry,
    ):
        kinds = {parameter.kind for parameter in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
        assert function.__doc__


def test_queue_of_a_lab_is_bounded_unless_it_is_told_not_to_be(lab: dq.Lab, queue_name: str) -> None:
    """None means no limit; nothing said means what the configuration says."""
    bounded, unbounded = lab.queue(queue_name), lab.queue(f"{queue_name}-all", maxsize=None)

    assert bounded.options["maxsize"] == 100_000
    assert unbounded.options["maxsize"] is None
    bounded.close()
    unbounded.close()
