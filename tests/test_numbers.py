"""How numbers are spelled."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab import numbers
from dqlab.numbers import UNKNOWN

NOON = 1_795_262_400.0  # 2026-11-21 12:00:00 UTC


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (16_121, "16,121"), (914_306, "914,306"), (None, UNKNOWN)])
def test_counts_are_grouped_and_never_rounded(value: int | None, text: str) -> None:
    """16.1k hides whether something still moves."""
    assert numbers.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, UNKNOWN),
        (0.0, "0 %"),
        (1e-9, "<0.1 %"),
        (0.0066, "0.7 %"),
        (0.6545, "65.5 %"),
        (0.9999999, "99.9 %"),
        (1.0, "100 %"),
    ],
)
def test_shares_are_100_only_at_the_end_and_0_only_at_the_start(value: float | None, text: str) -> None:
    """100 % with one document left is a lie that people act on."""
    assert numbers.share(value) == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(1, 3))
def test_share_between_the_ends_never_reads_as_an_end(value: float, places: int) -> None:
    """Whatever the rounding does."""
    text = numbers.share(value, places=places)

    assert not re.fullmatch(r"(0|0\.0+|100|100\.0+) %", text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (451.2, "451"),
        (23.9, "23.9"),
        (0.7, "0.70"),
        (4.2, "4.20"),
        (1547.3, "1,547"),
        (99.96, "100"),
        (9.996, "10.0"),
        (0.0, "0"),
        (0.001, "<0.01"),
        (None, UNKNOWN),
        (float("nan"), UNKNOWN),
        (float("inf"), UNKNOWN),
    ],
)
def test_rates_have_three_digits(value: float | None, text: str) -> None:
    """More would be noise, fewer would hide a change."""
    assert numbers.rate(value) == text


@given(st.floats(0.01, 999))
def test_rates_below_a_thousand_show_exactly_three_digits(value: float) -> None:
    """A column of rates keeps its width."""
    assert len(numbers.rate(value).replace(".", "").lstrip("0")) <= 3 <= len(numbers.rate(value).replace(".", ""))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (310_000_000, "310 MB"),
        (1_800_000_000, "1.8 GB"),
        (999_600, "1.0 MB"),
        (5 * 10**15, "5,000 TB"),
        (None, UNKNOWN),
    ],
)
def test_sizes_are_decimal_with_two_or_three_digits(value: int | None, text: str) -> None:
    """As disks are sold and `df -H` counts."""
    assert numbers.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.02, "0.1 s"),
        (0.7, "0.7 s"),
        (42.9, "42 s"),
        (252, "4 min 12 s"),
        (13_140, "3 h 39 min"),
        (120, "2 min"),
        (7_201, "2 h"),
        (90_061, "1 d 1 h"),
        (None, UNKNOWN),
        (float("inf"), UNKNOWN),
    ],
)
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


@pytest.mark.parametrize(("value", "text"), [(-1, "0 s"), (59.9, "59 s"), (1407, "23 min"), (13_150, "3 h 39 min")])
def test_spans_move_at_most_once_a_minute_after_the_first(value: float, text: str) -> None:
    """A line of text beside a name must not flicker."""
    assert numbers.span(value) == text


@pytest.mark.parametrize(
    ("past", "text"),
    [(-3, "0 s ago"), (5, "5 s ago"), (59.9, "59 s ago"), (60, "11:59"), (7_020, "10:03"), (50_000, "20 Nov 2026")],
)
def test_ages_turn_into_times_and_then_into_dates(past: float, text: str) -> None:
    """An hour ago is a moment one remembers; 3,600 s ago is arithmetic."""
    assert numbers.age(NOON - past, now=NOON) == text


def test_times_of_day_have_fixed_width() -> None:
    """They stand beside moving numbers."""
    assert (numbers.clock(NOON), numbers.minute(NOON), numbers.date(NOON)) == ("12:00:00", "12:00", "21 Nov 2026")


@pytest.mark.parametrize(("seconds", "text"), [(10, "<1 min"), (31, "1 min"), (713, "12 min"), (13_170, "3 h 40 min")])
def test_what_is_to_come_is_told_to_the_nearest_minute(seconds: float, text: str) -> None:
    """An estimate that counts seconds claims what it does not know."""
    assert numbers.soon(seconds) == text


def test_estimates_are_times_of_day_to_the_nearest_minute_and_name_another_day() -> None:
    """14:34 tomorrow is not in twelve minutes."""
    assert numbers.due(NOON + 89, now=NOON) == "12:01"
    assert numbers.due(NOON + 91, now=NOON) == "12:02"
    assert numbers.due(NOON + 86_400, now=NOON) == "22 Nov 12:00"


def test_range_of_two_equal_numbers_is_one() -> None:
    """12:01 to 12:01 is 12:01."""
    assert numbers.between("12:01", "12:01") == "12:01"
    assert numbers.between("12:01", "12:05") == "12:01\N{EN DASH}12:05"


@pytest.mark.parametrize(("amount", "text"), [(1, "1 delivery"), (2, "2 deliveries"), (0, "0 queries")])
def test_nouns_ending_in_ry_have_their_plural(amount: int, text: str) -> None:
    """2 deliverys reads as a bug."""
    assert numbers.many(amount, "query" if amount == 0 else "delivery") == text
