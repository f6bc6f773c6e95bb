"""What runs in JupyterLab's page is tested by its own tests, in node."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

EXTENSION = Path(__file__).parent.parent / "extension"
VITEST = EXTENSION / "node_modules" / "vitest" / "vitest.mjs"
OLDEST = 20
"""Major version of node."""


def node() -> str:
    """Return a node that can run the tests: the one of this environment, or any on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which("node", path=path)
    if found is None:
        pytest.skip("no node here: make venv")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < OLDEST:
        pytest.skip(f"node is {version.strip()}, and {OLDEST} is needed: make venv")
    return found


@pytest.mark.timeout(120)
def test_extension_passes_its_own_tests() -> None:
    """The sidebar, its polling and its words are tested in their own language, on the snapshots of these tests."""
    if not VITEST.exists():
        pytest.skip("the extension's packages are not there: make test fetches them")

    # One process and one page for all files: each of its own costs more than all tests together.
    done = subprocess.run(
        [node(), str(VITEST), "run", "--reporter=dot", "--no-isolate", "--no-file-parallelism"],
        cwd=EXTENSION,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
