"""Puts that are delivered later, or once for a key."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import BadOption


def test_a_key_is_put_once_while_its_message_waits_and_for_a_time_after(queue: dq.QueuePool) -> None:
    queue.pause()
    first = queue.put(dq.Message(abs, -3), unique="three")
    again = queue.put(dq.Message(abs, -3), unique="three")
    other = queue.put(dq.Message(abs, -4), unique="four", within="1h")
    queue.resume()

    assert (first.existed, again.existed, other.existed) == (False, True, False)
    assert again.ids == first.ids
    assert first.results(timeout=20) == [3]
    assert other.results(timeout=20) == [4]
    assert not queue.put(dq.Message(abs, -3), unique="three").existed, "it is done, and no time was given"
    assert queue.put(dq.Message(abs, -4), unique="four").existed


def test_a_key_of_a_message_that_failed_for_good_is_free(queue: dq.QueuePool) -> None:
    failed = queue.put(dq.Message(abs, "text"), unique="one", within="1h")
    letter = failed.results(timeout=60, errors="return")[0]

    assert letter.error == "TypeError"
    assert not queue.put(dq.Message(abs, -1), unique="one").existed


def test_a_put_with_a_delay_is_delivered_after_it(queue: dq.QueuePool) -> None:
    began = time.monotonic()

    assert queue.put(dq.Message(abs, -3), delay=0.5).results(timeout=20) == [3]
    assert time.monotonic() - began >= 0.5


def test_keys_and_delays_survive_the_end_of_their_queue(client: Client, queue_name: str, tmp_path: Path) -> None:
    def opened() -> dq.QueuePool:
        return dq.QueuePool(client, durability=dq.Durability.DURABLE, name=queue_name, dirpath=tmp_path)

    queue = opened()
    id = queue.put(1, unique="late", delay="1h").ids
    queue.close()
    queue = opened()

    again = queue.put(1, unique="late")
    assert (again.existed, again.ids) == (True, id)
    assert queue.counts()["delayed"] == 1
    queue.close()
    queue = opened()  # from a checkpoint
    assert queue.put(1, unique="late").existed
    queue.close()


@pytest.mark.parametrize(
    "given",
    [{"unique": ["a"]}, {"unique": 3}, {"unique": ""}, {"delay": "soon"}, {"within": -1, "unique": "a"}],
)
def test_a_put_that_nothing_can_stand_for_is_refused(queue: dq.QueuePool, given: dict[str, Any]) -> None:
    with pytest.raises(BadOption, match=next(iter(given))):
        queue.put(1, **given)
    with pytest.raises(BadOption, match=r"unique.*put each call with put"):
        queue.batch_submit([(abs, -1)], unique="a")
    assert sum(queue.counts().values()) == 0
