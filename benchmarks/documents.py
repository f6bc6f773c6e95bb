"""Room `documents`: rows, archives, PDFs and buckets, beside what people write by hand.

Not part of `make bench`; `make bench-documents` measures it. Each contestant has a process of its own, which stays for
all rounds, so that CPU seconds and memory are its own, and clusters are warm.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.documents_work import make_archive, make_pdfs, make_rows, make_texts
from benchmarks.figures import Better, Figure, Peer, Series, Target
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.processes import Child
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["documents"]

MB = 1e6
NAMES = {"dqlab": "dqlab", "pool": "a process pool, by hand", "dask": "Dask, by hand"}
PATIENCE_S = 900.0
"""Seconds until an answer must be there."""
PAGES = 40
"""Most pages of a part."""


@dataclass(frozen=True)
class _Amounts:
    rows: int
    many_rows: int
    members: int
    files: int
    pages: int
    texts: int
    keys: int
    opened: int = 500


FULL = _Amounts(rows=300_000, many_rows=1_000_000, members=50_000, files=40, pages=3_281, texts=400, keys=1_000_000)
QUICK = _Amounts(rows=20_000, many_rows=40_000, members=2_000, files=12, pages=300, texts=60, keys=10_000, opened=200)


def documents(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure each figure with its peers in alternation."""
    amounts = FULL if sizes.full else QUICK
    with ExitStack() as opened:
        room = _Room(stage.directory, amounts, sizes, opened, stage.say)
        return [*room.rows(), *room.archive(), *room.pdfs(), *room.latency(), *room.bucket()]


