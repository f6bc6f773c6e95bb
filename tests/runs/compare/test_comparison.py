"""What a comparison says: sums, ranges, noise and scores in words, and texts that show where results differ."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dqlab.errors import RunError
from dqlab.runs.compare.comparison import Became, Compared, Comparison, difference

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
