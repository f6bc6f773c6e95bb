"""A generator function gives many rows of one document: one result, and several rows of a table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq

pytestmark = pytest.mark.lowest


def rows(n: int) -> Iterator[dict[str, int]]:
    for at in range(n):
        yield {"at": at, "n": n}


async def rows_later(n: int) -> AsyncIterator[dict[str, int]]:
    for row in rows(n):
        await asyncio.sleep(0)
        yield row


class Reads:
    """An object that is called, and yields."""

    def __call__(self, n: int) -> Iterator[dict[str, int]]:
        return rows(n)


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize(
    ("fn", "executor"), [(rows, "thread"), (rows, "process"), (rows_later, "auto"), (Reads(), "auto")]
)
def test_rows_of_a_document_are_one_result_and_as_many_rows_of_the_table(
    queue: dq.QueuePool, tmp_path: Path, fn: Any, executor: Any, sink: bool
) -> None:
    """With their numbers beside the key, in threads, processes and coroutines; a document may have none."""
    given = [2, 0, 3]
    into = tmp_path / "out" if sink else None
    run = queue.map(fn, {"b": 2, "none": 0, "c": 3}.values(), executor=executor, sink=into)

    assert list(run.results(timeout=60)) == [list(rows(n)) for n in given]
    table = run.table()
    assert table.to_arrow(["_key", "_part", "at", "n"]).to_pylist() == [
        {"_key": key, "_part": part, "at": part, "n": n} for key, n in enumerate(given) for part in range(n)
    ]
    assert table.count() == 3
    assert run.query("select count(*) as rows, max(_attempts) as attempts from results").to_dict("records") == [
        {"rows": 5, "attempts": 1}
    ]
    assert run.publish(tmp_path / "published").rows == 5
    expected = [(key, part) for key, n in enumerate(given) for part in range(n)]
    frame = run.results().to_frame()
    assert list(zip(frame.index, frame["_part"], strict=True)) == expected
    lined = run.results().to_frame(["_ordinal", "_part", "at", "_attempts", "_seconds"])
    assert [*zip(lined["_ordinal"], lined["at"], lined["_attempts"], strict=True)] == [(*each, 1) for each in expected]


def test_a_generator_that_raises_fails_its_document_and_one_without_end_is_refused(queue: dq.QueuePool) -> None:
    """Its traceback begins in the function; what it had yielded is not kept, and the memory stays bounded."""

    def breaks(x: int) -> Iterator[Any]:
        yield 1
        if not x:
            raise ValueError("in the middle")
        while True:
            yield "x" * 100_000

    run = queue.map(breaks, range(2), retry=0).wait(timeout=60)
    broken, endless = run.failures()

    assert broken.error == "ValueError"
    assert "pickle" not in broken.traceback, "what pickle says of a generator is no part of it"
    assert endless.error == "ResultTooLarge"


def test_new_code_that_yields_stands_beside_rows_of_the_old(queue: dq.QueuePool) -> None:
    """Each row knows whether it is one of several."""

    def plain(x: int) -> dict[str, int]:
        return {"at": 7 // x}

    run = queue.map(plain, [0, 1], retry=0).wait(timeout=30)
    run.retry(fn=lambda x: (row for row in [{"at": 1}, {"at": 2}]))

    assert list(run.results(timeout=30)) == [[{"at": 1}, {"at": 2}], {"at": 7}]
    found = run.table().to_arrow(["_key", "_part", "at"]).to_pylist()
    assert [(row["_key"], row["_part"], row["at"]) for row in found] == [(0, 0, 1), (0, 1, 2), (1, None, 7)]


@dataclass
class Invoice:
    number: int
    total: float | None = None


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("later", [False, True])
def test_each_row_is_one_of_the_class_that_the_annotation_names(
    queue: dq.QueuePool, tmp_path: Path, sink: bool, later: bool
) -> None:
    """Columns are those of the class, and results are its objects; a row that does not fit fails its document."""

    def found(n: int) -> Iterator[Invoice]:
        for at in range(n):
            yield Invoice(at) if at < 2 else {"number": "none"}  # type: ignore[misc]

    async def found_later(n: int) -> AsyncIterator[Invoice]:
        for each in found(n):
            yield each

    run = queue.map(found_later if later else found, [2, 0, 3], retry=0, sink=tmp_path / "out" if sink else None)
    run.wait(timeout=60)

    assert list(run.results(errors="skip", timeout=60)) == [[Invoice(0), Invoice(1)], []]
    assert run.failures()[0].error == "AnswerInvalid"
    table = run.table().to_arrow(["_part", "number", "total"])
    assert [str(each) for each in table.schema.types] == ["int64", "int64", "double"]
    assert table.to_pylist() == [{"_part": at, "number": at, "total": None} for at in range(2)]
