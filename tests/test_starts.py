"""Tests that start a process carry a mark for it, or every save pays for them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit import starts


def phase(act: Callable[[], Any], *marks: str) -> None:
    """Go through a phase of a test that has some marks."""
    item: Any = SimpleNamespace(iter_markers=lambda: iter([SimpleNamespace(name=mark) for mark in marks]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(starts, "_started", [])  # this test starts nothing
        wrapper = starts.marked(item)
        next(wrapper)
        act()
        with pytest.raises(StopIteration):
            wrapper.send(None)


def popen(program: str) -> None:
    """Do what Python does when a process is started."""
    starts._audit("subprocess.Popen", (program, [program], None, None))


def test_test_that_starts_a_process_without_a_mark_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"starts a process \(subprocess.Popen\): mark it `cluster`"):
        phase(lambda: popen("node"), "parametrize", "long")


@pytest.mark.parametrize("mark", ["browser", "cluster", "slurm"])
def test_test_with_a_mark_may_start_one(mark: str) -> None:
    phase(lambda: popen("node"), mark)
