"""Reads what a user wrote: a function's syntax and text, a class's attributes, and what a function changes outside.

Sources are read as tracebacks read them, through `linecache`, where IPython puts its cells. Any of them may be missing:
code from ``exec`` or C has no source.

In another process a function changes a copy. Only what is certain is reported: a name of the notebook that is counted
up, and a list, dictionary, set, array or object of the notebook that is changed in place. Values that a process keeps
for its own later calls are no loss and are left out, such as a model that is loaded once, or a dictionary that caches
by key. Methods of objects are not followed.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

from dqlab.cluster.transport.sealed import captured
from dqlab.errors import users_code
from dqlab.notebook import cells_by_file
from dqlab.syntax import parse

_CELL = re.compile(r"<ipython-input-(\d+)-\w+>")
_MAX_WRAPPERS = 20
_WITHOUT_MEANING = frozenset(
    {
        *("__dict__", "__weakref__", "__module__", "__qualname__", "__firstlineno__", "__static_attributes__"),
        *("__abstractmethods__", "_abc_impl", "__annotations__", "__annotate__", "__annotate_func__"),
        *("__annotations_cache__",),
        *("__signature__", "__classcell__"),
        *("__pydantic_core_schema__", "__pydantic_validator__", "__pydantic_serializer__", "__pydantic_complete__"),
        *("__pydantic_parent_namespace__", "__pydantic_generic_metadata__", "__mapper__", "__table__"),
    }
)
"""Attributes that locate a class, or that Python and libraries derive from the others, differently in each process."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_IMMUTABLE = 1 << 8
"""Py_TPFLAGS_IMMUTABLETYPE, the flag of classes that are written in C and cannot be changed."""
# Not `kind.__dict__` and so on: a metaclass may return anything for its classes, or raise.
_names_of, _flags_of, _qualname_of = (type.__dict__[name].__get__ for name in ("__dict__", "__flags__", "__qualname__"))


@dataclass(frozen=True, slots=True)
class Definition:
    """A function as it was written."""

    tree: str
    """Its syntax, without file names, lines, columns and comments."""
    text: str
    """Its source, from the first decorator on, unindented."""


class _Parsed:
    """A file or cell, parsed."""

    def __init__(self, source: str, filename: str) -> None:
        self.source, self._filename = source, filename
        self.tree = parse(source)

    @cached_property
    def functions(self) -> dict[tuple[str, int], list[_Function]]:
        """The functions by name and first line."""
        # Cached, since thousands of functions of one file may be looked up.
        return _by_place(self.tree)

    @cached_property
    def compiled(self) -> set[CodeType]:
        """The code of every function, at any depth."""
        return _compiled(self.source, self._filename)


@dataclass(slots=True)
class Sources:
    """Finds definitions by code object, and reads each file or cell once."""

    _files: dict[str, _Parsed | None] = field(default_factory=dict)

    def definition(self, code: CodeType, namespace: dict[str, Any] | None = None) -> Definition | None:
        """Return how a function was written, or None if its source is not available."""
        # `namespace` (the function's globals) has the loader, which reads a module from an archive.
        parsed = self._read(code.co_filename, namespace)
        if parsed is None:
            return None
        node = _node(parsed.functions.get((code.co_name, code.co_firstlineno), []), code)
        if node is None or not _is_of(code, parsed):
            return None
        try:
            return Definition(ast.dump(node), _text(node, parsed.source))
        except RecursionError:  # an expression of a thousand terms: the caller uses its bytecode
            return None

    def _read(self, filename: str, namespace: dict[str, Any] | None) -> _Parsed | None:
        if filename not in self._files:
            self._files[filename] = _parse(filename, namespace)
        return self._files[filename]


def cell_number(code: CodeType) -> int | None:
    """Return the number of the notebook cell that defined a function, or None outside notebooks."""
    numbered = _CELL.fullmatch(code.co_filename)
    if numbered:
        return int(numbered[1])
    return cells_by_file().get(code.co_filename)


def _parse(filename: str, namespace: dict[str, Any] | None) -> _Parsed | None:
    # A script may have been edited since linecache read it.
    linecache.checkcache(filename)
    source = "".join(linecache.getlines(filename, namespace))
    if not source:
        return None
    try:
        return (_parsed_once if len(source) <= _MOST_KEPT else _Parsed)(source, filename)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # not Python
        return None


# Each run reads the file of its function: the cache parses a script once for all runs.
_MOST_KEPT = 100_000
"""Characters of the largest file that is cached: its syntax takes fifty bytes for each."""
_parsed_once = lru_cache(maxsize=4)(_Parsed)


