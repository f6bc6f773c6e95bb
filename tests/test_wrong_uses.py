"""What a call or an operator that is not there is answered with: a sentence, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, NoAttribute, PositionNotFound


@pytest.fixture
def docs(tmp_path: Path) -> dq.Documents:
    """Three small files."""
    for name in ("a.txt", "b.txt", "c.txt"):
        (tmp_path / name).write_text("one two three")
    return dq.Documents.from_glob(tmp_path / "*.txt")


def same(x: Any) -> Any:
    return x


@pytest.fixture(scope="module")
def run(lab: dq.Lab) -> Iterator[dq.Run]:
    """A run of three elements that is done; a mistaken use changes nothing of it."""
    pool = lab.queue("used-wrongly")
    yield pool.map(same, [1, 2, 3]).wait(timeout=30)
    pool.close()


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda docs: docs["a.txt"], TypeError, "'str'"),
        (lambda docs: docs + docs, TypeError, "unsupported operand"),
        (lambda docs: docs.wehre, NoAttribute, "Did you mean where?"),
        (lambda docs: docs[0].txet, NoAttribute, "Did you mean text?"),
        (
            lambda docs: docs[0].text(encoding="klingon"),
            BadOption,
            "is not a text encoding of Python",
        ),
        (lambda docs: docs[0].text(encoding="utf8-8"), BadOption, "Did you mean 'utf8'?"),
        (lambda docs: docs[0].html(encoding=5), BadOption, "is not a text encoding"),
        (lambda docs: docs[0].pages(lines="x"), BadOption, "a page has at least one line"),
        (lambda docs: docs[999], PositionNotFound, "has 3 documents; there is none at position 999"),
    ],
)
def test_mistaken_call_of_documents_is_answered_by_what_to_write(
    docs: dq.Documents, call: Callable[[Any], object], error: type[Exception], said: str
) -> None:
    """Python's own TypeError names a parameter, and no way out."""
    with pytest.raises(error) as caught:
        call(docs)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("use", "error", "said"),
    [
        (lambda lab, run: len(run), TypeError, "no len()"),
        (lambda lab, run: run[0], TypeError, "not subscriptable"),
        (lambda lab, run: list(run), TypeError, "not iterable"),
        (lambda lab, run: lab.map(same, [1], retires=3), TypeError, "'retires'"),
        (lambda lab, run: run.query(5), BadOption, "select * from results"),
        (lambda lab, run: run.to_parquet(3), BadOption, "Name a folder"),
        (lambda lab, run: lab.stats().nope, NoAttribute, "Snapshot has no 'nope'"),
        (lambda lab, run: lab.history("2h").plt(), NoAttribute, "Timeline has no 'plt'"),
        (lambda lab, run: run.stats().count, NoAttribute, "Did you mean counts?"),
        (lambda lab, run: run.results()["key"], TypeError, "dict(results.items())"),
        (lambda lab, run: run.results()[99], PositionNotFound, "3 values, at the positions 0 to 2"),
        (lambda lab, run: run.failures()[0], PositionNotFound, "has no dead documents"),
        (lambda lab, run: run.failures().show, NoAttribute, "dir(...) lists what it has"),
        (lambda lab, run: lab.attach(run), dq.DqlabError, "is a Run, not a string"),
        (lambda lab, run: lab.map(same, run), dq.DqlabError, "cannot be iterated"),
        (lambda lab, run: lab.map(same, same), dq.DqlabError, "cannot be iterated"),
        (lambda lab, run: lab.map([1], same), dq.DqlabError, "is not a function"),
        (lambda lab, run: lab.map(same(1), [1]), dq.DqlabError, "Pass the function itself"),
        (lambda lab, run: lab.queue().submit(same, 1).result, NoAttribute, "Did you mean results?"),
    ],
)
def test_mistaken_use_of_a_run_or_a_lab_is_answered_by_what_to_write(
    lab: dq.Lab, run: dq.Run, use: Callable[[Any, Any], object], error: type[Exception], said: str
) -> None:
    """A run reads like a list, a lab like a dict of its runs; and each is none."""
    with pytest.raises(error) as caught:
        use(lab, run)

    assert said in str(caught.value)


@pytest.mark.cluster
def test_run_and_lab_count_as_true(lab: dq.Lab, run: dq.Run) -> None:
    """`if run:` and `run or other` work, although a length is refused."""
    assert bool(run)
    assert bool(lab)
