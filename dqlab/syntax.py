"""Python source as a syntax tree, in any thread."""

from __future__ import annotations

import ast
import threading

__all__ = ["parse"]

TRIES = 10
_parsing = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module.

    CPython 3.11 counts the depth of all threads together, and takes it for a mistake of its own (gh-106905). Our calls
    take turns; against those of others a retry helps.

    Raises
    ------
    SyntaxError, ValueError, RecursionError, MemoryError
        The source is not Python, or too deeply nested.
    """
    for _ in range(TRIES - 1):
        with _parsing:
            try:
                return ast.parse(source)
            except SystemError:
                continue
    with _parsing:
        return ast.parse(source)
