"""What a call or an operator that is not there is answered with: a sentence, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, NoAttribute, PositionNotFound, UnknownOption, WrongArguments, WrongUse


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
        (lambda docs: docs.where(size=3), UnknownOption, 'Write the condition as a text: docs.where("size == 3")'),
        (lambda docs: docs.where(key="a"), UnknownOption, "docs.where(\"key == 'a'\")"),
        (lambda docs: docs.where(colour=3), UnknownOption, "There are: condition"),
        (lambda docs: docs.where(), WrongArguments, "Documents.where(condition)"),
        (lambda docs: docs.sample(frac=0.1), UnknownOption, "There are: n, by, seed"),
        (lambda docs: docs.split(page=3), UnknownOption, "Did you mean pages=?"),
        (
            lambda docs: dq.Documents.from_glob("*.txt", encoding="latin-1"),
            UnknownOption,
            "The function says how a text is read: doc.text(encoding='latin-1')",
        ),
        (lambda docs: dq.Documents.from_glob("*.txt", recursive=True), UnknownOption, "'folder/**/*.txt'"),
        (lambda docs: dq.Documents.from_glob(), WrongArguments, "Documents.from_glob(pattern, ...)"),
        (lambda docs: dq.Documents.from_parquet("a", keys="id"), UnknownOption, "Did you mean key=?"),
        (lambda docs: dq.Documents(), WrongArguments, "Documents(iterable, key, ...)"),
        (lambda docs: dq.Documents(["a"], keys=str), UnknownOption, "Did you mean key=?"),
        (lambda docs: dq.Document("a.txt"), WrongArguments, "dq.Documents(['a.txt'])[0]"),
        (lambda docs: dq.Document(), WrongArguments, "dq.Documents([path])[0]"),
        (lambda docs: dq.Document(path="a.txt"), UnknownOption, "dq.Documents(['a.txt'])[0]"),
        (lambda docs: docs[0].text(encodng="x"), UnknownOption, "Did you mean encoding=?"),
        (lambda docs: docs["a.txt"], WrongUse, "docs.where(\"key == 'a.txt'\")"),
        (lambda docs: docs.filter, NoAttribute, "where(condition)"),
        (lambda docs: docs.wehre, NoAttribute, "Did you mean where?"),
        (lambda docs: docs[0].path, NoAttribute, "where"),
        (lambda docs: docs[0].read, NoAttribute, "text()"),
        (lambda docs: docs[0].name, NoAttribute, "key"),
        (lambda docs: docs[0].txet, NoAttribute, "Did you mean text?"),
        (lambda docs: dq.Documents.from_globb("x"), NoAttribute, "Did you mean from_glob?"),
        (lambda docs: dq.Document.from_glob("x"), NoAttribute, "dq.Documents.from_glob(...)"),
        (lambda docs: docs.longest_first(3), WrongArguments, "Documents.longest_first()"),
        (
            lambda docs: docs[0].text(encoding="klingon"),
            BadOption,
            "is not a text encoding of Python",
        ),
        (lambda docs: docs[0].text(encoding="utf8-8"), BadOption, "Did you mean 'utf8'?"),
        (lambda docs: docs[0].html(encoding=5), BadOption, "is not a text encoding"),
        (lambda docs: docs[0].pages(lines="x"), BadOption, "a page has at least one line"),
        (lambda docs: docs[999], PositionNotFound, "has 3 documents; there is none at position 999"),
        (lambda docs: dq.from_glob, NoAttribute, "dq.Documents.from_glob(...)"),
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
        (lambda lab, run: len(run), WrongUse, "len(run.results())"),
        (lambda lab, run: run[0], WrongUse, "run.results()[0]"),
        (lambda lab, run: run["a.txt"], WrongUse, "dict(run.results().items())['a.txt']"),
        (lambda lab, run: list(run), WrongUse, "for value in run.results()"),
        (lambda lab, run: 3 in run, WrongUse, "run.results()"),
        (lambda lab, run: run[2:3], WrongUse, "run.results()[2:3]"),
        (lambda lab, run: run.to_csv("x"), NoAttribute, "run.results().to_frame().to_csv(...)"),
        (lambda lab, run: run.results().to_sql("x"), NoAttribute, "to_frame().to_sql(...)"),
        (lambda lab, run: run.results().to_parquet("x"), NoAttribute, "run.to_parquet('out/')"),
        (lambda lab, run: run.failures().to_csv("x"), NoAttribute, "to_frame().to_csv(...)"),
        (lambda lab, run: run.query(5), BadOption, "select * from results"),
        (lambda lab, run: run.to_parquet(3), BadOption, "Name a folder"),
        (lambda lab, run: lab.stats().nope, NoAttribute, "Snapshot has no 'nope'"),
        (lambda lab, run: lab.history("2h").plt(), NoAttribute, "Timeline has no 'plt'"),
        (lambda lab, run: run.stats().count, NoAttribute, "Did you mean counts?"),
        (lambda lab, run: run.status, NoAttribute, "run.counts"),
        (lambda lab, run: run.errors, NoAttribute, "failures()"),
        (lambda lab, run: run.progress, NoAttribute, "counts"),
        (lambda lab, run: run.results()["key"], TypeError, "dict(results.items())"),
        (lambda lab, run: run.results().get("key"), NoAttribute, "dict(results.items())"),
        (lambda lab, run: run.results().values(), NoAttribute, "list(results)"),
        (lambda lab, run: run.results()[99], PositionNotFound, "3 values, at the positions 0 to 2"),
        (lambda lab, run: run.failures()[0], PositionNotFound, "has no dead documents"),
        (lambda lab, run: run.failures()["a"], WrongUse, "if letter.key == 'a'"),
        (lambda lab, run: run.failures().show, NoAttribute, "dir(...) lists what it has"),
        (lambda lab, run: lab["word-count"], WrongUse, "lab.attach('word-count')"),
        (lambda lab, run: len(lab), WrongUse, "lab.all_runs()"),
        (lambda lab, run: list(lab), WrongUse, "lab.all_runs()"),
        (lambda lab, run: lab.attach(), WrongArguments, "Lab.attach(name)"),
        (lambda lab, run: lab.attach(run), dq.DqlabError, "is a Run, not a string"),
        (lambda lab, run: lab.map(same, run), dq.DqlabError, "run.results()"),
        (lambda lab, run: lab.map(same, same), dq.DqlabError, "cannot be iterated"),
        (lambda lab, run: lab.map([1], same), dq.DqlabError, "It comes first: map(same, documents)"),
        (lambda lab, run: lab.map(same), WrongArguments, "Lab.map(fn, documents, ...)"),
        (lambda lab, run: lab.map(same(1), [1]), dq.DqlabError, "Pass the function itself"),
        (lambda lab, run: lab.queue().submit(same, 1).result, NoAttribute, "Did you mean results?"),
        (lambda lab, run: lab.queue().submit(same, 1)[0], WrongUse, "results()[0]"),
        (lambda lab, run: list(lab.queue().submit(same, 1)), WrongUse, "results()"),
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
