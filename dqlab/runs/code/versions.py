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
import re
import sys
from abc import ABCMeta, _get_dump  # type: ignore[attr-defined]
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, EnumMeta
from functools import cache, cached_property, lru_cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from types import (
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any

from dqlab.cluster.transport.local_modules import Reached, is_local, lazy_digests, lazy_imports, package_of
from dqlab.cluster.transport.sealed import SealError, captured, dispatches, global_names, seal_value
from dqlab.errors import users_code
from dqlab.imports import loaded
from dqlab.notebook import running_cell
from dqlab.plan import GIVEN, called, is_model
from dqlab.runs.code.source import (
    Definition,
    Sources,
    attribute,
    cell_number,
    compiled,
    innermost,
    qualname,
    type_text,
    written,
)
from dqlab.texts import kept

_MAIN = ("__main__", "__mp_main__")
_SCHEME = "3"
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
_BY_REPR = (bool, float, complex, type(None), type(...))
_OWN_ATTRIBUTES = frozenset({"__wrapped__", "__cell_lines__"})
"""Attributes of functions that only name their origin."""
_OF_WRAPPERS = _OWN_ATTRIBUTES | {
    *("__module__", "__name__", "__qualname__", "__doc__", "__annotations__", "__type_params__", "__dict__"),
    *("cache_parameters", "func", "attrname", "lock", "_attrname", "__isabstractmethod__"),
}
"""Attributes that Python's own wrappers set, and that `_WRAPPED` or the wrapped function have too."""
_WRAPPERS = (staticmethod, classmethod, property, cached_property, type(lru_cache(len)))
_WRAPPED = ("fget", "fset", "fdel", "__func__", "__wrapped__", "func", "__doc__")
_STANDS_FOR = ("__bound__", "__constraints__", "__covariant__", "__contravariant__", "__supertype__", "__value__")
"""What a name of a type, such as a type variable, stands for; its pickle holds nothing but the name."""
_WORD = re.compile(r"[^\W\d]\w*")
_CONTAINERS = (tuple, list, dict, set, frozenset)
_FLAT = frozenset({str, bytes, int, float, bool, type(None)})
_SORTED = frozenset({str, bytes, int})
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

    returns: dict[str, Any] | None = dataclasses.field(default=None, compare=False, repr=False)
    """The class of its results, as `CodeRecord` has it."""

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

    def with_given(self, given: Mapping[str, str]) -> CodeVersion:
        """Return the version of the function with objects that travel along, by their digests."""
        if not given:
            return self
        digest = blake2b(repr((self.hash, sorted(given.items()))).encode(), digest_size=16).hexdigest()
        parts = self.parts | dict(given)
        return dataclasses.replace(self, hash=f"{_SCHEME}-{digest}", short=digest[:6], parts=parts)


def digests(given: Mapping[str, Any]) -> dict[str, str]:
    """Return a digest of each object that travels along with a function, by name."""
    return {name: _Walk(value).version(value).hex()[:16] for name, value in given.items()}


def given_parts(parts: Mapping[str, str]) -> dict[str, str]:
    """Return the digests of the objects that travelled along, among the parts of a version."""
    return {name: parts[name] for name in GIVEN if name in parts}


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
    body = called(inner) if attribute(called(inner), "__code__") else attribute(type(inner), "__call__")
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
    digest = fingerprint([function], files=True).digest
    return None if digest is None else digest.hex()


def fingerprint(values: list[Any], *, files: bool = False) -> Reached:
    """Return the exact version of some functions, classes and modules, and what they depend on."""
    walk = _Walk(values, exact=True, files=files)  # by default the caller compares files itself, each time
    digest = walk.version(values)
    return Reached(digest if walk.whole else None, walk.imports)


class Redefined:
    """Finds the function that the notebook now has under a name, if its code is not the run's newest."""

    def __init__(self) -> None:
        # A version is computed once per definition and cell that was run: a view looks every second, and reading a
        # large value takes longer.
        self._looked: tuple[int, int | None, str] | None = None
        self._function: object = None
        """Kept alive, so that no other function gets its id."""
        self._found: Callable[..., Any] | None = None

    def newer(self, name: str, short: str, given: Callable[[], Mapping[str, str]] = dict) -> Callable[..., Any] | None:
        """Return the function if its version, with what is `given` along, does not start with `short`, else None."""
        function = getattr(sys.modules.get("__main__"), name, None) if name.isidentifier() else None
        looked = id(function), running_cell(), short
        if looked != self._looked:
            self._looked, self._function, self._found = looked, function, _if_other(function, short, given)
        return self._found


def _if_other(function: Any, short: str, given: Callable[[], Mapping[str, str]]) -> Callable[..., Any] | None:
    if not short or not callable(function) or (isinstance(function, type) and not is_model(function)):
        return None
    with suppress(Exception):  # values that it reads run their own code, which may raise anything
        return function if code_version(function).with_given(given()).short != short else None
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
        self.whole = True
        """Whether no part of a value was left out."""
        self._exact = exact
        """Whether to distinguish also values that a version treats as equal: by order, and by which parts are one."""
        self._files = files
        """Whether to include the files of modules that functions import when they are called."""
        self._user = _name(root)
        self._waiting: list[FunctionType | type | ModuleType] = []
        self._reached: dict[int, tuple[int, FunctionType | type | ModuleType]] = {}
        """Definitions by identity, with their numbers; they are kept alive too."""
        self._open: dict[int, int] = {}
        """Depth of each value whose description is under way, by identity."""
        self._described: dict[int, tuple[object, bytes]] = {}
        """Descriptions by identity, for one walk only, since values change in place. Values are kept alive, so that no
        identity is reused. In an exact walk the first is followed by references to it."""
        self._back = 0
        """Depth of the outermost open value that the current one refers back to."""
        self._count = 0
        """Values described so far."""
        self._shapes: dict[CodeType, bytes] = {}
        self._homes: dict[str, dict[str, Any]] = {}
        """Globals of the modules that define the functions, by name: those that annotations in quotes refer to."""

    def version(self, value: Any) -> bytes:
        """Return the digest of a callable, or of several definitions together."""
        root, parts = self._called(value), list[bytes]()
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
            self._homes[str(home)] = function.__globals__
            # Attributes that may have been set since: its syntax or bytecode has only what was written.
            parts += [_pack("name", function.__name__), self._value(function.__doc__, "a docstring")]
            parts.append(self._value(function.__dict__.get("__wrapped__"), "__wrapped__"))
            parts.append(self._hints(attribute(function, "__annotations__"), function.__globals__))
            parts += self._globals(function)
            parts += [_pack("imports", name, tree) for name, tree in self._lazy(function)]
        return _pack("def", *parts)

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
        for name, (digest, _) in sorted(lazy_digests(names).items()) if self._files else ():
            self._keep(f"module {name}", _pack("module", digest))
            yield name, digest

    def _module(self, module: ModuleType) -> bytes:
        """Describe all that a local module holds now, with attributes that were set after its import."""
        held = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        parts = [_pack("holds", name, self._value(value, name)) for name, value in sorted(held.items())]
        digest = _pack("local module", module.__name__, *parts)
        self._keep(f"module {module.__name__}", digest)
        return digest

    def _class(self, kind: type) -> bytes:
        own = written(kind)
        parts = [self._by_name(kind), self._known(type(kind)), *map(self._known, kind.__bases__)]
        parts += [_pack("is", name, self._value(own[name], name)) for name in (own if self._exact else sorted(own))]
        around = self._homes.get(kind.__module__) or attribute(sys.modules.get(kind.__module__), "__dict__") or {}
        parts.append(self._hints(attribute(kind, "__annotations__"), around))
        if issubclass(type(kind), ABCMeta):
            registered = [each() for each in _get_dump(kind)[0]]
            parts += sorted(_pack("registered", self._known(each)) for each in registered if each is not None)
        if issubclass(type(kind), EnumMeta):
            members: Mapping[str, Any] = kind.__members__  # type: ignore[attr-defined]
            parts += [_pack("member", name, self._value(vars(member), name)) for name, member in members.items()]
        return _pack("class", *parts)

    def _hints(self, annotations: Any, names: Mapping[str, Any]) -> bytes:
        """Describe annotations, with the types that those in quotes name."""
        # They are not evaluated: that may fail, and runs users' code.
        if not annotations:
            return b""
        texts = [each for each in annotations.values() if type(each) is str] if type(annotations) is dict else []
        quoted = [names.get(word) for word in sorted({word for text in texts for word in _WORD.findall(text)})]
        types = [self._value(each, "an annotation") for each in quoted if _is_hint(each)]
        return _pack("hints", self._value(annotations, "an annotation"), *types)

    # --- references: by name, or by content -------------------------------------------------------

    def _value(self, value: Any, name: str) -> bytes:
        try:
            plain = _plain(value)
            if plain is not None:
                return plain
            if type(value) in _CONTAINERS:
                return self._once(value, name, self._contents)
            return self._named(value, name) or self._once(value, name, self._object)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - to look at a value runs its own code, which may raise anything
            self.whole = False
            return self._unseen(value, name)

    def _named(self, value: Any, name: str) -> bytes | None:
        """Describe definitions, their wrappers and members of enums, and return None for anything else."""
        if _is(value, Enum):
            return _pack("enum", self._known(type(value)), str(value.name), self._value(value.value, name))
        if _is(value, ModuleType):
            return self._known(value) if is_local(value) else _pack("module", value.__name__, self._pin(value.__name__))
        return self._bytecode(value) if _is(value, CodeType) else self._callable(value)

    def _once(self, value: Any, name: str, describe: Callable[[Any, str], bytes]) -> bytes:
        """Describe a value with parts once, and a value inside itself by how many levels up it is."""
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
            again = _pack("again", str(len(self._described))) if self._exact else digest
            self._described[identity] = value, again
        self._back = min(outer, self._back)
        return digest

    def _contents(self, value: Any, name: str) -> bytes:
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
        with users_code:  # runs the object's own code, which may raise anything
            tensor = attribute(sys.modules.get("torch"), "Tensor")
            if isinstance(tensor, type) and _is(value, tensor):
                return self._tensor(value)
            if _is(value, MappingProxyType):
                return _pack("proxy", self._value(dict(value), name))
            if _is(value, set | frozenset):  # its pickle has the order of hashes, which differs between processes
                return _pack("set", self._known(kind), *sorted(self._each(value, name)), self._state(value, name))
            return self._reduced(value, name)
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
        if isinstance(reduced, str):  # its pickle is a name, which may stand for something else by now
            if kind.__module__ != "typing":
                return self._unseen(value, name)
            stands = [_pack(each, self._value(attribute(value, each), name)) for each in _STANDS_FOR]
            return _pack("object", self._known(kind), reduced, *stands)
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
        return self._callable(value) or self._value(value, type(value).__name__)

    def _callable(self, value: Any) -> bytes | None:
        """Describe classes, functions and their wrappers, and return None for anything else."""
        if dispatches(value) and self._imported(value) is None:  # it also captured a cache, which calls change
            return _pack("dispatch", self._value(dict(value.registry), _name(value)))
        if _is(value, type | FunctionType):
            return self._known(value)
        if _is(value, MethodType):
            return _pack("method", self._called(value.__func__), self._called(value.__self__))
        if _is(value, _WRAPPERS):
            return self._wrapper(value)
        if not callable(value):
            return None
        return self._imported(value)

    def _wrapper(self, value: Any) -> bytes:
        """Describe a property, a cached function or the like, with attributes that were added to it."""
        imported = self._imported(value)
        if imported is not None:
            return imported
        parts = [_pack(each, self._value(attribute(value, each), "it")) for each in _WRAPPED]
        parameters = attribute(value, "cache_parameters")
        parts.append(self._value(parameters(), "it") if parameters is not None else b"")
        added = attribute(value, "__dict__") or {}
        own = {name: part for name, part in added.items() if name not in _OF_WRAPPERS}
        return _pack("wrapper", self._known(type(value)), *parts, self._value(own, "an attribute"))

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
            self.uncertain.add(f"module {module} (no version)")
            return _pack("module", module)
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


# --- without a walk -------------------------------------------------------------------------


def _flat(items: Iterable[object], *, ordered: bool = True) -> bytes | None:
    """Return the digest of many plain values at once, or None if one of them is not plain."""
    # Without `ordered`, the values must have one sortable type: sorting makes the digest independent of set order.
    values: list[Any] = list(items)
    kinds = set(map(type, values))
    if not kinds <= _FLAT or not (ordered or (len(kinds) <= 1 and kinds <= _SORTED)):
        return None
    # `repr` tells all of them apart, as also 1, 1.0 and True.
    return _pack("flat", repr(values if ordered else sorted(values)))


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
    return None


def _is(value: object, kind: Any) -> bool:
    """Return whether a value is of a class by its real type."""
    # `isinstance` believes the value's own `__class__`, which a proxy sets as it likes.
    return issubclass(type(value), kind)


def _is_hint(value: object) -> bool:
    """Return whether a value is a class, or a type of `typing` such as an alias or a type variable."""
    return _is(value, type) or type(value).__module__ in ("typing", "types")


def _name(value: Any) -> str:
    name = attribute(value, "__name__")
    return name if type(name) is str else qualname(type(value)).rpartition(".")[2]


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
