"""How far a command is that takes its time: one line, written over, and gone at the end."""

from __future__ import annotations

import sys
import time
from typing import Self

__all__ = ["Meter"]

QUIET = 0.5
"""Seconds in which nothing is shown: what is quick needs no meter."""
WIDTH = 78


class Meter:
    """Call it with a name and bytes done and in all, as often as you like; use it as a context manager."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._shown = False

    def __call__(self, name: str, done: int, of: int) -> None:
        """Show how far it is."""
        if of and time.monotonic() - self._started > QUIET:
            text = f"{name}: {done / 1e6:,.1f} of {of / 1e6:,.1f} MB read"
            sys.stdout.write(f"\r{text:{WIDTH}.{WIDTH}}")
            sys.stdout.flush()
            self._shown = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._shown:
            sys.stdout.write(f"\r{'':{WIDTH}}\r")
            sys.stdout.flush()
