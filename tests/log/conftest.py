"""Directories in memory for thousands of crashed logs, and a line at the end that says how many there were."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.crash.stranger import Stranger

_TALLY: Counter[str] = Counter()


@pytest.fixture
def tally() -> Counter[str]:
    """Evidence, counted over the whole run."""
    return _TALLY


@pytest.fixture
def shm(tmp_path: Path) -> Iterator[Path]:
    """An empty directory in memory where there is one."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="dqlab-", dir=memory))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def disk(shm: Path) -> Path:
    """Where a log lives, in its directory ``log``."""
    (shm / "disk").mkdir()
    return shm / "disk"


@pytest.fixture
def box(shm: Path) -> Path:
    """Where crash states are built."""
    (shm / "box").mkdir()
    return shm / "box"


@pytest.fixture(autouse=True, scope="module")
def _old_objects_are_not_searched() -> Iterator[None]:
    """The cyclic collector goes through everything imported again and again: a third of the time of these tests."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def stranger() -> Iterator[Stranger]:
    """Another process that opens logs when told to."""
    other = Stranger()
    yield other
    other.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the crash tests looked at."""
    if _TALLY:
        terminalreporter.write_line("log: " + ", ".join(f"{n:,} {what}" for what, n in sorted(_TALLY.items())))
