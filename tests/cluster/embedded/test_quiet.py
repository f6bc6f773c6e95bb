"""Dask's log lines in a notebook whose clusters come and go."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import dqlab
from tests.kit import forking

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
    said = forking.run([sys.executable, "-c", SCRIPT], check=True, timeout=60, capture_output=True, text=True)

    assert " - INFO - " not in said.stderr


OURS = """
import logging, sys
import dqlab as dq
if "shown" in sys.argv:
    logging.basicConfig()
def note(x):
    import logging
    logging.getLogger("dqlab.consumer").warning("event=there")
with dq.connect(n=1) as lab:
    logging.getLogger("dqlab.registry").warning("event=here")
    lab.map(note, [1]).wait()
"""


def test_our_log_lines_come_only_where_logging_was_set_up() -> None:
    """A cell showed `event=spawn_failed` while consumers died, and those who saw it could do nothing about it."""
    command = [sys.executable, "-c", OURS]
    said = forking.run(command, check=True, timeout=60, capture_output=True, text=True)
    shown = forking.run([*command, "shown"], check=True, timeout=60, capture_output=True, text=True)

    assert "event=" not in said.stderr + said.stdout
    assert "event=here" in shown.stderr


def test_each_of_our_loggers_is_below_one_name() -> None:
    """So that one handler is enough to silence them, and one line to show them."""
    named = re.compile(r"getLogger\((.*?)\)")
    files = Path(dqlab.__file__).parent.rglob("*.py")
    names = {name for file in files for name in named.findall(file.read_text()) if "jupyter" not in file.parts}

    others = {name for name in names if not name.startswith(('"dqlab', "__name__", '"distributed', "name"))}
    assert others - {""} == set()
    assert any(name.startswith('"dqlab') for name in names)
