"""Keys of documents without a result, where the input is at hand."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import Documents
from dqlab.runs.failures import first_keys, keys_at
from dqlab.runs.submit.elements import repeats


class Again:
    def __iter__(self) -> Iterator[int]:
        return iter(range(5_000_000))


def test_keys_come_from_an_input_that_can_be_read_again() -> None:
    documents = Documents.stdlib()
    third = documents[2]

    assert list(keys_at([(2, 3)], documents)) == [(2, third.key)]
    assert list(keys_at([(2, 3)], list(documents[:5]))) == [(2, third.key)]
    assert list(keys_at([(2, 4)], Again())) == [(2, 2), (3, 3)]
    assert list(keys_at([(2, 4)], iter(documents))) == [(2, 2), (3, 3)]
    assert list(keys_at([(2, 4)], None)) == [(2, 2), (3, 3)]


def test_an_input_that_has_shrunk_hides_nothing_that_is_lost() -> None:
    documents = Documents.stdlib()
    for shrunk in (list(documents[:3]), Documents(list(documents[:3]))):
        assert list(keys_at([(2, 5)], shrunk)) == [(2, documents[2].key), (3, 3), (4, 4)]
        assert first_keys([(3, 5)], shrunk, 2) == [3, 4]


def test_the_first_ones_are_named_without_reading_far() -> None:
    class Unreadable:
        def __iter__(self) -> Iterator[int]:
            raise OSError("it is gone")

    assert first_keys([(2, 9)], Again(), 2) == [2, 3]
    assert first_keys([(4_000_000, 4_000_009)], Again(), 1) == [4_000_000]
    assert first_keys([(2, 9)], Unreadable(), 2) == [2, 3]
    assert first_keys([], None, 3) == []


def test_iterators_give_their_elements_once() -> None:
    assert not repeats(iter([1]))
    assert not repeats(Documents(iter(["a"])))
    assert repeats([1])
    assert repeats(Documents(["a"]))
