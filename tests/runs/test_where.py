"""Filters of failures select what they say and nothing more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.errors import BadOption
from dqlab.runs.failures import FIELDS, compile_where, why_none

FAILURE: dict[str, Any] = {
    "error": "KeyError",
    "message": "'page'",
    "key": "reports/2024.pdf",
    "deliveries": 3,
    "version": "a1b2c3",
    "at": "parse:8",
    "fingerprint": "0badcafe",
}


def failure(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**FAILURE, **values})


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ("  error == 'KeyError'\n", True),
        ("error in ('KeyError', 'OSError')", True),
        ("error in ['OSError']", False),
        ("error not in ['OSError', None]", True),
        ("error in ()", False),
        ("'page' not in message", False),
        ("1 < deliveries <= 3", True),
        ("1 < deliveries < 3", False),
        ("deliveries in (1, 2, 3)", True),
        ("key >= 'reports/2024' and key < 'reports/2025'", True),
        ("key is not None", True),
        ("error == at", False),
        ("(error ==\n 'KeyError')", True),
        ("len(message) > 3 and message.endswith('x')", False),
        ("any(part in message for part in ('page', 'line'))", True),
        ("message[1] == 'p'", True),
    ],
)
def test_expression_selects_what_it_says(where: str, selected: bool) -> None:
    """The same words mean the same as in Python."""
    assert compile_where(where)(failure()) is selected


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ("key < 'a'", False),
        ("not key > 'a'", True),
        ("'a' < key", False),
        ("'a' in key", False),
        ("key in ('a', 'b')", False),
        ("key in ('a', None)", True),
        ("key not in {'a', 'b'}", True),
        ("key == 'a'", False),
        ("key == None", True),
        ("key is None", True),
        ("key is not None and key.startswith('a')", False),
        ("key > 'a' or error == 'KeyError'", True),
    ],
)
def test_missing_key_is_like_nothing(where: str, selected: bool) -> None:
    """Plain values have no key; one of them must not end the filter with a TypeError."""
    assert compile_where(where)(failure(key=None)) is selected


def test_whole_number_as_key_is_its_digits() -> None:
    assert compile_where("key == '7'")(failure(key=7)) is True


def test_callable_gets_the_failure_itself() -> None:
    """It may also return what is no bool."""
    letter = failure()

    assert compile_where(lambda each: each is letter and each.deliveries)(letter)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("eror == 'KeyError'", "eror is not a field. Did you mean 'error'? Fields are error, message, key, "),
        ("error == KeyError", "KeyError is not a field. Fields are error, message, "),
        ("error == KeyError", "text goes in quotes: 'KeyError'."),
        ("error == type", "type is not a field."),
        ("error = 'KeyError'", "Write == to compare"),
        ("error ==", "is no Python expression"),
        ("", "is no Python expression"),
        ("error == 'a\0b'", "null bytes"),
        ("error == 'a'\r\nand key", "is no Python expression"),
        ("error", "it is '', not True or False"),
        ("error == 'a' or 'b'", "it is 'b', not True or False; compare each side of and, or, not."),
        ("deliveries > '3'", "'>' not supported between instances of 'int' and 'str'"),
        ("error.name == 'a'", "has no attribute 'name'"),
    ],
)
def test_what_cannot_select_is_refused_where_it_is_given(where: str, problem: str) -> None:
    """A slip must not select every failure, nor none in silence."""
    with pytest.raises(BadOption) as caught:
        compile_where(where)

    assert problem in str(caught.value)
    assert str(caught.value).startswith("where=")


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ("message[90] == 'a'", "IndexError: string index out of range, where message is \"'page'\"."),
        ("error == 'KeyError' and message", "not True or False"),
    ],
)
def test_filter_that_fails_for_one_failure_says_for_which(where: str, problem: str) -> None:
    with pytest.raises(BadOption) as caught:
        compile_where(where)(failure())

    assert problem in str(caught.value)


def test_what_is_no_filter_is_refused() -> None:
    """A list of ids belongs to another argument."""
    with pytest.raises(BadOption, match="neither an expression nor a callable"):
        compile_where(3)  # type: ignore[arg-type]


THERE = [failure(error="ValueError")] * 41 + [failure()] * 2


@pytest.mark.parametrize(
    ("where", "fingerprint", "matches"),
    [
        ("error == 'ValueErorr'", None, "error == 'ValueErorr'"),
        (lambda letter: False, None, "the function of where="),
        (None, "beef", "fingerprint 'beef'"),
        ("False", "beef", "False and fingerprint 'beef'"),
    ],
)
def test_filter_that_nothing_matches_is_answered_by_the_classes(where: Any, fingerprint: Any, matches: str) -> None:
    """A misspelt class sent nothing again, in silence."""
    assert why_none("parse", [], where, fingerprint) == ""
    assert why_none("parse", THERE, where, fingerprint) == (
        f"no failure of run 'parse' matches {matches}, so nothing was sent again. "
        "There are: ValueError 0badcafe (41), KeyError 0badcafe (2)."
    )


NAMES = st.sampled_from([name for name, kind in FIELDS.kinds.items() if kind is str])
TEXTS = st.sampled_from(["KeyError", "'page'", "", "a", "parse:8"])
CONDITIONS = st.recursive(
    st.builds("{} {} {!r}".format, NAMES, st.sampled_from(["==", "!=", "<", ">=", "in", "not in"]), TEXTS)
    | st.builds("deliveries {} {}".format, st.sampled_from(["<", "<=", "==", ">"]), st.integers(0, 5)),
    lambda part: (
        st.builds("({} and {})".format, part, part)
        | st.builds("({} or {})".format, part, part)
        | st.builds("not {}".format, part)
    ),
    max_leaves=8,
)


@given(CONDITIONS)
def test_filters_agree_with_python(where: str) -> None:
    """People read the expression as Python; it must select the same."""
    assert compile_where(where)(failure()) is eval(where, {}, FAILURE)
