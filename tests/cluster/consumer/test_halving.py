"""Each message of a batch gets the outcome that a plain loop would give it, in few calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.cluster.consumer.running.batches import Size
from dqlab.cluster.consumer.running.execution import Origin, Work
from dqlab.cluster.consumer.running.one_batch import HOPELESS, InARow, OneBatch, shares
from dqlab.cluster.transport.sealed import open_value, seal_value
from dqlab.errors import ResultRefused
from dqlab.failures.failure import Failure
from dqlab.frame import Outcome
from dqlab.plan import Batch, Smaller
from tests.kit.sampled import examples

ORIGIN = Origin("consumer/q/0", "worker", 1 << 20)
ERRORS: list[type[Exception]] = [ValueError, KeyError, MemoryError, LookupError]


class Play:
    """A slot that runs batches of a function, which raises at some documents."""

    def __init__(self, poison: dict[int, type[Exception]], largest: int = 10**9) -> None:
        self.poison, self.largest = poison, largest
        self.calls: list[list[int]] = []
        self.stopped = False
        self.outcomes: dict[int, Any] = {}

    def fn(self, documents: list[int]) -> list[int]:
        self.calls.append(documents)
        for document in documents:
            if document in self.poison:
                raise self.poison[document](document)
        if len(documents) > self.largest:
            raise Smaller
        return [2 * document for document in documents]

    def run(self, total: int, size: int) -> None:
        left, row = list(range(total)), InARow()
        while left:
            batch, left = left[:size], left[size:]
            one = OneBatch([seal_value(document) for document in batch], ORIGIN, row)
            one.run(Work(self.fn, "c0de"))
            for place, outcome, payload, _ in one.done:
                assert batch[place] not in self.outcomes, "one outcome each"
                acked = outcome is Outcome.ACK
                self.outcomes[batch[place]] = open_value(payload) if acked else Failure.from_bytes(payload).error
            row, left = one.row, [batch[place] for place in one.again] + left
            self.stopped |= row.hopeless


def by_a_loop(total: int, poison: dict[int, type[Exception]]) -> dict[int, Any]:
    return {document: poison[document].__name__ if document in poison else 2 * document for document in range(total)}


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), total=st.integers(1, 300), size=st.integers(1, 70), largest=st.sampled_from([5, 64, 10**9]))
def test_each_message_of_a_batch_gets_one_outcome_as_in_a_plain_loop(
    data: st.DataObject, total: int, size: int, largest: int
) -> None:
    poison = data.draw(st.dictionaries(st.integers(0, total - 1), st.sampled_from(ERRORS), max_size=12))
    play = Play(poison, largest)
    play.run(total, size)
    assert play.outcomes.keys() == set(range(total))
    if not play.stopped:  # else so many in a row raised the same alone, which the next test is about
        assert play.outcomes == by_a_loop(total, poison)
    # Halving a batch that is too large to one that fits makes up to four calls for each of these.
    assert len(play.calls) <= 4 * total / min(size, largest) + len(poison) * (2 * min(size, total).bit_length() + 8) + 3


@pytest.mark.parametrize("size", [4, 64])
def test_what_half_of_the_documents_raise_does_not_fail_the_other_half(size: int) -> None:
    poison: dict[int, type[Exception]] = dict.fromkeys(range(0, 640, 2), KeyError)
    play = Play(poison)
    play.run(640, size)
    assert play.outcomes == by_a_loop(640, poison)


def test_a_wrong_key_in_all_documents_costs_at_most_two_calls_a_batch() -> None:
    play = Play(dict.fromkeys(range(64 * 16), KeyError))
    play.run(64 * 16, 64)
    assert len(play.calls) <= 2 * 16
    assert play.outcomes == by_a_loop(64 * 16, play.poison)


def test_a_batch_is_tried_as_a_whole_again_once_a_document_succeeds() -> None:
    play = Play(dict.fromkeys(range(128), KeyError))
    play.run(640, 64)
    assert play.stopped
    assert play.outcomes == by_a_loop(640, play.poison)
    assert len(play.calls[-1]) == len(play.calls[-2]) == 64


def test_one_bad_document_in_ten_thousand_costs_a_twentieth_more_calls() -> None:
    more = []
    for document in (31, 1000, 4132, 5555, 9001):
        play = Play({document: ValueError})
        play.run(10_000, 64)
        assert play.outcomes == by_a_loop(10_000, play.poison)
        more.append(len(play.calls) - 157)
    assert sum(more) / len(more) <= 157 / 20
    assert max(more) <= 9


def test_a_coroutine_is_called_again_only_when_it_asks_for_smaller_batches() -> None:
    import asyncio

    for poison, largest, calls in (({3: ValueError}, 64, [8]), ({}, 2, [8, 4, 2, 2, 4, 2, 2])):
        play = Play(poison, largest)  # type: ignore[arg-type]

        async def paid(documents: list[int], play: Play = play) -> list[int]:
            return play.fn(documents)

        one = OneBatch([seal_value(document) for document in range(8)], ORIGIN, InARow())
        asyncio.run(one.run_coroutine(Work(paid)))
        assert list(map(len, play.calls)) == calls
        assert len(one.done) == 8


class Table:
    """As much of a table of pandas as is looked at."""

    def to_dict(self, how: str) -> list[dict[str, int]]:
        return [{"a": 1}, {"a": 2}]

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ([1, None], [1, None]),
        ((1, 2), [1, 2]),
        ({"y": 1, "x": 2}, [2, 1]),  # by key
        ({"a": [1, 2], "b": np.array([3, 4])}, [{"a": 1, "b": 3}, {"a": 2, "b": 4}]),
        (np.array([1.5, 2.5]), [1.5, 2.5]),
        (Table(), [{"a": 1}, {"a": 2}]),
        (None, None),
        ("ab", None),
        ((n for n in (1, 2)), None),
        ([1], None),
        ([1, 2, 3], None),
        ({"x": 1}, None),
        ({"a": [1, 2], "b": [3]}, None),
        (np.array(2), None),
        (np.zeros((3, 2)), None),
    ],
)
def test_a_result_is_one_value_for_each_document_or_an_error_that_names_the_batch(result: Any, expected: Any) -> None:
    if expected is not None:
        assert list(shares(result, ["x", "y"])) == expected
        return
    with pytest.raises(ResultRefused, match=r"a batch of 2 documents and returned (a |\d)"):
        shares(result, ["x", "y"])


def test_rows_of_an_array_are_split_without_a_copy_and_sent_without_the_others() -> None:
    whole = np.arange(64 * 1000.0).reshape(64, 1000)
    rows = shares(whole, [None] * 64)
    assert all(row.base is whole or row.base is whole.base for row in rows)
    assert len(seal_value(rows[3])) < 9_000


def test_auto_climbs_while_more_documents_a_second_come_through() -> None:
    size = Size(Batch())

    def rate(n: int) -> float:  # documents per second, best at 128
        return n if n <= 128 else 100.0

    sizes = []
    for _ in range(50):
        sizes.append(size.now)
        size.ran(size.now, size.now / rate(size.now))
    assert sorted(set(sizes)) == [16, 32, 64, 128, 256]
    assert size.now == 128, "it stays where it was best"
    size.ran(3, 0.001)  # a batch that was not full says nothing
    size.shrink(128)
    assert size.now == 64


def test_on_a_gpu_auto_only_shrinks() -> None:
    size = Size(Batch("auto"), gpu=True)
    for _ in range(10):
        size.ran(size.now, 0.001 / size.now)
    assert size.now == 32
    size.shrink(32)
    assert size.now == 16


def test_eight_in_a_row_are_what_makes_a_batch_hopeless() -> None:
    row = InARow()
    for _ in range(HOPELESS):
        assert not row.hopeless
        row = row.after("f", 1)
    assert row.hopeless
    assert row.after("f", 64).hopeless, "a call of many tells nothing about each"
    assert not row.after("g", 1).hopeless
    assert not row.after("", 64).hopeless
