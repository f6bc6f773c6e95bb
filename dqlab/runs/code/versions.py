"""Computes code versions: a fingerprint of what a function does, the same in every process.

Two functions have the same version if their syntax trees are equal, and so are the trees of the functions and classes
of ``__main__`` and of local modules that they name, the values that they read, and the versions of the packages that
they import. File names, lines, comments and the order of dictionaries do not count. A hash of the pickle would not do:
its bytes differ between processes.

Every definition that is reached is described by itself and refers to others by name; the sorted descriptions are
hashed. So neither cycles nor the order of the walk matter. Values are described by the state that they would pickle,
part by part, so that identity and the order of a set do not count. `dask.tokenize` would not do: a matrix and its
transpose, and two slices of an Arrow array, have one token.
"""

from __future__ import annotations

import builtins
import copyreg
import dataclasses
import pickle
import re
import sys
import typing
from abc import ABCMeta, _get_dump  # type: ignore[attr-defined]
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum, EnumMeta
from fractions import Fraction
from functools import cache, cached_property
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import PurePath
from types import (
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any
from uuid import UUID

from dqlab.cluster.transport.local_modules import Reached, imported_files, is_local, lazy_imports, package_of
from dqlab.cluster.transport.sealed import SealError, captured, dispatches, global_names, seal_value
from dqlab.imports import loaded
from dqlab.notebook import running_cell
from dqlab.runs.code.source import (
    Definition,
    Sources,
    attribute,
    cell_number,
    compiled,
    hint_text,
    innermost,
    names_of,
    qualname,
    type_text,
    written,
)
from dqlab.texts import kept

__all__ = [
    "CodeVersion",
    "Redefined",
    "can_run_here",
    "code_version",
    "exact_version",
    "fingerprint",
    "same_scheme",
    "version_and_values",
]

_MAIN = ("__main__", "__mp_main__")
_SCHEME = "2"
"""How versions are computed. Change it whenever equal functions would get other hashes than before."""
_MAX_NESTING = 100
_MOST_PARTS = 100_000
"""Parts of values that are described one by one, at most; that takes a second or two."""
_MOST_DEFINITIONS = 10_000
"""Functions and classes that are described, at most; that takes as long."""
_MANY = 64
"""Number of plain values from which on they are described all at once."""
_KEPT_PARTS = 100
"""Parts of a version that are kept by name, at most, to report which of them changed."""
_BY_REPR = (bool, float, complex, range, Decimal, Fraction, date, timedelta, UUID, type(None), type(...))
_OWN_ATTRIBUTES = frozenset({"__wrapped__", "__cell_lines__"})
"""Attributes of functions that only name their origin."""
_OF_MEMBERS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})
_OF_WRAPPERS = _OWN_ATTRIBUTES | {
    *("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__", "__dict__"),
    *("cache_parameters", "func", "attrname", "lock", "_attrname", "__isabstractmethod__"),
}
"""Attributes that Python's own wrappers set."""
_BY_NAME = {
    getattr(typing, name)
    for name in ("TypeVar", "ParamSpec", "TypeVarTuple", "NewType", "TypeAliasType")
    if hasattr(typing, name)
}
_OF_TYPE_VARIABLES = (
    *("__bound__", "__constraints__", "__covariant__", "__contravariant__", "__infer_variance__"),
    *("__supertype__", "__value__"),
)
_WORD = re.compile(r"[^\W\d]\w*")
_CONTAINERS = (tuple, list, dict, set, frozenset)
_FLAT = frozenset({str, bytes, int, float, bool, type(None)})
_SORTED = frozenset({str, bytes, int})
_PICKLED = _FLAT | {complex, type(...), list, dict, tuple, bytearray}
"""Types that a pickle holds as they are."""
_PLACE = frozenset({"__builtins__", "__file__", "__loader__", "__name__", "__spec__"})
"""Globals that locate code and do not change what it does."""


