"""Filters of failures select what they say and nothing more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.errors import BadOption
from dqlab.runs.where import FIELDS, compile_where, why_none

FAILURE: dict[str, Any] = {
    "error": "KeyError",
    "message": "'page'",
    "key": "reports/2024.pdf",
    "deliveries": 3,
    "version": "a1b2c3",
    "at": "parse:8",
    "fingerprint": "0badcafe",
}


@pytest.mark.parametrize(
    ("where", "selected"),
    [
        ("error == 'KeyError'", True),
        ("error != 'KeyError'", False),
        ("  error == 'KeyError'\n", True),
        ("error in ('KeyError', 'OSError')", True),
        ("error in ['OSError']", False),
        ("error not in ['OSError', None]", True),
        ("error in ()", False),
        ("'page' in message", True),
        ("'page' not in message", False),
        ("message in error", False),
        ("deliveries > 2", True),
        ("deliveries > 2.5", True),
        ("deliveries > -1", True),
        ("1 < deliveries <= 3", True),
        ("1 < deliveries < 3", False),
        ("deliveries in (1, 2, 3)", True),
        ("key >= 'reports/2024' and key < 'reports/2025'", True),
        ("key is None", False),
        ("key is not None", True),
        ("key == None", False),
        ("not error == 'KeyError'", False),
        ("not (error == 'OSError' or deliveries == 1)", True),
        ("error == 'OSError' or error == 'KeyError' and at == 'parse:8'", True),
        ("version == 'a1b2c3' and fingerprint == '0badcafe'", True),
        ("error == at", False),
        ("(error ==\n 'KeyError')", True),
        ("True", True),
        ("False or deliveries == 3", True),
    ],
)
def test_expression_selects_what_it_says(where: str, selected: bool) -> None:
    """The same words mean the same as in Python."""
    predicate = compile_where(where)

    assert predicate(FAILURE) is selected
    assert predicate(SimpleNamespace(**FAILURE)) is selected


@pytest.mark.parametrize("where", ["key < 'a'", "key > 'a'", "'a' in key", "key in ('a', 'b')", "key == 'a'"])
def test_missing_key_is_like_nothing(where: str) -> None:
    """Plain values have no key; one of them must not end the filter with a TypeError."""
    assert compile_where(where)({**FAILURE, "key": None}) is False


def test_callable_gets_the_failure_itself() -> None:
    """What the language cannot say, Python can."""
    failure = SimpleNamespace(**FAILURE)
    seen: list[object] = []

    assert compile_where(lambda f: seen.append(f) or f.deliveries)(failure) is True
    assert seen == [failure]


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (
            "eror == 'KeyError'",
            "eror (character 1) is not a field. Did you mean error? Fields are error, message, key, ",
        ),
        ("deliveries > 1 and attempts < 3", "attempts (character 20) is not a field. Did you mean deliveries?"),
        ("error == KeyError", "KeyError (character 10) is not a field. Fields are error, message, "),
        ("error == KeyError", "text goes in quotes: 'KeyError'."),
        ("  error == 'é' and kye == 'x'", "kye (character 20) is not a field. Did you mean key?"),
        ("(error == 'é' or\n kye == 'x')", "kye (character 19) is not a field."),
        ("error = 'KeyError'", "Write == to compare."),
        ("error ==", "at character"),
        ("", "1 to 10,000 characters"),
        ("deliveries > 1 or " * 1_000 + "True", "1 to 10,000 characters"),
        ("error", "error (character 1) is not a condition by itself; compare it"),
        ("'KeyError'", "'KeyError' (character 1) is not a condition by itself"),
        ("error == 'a' and key", "key (character 18) is not a condition by itself"),
        ("len(message) > 3", "len(message) (character 1) is not understood"),
        ("message.lower() == 'a'", "message.lower() (character 1) is not understood"),
        ("error.__class__ == 'a'", "error.__class__ (character 1) is not understood"),
        ("message[0] == 'a'", "message[0] (character 1) is not understood"),
        ("deliveries + 1 > 3", "deliveries + 1 (character 1) is not understood"),
        ("__import__('os')", "__import__('os') (character 1) is not understood"),
        ("[e for e in error]", "is not understood"),
        ("(lambda: True)()", "is not understood"),
        ("error == f'{key}'", "is not understood"),
        ("error == b'a'", "b'a' (character 10) is not understood"),
        ("error == 3j", "3j (character 10) is not understood"),
        ("error in ('a', key)", "key (character 16) is not understood"),
        ("error in {'a'}", "{'a'} (character 10) is not understood"),
        ("(error := 'a') == 'a'", "is not understood"),
        ("error == 3", "error (character 1) is text, 3 (character 10) is a number; they are never equal."),
        ("deliveries > '3'", "deliveries (character 1) is a number, '3' (character 14) is text"),
        ("deliveries == True", "True (character 15) is True or False"),
        ("deliveries in ('1', '2')", "'1' (character 16) is text"),
        ("error == ('a', 'b')", "('a', 'b') (character 10) is a list; write in before it."),
        ("key > None", "None (character 7) has no order"),
        ("None < key", "has no order"),
        ("key is 'a'", "is compares with None only; write == before 'a' (character 8)."),
        ("3 in message", "only text is in a text; 3 (character 1) is a number."),
        ("'a' in deliveries", "in looks inside texts and lists; deliveries (character 8) is a number."),
        ("not " * 60 + "True", "nested more than 50 deep"),
        ("(" * 500 + "True" + ")" * 500, "at character"),
        ("error == 'a\0b'", "null bytes"),
        ("error == 'a'\r\nand key", "at character"),
        ("(error == 'a'\rand kye == 'b')", "kye (character 19) is not a field."),
        ("Error == 'KeyError'", "Did you mean error?"),
    ],
)
def test_everything_else_is_refused_with_its_place(where: str, problem: str) -> None:
    """A filter is typed by hand, and may come from a web page: it must never run code."""
    with pytest.raises(BadOption) as caught:
        compile_where(where)

    assert problem in str(caught.value)
    assert str(caught.value).startswith("where=")


def test_what_is_no_filter_is_refused() -> None:
    """A list of ids belongs to another argument."""
    with pytest.raises(BadOption, match="neither an expression nor a callable"):
        compile_where(3)  # type: ignore[arg-type]


def failures(**amounts: int) -> list[dict[str, Any]]:
    """Return failures of these classes, so many of each; their keys count on."""
    errors = [error for error, amount in amounts.items() for _ in range(amount)]
    return [{**FAILURE, "error": error, "key": f"{at}.pdf", "deliveries": at} for at, error in enumerate(errors)]


THERE = failures(ValueError=41, KeyError=2)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            "error == 'ValueErorr'",
            "no failure of run 'parse' matches error == 'ValueErorr', so nothing was sent again. "
            "There are: error 'ValueError' (41), 'KeyError' (2). Did you mean 'ValueError'?",
        ),
        ("error == 'valueerror'", "Did you mean 'ValueError'?"),
        ("error in ('json.KeyError', 'OSError')", "Did you mean 'KeyError'?"),
        ("error == 'OSError' and deliveries > 99", "error 'ValueError' (41), 'KeyError' (2); deliveries from 0 to 42."),
        ("key == '41.pfd'", "key '0.pdf' (1), '1.pdf' (1), '10.pdf' (1), '11.pdf' (1), '12.pdf' (1) and 38 others."),
        ("key == '41.pfd'", "Did you mean '41.pdf'?"),
        ("version == 'v1'", "There are: version 'a1b2c3' (43)."),
        ("False", "matches False, so nothing was sent again."),
    ],
)
def test_filter_that_nothing_matches_is_answered_by_what_there_is(where: str, said: str) -> None:
    """A misspelt class sent nothing again, in silence."""
    assert not any(map(compile_where(where), THERE))
    assert said in why_none("parse", THERE, where, None)
    assert why_none("parse", [], where, None) == ""


def test_function_and_fingerprint_that_nothing_matches_are_answered_by_the_classes() -> None:
    """Neither of them names a field."""
    there = "There are: ValueError 0badcafe (41), KeyError 0badcafe (2)."

    assert why_none("parse", THERE, lambda letter: False, None) == (
        f"no failure of run 'parse' matches the function of where=, so nothing was sent again. {there}"
    )
    assert why_none("parse", THERE, None, "beef").endswith(
        f"matches fingerprint 'beef', so nothing was sent again. {there}"
    )


NAMES = st.sampled_from([name for name, kind in FIELDS.items() if kind is str])
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
    assert compile_where(where)(FAILURE) is eval(where, {}, FAILURE)
