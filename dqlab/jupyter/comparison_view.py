"""The output of a cell that compares: the differences found so far, until all are known."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dqlab.live.compared import compared_parts, first_differences
from dqlab.live.display import drawn, publish
from dqlab.notebook import in_jupyter
from dqlab.runs.compare.comparison import Comparison

EVERY = 0.5
"""Seconds between two drawings."""


class ComparisonView:
    """Draws a comparison again and again in Jupyter, and prints its first differences elsewhere."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._printed = say, 0
        self._output: Any = None
        self._next = 0.0

    def show(self, found: Comparison) -> None:
        """Show what is known so far, as soon as there is a difference."""
        now = time.monotonic()
        if not found.changed or now < self._next:
            return
        if in_jupyter():
            self._draw(found)
            self._next = now + EVERY
        else:
            lines = first_differences(found, self._printed)
            self._printed += len(lines)
            for line in lines:
                self._say(line)

    def end(self, found: Comparison, *, stays: bool) -> None:
        """Show the end, or make room for it where the cell shows it as its value."""
        if stays:
            self._draw(found, over=True) if in_jupyter() else self._say(found.summary)
        elif self._output is not None:
            self._output.update({"text/plain": ""}, raw=True)

    def _draw(self, found: Comparison, *, over: bool = False) -> None:
        bundle = drawn(*compared_parts(found, over=over))
        if self._output is None:
            self._output = publish(bundle)
        else:
            self._output.update(bundle, raw=True)
