"""The sequence of lost documents: compact, lazy, with keys where the input is at hand."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab import Documents
from dqlab.runs.lost import Lost, repeats

RANGES = [(1, 3), (1_000_000, 5_000_000)]


class Again:
    def __iter__(self) -> Iterator[int]:
        return iter(range(5_000_000))


def test_it_is_as_small_as_its_ranges() -> None:
    lost = Lost("word-count", RANGES, None)

    assert len(lost) == 4_000_002
    assert (lost[0], lost[2], lost[:3]) == (1, 1_000_000, [1, 2, 1_000_000])
    assert repr(lost) == "<4,000,002 lost documents of 'word-count': 1-2, 1000000-4999999>"
    assert lost.ranges == ((1, 3), (1_000_000, 5_000_000))


def test_keys_come_from_an_input_that_can_be_read_again() -> None:
    documents = Documents.stdlib()
    third = documents[2]

    assert Lost("r", [(2, 3)], documents)[0] == (2, third.key)
    assert Lost("r", [(2, 3)], list(documents[:5]))[0] == (2, third.key)
    assert Lost("r", [(2, 4)], Again())[:] == [(2, 2), (3, 3)]
    assert list(Lost("r", [(2, 4)], iter(documents))) == [2, 3]


def test_an_input_that_has_shrunk_hides_nothing_that_is_lost() -> None:
    documents = Documents.stdlib()
    for shrunk in (list(documents[:3]), Documents(list(documents[:3]))):
        assert list(Lost("r", [(2, 5)], shrunk)) == [(2, documents[2].key), (3, 3), (4, 4)]
        assert Lost("r", [(3, 5)], shrunk).first(2) == [3, 4]


def test_the_first_ones_are_named_without_reading_far() -> None:
    assert Lost("r", [(2, 9)], Again()).first(2) == [2, 3]
    assert Lost("r", [(4_000_000, 4_000_009)], Again()).first(1) == [4_000_000]
    assert Lost("r", [], None).first(3) == []


def test_iterators_give_their_elements_once() -> None:
    assert not repeats(iter([1]))
    assert not repeats(Documents(iter(["a"])))
    assert repeats([1])
    assert repeats(Documents(["a"]))
