"""Errors are sentences for people and values for code, in every process."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import string
from pathlib import Path

import cloudpickle
import pytest

import dqlab.errors
from dqlab.errors import BadOption, DqlabError, Reject, SubmissionIncomplete


def kinds(root: type[DqlabError] = DqlabError) -> list[type[DqlabError]]:
    """Every error class of `dqlab.errors`."""
    found = [root]
    for kind in root.__subclasses__():
        if kind.__module__ == dqlab.errors.__name__:
            found += kinds(kind)
    return found


def example(kind: type[DqlabError]) -> DqlabError:
    """An error of that class, with a number wherever a number is formatted."""
    if kind is Reject:
        return Reject("no text in it")
    gaps = {name: spec for _, name, spec, _ in string.Formatter().parse(kind.text) if name}
    return kind(**{name: 7 if spec else "seven" for name, spec in gaps.items()})


class Unshowable:
    """An object that raises when it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("broken")


ALL = kinds()


@pytest.mark.parametrize("module", [pickle, cloudpickle, copy], ids=lambda module: module.__name__)
def test_error_crosses_process_borders_unchanged(module: object) -> None:
    """It is raised in a queue's worker and read in a notebook."""
    for kind in ALL:
        error = example(kind)

        there = module.copy(error) if module is copy else module.loads(module.dumps(error))  # type: ignore[attr-defined]

        assert type(there) is kind
        assert str(there) == str(error)
        assert there.fields == error.fields


def test_error_stands_in_the_overview() -> None:
    """The tree at the head of the module is what readers look for an error in."""
    assert [kind.__name__ for kind in ALL if kind.__name__ not in (dqlab.errors.__doc__ or "")] == []


def test_error_is_documented_and_is_a_sentence() -> None:
    """What failed, and what to do: one line alone never says both."""
    for kind in ALL:
        if not kind.__subclasses__():
            assert kind.__doc__, kind
            assert kind.text == "{reason}" or len(str(example(kind))) > 10, kind


def test_reject_takes_a_reason_as_its_only_argument() -> None:
    """Users write `raise dq.Reject("no text")` in their functions."""
    assert str(Reject("no text")) == "rejected: no text"
    assert Reject().reason == "no reason given"


def test_value_that_is_a_sentence_brings_no_second_period() -> None:
    """Reasons come from other errors, and those are sentences."""
    error = SubmissionIncomplete(run="r", position=1, reason="too large. Send a path.")

    assert "Send a path. The 1 element before" in str(error)
    assert error.reason == "too large. Send a path."


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (dqlab.errors.RunStalled(run="r", queue="q", waiting=1, seconds=5), "1 message waits in queue 'q'"),
        (dqlab.errors.RunStalled(run="r", queue="q", waiting=1_200, seconds=5), "1,200 messages wait in queue 'q'"),
        (dqlab.errors.RunCancelled(run="r", cancelled=1, total=4, acked=3), "1 of 4 documents was not processed"),
    ],
)
def test_an_error_counts_in_the_singular_and_the_plural(error: dqlab.errors.DqlabError, said: str) -> None:
    """ "1 documents" reads as if nobody had looked."""
    assert said in str(error)


def test_no_sentence_of_an_error_has_a_plural_beside_a_bare_count() -> None:
    """A gap names what it counts, so that one document is not documents."""
    kinds = [
        kind
        for kind in vars(dqlab.errors).values()
        if isinstance(kind, type) and issubclass(kind, dqlab.errors.DqlabError)
    ]
    bare = [
        (kind.__name__, found)
        for kind in kinds
        for found in re.findall(r"\{\w+:,\} (?!of |processed)(\w+s)\b", kind.text)
    ]

    assert bare == []


@pytest.mark.long
def test_no_text_leaves_the_plural_open() -> None:
    """A queue of one shard had "1 shard(s)"."""
    package = Path(dqlab.errors.__file__).parent.parent
    texts = [
        (path.name, node.value)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]

    assert len(texts) > 1000
    assert [text for text in texts if re.search(r"[a-z]\(s\)", text[1])] == []


@pytest.mark.parametrize(
    "value", [list(range(200_000)), "x" * 10_000, {n: n for n in range(1_000)}, "two\nlines", Unshowable()], ids=type
)
def test_a_refused_value_is_named_in_one_short_line(value: object) -> None:
    """`lab.map(documents, fn)`, the arguments swapped, printed all documents, and the advice behind them."""
    error = BadOption(option="fn", value=value, problem="is not a function.")

    assert len(str(error)) < 250
    assert "\n" not in str(error)
    assert str(error).endswith("is not a function.")
    assert error.value is value
