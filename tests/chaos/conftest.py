"""Rounds of chaos, and a line at the end that says how many there were, and what was done in them."""

from __future__ import annotations

from collections import Counter

import pytest

_TALLY: Counter[str] = Counter()


@pytest.fixture(scope="session")
def tally() -> Counter[str]:
    """What was done, counted over the whole run."""
    return _TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was done."""
    if _TALLY:
        terminalreporter.write_line("chaos: " + ", ".join(f"{n:,} {what}" for what, n in sorted(_TALLY.items())))
