"""Text as wide as a terminal: sentences are broken between words, and lines to copy stay whole.

A terminal breaks what is longer in the middle of a word; a notebook's page breaks it by itself.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

from dqlab.live.style import WIDTH

__all__ = ["broken", "fitted", "say", "width_here"]

_INDENT = re.compile(r"\s*")
_TO_COPY = re.compile(r"\s+%{1,2}dq |\s+--?\w|\s+\w+\(")
"""How indented lines begin that are meant to be copied."""
_COMMAND = re.compile(r"%dq( [\w.-]+){1,2}|`dqlab [^`\n]{1,60}`")
"""A command in a sentence: a line with its first word, one of a shell whole."""
_GLUE = "\N{NO-BREAK SPACE}"
_NARROWEST = 20


def width_here(out: TextIO | None = None) -> int | None:
    """Return the columns of the terminal that this process writes to, at most 80; None where it is none."""
    if not (sys.stdout if out is None else out).isatty():
        return None
    return max(_NARROWEST, min(WIDTH, shutil.get_terminal_size().columns))


def say(text: str, out: TextIO | None = None) -> None:
    """Print text, to standard output by default, as wide as its terminal is."""
    width = width_here(out)
    print(text if width is None else fitted(text, width), file=out, flush=True)


def fitted(text: str, width: int = WIDTH) -> str:
    """Return text whose lines have at most so many characters; words that are longer stay whole.

    Examples
    --------
    >>> print(fitted("short is dropped. Its disk space comes back with: %dq compact pages", 56))
    short is dropped. Its disk space comes back with:
    %dq compact pages
    """
    return "\n".join(line for long in text.split("\n") for line in _lines(long, width))


def _lines(line: str, width: int) -> list[str]:
    if len(line) <= width or _TO_COPY.match(line):
        return [line]
    found = _INDENT.match(line)
    indent = found.group() if found is not None else ""
    return broken(line, width, _COMMAND, then=indent)


def broken(line: str, width: int, whole: re.Pattern[str], *, first: str = "", then: str = "") -> list[str]:
    """Break a line between words, but for what `whole` matches; `first` and `then` are put before its parts.

    A word that is cut is no longer a path, a name or an address: longer ones stay as they are.
    """
    glued = whole.sub(lambda found: found.group().replace(" ", _GLUE), line)
    parts = textwrap.wrap(
        glued, width, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
    return [each.replace(_GLUE, " ") for each in parts]
