"""Dask's log lines in a notebook whose clusters come and go."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.cluster

SCRIPT = """
import logging
import distributed, dqlab as dq
(handler,) = logging.getLogger("distributed").handlers
before = handler.level
first, second = dq.connect(n=1, name="first"), dq.connect(n=1, name="second")
first.close()
second.map(abs, [1]).wait()
second.close()
assert handler.level == before, handler.level
"""


def test_a_cluster_that_closes_does_not_bring_dasks_lines_back_for_those_that_are_open() -> None:
    """`%dq connect` opens the new one first, and each later cell was full of INFO lines."""
    said = subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=60, capture_output=True, text=True)

    assert " - INFO - " not in said.stderr
