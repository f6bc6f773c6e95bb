"""Source as a syntax tree."""

from __future__ import annotations

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dqlab import syntax
from dqlab.syntax import parse


def test_threads_parse_at_the_same_time() -> None:
    """CPython 3.11 reports that as an internal error; mapping in two threads at once caused it."""
    source = Path(__file__).read_text()
    with ThreadPoolExecutor(8) as threads:
        trees = list(threads.map(parse, [source] * 64))

    assert {ast.dump(tree) for tree in trees} == {ast.dump(trees[0])}


def test_a_mistake_that_another_thread_has_caused_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    real, mistakes = ast.parse, [1, 2, 3]

    def now_and_then(source: str) -> ast.Module:
        if mistakes:
            mistakes.pop()
            raise SystemError("AST constructor recursion depth mismatch")
        return real(source)

    monkeypatch.setattr(syntax.ast, "parse", now_and_then)

    assert ast.dump(parse("x = 1")) == ast.dump(real("x = 1"))
    mistakes[:] = range(100)
    with pytest.raises(SystemError):
        parse("x = 1")
