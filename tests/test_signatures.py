"""What Shift-Tab and the Tab key show, and what a misspelt keyword is answered with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, UnknownOption, WrongArguments


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


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda lab, pool: pool.map(same, [1], retries=3), r"QueuePool.map\(\).*'retries'.*retry=dq.Retry\(3\)\?"),
        (lambda lab, pool: pool.map(same, [1], retries="x"), r"QueuePool.map\(\).*'retries'.*retry=dq.Retry\('x'\)\?"),
        (
            lambda lab, pool: lab.map(same, [1], concurrency=20),
            r"lab.queue\(NAME, concurrency=20\).map\(fn, documents\)",
        ),
        (lambda lab, pool: pool.map(same, [1], maxsize=9), r"lab.queue\(NAME, maxsize=9\).map\(fn, documents\)"),
        (lambda lab, pool: lab.map(same, [1], on_exists="new"), r"Lab.map\(\).*Did you mean on_existing=\?"),
        (lambda lab, pool: lab.queue("q", max_size=1), r"Lab.queue\(\).*Did you mean maxsize=\?"),
        (lambda lab, pool: dq.connect(wrkrs=2), r"connect\(\).*'wrkrs'.*There are: target, n,"),
        (lambda lab, pool: dq.connect(workers=2), r"dq\.connect\(n=4\)"),
        (lambda lab, pool: dq.connect(n_workers=2), r"dq\.connect\(n=4\)"),
        (lambda lab, pool: lab.map(same, [1], max_workers=2), r"lab\.queue\(\)\.scale\(4\)"),
        (lambda lab, pool: lab.map(same, [1], max_retries=2), r"retry=dq\.Retry\(2\)"),
        (lambda lab, pool: lab.map(same, [1], chunksize=2), "A call gets one document"),
        (lambda lab, pool: lab.map(same, [1], batch_size=2), "A call gets one document"),
        (lambda lab, pool: lab.map(same, [1], rate="4/s"), r"lab\.queue\(\)\.scale"),
        (lambda lab, pool: dq.QueuePool(lab.client, queues=2), r"QueuePool\(\).*Did you mean n_queues=\?"),
        (lambda lab, pool: dq.ConsumerPool(lab.client, pool, consumers=2), r"ConsumerPool\(\).*n_consumers=\?"),
        (lambda lab, pool: pool.map(same, []).retry(function=same), r"Run.retry\(\).*'function'"),
        (lambda lab, pool: pool.map(same, []).results(error="skip"), r"results\(\).*Did you mean errors=\?"),
    ],
)
def test_misspelt_keyword_names_the_one_that_was_meant(
    lab: dq.Lab, queue: dq.QueuePool, call: Callable[..., object], said: str
) -> None:
    """It is a TypeError too, as for any function."""
    with pytest.raises(UnknownOption, match=said) as caught:
        call(lab, queue)

    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda lab, pool: lab.map(same), r"Lab.map\(\): .*'documents'.* Lab.map\(fn, documents, \.\.\.\)"),
        (lambda lab, pool: pool.map(), r"QueuePool.map\(\): .*'fn'"),
        (lambda lab, pool: lab.map(same, [1], "name"), r"too many positional arguments"),
        (lambda lab, pool: dq.QueuePool(), r"QueuePool\(\): .*'client'"),
    ],
)
def test_missing_argument_is_named_in_a_sentence(
    lab: dq.Lab, queue: dq.QueuePool, call: Callable[..., object], said: str
) -> None:
    """It is a TypeError too, and was shown with a frame of dqlab."""
    with pytest.raises(WrongArguments, match=said) as caught:
        call(lab, queue)

    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("retry", [3, False, True])
def test_number_of_retries_is_told_how_to_be_written(lab: dq.Lab, queue: dq.QueuePool, retry: Any) -> None:
    """`retry=3` is what one tries first."""
    with pytest.raises(BadOption, match=rf"write dq.Retry\({int(retry) if retry is not True else 3}\)"):
        queue.map(same, [1], retry=retry)


def test_queue_of_a_lab_is_bounded_unless_it_is_told_not_to_be(lab: dq.Lab, queue_name: str) -> None:
    """None means no limit; nothing said means what the configuration says."""
    bounded, unbounded = lab.queue(queue_name), lab.queue(f"{queue_name}-all", maxsize=None)

    assert bounded.options["maxsize"] == 100_000
    assert unbounded.options["maxsize"] is None
    bounded.close()
    unbounded.close()
