"""Python source as a syntax tree, in any thread."""

from __future__ import annotations

import ast
import threading

TRIES = 10
_parsing = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module, or raise what `ast.parse` raises for source that it refuses."""
    # CPython 3.11 counts the parser's depth over all threads together, and raises SystemError (gh-106905). The lock
    # makes our own calls take turns; retries help against those of others. Until Python 3.13.
    for _ in range(TRIES - 1):
        with _parsing:
            try:
                return ast.parse(source)
            except SystemError:
                continue
    with _parsing:
        return ast.parse(source)
