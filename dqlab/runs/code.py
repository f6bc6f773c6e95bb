"""Code versions: a name for what a function does, the same in every process.

Two functions have one version when their syntax trees agree, and so do those of the functions and
classes of ``__main__`` they name, the values they read, and the versions of the packages they import.
File names, lines, comments and the order of dictionaries do not count. A pickle cannot serve: its
bytes differ between processes. Knows nothing of runs; transport has its own hash (`cluster.sealed`).

Everything reached from a function is described on its own and refers to the rest by name; the sorted
descriptions are hashed. So neither cycles nor the order of the search matter.
"""

from __future__ import annotations

import builtins
import dataclasses
import operator
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum, EnumMeta
from fractions import Fraction
from functools import cache, cached_property, partial
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any
from uuid import UUID

from dqlab.cluster.sealed import captured, global_names
from dqlab.runs.explain import Sources, attribute, cell_number, hint_text, innermost, written
from dqlab.texts import kept

__all__ = ["CodeVersion", "code_version"]

_MAIN = ("__main__", "__mp_main__")
_MAX_NESTING = 100
_BY_REPR = (bool, float, complex, range, Decimal, Fraction, date, timedelta, UUID, type(None), type(...))
_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_CONTAINERS = (tuple, list, dict, set, frozenset)
_PLACE = frozenset({"__builtins__", "__file__", "__loader__", "__name__", "__spec__"})
"""Globals that say where code stands, not what it does."""


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """What a function does, named.

    Attributes
    ----------
    name : str
        The function's name.
    hash : str
        32 hex digits; equal versions do the same, as far as can be seen.
    short : str
        The first six of them, for people.
    source : str or None
        Its text, decorators included; None where there is none.
    cell : int or None
        Number of the notebook cell that defined it.
    uncertain : tuple of str
        Values it depends on of which only the type counted: "model of score (torch.nn.Linear)".
    """

    name: str
    hash: str
    short: str
    source: str | None = None
    cell: int | None = None
    uncertain: tuple[str, ...] = ()

    def explain(self) -> str:
        """Return in words what the version rests on."""
        where = f" from cell {self.cell}" if self.cell is not None else ""
        text = f"{self.name}{where}, version {self.short}"
        if not self.uncertain:
            return f"{text}: its code and every value it reads count."
        return f"{text}: of these values only the type counts: {', '.join(self.uncertain)}."


def code_version(function: Callable[..., Any]) -> CodeVersion:
    """Return the version of a function, or of anything else that can be called.

    Functions of ``__main__``, lambdas and nested functions count by their code; imported ones by module,
    name and the version of their distribution, or where none is installed by the source of their module.
    Functions without source count by their bytecode, which differs between versions of Python.
    """
    inner = innermost(function)
    walk = _Walk(inner)
    digest = walk.version(function)
    body = inner if attribute(inner, "__code__") else type(inner).__call__
    code = attribute(body, "__code__")
    definition = walk.sources.definition(code, attribute(body, "__globals__")) if isinstance(code, CodeType) else None
    return CodeVersion(
        name=_name(inner),
        hash=digest.hex(),
        short=digest.hex()[:6],
        source=definition.text if definition else None,
        cell=cell_number(code) if isinstance(code, CodeType) else None,
        uncertain=tuple(sorted(walk.uncertain)),
    )


