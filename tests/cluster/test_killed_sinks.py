"""Processes are killed while parts of a sink are written: each document has its own row, and has it once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.datasets.sink_parts import open_parts
from tests.kit import forking
from tests.kit.cells import of_a_cell
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until

pytestmark = pytest.mark.cluster

ROUNDS = int(os.environ.get("DQLAB_SINK_ROUNDS", "100"))
"""Rounds of the slow test."""
VICTIMS = ("consumer", "queue", "both")


@pytest.fixture(scope="module")
def cluster() -> Iterator[dq.Lab]:
    """A cluster that may be hurt."""
    with dq.connect(n=2, name="sinks-to-be-hurt") as lab:
        yield lab


@of_a_cell
def row(n: int) -> dict[str, Any]:
    import time

    time.sleep(0.0003)
    return {"n": n, "text": f"{n:x}" * (n % 7), "half": n / 2 if n % 3 else None}


def computed(n: int) -> dict[str, Any]:
    """What the row of a document has to be; not the function itself."""
    return {"n": n, "text": hex(n)[2:] * (n % 7), "half": None if n % 3 == 0 else 0.5 * n}


def kill(lab: dq.Lab, prefixes: list[str], dice: random.Random) -> None:
    """Kill one worker for each kind of actor, at the same time; return when others have taken their places."""

    def told(dask_worker: Any) -> tuple[int, list[str]]:
        return os.getpid(), [str(key) for key in dask_worker.state.actors]

    here = list(lab.client.run(told, on_error="ignore").values())
    holders = [[pid for pid, keys in here if any(key.startswith(prefix) for key in keys)] for prefix in prefixes]
    killed = {dice.choice(pids) for pids in holders if pids}
    for pid in killed:
        os.kill(pid, signal.SIGKILL)

    def whole() -> bool:
        there = set(lab.client.run(os.getpid, on_error="ignore").values())
        return len(there) == 3 and not there & killed

    until(whole, 60)


def done(run: dq.Run) -> int:
    """Return how many documents have a row."""
    return run.counts["acked"]


def play(lab: dq.Lab, folder: Path, victim: str, seed: int, *, durable: bool, count: int) -> None:
    """Run documents into a sink while processes are killed; compare every row."""
    dice = random.Random(seed)
    options: dict[str, Any] = {}
    if durable:
        options = {"durability": dq.Durability.DURABLE, "dirpath": folder / "store"}
    pool = dq.QueuePool(lab.client, name=f"killed-{folder.name}-{seed}", served=True, **options)
    kinds = {"consumer": [f"dq-consumer/{pool.name}/"], "queue": [f"dq-queue/{pool.name}/"]}
    kinds["both"] = kinds["consumer"] + kinds["queue"]
    try:
        run = pool.map(row, range(count), sink=folder / f"out-{seed}")
        for share in sorted(dice.uniform(0.05, 0.8) for _ in range(2)):
            until(lambda share=share: done(run) >= share * count, 120)  # type: ignore[misc]
            time.sleep(dice.uniform(0, 0.05))
            kill(lab, kinds[victim], dice)
        until(lambda: done(run) == count, 120)
        run.wait(timeout=120)
        assert run.counts["acked"] == count
        open_parts.clear()
        rows = run.table().to_arrow()
        assert rows["_ordinal"].to_pylist() == list(range(count))  # none is missing, none is there twice
        assert list(run.results(timeout=30)) == [computed(n) for n in range(count)]
        assert rows["n"].to_pylist() == list(range(count))
    finally:
        pool.close(force=True)


KILLS = [("consumer", False), ("queue", True), ("both", True)]


@pytest.mark.parametrize(("victim", "durable"), mostly_slow(KILLS, ("both", True)))
def test_a_kill_in_the_middle_of_a_part_costs_no_row_and_doubles_none(
    own_lab: dq.Lab, tmp_path: Path, victim: str, durable: bool
) -> None:
    """What was acked has its row; what was not runs again, and what its first run has written is not referred to."""
    play(own_lab, tmp_path, victim, VICTIMS.index(victim), durable=durable, count=1_500)


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True], ids=["transient", "durable"])
def test_a_hundred_kills_in_the_middle_of_parts(own_lab: dq.Lab, tmp_path: Path, durable: bool) -> None:
    """Each at another moment. `DQLAB_SINK_ROUNDS` sets how many."""
    for seed in range(1000, 1000 + ROUNDS // 2):
        play(own_lab, tmp_path, VICTIMS[seed % 3], seed, durable=durable, count=2_000)


SCRIPT = """
    import os, sys, time

    import dqlab as dq

    COUNT, folder = int(sys.argv[2]), sys.argv[1]

    def noted(n):
        descriptor = os.open(f"{folder}/ran", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, b"x")
        os.close(descriptor)
        return {"n": n, "square": n * n}

    if __name__ == "__main__":
        lab = dq.connect(n=2, store=f"{folder}/store")
        run = lab.map(noted, range(COUNT), name="killed", sink=f"{folder}/out")
        if sys.argv[3] == "die":
            while run.counts["acked"] < COUNT // 2:
                time.sleep(0.01)
            print("half", flush=True)
            sys.stdin.read()
        run.wait(timeout=300)
        rows = run.table().to_arrow()
        assert rows["_ordinal"].to_pylist() == list(range(COUNT))
        assert rows["square"].to_pylist() == [n * n for n in range(COUNT)]
        print("whole", flush=True)
        lab.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("count", [14_000, 200_000], ids=lambda count: f"{count:,}")
def test_killing_everything_at_half_runs_few_rows_again(tmp_path: Path, count: int) -> None:
    """The power goes; a part is never so large that what was in hand is much of the run."""
    script = tmp_path / "mapped.py"
    script.write_text(textwrap.dedent(SCRIPT))
    line = [sys.executable, str(script), str(tmp_path), str(count)]
    first = forking.Popen(
        [*line, "die"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert first.stdout is not None
    assert first.stdin is not None
    assert first.stdout.readline() == "half\n"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    first.stdout.close()
    first.stdin.close()

    second = forking.run([*line, "live"], capture_output=True, text=True, timeout=400, check=False)

    assert second.stdout == "whole\n", second.stderr
    again = (tmp_path / "ran").stat().st_size - count
    print(f"{again:,} rows ran again")  # noqa: T201 - a figure
    # Of a small run what consumers have in hand is a larger part.
    assert 0 <= again <= max(6_000, 0.02 * count)
