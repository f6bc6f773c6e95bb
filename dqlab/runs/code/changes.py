"""Finds what a function changes outside itself, since in another process it changes a copy.

Reads the source alone, and reports only what is certain: a name of the notebook that is counted up, and a list,
dictionary, set, array or object of the notebook that is changed in place. Values that a process keeps for its own later
calls are no loss and are left out, such as a model that is loaded once, or a dictionary that caches by key.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from dqlab.cluster.transport.sealed import captured
from dqlab.runs.code.source import Sources, attribute, innermost, type_text
from dqlab.syntax import parse

__all__ = ["RETURN_IT", "Changed", "changes"]

RETURN_IT = "Return the value from the function, and read run.results()."
"""Advice for the user."""

_MUTATING: dict[type, frozenset[str]] = {
    list: frozenset({"append", "extend", "insert", "remove", "pop", "sort", "reverse"}),
    dict: frozenset({"update", "setdefault", "pop", "popitem"}),
    set: frozenset(
        {"add", "update", "discard", "remove", "pop", "difference_update", "intersection_update"}
        | {"symmetric_difference_update"}
    ),
    deque: frozenset({"append", "appendleft", "extend", "extendleft", "pop", "popleft", "insert", "remove"}),
    bytearray: frozenset({"append", "extend", "insert", "pop"}),
    Counter: frozenset({"update", "subtract", "pop", "popitem"}),
}
"""For each type, the methods that change their object in place."""
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
    """As written in the source, such as "seen" or "self.count"."""
    kind: str
    """The type of the changed object; "" for a name that is given a new value."""
    function: str
    """The function that changes it."""

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})" if self.kind else self.name


def changes(fn: Callable[..., Any], reached: Iterable[Any]) -> list[Changed]:
    """Return what a function of a notebook or script, and the functions among `reached`, change outside themselves."""
    sources, found, seen = Sources(), dict[str, Changed](), set[tuple[int, int]]()
    waiting = [_method(fn), *(_method(each) for each in reached if type(innermost(each)) is FunctionType)]
    while waiting and len(seen) < _MOST:
        function, owner = waiting.pop(0)
        if function is None or (id(function), id(owner)) in seen:
            continue
        seen.add((id(function), id(owner)))
        look = _Look(function, owner, sources)
        for changed in look.found():
            found.setdefault(changed.name, changed)
        waiting += look.methods
    return list(found.values())


def _method(value: object) -> tuple[FunctionType | None, object]:
    """Return the function that a call of a value runs, with its owner, if a notebook or script defines it."""
    owner = value.__self__ if type(value) is MethodType else None
    function = innermost(value)
    if type(function) is not FunctionType and _is_users(value) and not isinstance(value, type):
        owner, function = value, inspect.getattr_static(value, "__call__", None)
    if type(function) is not FunctionType or function.__globals__.get("__name__") not in _MAIN:
        return None, None
    return function, owner


def _is_users(value: object) -> bool:
    """Return whether a value is a class of the notebook, or an object of one."""
    return attribute(value if isinstance(value, type) else type(value), "__module__") in _MAIN


class _Look:
    """Looks in one function for names that stand for something outside it, and for changes of those."""

    def __init__(self, function: FunctionType, owner: object, sources: Sources) -> None:
        self._function = function
        self._closure = captured(function)
        self._tree = _tree(function, sources)
        self.methods: list[tuple[FunctionType | None, object]] = []
        """Methods of objects outside the function that it calls, with what they are bound to."""
        self._self: dict[str, Any] = {}
        names = function.__code__.co_varnames
        # The first parameter of a method stands for the object that the method is bound to.
        if owner is not None and not isinstance(owner, type) and function.__code__.co_argcount:
            self._self = {names[0]: owner}

    def found(self) -> Iterator[Changed]:
        """Yield the changes that are no cache of the process."""
        if self._tree is None:
            return
        marks = list(self._marks(self._tree, frozenset(), guards=()))
        kept = {path for path, how, _ in marks if how == "kept"} | set(_found_set(self._tree))
        for path, how, kind in marks:
            if how == "changed" and path not in kept:
                yield Changed(path, kind, self._function.__qualname__.rpartition("<locals>.")[2])

    def _outside(self, name: str, local: frozenset[str]) -> tuple[bool, Any]:
        """Return whether a name stands for something outside the function, and that thing."""
        if name in self._self:
            return True, self._self[name]
        if name in local:
            return False, None
        if name in self._closure:
            return True, self._closure[name]
        names = self._function.__globals__
        return (True, names[name]) if name in names else (False, None)

    def _marks(self, node: ast.AST, local: frozenset[str], guards: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
        """Yield (path, "changed" or "kept", type) for each change below a node."""
        if isinstance(node, _Function):
            local = local | _bound(node)
        elif isinstance(node, ast.ClassDef):
            return  # names in its body are attributes of the class, which is made in each call
        elif isinstance(node, ast.If | ast.While):
            guards = (*guards, *_found_missing(node.test))
        yield from self._change(node, local, guards)
        for child in ast.iter_child_nodes(node):
            yield from self._marks(child, local, guards)

    def _change(self, node: ast.AST, local: frozenset[str], guards: tuple[str, ...]) -> Iterator[tuple[str, str, str]]:
        match node:
            case ast.AugAssign(target=target):
                yield from self._assigned(target, local, guards, None)
            case ast.Assign(targets=targets, value=value):
                for each in targets:
                    yield from self._assigned(each, local, guards, value)
            case ast.Call(func=ast.Attribute(value=on, attr=method)):
                yield from self._called(on, method, local, guards)
            case ast.Call(func=ast.Name(id=name)):
                there, held = self._outside(name, local)
                if there and _is_users(held):
                    self.methods.append(_method(held))

    def _assigned(
        self, target: ast.expr, local: frozenset[str], guards: tuple[str, ...], value: ast.expr | None
    ) -> Iterator[tuple[str, str, str]]:
        """Yield what an assignment changes, where `value` is None for one that counts up (`+=`)."""
        grows = value is None
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    yield from self._assigned(part, local, guards, value)
            case ast.Name(id=name) if name not in local:
                there, _ = self._outside(name, local)
                if there and (grows or _counts(value, name)):
                    yield name, "changed", ""
            case ast.Attribute(value=ast.Name(id=root), attr=attr):
                there, owner = self._outside(root, local)
                path = f"{root}.{attr}"
                if there and _is_users(owner) and (grows or _counts(value, path)) and path not in guards:
                    yield path, "changed", ""
            case ast.Subscript(value=on, slice=key):
                yield from self._stored(on, key, local, guards, value)

    def _stored(
        self, on: ast.expr, key: ast.expr, local: frozenset[str], guards: tuple[str, ...], value: ast.expr | None
    ) -> Iterator[tuple[str, str, str]]:
        whole: ast.expr = on.value if isinstance(on, ast.Attribute) and on.attr in _PLACES else on
        path, there, held = self._path(whole, local)
        if not there or path in guards:
            return
        kind = _KINDS.get(type(held), type(held))
        own = (f"{path}[{ast.unparse(key)}]", f"{path}.get({ast.unparse(key)}")
        if kind is dict and value is not None and not _counts(value, *own) and self._looks_up(path):
            yield path, "kept", ""
        elif kind in (list, dict, Counter, bytearray, deque) or _is_array(held):
            yield path, "changed", type_text(type(held))

    def _called(
        self, on: ast.expr, method: str, local: frozenset[str], guards: tuple[str, ...]
    ) -> Iterator[tuple[str, str, str]]:
        if isinstance(on, ast.Subscript):  # groups[key].append(x)
            path, there, held = self._path(on.value, local)
            made = held.default_factory if type(held) is defaultdict else None
            if there and isinstance(made, type) and method in _MUTATING.get(made, ()):
                yield path, "changed", type_text(type(held))
            return
        path, there, held = self._path(on, local)
        if not there or path in guards:
            return
        kind = _KINDS.get(type(held), type(held))
        if method == "clear" or (kind is dict and method == "setdefault" and self._is_used(on)):
            yield path, "kept", ""  # a scratch value of one call, or a cache
        elif method in _MUTATING.get(kind, ()):
            yield path, "changed", type_text(type(held))
        elif _is_users(held) and type(found := inspect.getattr_static(held, method, None)) is FunctionType:
            self.methods.append((found, held))

    def _path(self, on: ast.expr, local: frozenset[str]) -> tuple[str, bool, Any]:
        """Return how an expression is written, whether it stands for something outside, and that thing."""
        match on:
            case ast.Name(id=name):
                return name, *self._outside(name, local)
            case ast.Attribute(value=ast.Name(id=root), attr=attr):
                there, owner = self._outside(root, local)
                if there and _is_users(owner):
                    held = inspect.getattr_static(owner, attr, None)  # runs no property of the user
                    return f"{root}.{attr}", held is not None, held
        return "", False, None

    def _looks_up(self, path: str) -> bool:
        """Return whether the function reads the dictionary by key, and so keeps values in it for later calls."""
        for node in ast.walk(self._tree) if self._tree is not None else ():
            match node:
                case ast.Subscript(value=on, ctx=ast.Load()) if ast.unparse(on) == path:
                    return True
                case ast.Call(func=ast.Attribute(value=on, attr="get")) if ast.unparse(on) == path:
                    return True
        return False

    def _is_used(self, on: ast.expr) -> bool:
        """Return whether the value of ``d.setdefault(...)`` is read, rather than changed in place."""
        for node in ast.walk(self._tree) if self._tree is not None else ():
            match node:
                case ast.Return(value=ast.Call(func=ast.Attribute(value=held))) if held is on:
                    return True
                case ast.Assign(value=ast.Call(func=ast.Attribute(value=held))) if held is on:
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


def _bound(function: _Function) -> frozenset[str]:
    """Return the names that a function binds in its own scope."""
    arguments = function.args
    names = {each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    names |= {each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None}
    shared: set[str] = set()
    waiting: list[ast.AST] = list(function.body) if isinstance(function.body, list) else [function.body]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Global(names=given) | ast.Nonlocal(names=given):
                shared |= set(given)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names.add(name)
            case ast.ExceptHandler(name=str(name)):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
            case ast.alias(name=name, asname=given_name):
                names.add(given_name or name.partition(".")[0])
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
                continue
            case ast.Lambda():
                continue
        waiting += ast.iter_child_nodes(node)
    return frozenset(names - shared)


def _found_missing(test: ast.expr) -> Iterator[str]:
    """Yield names that a condition finds empty or missing, as ``not MODELS`` and ``model is None`` do."""
    # A value that is set only while it is missing is loaded once in each process, so nothing is lost.
    for node in ast.walk(test):
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=ast.Name() | ast.Attribute() as missing):
                yield ast.unparse(missing)
            case ast.Compare(left=ast.Name() | ast.Attribute() as missing, ops=[ast.Is() | ast.Eq()]):
                yield ast.unparse(missing)
            case ast.Compare(left=ast.Call(func=ast.Name(id="len"), args=[missing]), ops=[ast.Eq()]):
                yield ast.unparse(missing)


def _found_set(function: _Function) -> Iterator[str]:
    """Yield names that a condition finds set, before a ``return``."""
    # As in `if MODELS: return MODELS[0]`, where the process keeps what it has loaded.
    for node in ast.walk(function):
        match node:
            case ast.If(test=ast.Name() | ast.Attribute() as there, body=[*_, ast.Return()]):
                yield ast.unparse(there)
            case ast.If(
                test=ast.Compare(left=ast.Name() | ast.Attribute() as there, ops=[ast.IsNot()]),
                body=[*_, ast.Return()],
            ):
                yield ast.unparse(there)


def _counts(value: ast.expr | None, *paths: str) -> bool:
    """Return whether a value is computed from the one it replaces, as ``total + 1`` and ``max(best, score)`` are."""
    match value:
        case ast.BinOp() | ast.Call(func=ast.Name(id="max" | "min" | "sum")):
            return any(
                isinstance(node, ast.expr) and ast.unparse(node).startswith(paths) and not _longer(node, paths)
                for node in ast.walk(value)
            )
    return False


def _longer(node: ast.AST, paths: tuple[str, ...]) -> bool:
    """Return whether a name only begins with a path, as `totals` does with `total`."""
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) not in paths


def _is_array(value: object) -> bool:
    module = attribute(type(value), "__module__")
    return isinstance(module, str) and module.partition(".")[0] in _ARRAYS and hasattr(type(value), "__setitem__")
