"""Room `models`: batches of a model, one bad document, one wrong key, typed rows, and kept output."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import WrongAnswer
from benchmarks.processes import tree_cpu_s
from benchmarks.sizes import Sizes
from benchmarks.stage import SLOTS, Stage

__all__ = ["models"]

BATCH, WIDTH = 64, 384
LOAD_S, CALL_S, TEXT_S = 0.5, 0.002, 0.000_05


class Embed:
    """A model that takes half a second to load, and 2 ms and 0.05 ms a text to call."""

    def __init__(self) -> None:
        time.sleep(LOAD_S)

    def __call__(self, texts: Sequence[str]) -> Any:
        """Return a vector for each text."""
        time.sleep(CALL_S + TEXT_S * len(texts))
        return np.random.default_rng(len(texts)).random((len(texts), WIDTH), dtype="float32")


class Counted:
    """A function of batches that raises, and writes one byte for each call."""

    def __init__(self, log: str, bad: int | None) -> None:
        self.log, self.bad = log, bad

    def __call__(self, documents: list[int]) -> list[int]:
        """Return the documents, or raise for the bad one, or for all where there is none."""
        with Path(self.log).open("ab", buffering=0) as file:
            file.write(b".")
        if self.bad is None or self.bad in documents:
            raise KeyError("the wrong key")
        return documents


EMBED: Any = Embed
COUNTED: Any = Counted


class Line(BaseModel):
    """A line of an invoice."""

    text: str
    price: float


class Invoice(BaseModel):
    """Five fields, one a nested list."""

    number: int
    who: str
    total: float
    paid: bool
    lines: list[Line]


def typed(n: int) -> Invoice:
    """Return an object."""
    lines = [Line.model_construct(text="a", price=1.0), Line.model_construct(text="b", price=2.0)]
    return Invoice.model_construct(number=n, who="somebody", total=3.0, paid=True, lines=lines)


def plain(n: int) -> dict[str, Any]:
    """Make the same object, and return a dict: Pydantic's own 15 us are in both."""
    typed(n)
    lines = [{"text": "a", "price": 1.0}, {"text": "b", "price": 2.0}]
    return {"number": n, "who": "somebody", "total": 3.0, "paid": True, "lines": lines}


def for_1_ms(n: int) -> int:
    """Compute for 1 ms, and print."""
    print(n, end="\r")  # which a terminal shows on one line
    return _for(0.001, n)


def for_10_us(n: int) -> int:
    """Compute for 10 us."""
    return _for(0.000_01, n)


def _for(seconds: float, n: int) -> int:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    return n


def models(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure the five."""
    return [
        _embedded(stage, sizes),
        *_raising(stage, sizes),
        _beside(
            stage,
            sizes,
            "rows of a Pydantic model, over plain dicts",
            100_000,
            Target(1.5, 1.1),
            {"fn": typed, "table": True},
            {"fn": plain, "table": True},
            cost=True,
        ),
        _beside(
            stage,
            sizes,
            "kept output of functions of 1 ms, over logs='none'",
            10_000,
            Target(0.95, 0.99),
            {"fn": for_1_ms},
            {"fn": for_1_ms, "logs": "none"},
        ),
        _beside(
            stage,
            sizes,
            "functions of 10 us that print nothing, over logs='none'",
            200_000,
            Target(0.97, 0.99),
            {"fn": for_10_us},
            {"fn": for_10_us, "logs": "none"},
        ),
    ]


def _embedded(stage: Stage, sizes: Sizes) -> Figure:
    n = 50_000 if sizes.full else 5_000
    texts = [f"text number {at} {'x' * 40}" for at in range(n)]

    def mapped(folder: str) -> None:
        run = stage.lab.map(EMBED, texts, batch=BATCH, sink=f"{folder}/rows").wait()
        if run.counts["acked"] != n:
            raise WrongAnswer(f"{run.counts['acked']} of {n} texts")
        run.drop(data=True)

    def by_hand(folder: str) -> None:
        model, writer = Embed(), None
        for at in range(0, n, BATCH):
            vectors = model(texts[at : at + BATCH])
            rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH)
            table = pa.table({"n": range(at, at + len(vectors)), "value": rows})
            writer = writer or pq.ParquetWriter(f"{folder}/rows.parquet", table.schema)
            writer.write_table(table)
        assert writer is not None, "there are texts"
        writer.close()

    values: dict[Callable[[str], None], list[float]] = {mapped: [], by_hand: []}
    for at in range(sizes.rounds + 1):
        for work, seconds in values.items():
            with TemporaryDirectory(prefix="bench-models-", dir=Path.cwd()) as folder:
                before = tree_cpu_s(os.getpid())
                work(folder)
                if at:  # the first round loads what the others use
                    seconds.append(tree_cpu_s(os.getpid()) - before)
    peer = Peer("a loop in one process, by hand", Series.of(values[by_hand]))
    name = f"{n:,} texts in batches of {BATCH}, to Parquet: CPU"
    return Figure(name, "s", Better.LOWER, Series.of(values[mapped]), Target(6, 4.7), (peer,))


def _raising(stage: Stage, sizes: Sizes) -> list[Figure]:
    n = 10_000 if sizes.full else 2_000
    least = n / BATCH

    def calls(bad: int | None, dead: int) -> float:
        with TemporaryDirectory(prefix="bench-models-", dir=Path.cwd()) as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they tell of the failures
            log = Path(folder, "calls")
            run = stage.lab.map(COUNTED, range(n), batch=BATCH, init={"log": str(log), "bad": bad}, retry=0, stop_if=n)
            run.wait()
            if run.counts["dead"] != dead:
                raise WrongAnswer(f"{run.counts['dead']} dead letters, and not {dead}")
            run.drop()
            return log.stat().st_size

    one, every = [], []
    for at in range(sizes.rounds):
        one.append(100 * (calls((17 + 997 * at) % n, 1) / (least + SLOTS) - 1))
        every.append(calls(None, n) / (least + SLOTS))
    return [
        Figure(f"one bad document of {n:,}: more calls", "%", Better.LOWER, Series.of(one), Target(5, 2)),
        Figure("a wrong key in all documents: calls a batch", "calls", Better.LOWER, Series.of(every), Target(2)),
    ]


def _beside(
    stage: Stage,
    sizes: Sizes,
    name: str,
    n: int,
    target: Target,
    one: dict[str, Any],
    other: dict[str, Any],
    *,
    cost: bool = False,
) -> Figure:
    """Compare what two ways to map cost, in CPU seconds (`cost`), or the inverse of it."""
    n = n if sizes.full else n // 10

    def spent(fn: Callable[[int], Any], *, table: bool = False, **options: Any) -> float:
        before = tree_cpu_s(os.getpid())
        run = stage.lab.map(fn, range(n), **options).wait()
        rows = run.table().to_arrow().num_rows if table else sum(1 for _ in run.results())
        taken = tree_cpu_s(os.getpid()) - before
        if rows != n:
            raise WrongAnswer(f"{rows} rows of {n}")
        run.drop()
        return taken

    mine, others = [], []
    for at in range(sizes.rounds + 1):
        pair = spent(**one), spent(**other)
        if at:  # the first round loads what the others use
            mine.append(pair[0])
            others.append(pair[1])
    over, under = Series.of(mine), Series.of(others)
    made = ratios(over, under) if cost else ratios(under, over)
    return Figure(f"{n:,} {name}: CPU", "x", Better.LOWER if cost else Better.HIGHER, made, target)
