"""Results that can be pickled where they are made, and not unpickled where they are read."""

from __future__ import annotations

import pickle
from contextlib import closing
from typing import Any

import pytest
from distributed import Client

import dqlab as dq
from dqlab.errors import BadOption, ResultUnreadable
from dqlab.runs.failures import DeadLetter


class Closed:
    """Can be pickled, and never be opened again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("x",)


class Surprise(Exception):
    """Unpickling it fails: the class of mistake that exceptions with two arguments make."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def mostly(x: int) -> object:
    return Closed() if x % 10 == 3 else x


def fail_oddly(x: int) -> int:
    raise Surprise(x, 2)


def read(document: dq.Document) -> object:
    return Closed() if document.key == "b.txt" else document.key


def test_other_values_of_its_page_come(queue: dq.QueuePool) -> None:
    """One odd class in a million documents costs its own result and no other."""
    results = queue.map(mostly, range(50)).results()

    assert [results[i] for i in range(50) if i % 10 != 3] == [i for i in range(50) if i % 10 != 3]
    assert results[4:13] == list(range(4, 13))
    assert results[0:9:2] == [0, 2, 4, 6, 8]
    assert list(results.keys()) == list(range(50))
    for read in (lambda: results[3], lambda: results[2:5], lambda: list(results), lambda: results.to_frame()):
        with pytest.raises(ResultUnreadable, match=r"document 3 cannot be unpickled .* ValueError: invalid literal"):
            read()


def test_error_has_the_key_the_reason_and_the_bytes(queue: dq.QueuePool) -> None:
    """What was computed for an hour can be rescued by hand."""
    documents = [dq.Document(f"{name}.txt", "v1", f"{name}.txt") for name in "abc"]

    first, error, last = queue.map(read, documents).results(errors="return")

    assert (first, last) == ("a.txt", "c.txt")
    assert isinstance(error, ResultUnreadable)
    assert (error.key, error.error) == ("b.txt", "ValueError")
    assert "'x'" in error.reason
    with pytest.raises(ValueError, match="invalid literal"):
        pickle.loads(error.payload)
    assert isinstance(error.__cause__, ValueError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.payload) == (str(error), error.payload)
    assert "payload" not in repr(error)


def test_table_has_the_reason_in_its_row(queue: dq.QueuePool) -> None:
    """A table of a million rows is not refused for one."""
    frame = queue.map(mostly, range(5)).results(errors="return").to_frame()

    assert list(frame["value"][[0, 1, 2, 4]]) == [0, 1, 2, 4]
    assert isinstance(frame["value"][3], ResultUnreadable)


def test_stream_gives_all_others_before_it_raises(queue: dq.QueuePool) -> None:
    """A loop over results as they come gets everything that there is."""
    seen: list[object] = []

    with pytest.raises(ResultUnreadable):
        seen.extend(value for _, value in queue.map(mostly, range(50)).as_completed(timeout=30))

    assert sorted(seen) == [i for i in range(50) if i % 10 != 3]  # type: ignore[type-var]


def test_consumer_pool_returns_it_in_its_place(client: Client) -> None:
    """Its results are one mapping, which one value must not keep from anybody."""
    with closing(dq.QueuePool(client)) as pool:
        ids = pool.batch_submit([(mostly, i) for i in range(5)]).ids
        consumers = dq.ConsumerPool(client, pool)
        consumers.start()
        consumers.join()

        with pytest.raises(ResultUnreadable, match=f"message {ids[3]} cannot be unpickled"):
            consumers.results()
        found = consumers.results(errors="return")

    assert [found[id] for id in ids if id != ids[3]] == [0, 1, 2, 4]
    assert isinstance(found[ids[3]], ResultUnreadable)


def test_word_for_errors_that_does_not_exist_is_refused(queue: dq.QueuePool) -> None:
    """A typing mistake is not taken for "raise"."""
    with pytest.raises(BadOption, match="is one of 'raise', 'return'"):
        queue.submit(mostly, 1).results(errors="ignore")  # type: ignore[arg-type]


def test_failures_whose_exceptions_cannot_be_unpickled_are_text(queue: dq.QueuePool) -> None:
    """A failure is a record of words, so no exception class keeps anybody from seeing it."""
    run = queue.map(fail_oddly, range(3), retry=dq.Retry(0), stop_if=None)
    run.wait(timeout=30)

    assert sorted(letter.message for letter in run.failures()) == ["0 and 2", "1 and 2", "2 and 2"]
    assert {letter.error.rpartition(".")[2] for letter in run.failures()} == {"Surprise"}
    assert all(isinstance(value, DeadLetter) for value in run.results(errors="return"))
