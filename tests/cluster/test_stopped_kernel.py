"""A kernel that is stopped for longer than any limit, as by a laptop that sleeps: it goes on where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dqlab.testing import Tally

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

STOPPED = 75.0
"""Seconds; more than twice the longest that anything waits for a process that does not answer."""
WORKERS, SUBMITTED, GIVEN = 3, 1500, 400
PACE = 0.2
"""Seconds that a document takes."""

NOTEBOOK = f"""
import json, os, sys, time
from pathlib import Path

from distributed import LocalCluster

import dqlab as dq
from dqlab.testing import Gate, Tally

WORKERS, SUBMITTED, GIVEN = {WORKERS}, {SUBMITTED}, {GIVEN}

if __name__ == "__main__":
    where, store, tcp = Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3:]
    made_of = {{"n": WORKERS}}
    if tcp:  # one more: none works where queues are
        there = {{"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}}
        made_of = {{"target": LocalCluster(n_workers=WORKERS + 1, threads_per_worker=1, **there)}}
    calls, together = Tally(where, "calls"), Gate(where, "together")

    def work(x):
        calls.add(f"{{os.getpid()}} {{x}}")
        time.sleep({PACE})
        return -x

    def slowly():
        for x in range(SUBMITTED, SUBMITTED + GIVEN):
            time.sleep(0.05)
            yield x

    def meet(x):
        together.wait(os.getpid())
        return x

    with dq.connect(**made_of, store=store) as lab:
        before = lab.stats().workers, sorted(lab.client.run(os.getpid).values())
        submitted = lab.map(work, range(SUBMITTED), name="submitted")
        given = lab.queue("beside").map(work, slowly(), name="given")
        seen = -1
        while given.counts["acked"] < 10 or submitted.counts["acked"] < 10:
            seen = lab.wait_for_change(seen, timeout=0.2).seq
        print("works", flush=True)
        ends = [list(run.results(timeout=150).items()) for run in (submitted, given)]
        counts = [run.counts for run in (submitted, given)]
        last = lab.map(meet, range(300), name="together")
        met = set(together.until_arrived(WORKERS))
        together.open()
        last.wait(timeout=30)
        after = lab.stats().workers, sorted(lab.client.run(os.getpid).values())
    print(json.dumps({{"before": before, "after": after, "ends": ends, "counts": counts, "met": len(met)}}), flush=True)
"""


@pytest.mark.parametrize(
    ("kept", "tcp"), [(True, False), (False, False), (True, True)], ids=["durable", "transient", "cluster of Dask"]
)
def test_kernel_that_was_stopped_for_more_than_a_minute_has_all_its_workers_and_every_result(
    tmp_path: Path, *, kept: bool, tcp: bool
) -> None:
    """Workers go on with what was submitted meanwhile, and the rest is submitted afterwards; nothing runs twice."""
    script, calls, log = tmp_path / "notebook.py", Tally(tmp_path, "calls"), tmp_path / "log"
    script.write_text(NOTEBOOK)
    command = [sys.executable, str(script), str(tmp_path), str(tmp_path / "store") if kept else "", *["tcp"] * tcp]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True) as kernel,
    ):
        assert kernel.stdout is not None
        try:
            assert kernel.stdout.readline() == "works\n", log.read_text()
            os.kill(kernel.pid, signal.SIGSTOP)
            before = len(calls)
            threading.Event().wait(STOPPED)  # nothing comes: how long it is stopped is what this is about
            meanwhile = len(calls) - before
            os.kill(kernel.pid, signal.SIGCONT)
            told = kernel.stdout.readline()
            assert kernel.wait(timeout=60) == 0, log.read_text()
        finally:
            with suppress(ProcessLookupError):  # it has ended, and all that it started
                os.killpg(kernel.pid, signal.SIGKILL)
    found: dict[str, Any] = json.loads(told)

    assert meanwhile > STOPPED / PACE, "workers waited for the kernel"
    assert found["met"] == WORKERS
    assert found["after"] == found["before"], log.read_text()
    assert [dict(run) for run in found["ends"]] == [
        {x: -x for x in range(SUBMITTED)},
        {x - SUBMITTED: -x for x in range(SUBMITTED, SUBMITTED + GIVEN)},
    ]
    assert [run["acked"] for run in found["counts"]] == [SUBMITTED, GIVEN]
    times = Counter(line.split()[1] for line in calls.seen())
    assert times == Counter(str(x) for x in range(SUBMITTED + GIVEN)), {x: n for x, n in times.items() if n != 1}