class _Room:
    def __init__(
        self, folder: Path, amounts: _Amounts, sizes: Sizes, opened: ExitStack, say: Callable[[str], None]
    ) -> None:
        self._folder, self._amounts, self._sizes, self._opened = folder, amounts, sizes, opened
        self._children = {kind: self._child(kind) for kind in NAMES}
        self._of_rows = list(NAMES)
        if sizes.peers and (daft := peers.installed("daft", say)) is not None:
            self._children["daft"] = opened.enter_context(closing(daft))
            self._of_rows.append("daft")

    def _child(self, kind: str) -> Child:
        child = self._opened.enter_context(closing(Child([sys.executable, "-m", "benchmarks.documents_child", kind])))
        child.wait_until_ready()
        return child

    def _asked(self, kinds: Sequence[str], do: str, expected: float | None, **how: Any) -> dict[str, list[Any]]:
        """Ask each contestant once a round; the first round is not counted."""

        def ask(kind: str) -> Any:
            given = {name: value.format(kind=kind) if isinstance(value, str) else value for name, value in how.items()}
            found = self._children[kind].ask({"do": do, **given}, timeout=PATIENCE_S)
            if expected is not None and found["answer"] != expected:
                raise WrongAnswer(f"{do}: {kind} has {found['answer']:,}, and there are {expected:,}")
            return found

        for kind in kinds:
            ask(kind)
        contestants = [Contestant(kind, partial(ask, kind)) for kind in kinds]
        return alternate(contestants, rounds=self._sizes.rounds)

    def _figure(
        self, name: str, unit: str, found: dict[str, list[Any]], field: str, target: Target | None, times: float = 1.0
    ) -> Figure:
        series = {kind: Series.of([times * each[field] for each in each_kind]) for kind, each_kind in found.items()}
        ours = series.pop("dqlab")
        peers = tuple(Peer(NAMES.get(kind, kind), values) for kind, values in series.items())
        return Figure(name, unit, Better.LOWER, ours, target, peers)

    def rows(self) -> list[Figure]:
        """Measure a word count over rows, from Parquet to Parquet."""
        amounts, path = self._amounts, self._folder / "rows.parquet"
        words = make_rows(path, amounts.rows)
        found = self._asked(self._of_rows, "rows", words, path=str(path), out=f"{self._folder}/out-{{kind}}")
        what = f"{amounts.rows:,} rows, Parquet to Parquet"
        figures = [
            self._figure(f"{what}: CPU of everything", "s", found, "cpu", Target(5, 3)),
            self._figure(f"{what}: from the call to the file", "s", found, "s", None),
        ]
        lines = Series.of([self._children["dqlab"].ask({"do": "lines"})["answer"]])
        figures.append(Figure("lines that a user writes for it", "", Better.LOWER, lines, Target(6, 4)))
        found = self._asked(["dqlab"], "first", None, path=str(path))
        figures.append(self._figure(f"{amounts.rows:,} rows: first result", "s", found, "s", Target(1.5, 0.7)))
        many = self._folder / "many.parquet"
        make_rows(many, amounts.many_rows)
        grown = Series.of([self._grown(many) for _ in range(self._sizes.slow_rounds)])
        name = f"{amounts.many_rows:,} rows: memory of the kernel, above before"
        return [*figures, Figure(name, "MB", Better.LOWER, grown, Target(100, 50))]

    def _grown(self, path: Path) -> float:
        """Ask a new kernel: memory that was freed is used again."""
        with closing(Child([sys.executable, "-m", "benchmarks.documents_child", "dqlab"])) as child:
            child.wait_until_ready()
            found = child.ask({"do": "memory", "path": str(path)}, timeout=PATIENCE_S)
        if found["answer"] != self._amounts.many_rows:
            raise WrongAnswer(f"{found['answer']:,} of {self._amounts.many_rows:,} rows")
        return float(found["bytes"] / MB)

    def archive(self) -> list[Figure]:
        """Measure a word count over the members of a zip, and opening one of them."""
        n, path = self._amounts.members, self._folder / "dump.zip"
        words = make_archive(path, n)
        opening = self._asked(["dqlab"], "opening", None, path=str(path), n=self._amounts.opened)
        found = self._asked(["dqlab", "pool"], "archive", words, path=str(path))
        what = f"zip of {n:,} members"
        return [
            self._figure(f"{what}: opening one", "ms", opening, "s", Target(0.5, 0.2), 1e3),
            self._figure(f"{what}: CPU of everything", "s", found, "cpu", Target(6, 4.4)),
        ]

    def pdfs(self) -> list[Figure]:
        """Measure how evenly the text of uneven PDFs is read."""
        folder = self._folder / "papers"
        pages = make_pdfs(folder, self._amounts.files, self._amounts.pages)
        what = f"{self._amounts.files} uneven PDFs of {pages:,} pages: busiest process over half"
        whole = self._asked(["dqlab", "pool", "dask"], "pdfs", pages, folder=str(folder), split=None)
        parts = self._asked(["dqlab"], "pdfs", pages, folder=str(folder), split=PAGES)
        return [
            self._figure(what, "x", whole, "over", Target(1.05, 1.01)),
            self._figure(f"{what}, split", "x", parts, "over", Target(1.02, 1.01)),
        ]

    def latency(self) -> list[Figure]:
        """Measure texts that are 20 ms away against the same nearby.

        The storage is on this machine. Where functions keep its processors busy, it takes from them what a storage that
        is really away does not: that is shown, and what reading ahead hides is measured with functions that wait.
        """
        folder = self._folder / "texts"
        make_texts(folder, self._amounts.texts)
        figures = []
        for busy, target, what in (
            (False, Target(0.9, 0.97), "functions that wait"),
            (True, None, "functions that keep the processors busy, which serve the texts, too"),
        ):
            found = self._asked(["dqlab"], "latency", self._amounts.texts, folder=str(folder), busy=busy)
            rates = Series.of([each["of_near"] for each in found["dqlab"]])
            name = f"{self._amounts.texts:,} texts, each 20 ms away, {what}: rate over that of local files"
            figures.append(Figure(name, "x", Better.HIGHER, rates, target))
        return figures

    def bucket(self) -> list[Figure]:
        """Measure listing a bucket, each time in a new process."""
        url = self._child("server").ask({"do": "serve", "keys": self._amounts.keys})["url"]

        def listed(by: str) -> Any:
            with closing(Child([sys.executable, "-m", "benchmarks.documents_child", "listing"])) as child:
                child.wait_until_ready()
                found = child.ask({"do": "bucket", "url": url, "by": by}, timeout=PATIENCE_S)
            if found["answer"] != self._amounts.keys:
                raise WrongAnswer(f"{by} has listed {found['answer']:,} of {self._amounts.keys:,} keys")
            return found

        contestants = [Contestant(by, partial(listed, by)) for by in ("dqlab", "s3fs, find")]
        found = alternate(contestants, rounds=self._sizes.slow_rounds)
        what = f"{self._amounts.keys:,} keys listed"
        return [
            self._figure(f"{what}: memory of the client", "MB", found, "bytes", Target(50, 20), 1 / MB),
            self._figure(f"{what}: first document", "s", found, "first", Target(2, 1)),
        ]
