"""Tracebacks from other processes as the notebook that they concern shows its own: cells by number, with their lines.

A cell is not a file: the process that ran its function knows neither its number nor its text, and this kernel does.
"""

from __future__ import annotations

import linecache
import re

from dqlab.notebook import cells_by_file

__all__ = ["with_cells"]

_PLACE = re.compile(r'(?P<indent>\s*)File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>.+)')


def with_cells(traceback: str) -> str:
    """Return a traceback with "cell [2], line 4" in place of a cell's file, and with the lines of cells."""
    numbers = cells_by_file()
    if not numbers:
        return traceback
    shown: list[str] = []
    lines = traceback.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        place = _PLACE.fullmatch(line)
        if place is None or place["file"] not in numbers:
            shown.append(line)
            continue
        indent = place["indent"]
        shown.append(f"{indent}cell [{numbers[place['file']]}], line {place['line']}, in {place['function']}")
        text = linecache.getline(place["file"], int(place["line"])).strip()
        if text and not following.startswith(f"{indent}  "):
            shown.append(f"{indent}  {text}")
    return "\n".join(shown)
