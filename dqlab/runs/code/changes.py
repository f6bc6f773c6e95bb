"""Finds what a function changes outside itself, since in another process it changes a copy.

Reads the source alone, and reports only what is certain: a name of the notebook that is counted up, and a list,
dictionary, set, array or object of the notebook that is changed in place. Values that a process keeps for its own later
calls are no loss and are left out, such as a model that is loaded once, or a dictionary that caches by key. Methods of
objects are not followed.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from dqlab.cluster.transport.sealed import captured
from dqlab.runs.code.source import Sources, attribute, innermost, type_text
from dqlab.syntax import parse

RETURN_IT = "Return the value from the function, and read run.results()."
"""Advice for the user."""

_MUTATING: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "remove", "pop", "sort", "reverse"}),
    dict: frozenset({"update", "pop", "popitem"}),
    set: frozenset({"add", "update", "discard", "remove", "pop", "difference_update", "intersection_update"}),
    deque: frozenset({"append", "appendleft", "extend", "extendleft", "pop", "popleft", "insert", "remove"}),
    bytearray: frozenset({"append", "extend", "insert", "pop"}),
    Counter: frozenset({"update", "subtract", "pop", "popitem"}),
}
"""For each type, the methods that change their object in place, and that no cache needs."""
_KINDS: dict[type, type] = {OrderedDict: dict, defaultdict: dict}
_ARRAYS = ("numpy", "pandas", "polars")
_PLACES = frozenset({"loc", "iloc", "at", "iat"})
_MAIN = ("__main__", "__mp_main__")
_MOST = 200
"""Functions that are looked at, at most."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Changed:
    """One thing that a function changes outside itself."""

    name: str
    """As written in the source, such as "seen" or "parser.count"."""
    kind: str
    """The type of the changed object; "" for a name that is given a new value."""
    function: str
    """The function that changes it."""

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})" if self.kind else self.name


def changes(fn: Callable[..., Any], reached: Iterable[Any]) -> list[Changed]:
    """Return what a function of a notebook or script, and the functions among `reached`, change outside themselves."""
    sources, found = Sources(), dict[str, Changed]()
    functions = {id(inner): inner for each in (fn, *reached) if type(inner := innermost(each)) is FunctionType}
    for function in list(functions.values())[:_MOST]:
        tree = _tree(function, sources) if function.__globals__.get("__name__") in _MAIN else None
        for changed in _Look(function, tree).changes() if tree is not None else ():
            found.setdefault(changed.name, changed)
    return list(found.values())


