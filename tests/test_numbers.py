"""How numbers are spelled."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab import numbers
from dqlab.numbers import UNKNOWN

SPELT = json.loads((Path(__file__).parent / "golden" / "numbers.json").read_text(encoding="utf-8"))
"""What is given to each rule, then how it is spelled; the views in the browser are held to it as well."""


def spelt(rule: str) -> list[tuple[Any, ...]]:
    """Return the examples of one rule."""
    return [tuple(example) for example in SPELT[rule]]


@pytest.mark.parametrize(("value", "text"), spelt("count"))
def test_counts_are_grouped_and_never_rounded(value: int | None, text: str) -> None:
    """16.1k hides whether something still moves."""
    assert numbers.count(value) == text


@pytest.mark.parametrize(("value", "text"), spelt("share"))
def test_shares_are_100_only_at_the_end_and_0_only_at_the_start(value: float | None, text: str) -> None:
    """100 % with one document left is a lie that people act on."""
    assert numbers.share(value) == text


@pytest.mark.parametrize(("value", "text"), spelt("share with two places"))
def test_shares_have_as_many_digits_as_are_asked_for(value: float, text: str) -> None:
    """A share of dead documents that reads 0.7 % hides whether it still grows."""
    assert numbers.share(value, places=2) == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(1, 3))
def test_share_between_the_ends_never_reads_as_an_end(value: float, places: int) -> None:
    """Whatever the rounding does."""
    text = numbers.share(value, places=places)

    assert not re.fullmatch(r"(0|0\.0+|100|100\.0+) %", text)


@pytest.mark.parametrize(("value", "text"), [*spelt("rate"), (float("nan"), UNKNOWN), (float("inf"), UNKNOWN)])
def test_rates_have_three_digits(value: float | None, text: str) -> None:
    """More would be noise, fewer would hide a change."""
    assert numbers.rate(value) == text


@given(st.floats(0.01, 999))
def test_rates_below_a_thousand_show_exactly_three_digits(value: float) -> None:
    """A column of rates keeps its width."""
    assert len(numbers.rate(value).replace(".", "").lstrip("0")) <= 3 <= len(numbers.rate(value).replace(".", ""))


@pytest.mark.parametrize(("value", "text"), spelt("size"))
def test_sizes_are_decimal_with_two_or_three_digits(value: int | None, text: str) -> None:
    """As disks are sold and `df -H` counts."""
    assert numbers.size(value) == text


@pytest.mark.parametrize(("value", "text"), [*spelt("duration"), (float("inf"), UNKNOWN)])
def test_durations_have_two_units_at_most(value: float | None, text: str) -> None:
    """Nobody needs the seconds of three hours."""
    assert numbers.duration(value) == text


@given(st.floats(10, 10**8))
def test_durations_never_claim_time_that_has_not_passed(seconds: float) -> None:
    """59.9 s is not yet a minute."""
    lengths = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
    words = numbers.duration(seconds).split()

    told = sum(float(amount) * lengths[unit] for amount, unit in zip(words[::2], words[1::2], strict=True))
    assert told <= seconds
    assert len(words) <= 4


@pytest.mark.parametrize(("at", "now", "text"), spelt("moment"))
def test_moments_are_times_of_today_and_dates_of_other_days(at: float, now: float, text: str) -> None:
    """ "25 s ago" stood still in a view whose kernel did not answer."""
    assert numbers.moment(at, now=now) == text


@pytest.mark.parametrize(("at", "now", "text"), spelt("instant"))
def test_instants_of_other_days_have_their_date(at: float, now: float, text: str) -> None:
    """A run of last week ended "at 14:22:07"."""
    assert numbers.instant(at, now=now) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (31, "31 s"), (119, "119 s"), (713, "12 min"), (13_170, "3 h 40 min")]
)
def test_what_is_to_come_is_told_in_seconds_and_then_to_the_nearest_minute(seconds: float, text: str) -> None:
    """Below two minutes "<1 min" says nothing; above, an estimate that counts seconds claims what it does not know."""
    assert numbers.soon(seconds) == text


@pytest.mark.parametrize(
    ("early", "likely", "late", "text"),
    [
        (10, 18, 30, "10 to 30 s"),
        (8.2, 10, 12.4, "8 to 13 s"),
        (17.6, 18, 18.9, "18 s"),
        (0, 0.3, 0.4, "1 s"),
        (100, 110, 119, "110 s"),
        (100, 118, 130, "1 to 3 min"),
        (60, 200, 400, "1 to 7 min"),
        (43, 100, 239, "40 s to 4 min"),
        (2, 20, 470, "up to 8 min"),
        (0, 1, 530, "up to 9 min"),
        (0.2, 2, 6.5, "up to 7 s"),
        (20, 3_000, 9_000, "up to 3 h"),
        (2_900, 6_000, 10_000, "48 min to 3 h"),
        (700, 713, 730, "12 min"),
        (5_000, 9_000, 13_000, "1 to 4 h"),
        (13_000, 13_170, 13_300, "3 h 40 min"),
    ],
)
def test_an_end_is_told_as_sure_as_it_is_and_in_seconds_below_two_minutes(
    early: float, likely: float, late: float, text: str
) -> None:
    """Early on "18 s" claims too much, and "<1 min" leaves out what somebody who waits asks for."""
    assert numbers.ahead(early, likely, late) == text


@pytest.mark.parametrize(("at", "now", "text"), spelt("due"))
def test_estimates_are_times_of_day_to_the_nearest_minute_and_name_another_day(
    at: float, now: float, text: str
) -> None:
    """14:34 tomorrow is not in twelve minutes."""
    assert numbers.due(at, now=now) == text


@pytest.mark.parametrize(("amount", "noun", "text"), spelt("many"))
def test_nouns_have_their_plural(amount: int, noun: str, text: str) -> None:
    """2 deliverys reads as a bug."""
    assert numbers.many(amount, noun) == text


def test_names_are_few_and_the_rest_is_counted() -> None:
    """A sentence about a thousand workers is still a sentence."""
    assert numbers.few_of(["a", "b"]) == "a, b"
    assert numbers.few_of([*"abc"]) == "a, b, c"
    assert numbers.few_of(["a"] * 1024) == "a, a, a and 1,021 more"
    assert numbers.few_of([]) == ""


@pytest.mark.parametrize(
    ("value", "unit", "of", "text"),
    [
        (16_121, "pages", None, "16,121 pages"),
        (1, "pages", None, "1 page"),
        (1_234_567_890, "bytes", None, "1.2 GB"),
        (40, "pages", 3_281, "40 of 3,281 pages"),
        (0, "documents", 1, "0 of 1 document"),
        (1_234_567_890, "bytes", 3_400_000_000, "1.2 of 3.4 GB"),
        (310_000_000, "bytes", 3_400_000_000, "310 MB of 3.4 GB"),
        (0, "bytes", 12, "0 of 12 B"),
        (4_000_000_000_000_000, "bytes", 1 << 53, "4,000 of 9,007 TB"),
    ],
)
def test_amounts_name_their_unit_once(value: int, unit: str, of: int | None, text: str) -> None:
    """What a bar counts is read beside it: pages, bytes or documents."""
    assert numbers.amount(value, unit, of=of) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (451.2, "pages", "451 pages/s"),
        (0.7, "documents", "0.70 documents/s"),
        (12_345_678.9, "bytes", "12 MB/s"),
        (0.2, "bytes", "<1 B/s"),
        (0.0, "bytes", "0 B/s"),
        (None, "bytes", UNKNOWN),
        (float("nan"), "bytes", UNKNOWN),
    ],
)
def test_speeds_name_their_unit(value: float | None, unit: str, text: str) -> None:
    """A number of bytes in a second with nine digits is not read by anybody."""
    assert numbers.speed(value, unit) == text
