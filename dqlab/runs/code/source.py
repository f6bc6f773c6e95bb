"""Reads what a user wrote: a function's syntax and text, its notebook cell, a class's own attributes.

Sources are read as tracebacks read them, through `linecache`, where IPython puts its cells. Any of them may be missing:
code from ``exec`` or C has no source.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any

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
