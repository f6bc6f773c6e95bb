"""The cell of "Run this one here" in a process that knows nothing, as a kernel does after a restart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

BEFORE = """
import sys, warnings
import dqlab as dq
from dqlab.live.offers import names_here, run_here

warnings.simplefilter("ignore")
LETTERS = {1: "alpha", 2: "beta"}

def parse(number):
    return LETTERS[number]

with dq.connect(n=1, store=sys.argv[1]) as lab:
    run = lab.map(parse, [1, 2, 7], name="allbad", stop_if=None).wait()
    (letter,) = run.failures()
    cell = run_here(letter, run.stats(), names_here(run))
    try:
        exec(cell)  # here too, and with this lab
    except KeyError as error:
        print("# here", its_run.name, error, dq.connect(n=1, store=sys.argv[1]) is lab)
    print(cell)
"""


@pytest.mark.slow
def test_a_cell_that_was_inserted_before_a_restart_runs_by_itself_after_it(tmp_path: Path) -> None:
    """`%dq` was not found; after the connecting cell, `run` was not defined."""
    made = subprocess.run(
        [sys.executable, "-c", BEFORE, str(tmp_path / "runs")], capture_output=True, text=True, timeout=110, check=True
    )
    here, _, cell = made.stdout.partition("\n")
    assert here == "# here allbad 7 True"

    after = subprocess.run([sys.executable, "-c", cell], capture_output=True, text=True, timeout=110, check=False)

    assert after.stderr.rstrip().splitlines()[-1] == "KeyError: 7"  # as it failed: the function ran, with its values
