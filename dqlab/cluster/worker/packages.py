"""Finds the packages that a sealed function needs in its pickle and its source, without executing either."""

from __future__ import annotations

import ast
import pickletools
from collections.abc import Iterator
from importlib.util import find_spec

from dqlab.syntax import parse

__all__ = ["missing_packages", "named_in_pickle", "named_in_source"]

_OWN = frozenset({"__main__", "builtins", "copyreg"})
_TEXT = frozenset({"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"})
_FROM_MEMO = frozenset({"BINGET", "LONG_BINGET", "GET"})
_INTO_MEMO = frozenset({"BINPUT", "LONG_BINPUT", "PUT"})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_MAYBE = (
    ast.If,
    ast.Match,
    ast.Try,
    ast.TryStar,
    ast.With,
    ast.AsyncWith,
    ast.While,
    ast.For,
    ast.AsyncFor,
    ast.Lambda,
)
"""Nodes that may not run, may stop halfway, or may expect a failed import."""
_FRAMING = frozenset({"FRAME", "PROTO"})
_IMPORTS = "\0imports"
"""Stands for cloudpickle's function that imports the module whose name follows."""


def named_in_pickle(sealed: bytes) -> set[str]:
    """Return the top-level packages that opening a pickle imports, without this interpreter's own."""
    modules: set[str] = set()
    texts = ["", ""]
    """The last two texts on the stack."""
    memo: dict[int, str] = {}
    top = ""
    """The last entry on the stack if it is a text or `_IMPORTS`, else ""."""
    try:
        for opcode, argument, _ in pickletools.genops(sealed):
            name, before = opcode.name, top
            if name == "MEMOIZE":
                memo[len(memo)] = top
            elif name in _INTO_MEMO:
                memo[int(str(argument))] = top
            elif name == "GLOBAL":
                module, _, attribute = str(argument).partition(" ")
                modules.add(module)
                top = _meant(module, attribute)
            elif name == "STACK_GLOBAL":
                modules.add(texts[0])
                top = _meant(*texts)
            elif name not in _FRAMING:
                top = str(argument) if name in _TEXT else memo.get(int(str(argument)), "") if name in _FROM_MEMO else ""
            if top not in ("", _IMPORTS) and name in _TEXT | _FROM_MEMO:
                texts = [texts[1], top]
                if before == _IMPORTS:
                    modules.add(top)
    except (ValueError, UnicodeDecodeError):  # not a pickle, or cut off by `MAX_BLOB`: return what was found before
        pass
    return _packages(modules)


def _meant(module: str, attribute: str) -> str:
    """Return `_IMPORTS` for the function by which cloudpickle imports the modules that a function uses, else ""."""
    return _IMPORTS if attribute == "subimport" and module.startswith("cloudpickle") else ""


def named_in_source(source: str) -> set[str]:
    """Return the top-level packages that a function imports on every call."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError):
        return set()
    return _packages(_imported(tree))


def missing_packages(names: list[str]) -> list[str]:
    """Return the packages that this process cannot import, without importing any."""
    missing = []
    for name in names:
        try:
            found = find_spec(name)
        except (ImportError, ValueError):
            found = None
        if found is None:
            missing.append(name)
    return missing


def _imported(node: ast.AST, *, inside: bool = False) -> Iterator[str]:
    if isinstance(node, _MAYBE) or (inside and isinstance(node, _FUNCTIONS)):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
    for below in ast.iter_child_nodes(node):
        yield from _imported(below, inside=inside or isinstance(node, _FUNCTIONS))


def _packages(modules: set[str] | Iterator[str]) -> set[str]:
    return {name for module in modules if (name := module.partition(".")[0]) and name not in _OWN}
