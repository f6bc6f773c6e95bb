"""What a comparison says: sums, ranges, noise and scores in words, and texts that show where results differ."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import date
from enum import Enum
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dqlab as dq
from dqlab.errors import BadOption, RunError
from dqlab.runs.compare.comparison import Became, Compared, Comparison, difference
from dqlab.runs.compare.equality import same_value

NAMES = {"c": Became.CHANGED, "e": Became.EQUAL, "f": Became.NEWLY_FAILS, "n": Became.NONE}
DEAD = {"w": Became.NEWLY_WORKS, "s": Became.STILL_FAILS}


def pairs(letters: str, **more: Any) -> tuple[Compared, ...]:
    """Return a document for each letter: changed, equal, newly fails, no result, newly works, still fails."""
    return tuple(
        Compared(at, at, (NAMES | DEAD)[letter], group=at, failed=letter in DEAD, **more)
        for at, letter in enumerate(letters)
    )


def comparison(letters: str, *, settled: int = 2_000_000, dead: int = 0, **more: Any) -> Comparison:
    """Return a comparison of these documents."""
    seconds = more.pop("seconds", {})
    found = pairs(letters, **seconds)
    return Comparison("extract", b"id", "hash", (2,), 3, len(found), settled, dead, found, **more)


def test_summary_has_all_counts_and_the_range() -> None:
    """Zero changes give a bound; a sample of everything gives no range."""
    found = comparison("e" * 281 + "c" * 16 + "f" * 2 + "w", dead=500)
    assert found.summary.startswith(
        "v2 → v3 on 300 of 2,000,500 documents: 281 equal · 16 changed · 2 newly fail · 1 newly works · 6.0 % (3.9-9.3)"
    )
    assert sum(found.counts.values()) == 300
    assert comparison("e" * 300).summary.endswith("300 equal · 0 changed · 0 of 300: at most 1.2 % of all would change")
    assert comparison("eec", settled=3).summary == "v2 → v3 on all 3 documents: 2 equal · 1 changed"
    assert "1 without a result" in comparison("een").summary
    assert "on 2 of 3 of 9 documents" in Comparison("x", b"", "", (1,), 2, 3, 9, 0, pairs("ee")).summary
    assert Comparison("x", b"", "", (1,), 2, 3, 9, 0).summary.endswith("0 equal · 0 changed")


def test_counts_that_do_not_add_up_are_an_error() -> None:
    """A document that is missing, or there twice, is not passed over."""
    found = comparison("eec")
    assert found.checked() is found
    for wrong in (found.pairs[:2], (*found.pairs[:2], found.pairs[0])):
        with pytest.raises(RunError, match="Nothing was changed; compare again"):
            Comparison("x", b"", "", (1,), 2, 3, 9, 0, wrong).checked()


def noisy(random: Random, share: float, n: int) -> str:
    return "".join("c" if random.random() < share else "e" for _ in range(n))


def test_noise_is_called_a_change_in_at_most_one_of_ten_trials() -> None:
    """A function with 3 % noise against itself; and a real change is seen beside the same noise."""
    alarms = found = 0
    for seed in range(100):
        random = Random(seed)
        repeats = pairs(noisy(random, 0.03, 30))
        alarms += bool(comparison(noisy(random, 0.03, 300), noise=repeats).beyond_noise)
        found += bool(comparison(noisy(random, 0.33, 300), noise=repeats).beyond_noise)
    assert alarms <= 10
    assert found >= 90
    assert comparison("ec").beyond_noise is None
    assert comparison("c" * 99 + "e", noise=pairs("e" * 30)).summary.endswith("; more than that changes")
    said = comparison("c" + "e" * 99, noise=pairs("c" + "e" * 29)).summary
    assert "noise: 1 of 30 repeats of the old code changed too, 3.3 % (0.6-16.7); no more than that, perhaps" in said


def test_only_scores_say_what_is_better() -> None:
    """And whether that may be chance."""
    clear = comparison("e" * 20, seconds={"score_before": 0.5, "score_after": 1.0})
    assert clear.summary.endswith("score 0.5 → 1 on 20: better for 20, worse for 0")
    few = comparison("ee", seconds={"score_before": 0.5, "score_after": 1.0})
    assert few.summary.endswith("better for 2, worse for 0, which may be chance")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, ("{'b': 2}", "{'b': 3}")),
        ({"a": 1}, {"a": 1, "b": 3}, ("{}", "{'b': 3}")),
        ("short", "shirt", ("short", "shirt")),
        ([1, 2], [1, 3], ("[1, 2]", "[1, 3]")),
        ("", "a", ("", "a")),
    ],
)
def test_texts_show_what_differs(before: Any, after: Any, shown: tuple[str, str]) -> None:
    """Items that are the same are left out."""
    assert difference(before, after) == shown


NAN = float("nan")
Point = namedtuple("Point", "x y")


class Plain:
    """Without an equality of its own."""

    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


class Slotted:
    """The same, with slots."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Refuses:
    """Its equality raises."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot be compared")

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Row:
    """A result with a class."""

    label: str
    score: float


class Colour(Enum):
    """A member is the same in each process."""

    RED = 1
    BLUE = 2


def again(fields: type) -> Any:
    """Return a class of the same name, as of a cell that was run again."""
    return type(fields.__name__, (), {"__module__": fields.__module__, "__qualname__": fields.__qualname__})


SAME = [
    (1, 1.0),
    (NAN, NAN),
    ({"a": [1, NAN]}, {"a": (1, NAN)}),
    (OrderedDict(a=1), {"a": 1}),
    (np.array([1.0, NAN]), np.array([1.0, NAN])),
    (np.array([[1, 2]]), np.array([[1, 2]])),
    (np.array([[1, NAN]]), [(1, NAN)]),
    (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object)),
    (np.float32(1.5), 1.5),
    (np.True_, np.True_),
    (pd.DataFrame({"a": [1.0, NAN]}), pd.DataFrame({"a": [1.0, NAN]})),
    (Plain(x=1, y=NAN), Plain(x=1, y=NAN)),
    (Slotted(NAN), Slotted(NAN)),
    (Refuses([1]), Refuses([1])),
    (Row("a", NAN), Row("a", NAN)),
    (Point(1, NAN), Point(1, NAN)),
    (Colour.RED, Colour.RED),
    (Plain, again(Plain)),
    ({1, 2}, {2, 1}),
    (date(2026, 1, 1), date(2026, 1, 1)),
    (b"a", b"a"),
    (None, None),
    (ValueError("x"), ValueError("x")),
]
OTHER = [
    (1, 1.0000001),
    (True, 1),
    (False, None),
    (NAN, None),
    ("a", "A"),
    ([1, 2], [2, 1]),
    ([1], [1, 1]),
    ({"a": 1}, {"a": 1, "b": None}),
    (np.array([1, 2]), np.array([1, 2, 3])),
    (np.array([1.0]), np.array([1.1])),
    (np.array([1]), [2]),
    (np.array([1]), 1),
    (pd.DataFrame({"a": [1]}), pd.DataFrame({"a": [2]})),
    (pd.Series([1], index=[0]), pd.Series([1], index=[1])),
    (Plain(x=1), Plain(x=2)),
    (Plain(x=1), Slotted(1)),
    (Refuses(1), Refuses(2)),
    (Row("a", 1.0), Row("b", 1.0)),
    (Colour.RED, Colour.BLUE),
    (Plain, Slotted),
    (ValueError("x"), ValueError("y")),
    (lambda x: x, lambda x: x + 1),
]


def _named(pair: object) -> str:
    return type(pair[0]).__name__  # type: ignore[index]


@pytest.mark.parametrize("pair", SAME, ids=_named)
def test_values_with_the_same_parts_are_the_same(pair: tuple[Any, Any]) -> None:
    """In both orders, and inside lists and dicts."""
    one, other = pair
    assert same_value(one, other)
    assert same_value(other, one)
    assert same_value({"a": [one]}, {"a": [other]})


@pytest.mark.parametrize("pair", OTHER, ids=_named)
def test_values_with_other_parts_are_not(pair: tuple[Any, Any]) -> None:
    """In both orders, and inside lists and dicts."""
    one, other = pair
    assert not same_value(one, other)
    assert not same_value(other, one)
    assert not same_value({"a": [one]}, {"a": [other]})


def test_value_that_contains_itself_has_an_answer() -> None:
    """It is compared by its pickle."""
    one: list[Any] = [1]
    one.append(one)
    other: list[Any] = [1]
    other.append(other)
    assert same_value(one, other)
    other.append(2)
    assert not same_value(one, other)


def test_close_compares_numbers_wherever_they_stand() -> None:
    """All else has to be equal."""
    close = dq.close(0.01)
    assert close({"a": [1.0, np.array([2.0, NAN])], "b": "x"}, {"a": [1.001, np.array([2.001, NAN])], "b": "x"})
    assert close(Row("a", 1.0), Row("a", 1.005))
    assert close(np.float32(1.0), 1.005)
    assert not close(1.0, 1.1)
    assert not close({"b": "x"}, {"b": "y"})
    assert not close(1e-9, 0.0)
    assert dq.close(abs=1e-6)(1e-9, 0.0)
    assert not close(True, 1)


def test_same_looks_at_some_fields_alone() -> None:
    """Of dicts and of objects; a field that is missing in one of them differs."""
    label = dq.same("label")
    assert label({"label": "a", "score": 1}, {"label": "a", "score": 2})
    assert label(Row("a", 1.0), {"label": "a"})
    assert not label({"label": "a"}, {"label": "b"})
    assert not label({"label": "a"}, {})
    assert not dq.same("label", "score")(Row("a", 1.0), Row("a", 2.0))


def test_same_words_ignores_space_and_capitals() -> None:
    """In texts wherever they stand."""
    assert dq.same_words({"a": ["Net  total\n"]}, {"a": ["net total"]})
    assert not dq.same_words("net total", "total net")
    assert not dq.same_words("1", 1)


@pytest.mark.parametrize(
    "make", [lambda: dq.close(-1), lambda: dq.close(math.inf), lambda: dq.same(), lambda: dq.same(1)]
)
def test_bad_arguments_are_refused(make: Any) -> None:
    """Before anything runs."""
    with pytest.raises(BadOption):
        make()
