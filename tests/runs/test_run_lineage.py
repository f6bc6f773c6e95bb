"""Where each row of a run comes from: what users see of it, for each way to run a function, with and without a sink."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.datasets.lineage import ROW_LINEAGE
from dqlab.testing import Tally
from tests.kit.cells import of_a_cell
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until

pytestmark = pytest.mark.cluster

N = 60
SLACK = 2.0
"""Seconds between what a function and its consumer see, on a machine that has other things to do."""


@of_a_cell
def measured(began: float, document: dq.Document, tally: Tally) -> dict[str, Any]:
    """What a function knows of its own making; each fifth document fails the first time."""
    number = int(document.key.partition(".")[0])
    tally.add(document.key)
    if number % 5 == 0 and tally.seen().count(document.key) == 1:
        raise OSError("not yet")
    return {"n": number, "took": time.perf_counter() - began, "ended": time.time(), "pid": os.getpid()}


def kinds(tally: Tally) -> dict[str, Any]:
    def thread(document: dq.Document) -> dict[str, Any]:
        began = time.perf_counter()
        time.sleep(int(document.key.partition(".")[0]) % 4 / 500)
        return measured(began, document, tally)

    async def coroutine(document: dq.Document) -> dict[str, Any]:
        began = time.perf_counter()
        await asyncio.sleep(int(document.key.partition(".")[0]) % 4 / 500)
        return measured(began, document, tally)

    return {"thread": thread, "process": thread, "coroutine": coroutine}


def check(rows: pd.DataFrame, run: dq.Run, tally: Tally) -> None:
    """Compare what rows have with what functions have seen."""
    assert rows["n"].tolist() == rows["_ordinal"].tolist() == list(range(N))
    assert rows["_key"].tolist() == [f"{n}.txt" for n in range(N)]
    assert rows["_version"].tolist() == [f"v{n // 3}" for n in range(N)]
    assert set(rows["_code"]) == {run.versions[0].short}
    assert rows["_attempts"].tolist() == [tally.seen().count(key) for key in rows["_key"]]
    assert rows["_attempts"].tolist() == [2 if n % 5 == 0 else 1 for n in range(N)]
    assert (rows["_seconds"] >= rows["took"] * 0.9999).all()
    assert (rows["_seconds"] <= rows["took"] + SLACK).all()
    assert ((rows["_at"] - pd.to_datetime(rows["ended"], unit="s", utc=True)).abs() < pd.Timedelta(SLACK, "s")).all()
    assert rows.groupby("pid")["_consumer"].nunique().eq(1).all()
    assert rows["_consumer"].notna().all()


@pytest.mark.parametrize(
    ("kind", "durable", "sink"),
    mostly_slow(
        [
            (*kind, sink)
            for sink in (False, True)
            for kind in (("thread", True), ("coroutine", False), ("process", False))
        ],
        ("thread", True, False),
        ("coroutine", False, True),
        ("process", False, True),
    ),
)
def test_each_row_says_how_it_was_made(
    lab: dq.Lab, queue_name: str, tmp_path: Path, kind: str, durable: bool, sink: bool
) -> None:
    """In frames, tables, queries and files alike."""
    more: dict[str, Any] = {"durability": dq.Durability.DURABLE, "dirpath": tmp_path / "store"} if durable else {}
    pool = dq.QueuePool(lab.client, name=queue_name, served=True, **more)
    tally = Tally(tmp_path)
    documents = [dq.Document(f"{n}.txt", f"v{n // 3}", str(tmp_path / f"{n}.txt")) for n in range(N)]
    how: dict[str, Any] = {"name": "measured", "executor": "process" if kind == "process" else "auto"}
    how |= {"sink": tmp_path / "out"} if sink else {}
    run = pool.map(kinds(tally)[kind], documents, retry=dq.Retry(1, backoff=0.01), **how)
    run.wait(timeout=60)
    columns = ["n", "took", "ended", "pid", "_key", "_ordinal", *ROW_LINEAGE]

    frame = run.results().to_frame(columns=columns)
    check(frame, run, tally)
    table = run.results().to_arrow()
    check(table.to_pandas(), run, tally)
    assert run.table().to_arrow().select(columns).equals(table.select(columns))
    for name in ROW_LINEAGE:
        assert frame[name].tolist() == table.to_pandas()[name].tolist()
    asked = run.query("select _consumer, count(*) as n, max(_seconds) as s from results group by 1 order by 1")
    assert asked["n"].tolist() == frame.groupby("_consumer").size().tolist()
    assert asked["s"].tolist() == frame.groupby("_consumer")["_seconds"].max().tolist()
    written = pq.read_table(run.to_parquet(tmp_path / "written")).to_pandas()
    check(written, run, tally)
    published = run.publish(tmp_path / "published")
    check(pq.read_table(published.path / "results.parquet").to_pandas(), run, tally)
    pool.close()
    if durable:
        pool = dq.QueuePool(lab.client, name=queue_name, served=True, **more)
        again = pool.map(kinds(tally)[kind], documents, retry=dq.Retry(1, backoff=0.01), **how)
        assert again.results(timeout=30).to_arrow().equals(table)
        pool.close()


def test_a_delivery_that_was_given_back_is_no_attempt(queue: dq.QueuePool, tmp_path: Path) -> None:
    """As in `deliveries` of a failure: it counts what was tried."""
    tally = Tally(tmp_path)

    def later(n: int) -> int:
        tally.add(n)
        if tally.seen().count(str(n)) < 3:
            raise dq.Later(0.01)
        return n

    run = queue.map(later, range(3))

    assert run.results(timeout=30).to_frame(columns=["value", "_attempts"])["_attempts"].tolist() == [1] * 3
    assert len(tally) == 9


@pytest.fixture
def hurt() -> Iterator[dq.Lab]:
    """A cluster that may be hurt."""
    with dq.connect(n=2, name="lineage-to-be-hurt") as lab:
        yield lab


def test_a_death_that_is_not_charged_is_no_attempt(hurt: dq.Lab, tmp_path: Path) -> None:
    """One document kills its worker, among others; what becomes of it next in a process of its own is the first."""
    tally = Tally(tmp_path)

    def deadly(n: int) -> int:
        tally.add(n)
        if n == 7 and tally.seen().count("7") < 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return n

    run = hurt.map(deadly, range(20))
    until(lambda: run.counts["acked"] == 20, 50)

    frame = run.results(timeout=30).to_frame(columns=["value", "_attempts"])
    assert frame["value"].tolist() == list(range(20))
    assert frame["_attempts"].tolist() == [1] * 20
    assert tally.seen().count("7") == 2
