"""A process that is forked for a test is what a started one would be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import forking

pytestmark = pytest.mark.cluster

LOOKS = """
import os, sys
print(sys.argv, os.getcwd(), os.getppid(), os.getpgid(0) == os.getpid(), __name__, sys.path[0], os.environ["A"])
print(globals().get("__file__"), sys.stdin.read(), os.environ.get("JPY_PARENT_PID"), sys.warnoptions)
print("said", file=sys.stderr)
"""
ENDS = {"returns": "", "exits": "sys.exit(3)", "raises": "1 / 0", "is interrupted": "raise KeyboardInterrupt"}


@pytest.mark.parametrize("how", ["-c", "file"])
@pytest.mark.parametrize("end", ENDS)
def test_a_forked_script_sees_and_says_what_a_started_one_does(tmp_path: Path, how: str, end: str) -> None:
    """Tests of scripts rely on it."""
    text = LOOKS + ENDS[end]
    (tmp_path / "script.py").write_text(text)
    command = [sys.executable, *(["-c", text] if how == "-c" else ["script.py"]), "one", "two"]
    environ = {**os.environ, "A": "b", "PYTHONWARNINGS": "error::UserWarning"}

    forked, started = (
        run(command, input="typed", capture_output=True, text=True, timeout=50, cwd=tmp_path, env=environ, check=False)
        for run in (forking.run, subprocess.run)
    )

    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert str(os.getpid()) in forked.stdout
