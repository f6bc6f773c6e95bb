"""The house may only become smaller: `budgets.toml` has what each room may weigh."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUDGETS = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text())
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SUPPRESSED = re.compile(r"#\s*(?:noqa|type: ignore)")


def code_lines(text: str) -> int:
    """Return how many lines are neither blank nor a comment nor part of a docstring."""
    documented = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(it := line.strip()) and it[0] != "#" and at not in documented for at, line in lines)


def test_lines_of_code_are_counted_without_blanks_comments_and_docstrings() -> None:
    text = '"""Module.\n\nMore."""\n\n# why\ndef f():\n    """One."""\n    x = """a\nb"""  # kept\n    return x\n'
    assert code_lines(text) == 4


@pytest.mark.long
def test_no_room_weighs_more_than_its_budget() -> None:
    """A rise is a change of budgets.toml, in a commit that names what left elsewhere."""
    weights = Counter[str]()
    modules = suppressed = 0
    for room in ("dqlab", "tests"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            parts = path.relative_to(ROOT / room).parts
            weights["tests" if room == "tests" else parts[0] if len(parts) > 1 else "top"] += code_lines(text)
            if room == "dqlab":
                modules += 1
                suppressed += len(_SUPPRESSED.findall(text))
    tests, house = weights.pop("tests"), sum(weights.values())

    assert weights.keys() == BUDGETS["rooms"].keys()
    above = {room: (n, BUDGETS["rooms"][room]) for room, n in weights.items() if n > BUDGETS["rooms"][room]}
    assert above == {}, "above the budget: (is, may be). What could leave?"
    assert house <= BUDGETS["total"]["code"]
    assert tests <= BUDGETS["total"]["tests"]
    assert modules <= BUDGETS["total"]["modules"]
    assert 1000 * suppressed <= BUDGETS["total"]["suppressed_per_thousand"] * house
