"""Logs to crash, and a line at the end that says how many there were."""

from __future__ import annotations

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
def disk(in_memory: Path) -> Path:
    """Where a log lives, in its directory ``log``."""
    (in_memory / "disk").mkdir()
    return in_memory / "disk"


@pytest.fixture
def box(in_memory: Path) -> Path:
    """Where crash states are built."""
    (in_memory / "box").mkdir()
    return in_memory / "box"


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