@dataclass(frozen=True, slots=True)
class CodeVersion:
    """Fingerprint of what a function does."""

    name: str
    hash: str
    """The scheme, "-" and 32 hex digits; functions with equal hashes do the same, as far as dqlab can detect."""
    short: str
    """The first six digits, for people."""
    source: str | None = None
    """The function's text, with decorators; None if it has no source."""
    cell: int | None = None
    """Number of the notebook cell that defined it."""
    uncertain: tuple[str, ...] = ()
    """Values that count only by their type, such as "model of score (_thread.lock)"."""
    parts: dict[str, str] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    """Eight hex digits for each function, class and value that the version depends on, by name."""

    def explain(self) -> str:
        """Describe what the version depends on."""
        where = f" from cell {self.cell}" if self.cell is not None else ""
        text = f"{self.name}{where}, version {self.short}: its code and every value it reads count"
        if self.uncertain:
            text += f"; of these only the type: {', '.join(self.uncertain)}"
        return f"{text}."

    def changed_since(self, earlier: dict[str, str]) -> list[str]:
        """Return the names of the parts that differ from another version's, or [] if that has no parts."""
        if not earlier:
            return []
        names = sorted(self.parts.keys() | earlier.keys())
        return [name for name in names if self.parts.get(name) != earlier.get(name)]


def code_version(function: Callable[..., Any]) -> CodeVersion:
    """Return the version of a function or any other callable."""
    # Functions of __main__ count by their syntax, other imported ones by module, name and version of their
    # distribution. Functions of local modules, and those without source, count by their bytecode: that is what is
    # loaded, even if the file has changed since. Bytecode differs between versions of Python.
    return version_and_values(function)[0]


def same_scheme(one: str, other: str) -> bool:
    """Return whether two hashes of code versions can be compared; those of earlier releases have another scheme."""
    return one.rpartition("-")[0] == other.rpartition("-")[0]


def version_and_values(function: Callable[..., Any]) -> tuple[CodeVersion, list[tuple[str, Any]]]:
    """Return a function's version, and by name the globals, captured values and defaults that it reads."""
    inner = innermost(function)
    walk = _Walk(inner)  # `walk.held`: also what the functions that it reaches read
    digest = walk.version(function)
    body = inner if attribute(inner, "__code__") else attribute(type(inner), "__call__")
    code = attribute(body, "__code__")
    definition = walk.sources.definition(code, attribute(body, "__globals__")) if isinstance(code, CodeType) else None
    version = CodeVersion(
        name=_name(inner),
        hash=f"{_SCHEME}-{digest.hex()}",
        short=digest.hex()[:6],
        source=definition.text if definition else None,
        cell=cell_number(code) if isinstance(code, CodeType) else None,
        uncertain=tuple(sorted(walk.uncertain)),
        parts=dict(sorted(walk.parts.items())[:_KEPT_PARTS]),
    )
    return version, walk.held


def exact_version(function: Callable[..., Any]) -> str | None:
    """Return a name for a function and the exact bytes of all it reads, or None if they cannot be determined."""
    # For caches that outlive a run. A code version does not suffice: it ignores the order of dictionaries and parts of
    # large values, and the results may differ.
    walk = _Walk(innermost(function), exact=True)
    digest = walk.version(function)
    return digest.hex() if walk.whole else None


def fingerprint(values: list[Any]) -> Reached:
    """Return the exact version of some functions, classes and modules, and what they depend on."""
    walk = _Walk(values, exact=True, files=False)  # the caller compares files itself, each time
    digest = walk.version_of(values)
    return Reached(digest if walk.whole else None, walk.imports)


def can_run_here(name: str) -> bool:
    """Return whether the notebook has a function of that name and all that it calls."""
    # A new kernel has neither until its cells are run.
    function = innermost(getattr(sys.modules.get("__main__"), name, None))
    if type(function) is not FunctionType:
        return callable(function)
    known = function.__globals__
    if known is not vars(sys.modules["__main__"]):
        return True
    return all(each in known or hasattr(builtins, each) for each in global_names(function.__code__))


class Redefined:
    """Finds the function that the notebook now has under a name, if its code is not the run's newest."""

    def __init__(self) -> None:
        # A version is computed once per definition and cell that was run: a view looks every second, and reading a
        # large value takes longer.
        self._looked: tuple[int, int | None, str] | None = None
        self._function: object = None
        """Kept alive, so that no other function gets its id."""
        self._found: Callable[..., Any] | None = None

    def newer(self, name: str, short: str) -> Callable[..., Any] | None:
        """Return the function if its version does not start with `short`, else None."""
        function = getattr(sys.modules.get("__main__"), name, None) if name.isidentifier() else None
        looked = id(function), running_cell(), short
        if looked != self._looked:
            self._looked, self._function, self._found = looked, function, _if_other(function, short)
        return self._found


