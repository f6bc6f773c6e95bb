"""Two processes update a run at once: one does it, the other attaches, also where the first one is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dqlab as dq
from dqlab.testing import Tally
from tests.kit import forking
from tests.kit.waiting import until

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[3]
SCRIPT = """
    import json, sys
    from pathlib import Path
    import dqlab as dq
    from dqlab.runs.update.updating import UpdateSubmitter
    from dqlab.testing import Tally
    from tests.runs.update.test_two_clients import counted, documents, held_up

    address, queue, folder, how = sys.argv[1:]
    tally = Tally(Path(folder), "seen")
    pool = dq.connect(address, name="other").queue(queue)
    if how == "held up":
        reading = UpdateSubmitter.reading
        UpdateSubmitter.reading = lambda self: held_up(reading(self), 100, len(tally), tally)
    print("ready", flush=True)
    sys.stdin.readline()
    run = pool.map(counted(tally), documents(2), name=queue, on_existing="update").wait()
    plan = run.updated
    print(json.dumps([len(plan.new), len(plan.changed), plan.gone, dict(run.results().items())]), flush=True)
"""


def documents(day: int) -> dq.Documents:
    """Return the documents of a day: some new ones, some that have changed, and others than on the day before."""
    ids = range(100 * day, 300 + 100 * day)
    texts = [f"{key} of {day if key % 3 else 0}" for key in ids]
    return dq.Documents.from_frame(pd.DataFrame({"id": [f"{key}" for key in ids], "text": texts}), key="id")


def counted(seen: Tally) -> Callable[[Any], str]:
    """Return a function that returns the text of a row, and counts its calls."""

    def read(row: Any) -> str:
        seen.add(row.key)
        return str(row["text"])

    return read


def held_up(elements: Any, n: int, before: int, seen: Tally) -> Any:
    """Yield the first elements, and no others until this process is killed."""
    for at, element in enumerate(elements):
        if at == n:
            until(lambda: len(seen) >= before + n)
            print("half", flush=True)  # noqa: T201 - for the parent
            sys.stdin.read()
        yield element


@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["both live", "one killed"])
def test_one_of_two_processes_updates_and_the_other_has_what_it_made(
    lab: dq.Lab, queue: dq.QueuePool, tmp_path: Path, killed: bool
) -> None:
    """Each document runs once; where one is killed in the middle, what was recorded by then does not run again."""
    seen = Tally(tmp_path, "seen")
    queue.map(counted(seen), documents(1), name=queue.name).wait()
    before, expected = len(seen), {row.key: row["text"] for row in documents(2)}
    runs = {row.key for row in documents(2)} - {row.key for row in documents(1) if int(row.key) % 3 == 0}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), lab.client.scheduler.address, queue.name, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    def update() -> dq.Run:
        return queue.map(counted(seen), documents(2), name=queue.name, on_existing="update").wait()

    how = "held up" if killed else "free"
    with forking.Popen([*command, how], text=True, cwd=ROOT, **pipes) as child, ThreadPoolExecutor(1) as thread:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.write("\n")
        child.stdin.flush()
        if killed:
            assert child.stdout.readline() == "half\n"
        other = thread.submit(update)
        if killed:
            child.send_signal(signal.SIGKILL)
        run = other.result(60)
        done = [] if killed else [json.loads(child.stdout.readline())]

    assert run.updated is not None
    assert dict(run.results().items()) == expected
    assert run.counts["acked"] == sum(run.counts.values()) == len(expected)
    ran = Counter(seen.seen()[before:])
    assert ran.keys() == runs
    assert set(ran.values()) == {1}
    for new, changed, gone, values in done:
        plan = run.updated
        assert values == expected
        did = sorted([(new, changed, gone), (len(plan.new), len(plan.changed), plan.gone)])
        assert did == [(0, 0, 0), (100, len(runs) - 100, 100)]
