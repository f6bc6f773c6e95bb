"""What a person reads bears the keys of its own documents, for each way to run a function."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any, Literal

import pytest

import dqlab as dq
from dqlab.testing import Tally
from tests.kit.cells import of_a_cell

N = 300


@of_a_cell
def about(document: dq.Document, tally: Tally) -> dict[str, Any]:
    """What is right for a document; every seventh never is, and every fifth only the second time."""
    number = int(document.key.split(".")[0])
    if number % 7 == 0:
        raise ValueError(f"about {document.key}")
    if number % 5 == 0 and document.key not in tally.seen():
        tally.add(document.key)
        raise OSError(f"not yet {document.key}")
    return {"of": document.key, "number": number}


@pytest.fixture
def documents(tmp_path: Path) -> list[dq.Document]:
    return [dq.Document(f"{number}.txt", "v1", str(tmp_path / f"{number}.txt")) for number in range(N)]


def kinds(tally: Tally) -> dict[str, Any]:
    def thread(document: dq.Document) -> dict[str, Any]:
        time.sleep(random.uniform(0, 0.002))
        return about(document, tally)

    async def coroutine(document: dq.Document) -> dict[str, Any]:
        late = int(document.key.split(".")[0]) % 4 == 1  # neighbours end in another order, first and last in theirs
        await asyncio.sleep(0.01 if late else 0.003)
        return about(document, tally)

    return {"thread": thread, "process": thread, "coroutine": coroutine}


@pytest.mark.parametrize("kind", ["thread", "coroutine", "process"])
def test_values_failures_and_tables_bear_the_keys_of_their_own_documents(
    lab: dq.Lab, queue_name: str, documents: list[dq.Document], tmp_path: Path, kind: str
) -> None:
    """A value at its neighbour's place is worse than none: nobody sees it."""
    pool = lab.queue(queue_name, concurrency=8 if kind == "coroutine" else None)
    executor: Literal["process", "auto"] = "process" if kind == "process" else "auto"
    run = pool.map(kinds(Tally(tmp_path))[kind], documents, executor=executor, retry=dq.Retry(1, backoff=0.01))
    right = {f"{n}.txt": {"of": f"{n}.txt", "number": n} for n in range(N) if n % 7}

    streamed = dict(run.as_completed(timeout=20))
    run.wait(timeout=20)
    results = run.results(errors="skip", timeout=20)
    letters = list(run.failures())

    assert streamed == right
    assert dict(zip(results.keys(), results, strict=True)) == right
    assert list(results.to_frame().reset_index().itertuples(index=False, name=None)) == [
        (key, value["of"], value["number"]) for key, value in right.items()
    ]
    assert {letter.key: (letter.ordinal, letter.message, letter.document.key) for letter in letters} == {
        f"{n}.txt": (n, f"about {n}.txt", f"{n}.txt") for n in range(0, N, 7)
    }
    assert run.counts["leased"] == 0
    pool.close()


def test_coroutines_that_raise_are_settled_at_once_in_whatever_order_they_end(lab: dq.Lab, queue_name: str) -> None:
    """What was taken for its neighbour's outcome left messages leased, until their visibility timeout of a minute."""

    async def half_raise(x: int) -> int:
        await asyncio.sleep(random.uniform(0, 0.1))
        if x % 2:
            raise ValueError(f"about {x}")
        return x

    pool = lab.queue(queue_name)
    for _ in range(3):
        run = pool.map(half_raise, range(500), retry=dq.Retry(0), concurrency=100).wait(timeout=20)
        assert list(run.results(errors="skip")) == list(range(0, 500, 2))
        assert {letter.ordinal: letter.message for letter in run.failures()} == {
            x: f"about {x}" for x in range(1, 500, 2)
        }
    pool.close()


@pytest.mark.slow
def test_large_results_of_a_durable_queue_are_all_there_and_in_their_places(tmp_path: Path) -> None:
    """60 documents of 8 MB: more of them end together than one record of a log may hold."""

    def large(x: int) -> bytes:
        return bytes([x]) * 8_000_000

    with dq.connect(n=2, name="large-results", store=tmp_path / "store") as lab:
        run = lab.map(large, range(60)).wait(timeout=120)
        assert run.counts["acked"] == 60
        found = [(value[0], value[-1], len(value)) for value in run.results(timeout=60)]

    assert found == [(x, x, 8_000_000) for x in range(60)]