def _if_other(function: Any, short: str) -> Callable[..., Any] | None:
    if not short or not callable(function) or isinstance(function, type):
        return None
    with suppress(Exception):  # values that it reads run their own code, which may raise anything
        return function if code_version(function).short != short else None
    return None


class _Walk:
    """Describes a function and everything that it reaches in ``__main__`` and in local modules."""

    def __init__(self, root: Any, *, exact: bool = False, files: bool = True) -> None:
        self.sources = Sources()
        self.uncertain: set[str] = set()
        self.parts: dict[str, str] = {}
        self.held: list[tuple[str, object]] = []
        """The values that functions read, by name."""
        self.imports: set[str] = set()
        """Local modules that functions import when they are called."""
        self.homes: dict[int, dict[str, Any]] = {}
        """Namespaces of the modules that define the functions, by identity."""
        self.whole = True
        """Whether no part of a value was left out."""
        self._exact = exact
        """Whether to distinguish also values that a version treats as equal, by their pickles."""
        self._files = files
        """Whether to include the files of modules that functions import when they are called."""
        self._pickler: _Exact | None = None
        self._user = _name(root)
        self._waiting: list[FunctionType | type | ModuleType] = []
        self._reached: dict[int, tuple[int, FunctionType | type | ModuleType]] = {}
        """Definitions by identity, with their numbers; they are kept alive too."""
        self._open: dict[int, int] = {}
        """Depth of each value whose description is under way, by identity."""
        self._described: dict[int, tuple[object, bytes]] = {}
        """Descriptions by identity, for one walk only, since values change in place. Values are kept alive, so that no
        identity is reused."""
        self._back = 0
        """Depth of the outermost open value that the current one refers back to."""
        self._count = 0
        """Values described so far."""
        self._shapes: dict[CodeType, bytes] = {}

    def version(self, function: Callable[..., Any]) -> bytes:
        """Return the digest of a callable."""
        return self._all(self._called(function))

    def version_of(self, values: list[Any]) -> bytes:
        """Return the digest of several definitions together."""
        return self._all(_pack("them", *self._each(values, "them")))

    def _all(self, root: bytes) -> bytes:
        parts: list[bytes] = []
        while self._waiting:
            definition = self._waiting.pop()
            self._user = _name(definition)
            if len(parts) == _MOST_DEFINITIONS:
                self.whole = False
                self.uncertain.add(f"what {self._user} and others use ({_MOST_DEFINITIONS:,} functions were compared)")
                break
            try:
                parts.append(self._defined(definition))
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - as in `_value`: a metaclass may raise anything
                self.whole = False
                self.uncertain.add(f"{self._user} ({type_text(type(definition))})")
                parts.append(_pack("unknown", self._user))
        self._pickler = None  # breaks the cycle with this walk, which would keep both and their values
        return _pack("version", root, *self._sorted(parts))

    def _defined(self, definition: Any) -> bytes:
        if _is(definition, ModuleType):
            return self._module(definition)
        if _is(definition, type):
            digest = self._class(definition)
            self._keep(f"class {self._user}", digest)
            return digest
        digest = self._function(definition)
        self._keep(f"code of {self._user}", self._by_name(definition))
        return digest

    def _sorted(self, parts: list[bytes]) -> list[bytes]:
        """Return parts sorted, or as they are where their order counts."""
        return parts if self._exact else sorted(parts)

    def _keep(self, what: str, digest: bytes) -> None:
        self.parts[what] = digest.hex()[:8]

    # --- definitions: each once, in full --------------------------------------------------------

    def _function(self, function: FunctionType) -> bytes:
        parts = [self._by_name(function)]
        own = {name: value for name, value in vars(function).items() if name not in _OWN_ATTRIBUTES}
        for what, value in (("a default", function.__defaults__), ("a default by keyword", function.__kwdefaults__)):
            parts.append(self._read(what, value) if value is not None else b"")
        parts.append(self._read("an attribute", own) if own else b"")
        for name, value in sorted(captured(function).items()):
            parts.append(_pack("cell", name, self._read(name, value)))
        home = function.__globals__.get("__name__")
        module = sys.modules.get(home) if isinstance(home, str) and home not in _MAIN else None
        if module is not None and vars(module) is function.__globals__ and not is_local(module):
            # The body of an imported decorator: the version of its module covers what it reads.
            parts.append(_pack("home", module.__name__, self._pin(module.__name__)))
        else:
            self.homes[id(function.__globals__)] = function.__globals__
            parts += self._about_itself(function)
            parts += self._globals(function)
            parts += [_pack("imports", name, tree) for name, tree in self._lazy(function)]
        return _pack("def", *parts)

    def _about_itself(self, function: FunctionType) -> Iterator[bytes]:
        """Describe a function's own attributes where its syntax or bytecode does not contain them."""
        code, wrapped = function.__code__, function.__dict__.get("__wrapped__")
        doc = code.co_consts[0] if code.co_consts and type(code.co_consts[0]) is str else None
        if function.__doc__ != doc and function.__doc__ != attribute(wrapped, "__doc__"):
            yield _pack("doc", self._value(function.__doc__, "a docstring"))
        if function.__name__ != code.co_name and function.__name__ != function.__qualname__.rpartition(".")[2]:
            yield _pack("name", function.__name__)
        if type(wrapped) is FunctionType:
            self._known(wrapped)  # not yielded: its description is a part of its own
        elif wrapped is not None and all(wrapped is not value for value in captured(function).values()):
            yield _pack("wraps", self._value(wrapped, "__wrapped__"))
        hints = function.__annotations__
        if hints and hints is not attribute(wrapped, "__annotations__"):
            written = self._definition(code, function.__globals__) is not None  # then its syntax contains them
            for name, hint in hints.items() if self._exact else sorted(hints.items()):
                yield from [] if written else [_pack("annotation", str(name), hint_text(hint))]
                yield from self._hinted(hint, function.__globals__)

    def _globals(self, function: FunctionType) -> Iterator[bytes]:
        for name in global_names(function.__code__):
            if name in _PLACE:
                continue
            if name in function.__globals__:
                yield _pack("global", name, self._read(name, function.__globals__[name]))
            else:
                yield _pack("builtin" if hasattr(builtins, name) else "missing", name)

    def _read(self, name: str, value: object) -> bytes:
        """Describe a value that a function reads by name, and keep its digest under that name."""
        digest = self._value(value, name)
        self.held.append((f"{name} of {self._user}", value))
        if not _is(value, FunctionType | type | ModuleType):  # `_defined` keeps these
            self._keep(f"{name} of {self._user}", digest)
        return digest

    def _lazy(self, function: FunctionType) -> Iterator[tuple[str, str]]:
        """Yield local modules that a function imports when it is called, with the current content of their files."""
        names = lazy_imports(function.__code__, package_of(function.__globals__))
        self.imports |= names
        for name, file in sorted(imported_files(names).items()) if self._files else ():
            tree = self.sources.file(file)
            if tree is not None:
                self._keep(f"module {name}", _pack("module", tree))
                yield name, tree

    def _module(self, module: ModuleType) -> bytes:
        """Describe all that a local module holds now, with attributes that were set after its import."""
        self.homes[id(vars(module))] = vars(module)
        held = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        parts = [_pack("holds", name, self._value(value, name)) for name, value in sorted(held.items())]
        digest = _pack("local module", module.__name__, *parts)
        self._keep(f"module {module.__name__}", digest)
        return digest

    def _class(self, kind: type) -> bytes:
        own = written(kind)
        parts = [self._by_name(kind), self._known(type(kind)), *map(self._known, kind.__bases__)]
        parts += [_pack("is", name, self._value(own[name], name)) for name in (own if self._exact else sorted(own))]
        annotations = names_of(kind).get("__annotations__", {})
        parts += [_pack("annotation", name, hint_text(hint)) for name, hint in sorted(annotations.items())]
        names = self._names_around(kind)
        parts += [each for _, hint in sorted(annotations.items()) for each in self._hinted(hint, names)]
        if issubclass(type(kind), ABCMeta):
            registered = [each() for each in _get_dump(kind)[0]]
            parts += sorted(_pack("registered", self._known(each)) for each in registered if each is not None)
        if isinstance(kind, EnumMeta):
            members: list[Enum] = list(kind.__members__.values())
            parts += [_pack("member", member.name, self._value(member.value, member.name)) for member in members]
            for member in members:
                own = {name: value for name, value in vars(member).items() if name not in _OF_MEMBERS}
                parts += [_pack("of member", member.name, self._value(own, member.name))] if own else []
        if "__dataclass_fields__" in names_of(kind):
            parts.append(_pack("dataclass", repr(names_of(kind)["__dataclass_params__"])))
            parts += [self._field(field) for field in dataclasses.fields(kind)]
        return _pack("class", *parts)

    def _names_around(self, kind: type) -> Mapping[str, Any]:
        """Return the globals of the module that a class is defined in."""
        homes = (home for home in self.homes.values() if home.get("__name__") == kind.__module__)
        return next(homes, None) or attribute(sys.modules.get(kind.__module__), "__dict__") or {}

    def _field(self, field: dataclasses.Field[Any]) -> bytes:
        flags = repr((field.init, field.repr, field.hash, field.compare, field.kw_only))
        values = [
            b"" if value is dataclasses.MISSING else self._value(value, field.name)
            for value in (field.default, field.default_factory)
        ]
        values += [self._value(dict(field.metadata), field.name)] if field.metadata else []
        return _pack("field", field.name, hint_text(field.type), flags, *values)

    def _hinted(self, hint: Any, names: Mapping[str, Any]) -> Iterator[bytes]:
        """Describe the user's classes and the metadata in an annotation, which its text does not contain."""
        # `names` are the globals that an annotation in quotes refers to. It is not evaluated: that may fail, and runs
        # users' code.
        waiting, seen = [hint], set[int]()
        while waiting and len(seen) < _MANY:
            each = waiting.pop()
            if id(each) in seen or each is None:
                continue
            seen.add(id(each))
            if type(each) is str:
                waiting += [
                    names[word] for word in sorted(set(_WORD.findall(each))) if isinstance(names.get(word), type)
                ]
            elif _is(each, type) and type(each) is not GenericAlias:
                if self._imported(each) is None and not compiled(each):
                    yield _pack("hint", self._known(each))
            elif type(each) in _BY_NAME:
                yield self._by_attributes(each, "an annotation")
            else:
                arguments = attribute(each, "__args__")
                waiting += list(arguments) if type(arguments) is tuple else []
                metadata = attribute(each, "__metadata__")
                if type(metadata) is tuple:
                    yield self._value(metadata, "an annotation")

    def _by_attributes(self, value: Any, name: str) -> bytes:
        """Describe by all its attributes what pickle takes by name alone, such as a type variable."""
        held = [(each, part) for each in _OF_TYPE_VARIABLES if (part := attribute(value, each))]
        parts = [_pack(each, self._value(part, name)) for each, part in held]
        return _pack("object", self._known(type(value)), _name(value), *parts)

    # --- references: by name, or by content -------------------------------------------------------

    def _value(self, value: Any, name: str) -> bytes:
        try:
            plain = _plain(value)
            if plain is not None:
                return plain
            if type(value) in _CONTAINERS:
                return self._once(value, name, self.contents)
            return self.named(value, name) or self._once(value, name, self._object)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - to look at a value runs its own code, which may raise anything
            self.whole = False
            return self._unseen(value, name)

    def named(self, value: Any, name: str) -> bytes | None:
        """Describe definitions, their wrappers and members of enums, and return None for anything else."""
        if type(value) in _BY_NAME and self._imported(value) is None:
            return self._by_attributes(value, name)
        if _is(value, Enum):
            return _pack("enum", self._known(type(value)), str(value.name), self._value(value.value, name))
        if _is(value, ModuleType):
            return self._known(value) if is_local(value) else _pack("module", value.__name__, self._pin(value.__name__))
        return self._bytecode(value) if _is(value, CodeType) else self._callable(value)

    def _once(self, value: Any, name: str, describe: Callable[[Any, str], bytes]) -> bytes:
        """Describe a value with parts once, and a value inside itself by how many levels up it is."""
        if self._exact:
            digest = self._pickled(value)
            if digest is not None:
                return digest
        identity, depth = id(value), len(self._open)
        if identity in self._described:
            return self._described[identity][1]
        if identity in self._open:
            self._back = min(self._back, self._open[identity])
            return _pack("cycle", str(depth - self._open[identity]))
        self._count += 1
        if depth >= _MAX_NESTING or self._count > _MOST_PARTS:
            self._back = -1  # not remembered: less deep inside, the value may be described in full
            self.whole = False
            return self._unseen(value, name)
        self._open[identity] = depth
        outer, self._back = self._back, depth
        try:
            digest = describe(value, name)
        finally:
            del self._open[identity]
        if self._back >= depth:  # refers to nothing around it, so its description is valid anywhere
            self._described[identity] = value, digest
        self._back = min(outer, self._back)
        return digest

    def _pickled(self, value: Any) -> bytes | None:
        """Describe a value by its pickle, or return None if it has none."""
        # One pickler for the walk: its memo distinguishes parts that are the same object from equal ones. The parts of
        # a set get their own (`_pickler` is None meanwhile), since the order of a set does not count.
        pickler, self._pickler = self._pickler or _Exact(self), None
        try:
            digest = pickler.digest(value)
        except Exception:  # noqa: BLE001 - pickling runs the value's own code, which may raise anything
            return None  # the failed pickler has half a value in its memo, so the next value gets a new one
        self._pickler = pickler
        return digest

    def contents(self, value: Any, name: str) -> bytes:
        """Describe a container by its parts."""
        kind = type(value).__name__
        if type(value) is dict:
            if len(value) > _MANY and not self._exact and all(type(key) is str for key in value):
                items = sorted(value.items())
                many = _flat(part for _, part in items)
                if many is not None:
                    return _pack(kind, _flat(key for key, _ in items) or b"", many)
            return _pack(kind, *self._sorted([_pack("", *self._each(pair, name)) for pair in value.items()]))
        unordered = _is(value, set | frozenset)
        many = _flat(value, ordered=not unordered) if len(value) > _MANY else None
        if many is not None:
            return _pack(kind, many)
        parts = list(self._each(value, name))
        return _pack(kind, *(sorted(parts) if unordered else parts))

    def _each(self, values: Any, name: str) -> Iterator[bytes]:
        return (self._value(value, name) for value in values)

    def _object(self, value: Any, name: str) -> bytes:
        """Describe an object by its content, or by the state that it would pickle."""
        kind = type(value)
        try:
            if _is_live(kind):
                return self._unseen(value, name)
            if _is(value, memoryview):
                return _pack("view", value.format, str(value.shape), value.tobytes())
            tensor = attribute(sys.modules.get("torch"), "Tensor")
            if isinstance(tensor, type) and _is(value, tensor):
                return self._tensor(value)
            if _is(value, MappingProxyType):
                return _pack("proxy", self._value(dict(value), name))
            if _is(value, set | frozenset):  # its pickle has the order of hashes, which differs between processes
                return _pack("set", self._known(kind), *sorted(self._each(value, name)), self._state(value, name))
            token = getattr(kind, "__dask_tokenize__", None)  # the object's own description of its content
            if token is not None and not self._exact:
                return _pack("token", self._known(kind), self._value(token(value), name))
            return self._reduced(value, name)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - runs the object's own code, which may raise anything
            return self._unseen(value, name)

    def _tensor(self, value: Any) -> bytes:
        """Describe what PyTorch pickles with addresses in memory."""
        # As bytes, since NumPy lacks types such as bfloat16; flat first, since a scalar has no view as bytes.
        torch = loaded("torch")
        data = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
        head = f"{value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad}"
        return _pack("tensor", self._known(type(value)), head, data.tobytes())

    def _state(self, value: Any, name: str) -> bytes:
        state = getattr(value, "__dict__", None)
        return self._value(state, name) if state else b""

    def _reduced(self, value: Any, name: str) -> bytes:
        kind = type(value)
        reducer = copyreg.dispatch_table.get(kind)
        reduced: Any = reducer(value) if reducer is not None else value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return _pack("object", self._known(kind), reduced)
        given: list[Any] = [*reduced, None, None, None]
        made, arguments, state, items, entries = given[:5]
        pairs = [_pack("", *self._each(pair, name)) for pair in entries or ()]
        return _pack(
            "object",
            self._known(kind),
            self._value(made, name),
            self._value(arguments, name),
            self._value(state, name),
            _pack("items", *self._each(items or (), name)),
            _pack("entries", *(pairs if _is(value, OrderedDict) else sorted(pairs))),
        )

    def _unseen(self, value: object, name: str) -> bytes:
        kind = type(value)
        self.uncertain.add(f"{name} of {self._user} ({type_text(kind)})")
        if self._exact and self.whole:
            with suppress(SealError):  # an object that cannot be sent counts by its type
                return _pack("sealed", self._known(kind), seal_value(value))
        return _pack("other", self._known(kind))

    def _called(self, value: Any) -> bytes:
        """Describe a callable with its state."""
        # A callable object is the function, so its state is a part of the version.
        known = self._callable(value)
        if known is not None:
            return known
        return self._value(value, type(value).__name__)

    def _callable(self, value: Any) -> bytes | None:
        """Describe classes, functions and their wrappers, and return None for anything else."""
        if dispatches(value) and self._imported(value) is None:  # it also captured a cache, which calls change
            return _pack("dispatch", self._value(dict(value.registry), _name(value)))
        if _is(value, type | FunctionType):
            return self._known(value)
        if _is(value, MethodType):
            return _pack("method", self._called(value.__func__), self._called(value.__self__))
        if _is(value, staticmethod | classmethod):
            base = staticmethod if _is(value, staticmethod) else classmethod
            return _pack(type(value).__name__, self._called(value.__func__), *self._more(value, base))
        if _is(value, property):
            parts = [self._value(part, "it") for part in (value.fget, value.fset, value.fdel)]
            if value.__doc__ != attribute(value.fget, "__doc__"):
                parts.append(_pack("doc", self._value(value.__doc__, "a docstring")))
            return _pack("property", *parts, *self._more(value, property))
        if _is(value, cached_property):
            return _pack("cached_property", self._called(value.func), *self._more(value, cached_property))
        if not callable(value):
            return None
        imported = self._imported(value)
        if imported is None and type(attribute(value, "__wrapped__")) is FunctionType:
            kind = type(value)
            own = kind.__module__ == "functools"
            wrapper = self._known(kind) if own else self._once(value, _name(value), self._object)
            more = self._more(value, kind) if own else ()
            return _pack("wrapped", wrapper, self._known(value.__wrapped__), *more)
        return imported

    def _more(self, value: Any, base: type) -> Iterator[bytes]:
        """Describe a user's subclass of a Python wrapper, and attributes that were added to it."""
        if type(value) is not base:
            yield _pack("kind", self._known(type(value)))
        own = {name: part for name, part in (attribute(value, "__dict__") or {}).items() if name not in _OF_WRAPPERS}
        if own:
            yield _pack("more", self._value(own, "an attribute"))

    def _known(self, definition: Any) -> bytes:
        imported = self._imported(definition)
        if imported is not None:
            return imported
        if _is(definition, type) and compiled(definition):
            return _pack("compiled", type_text(definition), self._pin(definition.__module__))
        if id(definition) not in self._reached:
            self._reached[id(definition)] = len(self._reached), definition
            self._waiting.append(definition)
        name = self._by_name(definition)
        # Two definitions may have one name: the exact version tells them apart by the order of the walk.
        return _pack("one", name, str(self._reached[id(definition)][0])) if self._exact else name

    def _by_name(self, definition: Any) -> bytes:
        if _is(definition, ModuleType):
            return _pack("local module", _name(definition))
        if _is(definition, type):
            return _pack(type(definition).__name__, qualname(definition), b"")
        return _pack("function", definition.__qualname__, self._shape(definition))

    def _imported(self, value: Any) -> bytes | None:
        module = attribute(value, "__module__")
        names = (attribute(value, "__qualname__"), attribute(value, "__name__"))
        name = next((name for name in names if isinstance(name, str) and name), None)  # a proxy may return any type
        if not isinstance(module, str) or name is None or module in _MAIN:
            return None
        found: Any = sys.modules.get(module)
        if found is None or is_local(found):
            return None
        found = loaded(module)
        for part in name.split("."):
            found = attribute(found, part)
        # Only if the name still holds this object: a patched function is not the one of the release.
        return _pack("import", module, name, self._pin(module)) if found is value else None

    def _pin(self, module: str) -> bytes:
        """Describe the version of a module."""
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
            definition = self._definition(code, function.__globals__)
            self._shapes[code] = _pack("tree", definition.tree) if definition else self._bytecode(code)
        return self._shapes[code]

    def _definition(self, code: CodeType, names: dict[str, Any]) -> Definition | None:
        """Return a function's syntax, or None if its bytecode counts, as in local modules."""
        home = sys.modules.get(names.get("__name__", ""))
        local = home is not None and home.__name__ not in _MAIN and is_local(home)
        return None if local else self.sources.definition(code, names)

    def _bytecode(self, code: CodeType) -> bytes:
        names = (code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        constants = [
            self._bytecode(part) if isinstance(part, CodeType) else self._value(part, "a constant")
            for part in code.co_consts
        ]
        return _pack("code", code.co_code, code.co_exceptiontable, repr(names), repr(counts), *constants)


class _Exact(pickle.Pickler):
    """Describes values by their pickle, and definitions and sets by a walk."""

    def __init__(self, walk: _Walk) -> None:
        self._bytes, self._walk = _Bytes(), walk
        super().__init__(self._bytes, 5, buffer_callback=self._bytes.take)

    def digest(self, value: object) -> bytes:
        """Return the digest of a value, in which parts of earlier values are references."""
        self._bytes.hash = blake2b(digest_size=16)
        self.dump(value)
        return self._bytes.hash.digest()

    def persistent_id(self, value: Any) -> bytes | None:
        """Return the description of a value that is not pickled, or None."""
        kind = type(value)
        if kind in _PICKLED:
            return None
        if kind is set or kind is frozenset:
            return self._walk.contents(value, kind.__name__)
        return self._walk.named(value, kind.__name__)


class _Bytes:
    """A file that hashes what a pickler writes."""

    def __init__(self) -> None:
        self.hash = blake2b(digest_size=16)

    def write(self, data: Any) -> None:
        self.hash.update(data)

    def take(self, buffer: pickle.PickleBuffer) -> None:
        self.hash.update(buffer.raw())


# --- without a walk -------------------------------------------------------------------------


def _flat(items: Iterable[object], *, ordered: bool = True) -> bytes | None:
    """Return the digest of many plain values at once, or None if one of them is not plain."""
    # Without `ordered`, the values must have one sortable type: sorting makes the digest independent of set order.
    values = list(items)
    kinds = set(map(type, values))
    if not kinds <= _FLAT or not (ordered or (len(kinds) <= 1 and kinds <= _SORTED)):
        return None
    digest = _Bytes()
    pickler = pickle.Pickler(digest, 5)
    pickler.fast = True  # no memo: equal texts give the same bytes, as one object or as two
    pickler.dump(values if ordered else sorted(values))
    return digest.hash.digest()


def _pack(tag: str, *parts: bytes | bytearray | str) -> bytes:
    digest = blake2b(tag.encode(), digest_size=16)
    for part in parts:
        encoded = kept(part) if isinstance(part, str) else part
        # The length first: "ab" + "c" must differ from "a" + "bc".
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
        return _pack(kind.__name__, value)
    if isinstance(value, PurePath):
        return _pack("path", kind.__name__, str(value))
    if isinstance(value, re.Pattern):
        return _pack("pattern", repr(value.flags), value.pattern)
    return None


def _is(value: object, kind: Any) -> bool:
    """Return whether a value is of a class by its real type."""
    # `isinstance` believes the value's own `__class__`, which a proxy sets as it likes.
    return issubclass(type(value), kind)


def _name(value: Any) -> str:
    name = attribute(value, "__name__")
    return name if type(name) is str else qualname(type(value)).rpartition(".")[2]


_LIVE = frozenset(
    {
        "asyncio.events.AbstractEventLoop",
        "concurrent.futures._base.Executor",
        "distributed.client.Client",
        "distributed.core.Server",
        "distributed.deploy.cluster.Cluster",
        "socket.socket",
        "threading.Thread",
    }
)
"""Classes whose objects refer to all that runs in this process."""


def _is_live(kind: type) -> bool:
    return any(
        f"{attribute(base, '__module__')}.{qualname(base)}" in _LIVE for base in type.__dict__["__mro__"].__get__(kind)
    )


@cache
def _release(module: str) -> str | None:
    for name in (module, *_distributions().get(module, ())):
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return None


@cache  # reads the metadata of every installed package
def _distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())
