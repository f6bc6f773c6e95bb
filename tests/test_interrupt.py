"""Ctrl-C reaches every process of a notebook's group; it is meant for the one that waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, signal, sys, threading, time
import dqlab as dq

def slow(x):
    time.sleep(0.05)
    return x

if __name__ == "__main__":
    with dq.connect(n=1) as lab:
        run = lab.map(slow, range(20))
        next(iter(run.as_completed()))
        threading.Timer(0.3, os.killpg, (0, signal.SIGINT)).start()
        try:
            run.wait()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        assert list(run.wait(timeout=30).results()) == list(range(20))
        try:
            os.killpg(0, signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            print("interrupted while idle", flush=True)
        assert list(lab.map(slow, range(3)).results(timeout=30)) == [0, 1, 2]
        print("all there", flush=True)
"""


def test_interrupt_of_the_whole_process_group_ends_the_wait_and_nothing_else(tmp_path: Path) -> None:
    """Jupyter interrupts a kernel by a signal to its group, in which an embedded cluster's workers are."""
    script = tmp_path / "notebook.py"
    script.write_text(SCRIPT)
    child = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=55, start_new_session=True, check=False
    )

    assert child.stdout.split("\n")[:3] == ["interrupted", "interrupted while idle", "all there"], child.stderr
    assert child.returncode == 0, child.stderr
