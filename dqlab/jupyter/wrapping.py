"""Text as wide as a terminal, where sentences are broken between words and lines to copy stay whole.

A terminal breaks longer lines in the middle of a word; a notebook's page breaks them by itself.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from typing import TextIO

from dqlab.live.style import WIDTH

_INDENT = re.compile(r"\s*")
_TO_COPY = re.compile(r"\s+%{1,2}dq |\s+--?\w|\s+\w+\(")
"""Start of an indented line that is meant to be copied."""
_COMMAND = re.compile(r"%dq( [\w.-]+){1,2}|`dqlab [^`\n]{1,60}`")
"""A command in a sentence, `%dq` with its first words and a shell's as a whole, which is not broken."""
_GLUE = "\N{NO-BREAK SPACE}"
_NARROWEST = 20


def width_here(out: TextIO | None = None) -> int | None:
    """Return the columns, at most 80, of the terminal that this process writes to, or None for no terminal."""
    if not (sys.stdout if out is None else out).isatty():
        return None
    return max(_NARROWEST, min(WIDTH, shutil.get_terminal_size().columns))


def say(text: str, out: TextIO | None = None) -> None:
    """Print text, to standard output by default, as wide as its terminal is."""
    width = width_here(out)
    print(text if width is None else fitted(text, width), file=out, flush=True)


def fitted(text: str, width: int = WIDTH) -> str:
    """Return text in lines of at most `width` characters, but with longer words whole."""
    return "\n".join(line for long in text.split("\n") for line in _lines(long, width))


def _lines(line: str, width: int) -> list[str]:
    if len(line) <= width or _TO_COPY.match(line):
        return [line]
    found = _INDENT.match(line)
    indent = found.group() if found is not None else ""
    glued = _COMMAND.sub(lambda found: found.group().replace(" ", _GLUE), line)
    parts = textwrap.wrap(  # long words stay whole: a part of one is no path, name or address any more
        glued, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return [part.replace(_GLUE, " ") for part in parts]
