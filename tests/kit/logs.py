"""Lines in the log, of what a test is about."""

from __future__ import annotations

import logging

import pytest

__all__ = ["lines_of"]

OURS = ("dqlab", "bokeh", "distributed", "tornado", "tests")
"""Loggers of what runs in tests. File systems of buckets write, too, when Python frees what a test has left."""


def lines_of(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[logging.LogRecord]:
    """Return what was logged by dqlab and by what shows it, from a level on."""
    return [each for each in caplog.records if each.name.split(".")[0] in OURS and each.levelno >= level]