class _Walk:
    """Describes a function and everything of ``__main__`` that it reaches."""

    def __init__(self, root: Any) -> None:
        self.sources = Sources()
        self.uncertain: set[str] = set()
        self._user = _name(root)
        self._waiting: list[FunctionType | type] = []
        self._reached: dict[int, FunctionType | type] = {}
        self._open: set[int] = set()
        self._shapes: dict[CodeType, bytes] = {}

    def version(self, function: Callable[..., Any]) -> bytes:
        root = self._called(function)
        parts = []
        while self._waiting:
            definition = self._waiting.pop()
            self._user = definition.__name__
            parts.append(self._class(definition) if isinstance(definition, type) else self._function(definition))
        return _pack("version", root, *sorted(parts))

    # --- definitions: each once, in full --------------------------------------------------------

    def _function(self, function: FunctionType) -> bytes:
        parts = [
            self._by_name(function),
            self._value(function.__defaults__, "a default"),
            self._value(function.__kwdefaults__, "a default"),
        ]
        parts += [_pack("cell", name, self._value(value, name)) for name, value in sorted(captured(function).items())]
        home = function.__globals__.get("__name__")
        module = sys.modules.get(home) if isinstance(home, str) and home not in _MAIN else None
        if module is not None and vars(module) is function.__globals__:
            # The body of an imported decorator: what it reads comes with its module.
            parts.append(_pack("home", module.__name__, self._pin(module.__name__)))
        else:
            parts += self._globals(function)
        return _pack("def", *parts)

    def _globals(self, function: FunctionType) -> Iterator[bytes]:
        for name in global_names(function.__code__):
            if name in _PLACE:
                continue
            if name in function.__globals__:
                yield _pack("global", name, self._value(function.__globals__[name], name))
            else:
                yield _pack("builtin" if hasattr(builtins, name) else "missing", name)

    def _class(self, kind: type) -> bytes:
        parts = [self._by_name(kind), self._known(type(kind)), *map(self._known, kind.__bases__)]
        parts += [_pack("is", name, self._value(value, name)) for name, value in sorted(written(kind).items())]
        annotations = vars(kind).get("__annotations__", {})
        parts += [_pack("annotation", name, hint_text(hint)) for name, hint in sorted(annotations.items())]
        if isinstance(kind, EnumMeta):
            members: list[Enum] = list(kind.__members__.values())
            parts += [_pack("member", member.name, self._value(member.value, member.name)) for member in members]
        if "__dataclass_fields__" in vars(kind):
            parts.append(_pack("dataclass", repr(vars(kind)["__dataclass_params__"])))
            parts += [self._field(field) for field in dataclasses.fields(kind)]
        return _pack("class", *parts)

    def _field(self, field: dataclasses.Field[Any]) -> bytes:
        flags = repr((field.init, field.repr, field.hash, field.compare, field.kw_only))
        values = [
            b"" if value is dataclasses.MISSING else self._value(value, field.name)
            for value in (field.default, field.default_factory)
        ]
        return _pack("field", field.name, hint_text(field.type), flags, *values)

    # --- references: by name, or by what they hold ------------------------------------------------

    def _value(self, value: object, name: str) -> bytes:
        plain = _plain(value)
        if plain is not None:
            return plain
        if isinstance(value, Enum):
            return _pack("enum", self._known(type(value)), str(value.name), self._value(value.value, name))
        if isinstance(value, ModuleType):
            return _pack("module", value.__name__, self._pin(value.__name__))
        if type(value) in _CONTAINERS:
            return self._contents(value, name)
        return self._callable(value) or self._unseen(value, name)

    def _contents(self, value: Any, name: str) -> bytes:
        if id(value) in self._open:
            return _pack("cycle")
        if len(self._open) >= _MAX_NESTING:
            return self._unseen(value, name)
        self._open.add(id(value))
        try:
            if type(value) is dict:
                parts = sorted(self._value(key, name) + self._value(part, name) for key, part in value.items())
            else:
                parts = [self._value(part, name) for part in value]
            return _pack(type(value).__name__, *(sorted(parts) if isinstance(value, set | frozenset) else parts))
        finally:
            self._open.discard(id(value))

    def _unseen(self, value: object, name: str) -> bytes:
        kind = type(value)
        module = "" if kind.__module__ in ("builtins", *_MAIN) else f"{kind.__module__}."
        self.uncertain.add(f"{name} of {self._user} ({module}{kind.__qualname__})")
        return _pack("other", self._known(kind))

    def _called(self, value: Any) -> bytes:
        """Describe what is called, state included: a callable object is the function."""
        known = self._callable(value)
        if known is not None:
            return known
        state = getattr(value, "__dict__", None)
        if not isinstance(state, dict):
            return self._value(value, type(value).__name__)
        return _pack("instance", self._known(type(value)), self._contents(state, _name(value)))

    def _callable(self, value: Any) -> bytes | None:
        """Describe classes, functions and what wraps them; None for everything else."""
        if isinstance(value, type | FunctionType):
            return self._known(value)
        if isinstance(value, MethodType):
            return _pack("method", self._called(value.__func__), self._called(value.__self__))
        if isinstance(value, partial):
            arguments = self._value(value.args, "an argument"), self._value(value.keywords, "an argument")
            return _pack("partial", self._called(value.func), *arguments)
        if isinstance(value, staticmethod | classmethod):
            return _pack(type(value).__name__, self._called(value.__func__))
        if isinstance(value, property):
            return _pack("property", *(self._value(part, "it") for part in (value.fget, value.fset, value.fdel)))
        if isinstance(value, cached_property):
            return _pack("cached_property", self._called(value.func))
        if not callable(value):
            return None
        if isinstance(value, _GETTERS):
            return _pack("getter", self._known(type(value)), self._value(value.__reduce__()[1], "it"))
        if isinstance(value, _DESCRIPTORS):
            return _pack("unbound", value.__name__, self._known(value.__objclass__))
        imported = self._imported(value)
        if imported is None and isinstance(value, BuiltinFunctionType | MethodWrapperType):
            return _pack("bound", value.__name__, self._value(value.__self__, value.__name__))
        if imported is None and isinstance(attribute(value, "__wrapped__"), FunctionType):
            kind = type(value)
            wrapper = self._known(kind) if kind.__module__ == "functools" else self._unseen(value, _name(value))
            return _pack("wrapped", wrapper, self._known(value.__wrapped__))
        return imported

    def _known(self, definition: FunctionType | type) -> bytes:
        imported = self._imported(definition)
        if imported is not None:
            return imported
        if id(definition) not in self._reached:
            self._reached[id(definition)] = definition
            self._waiting.append(definition)
        return self._by_name(definition)

    def _by_name(self, definition: FunctionType | type) -> bytes:
        shape = self._shape(definition) if isinstance(definition, FunctionType) else b""
        return _pack(type(definition).__name__, definition.__qualname__, shape)

    def _imported(self, value: Any) -> bytes | None:
        module = attribute(value, "__module__")
        name = attribute(value, "__qualname__") or attribute(value, "__name__")
        if not isinstance(module, str) or not isinstance(name, str) or module in _MAIN:
            return None
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = attribute(found, part)
        return _pack("import", module, name, self._pin(module)) if found is value else None

    def _pin(self, module: str) -> bytes:
        """Describe which version of a module this is."""
        top = module.partition(".")[0]
        release = "standard" if top in sys.stdlib_module_names else _release(top)
        if release is None:
            tree = self.sources.module(sys.modules.get(module))
            if tree is None:
                self.uncertain.add(f"module {module} (no version, no source)")
            return _pack("module", tree or "")
        return _pack("release", release)

    # --- code -----------------------------------------------------------------------------------

    def _shape(self, function: FunctionType) -> bytes:
        code = function.__code__
        if code not in self._shapes:
            definition = self.sources.definition(code, function.__globals__)
            self._shapes[code] = _pack("tree", definition.tree) if definition else self._bytecode(code)
        return self._shapes[code]

    def _bytecode(self, code: CodeType) -> bytes:
        names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        constants = [
            self._bytecode(part) if isinstance(part, CodeType) else self._value(part, "a constant")
            for part in code.co_consts
        ]
        return _pack("code", code.co_code, code.co_exceptiontable, repr(names), repr(counts), *constants)


# --- without a walk -------------------------------------------------------------------------


def _pack(tag: str, *parts: bytes | str) -> bytes:
    digest = blake2b(tag.encode(), digest_size=16)
    for part in parts:
        encoded = part if isinstance(part, bytes) else kept(part)
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.digest()


def _plain(value: Any) -> bytes | None:
    kind = type(value)
    if kind in _BY_REPR:
        return _pack(kind.__name__, repr(value))
    if kind is int:
        return _pack("int", format(value, "x"))
    if kind is str:
        return _pack("str", value)
    if kind in (bytes, bytearray):
        return _pack(kind.__name__, bytes(value))
    if isinstance(value, PurePath):
        return _pack("path", kind.__name__, str(value))
    if isinstance(value, re.Pattern):
        return _pack("pattern", repr(value.flags), value.pattern)
    return None


def _name(value: Any) -> str:
    name = attribute(value, "__name__")
    return name if isinstance(name, str) else type(value).__name__


@cache
def _release(module: str) -> str | None:
    for name in (module, *_distributions().get(module, ())):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())