def _is_of(code: CodeType, parsed: _Parsed) -> bool:
    """Return whether the code was compiled from this source."""
    # A file may be edited while its process runs; the new text is not what the function does.
    filename = code.co_filename
    kept: Any = linecache.cache.get(filename, (0, None))
    # linecache has no modification time for a notebook cell, which never changes.
    if kept[1] is None:
        return True
    try:
        return _unplaced(code) in parsed.compiled
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _compiled(source: str, filename: str) -> set[CodeType]:
    """Return the code of every function in a file, at any depth."""
    waiting = [compile(source, filename, "exec", dont_inherit=True)]
    found = set()
    while waiting:
        nested = [part for part in waiting.pop().co_consts if isinstance(part, CodeType)]
        found |= set(map(_unplaced, nested))
        waiting += nested
    return found


def _unplaced(code: CodeType) -> CodeType:
    """Return code without its place in a file, so that equal functions compare equal."""
    constants = tuple(_unplaced(part) if isinstance(part, CodeType) else part for part in code.co_consts)
    return code.replace(co_flags=0, co_firstlineno=1, co_linetable=b"", co_filename="", co_consts=constants)


def _by_place(tree: ast.Module) -> dict[tuple[str, int], list[_Function]]:
    """Return the functions of a file by name and first line."""
    found: dict[tuple[str, int], list[_Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
            found.setdefault((name, _first_line(node)), []).append(node)
    return found


def _node(nodes: list[_Function], code: CodeType) -> _Function | None:
    found = [node for node in nodes if _fits(node, code)]
    return found[0] if len(found) == 1 else None  # of several lambdas in one line the bytecode counts


def _fits(node: _Function, code: CodeType) -> bool:
    """Return whether the parameters are the same."""
    # The file may have changed since it was imported, and have another function at this place.
    arguments = node.args
    return (
        len(arguments.posonlyargs) == code.co_posonlyargcount
        and len(arguments.posonlyargs) + len(arguments.args) == code.co_argcount
        and len(arguments.kwonlyargs) == code.co_kwonlyargcount
    )


def _first_line(node: _Function) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min(part.lineno for part in (node, *decorators))


def _text(node: _Function, source: str) -> str:
    if isinstance(node, ast.Lambda):
        return ast.get_source_segment(source, node) or ""
    lines = source.split("\n")
    return textwrap.dedent("\n".join(lines[_first_line(node) - 1 : node.end_lineno]))


# --- classes and wrappers ------------------------------------------------------------------


def written(kind: type) -> dict[str, Any]:
    """Return the attributes a user wrote into a class, without those that Python, dataclasses and Pydantic add."""
    own = {
        name: value
        for name, value in names_of(kind).items()
        if name not in _WITHOUT_MEANING
        and not isinstance(value, MemberDescriptorType | GetSetDescriptorType)
        and not ("__dataclass_fields__" in names_of(kind) and _generated(kind, name, value))
    }
    if type(fields := own.get("__pydantic_fields__")) is not dict:
        return own
    # Pydantic moves defaults and constraints out of the class; all else that it adds is made of them.
    said = {
        name: [field.alias, field.metadata, field.is_required() or field.default_factory or field.default]
        for name, field in fields.items()
    }
    return {name: value for name, value in own.items() if not name.startswith("__pydantic_")} | {"fields": said}


def _generated(kind: type, name: str, value: object) -> bool:
    """Return whether `dataclass` made an attribute of a class, from its fields."""
    if name == "__doc__":  # contains the defaults, some of them with their address
        return isinstance(value, str) and value.startswith(f"{qualname(kind).rpartition('.')[2]}(")
    code = getattr(getattr(value, "__wrapped__", value), "__code__", None) if name.startswith("__") else None
    return isinstance(code, CodeType) and f"{code.co_filename} {code.co_qualname}".startswith("<string> __create_fn__.")


def names_of(kind: type) -> Mapping[str, Any]:
    """Return the attributes of a class itself, without asking its metaclass."""
    names: Mapping[str, Any] = _names_of(kind)
    return names


def qualname(kind: type) -> str:
    """Return the qualified name of a class, without asking its metaclass."""
    return str(_qualname_of(kind))


def type_text(kind: type) -> str:
    """Return a class as errors name it, without the module of a well-known one."""
    module = attribute(kind, "__module__")
    if type(module) is not str or module in ("builtins", "__main__", "__mp_main__"):
        return qualname(kind)
    return f"{module}.{qualname(kind)}"


def compiled(kind: type) -> bool:
    """Return whether a class is written in C, so that its name and its module's version describe it."""
    return bool(_flags_of(kind) & _IMMUTABLE)


def innermost(function: Any) -> Any:
    """Return the function that a user wrote, inside partials, methods and decorators."""
    for _ in range(_MAX_WRAPPERS):
        if issubclass(type(function), partial):
            function = function.func
        elif type(function) is MethodType:
            function = function.__func__
        else:
            wrapped = attribute(function, "__wrapped__")
            if type(wrapped) is not FunctionType:
                break
            function = wrapped
    return function


def attribute(value: object, name: str) -> Any:
    """Return an attribute, or None if there is none or reading it fails."""
    with users_code:  # a proxy may raise anything; its attribute counts as missing
        return getattr(value, name, None)
    return None


# --- what a function changes outside itself ------------------------------------------------

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