class _Look:
    """Looks in one function for names that stand for something outside it, and for changes of those."""

    def __init__(self, function: FunctionType, tree: _Function) -> None:
        self._function, self._tree = function, tree
        self._closure = captured(function)
        self._local = set(_local(function.__code__))

    def changes(self) -> Iterator[Changed]:
        """Yield the changes that are no cache of the process."""
        kept = set(_tested(self._tree))
        name = self._function.__qualname__.rpartition("<locals>.")[2]
        marks = [mark for node in ast.walk(self._tree) for mark in self._marks(node)]
        kept |= {path for path, kind in marks if kind is None}
        yield from (Changed(path, kind, name) for path, kind in marks if kind is not None and path not in kept)

    def _marks(self, node: ast.AST) -> Iterator[tuple[str, str | None]]:
        """Yield (path, type of what is changed) for each change that a node makes, with None for one of a cache."""
        match node:
            case ast.AugAssign(target=target):
                yield from self._assigned(target, None)
            case ast.Assign(targets=targets, value=value):
                for each in targets:
                    yield from self._assigned(each, value)
            case ast.Call(func=ast.Attribute(value=ast.Subscript(value=on), attr=method)):  # groups[key].append(x)
                _, held = self._held(on)
                made = held.default_factory if type(held) is defaultdict else None
                if isinstance(made, type) and method in _MUTATING.get(made, ()):
                    yield ast.unparse(on), type_text(type(held))
            case ast.Call(func=ast.Attribute(value=on, attr=method)):
                there, held = self._held(on)
                if there and method == "clear":
                    yield ast.unparse(on), None  # a scratch value of one call
                elif there and method in _MUTATING.get(_KINDS.get(type(held), type(held)), ()):
                    yield ast.unparse(on), type_text(type(held))

    def _assigned(self, target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, str | None]]:
        """Yield what an assignment changes, where `value` is None for one that counts up (`+=`)."""
        stored = isinstance(target, ast.Subscript)
        whole = target.value if isinstance(target, ast.Subscript) else target
        if stored and isinstance(whole, ast.Attribute) and whole.attr in _PLACES:
            whole = whole.value
        there, held = self._held(whole)
        path, counts = ast.unparse(whole), value is None or _counts(value, ast.unparse(whole))
        if there and not stored and counts:
            yield path, ""
        elif there and stored:
            kind = _KINDS.get(type(held), type(held))
            if kind is dict and not counts and self._looks_up(path):
                yield path, None
            elif kind in (list, dict, Counter, bytearray, deque) or _is_array(held):
                yield path, type_text(type(held))

    def _held(self, on: ast.expr) -> tuple[bool, Any]:
        """Return whether an expression stands for something outside the function, and that thing."""
        match on:
            case ast.Name(id=name) if name not in self._local:
                for names in (self._closure, self._function.__globals__):
                    if name in names:
                        return True, names[name]
            case ast.Attribute(value=ast.Name() as root, attr=attr):
                there, owner = self._held(root)
                kind = owner if isinstance(owner, type) else type(owner)
                if there and attribute(kind, "__module__") in _MAIN:
                    held = inspect.getattr_static(owner, attr, None)  # runs no property of the user
                    return held is not None, held
        return False, None

    def _looks_up(self, path: str) -> bool:
        """Return whether the function reads the dictionary by key, and so keeps values in it for later calls."""
        for node in ast.walk(self._tree):
            match node:
                case ast.Subscript(value=on, ctx=ast.Load()) | ast.Call(func=ast.Attribute(value=on, attr="get")) if (
                    ast.unparse(on) == path
                ):
                    return True
        return False


def _tree(function: FunctionType, sources: Sources) -> _Function | None:
    definition = sources.definition(function.__code__, function.__globals__)
    if definition is None:
        return None
    try:
        module = parse(textwrap.dedent(definition.text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a lambda among arguments, an odd indentation
        return None
    return next((node for node in ast.walk(module) if isinstance(node, _Function)), None)


def _local(code: CodeType) -> Iterator[str]:
    """Yield the names that a function, or one nested in it, binds in its own scope."""
    yield from (*code.co_varnames, *code.co_cellvars)
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            yield from _local(nested)


def _tested(function: _Function) -> Iterator[str]:
    """Yield names that a condition tests, as ``not MODELS``, ``model is None`` and ``len(MODELS) == 0`` do."""
    # A value that is set only while it is missing is loaded once in each process, so nothing is lost. Not `x in seen`,
    # which collects what was seen.
    for test in (node.test for node in ast.walk(function) if isinstance(node, ast.If)):
        searched = [
            each
            for node in ast.walk(test)
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
            for each in ast.walk(node)
        ]
        yield from (
            ast.unparse(node)
            for node in ast.walk(test)
            if isinstance(node, ast.Name | ast.Attribute) and node not in searched
        )


def _counts(value: ast.expr, path: str) -> bool:
    """Return whether a value is computed from the one it replaces, as ``total + 1`` and ``max(best, score)`` are."""
    match value:
        case ast.BinOp() | ast.Call(func=ast.Name(id="max" | "min" | "sum")):
            return any(ast.unparse(node) == path for node in ast.walk(value) if isinstance(node, ast.expr))
    return False


def _is_array(value: object) -> bool:
    module = attribute(type(value), "__module__")
    return isinstance(module, str) and module.partition(".")[0] in _ARRAYS and hasattr(type(value), "__setitem__")
