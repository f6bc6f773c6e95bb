"""Room `results`: results on their way out, as frames, tables and files.

Not part of `make bench`; `make bench-results` measures it. Kernels are processes of their own, each new for its
measurement.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Better, Figure, Peer, Series, Target, ratios
from benchmarks.harness import Contestant, WrongAnswer, alternate
from benchmarks.processes import Child, ChildFailed
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage

__all__ = ["results"]

MB = 1e6
PATIENCE_S = 600.0
"""Seconds until an answer must be there."""
BY_HAND = "pd.DataFrame(list(run.results()))"
SINK = "dqlab"
CHUNKS = 40
"""Pieces of work that the process pool gets."""


@dataclass(frozen=True)
class _Amounts:
    small: int
    kilobytes: int
    killed: int
    large: tuple[tuple[int, int], ...]
    """How many results of how many bytes."""


FULL = _Amounts(small=1_000_000, kilobytes=1_000_000, killed=200_000, large=((20_000, 10_000), (1_000, 200_000)))
QUICK = _Amounts(small=100_000, kilobytes=50_000, killed=20_000, large=((2_000, 10_000), (100, 200_000)))


def results(stage: Stage, sizes: Sizes) -> list[Figure]:
    """Measure each figure with its peer in alternation."""
    room = _Room(stage, FULL if sizes.full else QUICK, sizes.rounds)
    return [
        *room.large(),
        room.completed(),
        *room.frames(),
        *room.parquet(),
        *room.sink(),
        room.first_row(),
        room.crash(),
    ]


def sized(size: int, n: int) -> bytes:
    """Return a result of so many bytes."""
    return n.to_bytes(8, "little") * (size // 8)


class _Room:
    def __init__(self, stage: Stage, amounts: _Amounts, rounds: int) -> None:
        self._stage, self._amounts, self._rounds = stage, amounts, rounds

    def _asked(self, kinds: tuple[str, ...], do: str, expected: int | None, **how: Any) -> dict[str, list[Any]]:
        """Ask a new kernel for each contestant and round."""

        def ask(kind: str) -> Any:
            given = dict(how) if len(kinds) == 1 else how | {"by": kind}
            with closing(Child([sys.executable, "-m", "benchmarks.results_child"])) as kernel:
                kernel.wait_until_ready()
                found = kernel.ask({"do": do, **given}, timeout=PATIENCE_S)
            if expected is not None and found["answer"] != expected:
                raise WrongAnswer(f"{do}: {kind} has {found['answer']:,}, and there are {expected:,}")
            return found

        return alternate([Contestant(kind, partial(ask, kind)) for kind in kinds], rounds=self._rounds)

    def large(self) -> list[Figure]:
        """Measure results of some size: run and read, beside a process pool with chunks."""
        figures = []
        for n, size in self._amounts.large:
            work = partial(sized, size)
            contestants = [
                Contestant("dqlab", partial(self._mapped, work, n, size)),
                Contestant("a process pool with chunks", partial(self._pooled, work, n, size)),
            ]
            for contestant in contestants:
                contestant.measure()
            found = alternate(contestants, rounds=self._rounds)
            ours = Series.of(found.pop("dqlab"))
            peers = tuple(Peer(name, Series.of(values)) for name, values in found.items())
            name = f"{n:,} results of {size // 1000} kB: run and read"
            figures.append(Figure(name, "MB/s", Better.HIGHER, ours, Target(250, 500), peers))
        return figures

    def _mapped(self, work: Any, n: int, size: int) -> float:
        start = time.perf_counter()
        run = self._stage.lab.map(work, range(n))
        length = sum(map(len, run.results()))
        seconds = time.perf_counter() - start
        run.drop()
        return _rate(length, n, size, seconds)

    def _pooled(self, work: Any, n: int, size: int) -> float:
        start = time.perf_counter()
        length = sum(map(len, self._stage.processes.imap(work, range(n), chunksize=max(1, n // CHUNKS))))
        return _rate(length, n, size, time.perf_counter() - start)

    def completed(self) -> Figure:
        """Measure how much submission holds up the first results."""
        n = self._amounts.small
        found = self._asked(("dqlab",), "completed", n, n=n)["dqlab"]
        series = Series.of([each["s"] for each in found])
        name = f"{n:,} small results as they come: the first tenth over its share"
        return Figure(name, "x", Better.LOWER, series, Target(1.5, 1.1))

    def frames(self) -> list[Figure]:
        """Measure a DataFrame of small rows: time and memory, beside the list of all of them."""
        n = self._amounts.small
        found = self._asked(("dqlab", BY_HAND), "frame", n * (n - 1) // 2, n=n)
        seconds = {kind: Series.of([each["s"] for each in values]) for kind, values in found.items()}
        memory = {kind: Series.of([each["bytes"] / MB for each in values]) for kind, values in found.items()}
        what = f"{n:,} small dicts to_frame"
        faster = ratios(seconds[BY_HAND], seconds["dqlab"])
        share = ratios(memory["dqlab"], memory[BY_HAND])
        by_hand = [(Peer(BY_HAND, series[BY_HAND]),) for series in (seconds, memory)]
        return [
            Figure(what, "s", Better.LOWER, seconds["dqlab"], None, by_hand[0]),
            Figure(f"{what}: as fast as the list of all, times", "x", Better.HIGHER, faster, Target(3, 5)),
            Figure(
                f"{what}: memory of the kernel, above before", "MB", Better.LOWER, memory["dqlab"], None, by_hand[1]
            ),
            Figure(f"{what}: share of the memory of that list", "x", Better.LOWER, share, Target(1 / 3)),
        ]

    def parquet(self) -> list[Figure]:
        """Measure rows of a kilobyte into one Parquet file, beside reading them alone."""
        n = self._amounts.kilobytes
        found = self._asked(("dqlab", "reading alone"), "parquet", n, n=n, folder=str(self._stage.directory))
        seconds = {kind: Series.of([each["s"] for each in values]) for kind, values in found.items()}
        memory = Series.of([each["bytes"] / MB for each in found["dqlab"]])
        what = f"{n:,} x 1 kB to_parquet"
        peers = (Peer("reading alone", seconds["reading alone"]),)
        return [
            Figure(what, "s", Better.LOWER, seconds["dqlab"], None, peers),
            Figure(f"{what}: memory of the kernel, above before", "MB", Better.LOWER, memory, Target(100)),
        ]

    def sink(self) -> list[Figure]:
        """Measure a run whose rows of a kilobyte go into Parquet files, beside one that keeps them."""
        n = self._amounts.kilobytes
        found = self._asked((SINK, "no sink"), "sink", n, n=n, folder=str(self._stage.directory))
        seconds = {kind: Series.of([each["s"] for each in values]) for kind, values in found.items()}
        memory = Series.of([each["bytes"] / MB for each in found[SINK]])
        what = f"{n:,} x 1 kB into a sink"
        faster = ratios(seconds["no sink"], seconds[SINK])
        return [
            Figure(what, "s", Better.LOWER, seconds[SINK], None, (Peer("no sink", seconds["no sink"]),)),
            Figure(f"{what}: as fast as without one, times", "x", Better.HIGHER, faster, Target(0.8, 0.95)),
            Figure(f"{what}: memory of the kernel, above before", "MB", Better.LOWER, memory, Target(100)),
        ]

    def first_row(self) -> Figure:
        """Measure the first look at a run that goes on."""
        n = self._amounts.small
        found = self._asked(("dqlab",), "first_rows", None, n=n)["dqlab"]
        series = Series.of([each["s"] for each in found])
        return Figure("run.table(): first row while the run goes on", "s", Better.LOWER, series, Target(1, 0.3))

    def crash(self) -> Figure:
        """Measure how many rows run again after everything was killed at half of a run."""
        n = self._amounts.killed
        again = Series.of([self._crash(n) for _ in range(self._rounds)])
        name = f"everything killed at half of {n:,} rows: rows that run again (none missing, none doubled)"
        return Figure(name, "%", Better.LOWER, again, Target(2, 0.5))

    def _crash(self, n: int) -> float:
        with tempfile.TemporaryDirectory(dir=self._stage.directory) as folder:
            line = [sys.executable, "-m", "benchmarks.results_crash_child", folder, str(n)]
            pipe = subprocess.PIPE
            with subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as first:
                try:
                    half = first.stdout is not None and first.stdout.readline()
                finally:
                    os.killpg(first.pid, signal.SIGKILL)
            if half != "half\n":
                raise ChildFailed(f"the first of two processes ended before half of {n:,} rows")
            second = subprocess.run(line, stdout=pipe, text=True, timeout=PATIENCE_S, check=True)
            found = json.loads(second.stdout)
            if found != {"missing": 0, "doubled": 0}:
                raise WrongAnswer(f"of {n:,} rows {found['missing']:,} are missing, {found['doubled']:,} doubled")
            return 100 * (Path(folder, "ran").stat().st_size - n) / n


def _rate(length: int, n: int, size: int, seconds: float) -> float:
    if length != n * (size // 8) * 8:
        raise WrongAnswer(f"{length:,} bytes, and {n:,} results have {n * (size // 8) * 8:,}")
    return length / MB / seconds
