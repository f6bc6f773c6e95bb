"""Values and functions as sealed bytes, opened only by the executor that runs them.

Owns the pickling rules: plain pickle where it serves, cloudpickle where ``__main__`` is involved,
and the search for what in a value cannot be pickled. Knows nothing of frames, queues or Dask.
"""

from __future__ import annotations

import dis
import operator
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from importlib import import_module
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import cloudpickle
from cloudpickle.cloudpickle import _dynamic_class_reduce as _class_by_value  # private; held by tests/cluster

from dqlab.cluster.transport.local_modules import Either, LazyImports, lazy_imports, local_modules, sources_of, stamp
from dqlab.errors import NotPicklable, in_words

__all__ = [
    "SealError",
    "blob_hash",
    "captured",
    "global_names",
    "make_sealer",
    "open_value",
    "seal_function",
    "seal_or_explain",
    "seal_value",
]

_MAIN = ("__main__", "__mp_main__")
_MACHINERY = frozenset({"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__package__", "__spec__"})
_Cached = type(lru_cache(len))
_MAX_DEPTH = 4
_MAX_CHILDREN = 10_000
_SHORTEST_REFERENCE = 29
"""Bytes of a pickle that holds nothing but a one-letter name in ``__main__``."""
_TOO_DEEP = "it is nested too deeply"
_READS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


class SealError(Exception):
    """A value cannot be pickled; internal, turned into an error with a name where the value has one.

    Attributes
    ----------
    reason : str
        What pickling raised, in one line.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """As cloudpickle's, for what it cannot do: cached functions, and modules by value for one pickle alone.

    Parameters
    ----------
    version : callable, optional
        Returns a name for what a function does; functions of one name share their cache in a process.
    local : dict of str to module
        Modules whose functions and classes travel by value, and they themselves too.
    elsewhere : dict of int to (str, str)
        Objects, by identity, that only the module itself can make: (module, name).
    """

    def __init__(
        self,
        file: BytesIO,
        version: Callable[[Any], str] | None = None,
        local: Mapping[str, ModuleType] | None = None,
        elsewhere: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(file, protocol=5)
        self._version, self._local, self._elsewhere = version, local or {}, elsewhere or {}
        self._shells: dict[str, _Shell] = {}
        self.taken: set[tuple[str, str]] = set()
        """What was taken from local modules: (module, name); "" = all of it."""

    def reducer_override(self, value: Any) -> Any:
        """Say how a value is pickled, where it is not done as usual."""
        kind = type(value)
        if kind is _Cached and not self._stays(value):
            key = self._version(value) if self._version is not None else None
            names = {name: getattr(value, name, None) for name in ("__module__", "__name__", "__qualname__", "__doc__")}
            return _cached_again, (value.__wrapped__, value.cache_parameters(), key, names)
        if kind is cached_property:  # Python 3.11 gives each a lock
            return _property_again, (value.func, value.attrname)
        if self._local:
            if id(value) in self._elsewhere:
                return _from_module, self._elsewhere[id(value)]
            if kind is ModuleType and value.__name__ in self._local:
                self.taken.add((value.__name__, ""))
                state = {name: part for name, part in vars(value).items() if name not in _MACHINERY}
                return _same, (self._shell(value),), state, None, None, _fill
            if (kind is FunctionType or issubclass(kind, type)) and self._is_local(value):
                self.taken.add((value.__module__, value.__qualname__))
                if kind is not FunctionType:
                    return _class_by_value(value)
                home = self._local[value.__module__]
                if value.__globals__ is vars(home):
                    self.globals_ref.setdefault(id(vars(home)), _Names(self._shell(home)))
                return self._dynamic_function_reduce(value)
        return super().reducer_override(value)

    def _shell(self, module: ModuleType) -> _Shell:
        return self._shells.setdefault(module.__name__, _Shell(module))

    def _is_local(self, value: Any) -> bool:
        return getattr(value, "__module__", None) in self._local and self._found(value) is value

    def _stays(self, value: Any) -> bool:
        """Whether a function is one of a module that is imported wherever it is opened."""
        return value.__module__ not in (*_MAIN, *self._local) and self._found(value) is value

    def _found(self, value: Any) -> Any:
        found: Any = sys.modules.get(value.__module__)
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        return found


class _Shell:
    """A local module as it is opened: empty at first; its functions have it for their globals."""

    def __init__(self, module: ModuleType) -> None:
        self._names = {name: getattr(module, name, None) for name in ("__name__", "__package__", "__file__")}

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty_module, (self._names,)


class _Names:
    """The names of a module that travels by value."""

    def __init__(self, shell: _Shell) -> None:
        self._shell = shell

    def __reduce__(self) -> tuple[Any, ...]:
        return vars, (self._shell,)


def _empty_module(names: dict[str, Any]) -> ModuleType:
    module = ModuleType(names["__name__"])
    vars(module).update(names)
    return module


def _same(module: ModuleType) -> ModuleType:
    return module


def _fill(module: ModuleType, state: dict[str, Any]) -> None:
    vars(module).update(state)


def _from_module(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _property_again(func: Callable[[Any], Any], name: str | None) -> cached_property[Any]:
    made = cached_property(func)
    made.attrname = name
    return made


_caches: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Cached functions of this process by version: a model that one has loaded serves every function that calls it."""
_caches_lock = Lock()


def _cached_again(
    function: Callable[..., Any], parameters: dict[str, Any], key: str | None, names: dict[str, Any]
) -> Any:
    with _caches_lock:
        known = _caches.get(key) if key is not None else None
        if known is not None:
            return known
        made = lru_cache(**parameters)(function)
        for name, value in names.items():  # of the function itself not yet, when it calls itself
            setattr(made, name, value)
        if key is not None:
            _caches[key] = made
        return made


def _by_value(value: object, version: Callable[[Any], str] | None = None) -> bytes:
    return _pickled(value, version)[0]


def _pickled(value: object, version: Callable[[Any], str] | None = None, **more: Any) -> tuple[bytes, _Pickler]:
    try:
        with BytesIO() as file:
            pickler = _Pickler(file, version, **more)
            pickler.dump(value)
            return file.getvalue(), pickler
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # see make_sealer
        if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
            raise SealError(_TOO_DEEP) from error
        raise SealError(in_words(error)) from error


def make_sealer() -> Callable[[object], bytes]:
    """Return `seal_value` with its names bound locally, for loops over many small values."""
    dumps, main, shortest, by_value = pickle.dumps, b"__main__", _SHORTEST_REFERENCE, _by_value

    def seal(value: object) -> bytes:
        try:
            sealed: bytes = dumps(value, 5)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - pickling runs the value's own code, which may even call sys.exit
            return by_value(value)
        # Pickle refers to classes and functions of a notebook by name; no other process finds them there.
        # find() costs half of `in` for bytes.
        return sealed if len(sealed) < shortest or sealed.find(main) < 0 else by_value(value)

    return seal


_seal = make_sealer()


def seal_value(value: object) -> bytes:
    """Return a value as bytes that any process with the same packages can open.

    Raises
    ------
    SealError
        Neither pickle nor cloudpickle can do it.
    """
    return _seal(value)


def seal_function(
    function: Callable[..., Any],
    version: Callable[[Any], str] | None = None,
    fingerprint: Callable[[list[Any]], bytes] | None = None,
    *,
    remember: bool = False,
) -> bytes:
    """Return a function as bytes: lambdas, nested functions and those of ``__main__`` travel by value.

    What it takes from local modules travels both ways; see `local_modules`.

    Parameters
    ----------
    version : callable, optional
        Returns a name for what a function does: cached functions of one name share their cache in a process.
    fingerprint : callable, optional
        Returns what functions, classes and modules are; importable by name. Without one, local modules travel by
        name alone.
    remember : bool
        Take what was sealed before, while its pickle and the names in local modules are the same: a value of a local
        module that was changed in place is not seen.

    Raises
    ------
    NotPicklable
        It holds something that cannot be pickled; names it.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    named = _explained(function, f"function {name}", partial(_by_value, version=version))
    if fingerprint is None:
        return named
    local, mark = _look(remember=remember)
    lazy = _lazy_imports(function)
    if not any(_names(named, name) for name in local):
        return named if not lazy else _by_value(_With(function, lazy), version)
    if not remember:
        return _both(_With(function, lazy), local, version, fingerprint, named)
    # A reload makes new functions: that of this one is seen at once, that of another module at the next look.
    code = getattr(function, "__code__", None)
    key = named, str(lazy), (*mark, id(function), id(code))
    known = _remembered.get(key)
    if known is None:
        known = _both(_With(function, lazy), local, version, fingerprint, named), function, code
        with _look_lock:
            if mark is _Seen.mark:
                if len(_remembered) >= REMEMBERED:
                    del _remembered[next(iter(_remembered))]
                _remembered[key] = known
    return known[0]


LOOK_EVERY = 0.05
"""Seconds, at least, between two looks at all names of all local modules; ten times what a look takes, if that is more.
Single calls come by the thousand, and a notebook may have hundreds of modules."""


class _Seen:
    """What the last look found."""

    until = 0.0
    local: ClassVar[dict[str, ModuleType]] = {}
    held: ClassVar[list[object]] = []
    """The objects whose ids are in `mark`, kept alive: Python gives the id of a freed object to a new one."""
    mark: tuple[int, ...] = ()


_look_lock = Lock()
REMEMBERED = 8
_remembered: dict[tuple[bytes, str, tuple[int, ...]], tuple[bytes, object, object]] = {}
"""Functions that were sealed for single calls, which come by the thousand, since names in local modules stand for what
they do; with the function and its code, whose ids are in the key."""


def _look(*, remember: bool) -> tuple[dict[str, ModuleType], tuple[int, ...]]:
    """Return the local modules and, where a function may be remembered, what their names stand for."""
    if not remember:
        return local_modules(), ()
    began = time.monotonic()
    with _look_lock:
        if began >= _Seen.until:
            _Seen.local = local_modules()
            held = stamp(_Seen.local)
            mark = tuple(map(id, held))
            if mark != _Seen.mark:
                _remembered.clear()
                _Seen.mark = mark
            _Seen.held = held
            ended = time.monotonic()
            _Seen.until = ended + max(LOOK_EVERY, 10 * (ended - began))
        return _Seen.local, _Seen.mark


def _both(
    function: _With,
    local: dict[str, ModuleType],
    version: Callable[[Any], str] | None,
    fingerprint: Callable[[list[Any]], bytes],
    named: bytes,
) -> bytes:
    """Seal a function with references to local modules and with what these hold; a worker takes what fits."""
    valued, reason, taken = None, "", set[tuple[str, str]]()
    try:
        valued, pickler = _pickled(function, version, local=local)
    except SealError:
        try:
            valued, pickler = _pickled(function, version, local=local, elsewhere=_unpicklable(local))
        except SealError as error:
            reason = error.reason
    taken = pickler.taken if valued is not None else {(name, "") for name in local if _names(named, name)}
    values = [_value_of(local[module], name) for module, name in sorted(taken)]
    both = Either(sorted(taken), fingerprint(values), fingerprint, _by_value(function, version), valued, reason)
    return _by_value(both)


def _names(sealed: bytes, name: str) -> bool:
    """Return whether a pickle holds a text that is just this name."""
    text = name.encode()
    return sealed.find((b"\x8c" + bytes([len(text)]) if len(text) < 256 else b"") + text) >= 0


class _With:
    """A function and what its imports need, opened in this order."""

    def __init__(self, function: Callable[..., Any], lazy: dict[str, tuple[str, str]]) -> None:
        self._parts = LazyImports(lazy), function

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.getitem, (self._parts, 1)


def _value_of(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split(".") if name else ():
        found = getattr(found, part)
    return found


def _unpicklable(local: Mapping[str, ModuleType]) -> dict[int, tuple[str, str]]:
    """Return the globals of some modules that cannot be pickled, by identity: locks, connections, clients."""
    found = {}
    for module in local.values():
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType | type | ModuleType) or name in _MACHINERY:
                continue
            try:
                _pickled(value, local=local)
            except SealError:
                found[id(value)] = module.__name__, name
    return found


def _lazy_imports(function: Any) -> dict[str, tuple[str, str]]:
    code = getattr(function, "__code__", None)
    lazy = {}
    for name in lazy_imports(code) if isinstance(code, CodeType) else ():
        files = sources_of(name)
        if files:
            texts = b"\0".join(Path(file).read_bytes() for file in files)
            folder = Path(files[0]).parent if not files[0].endswith("__init__.py") else Path(files[0]).parent.parent
            lazy[name] = blake2b(texts, digest_size=16).hexdigest(), str(folder)
    return lazy


def open_value(sealed: bytes | memoryview) -> Any:
    """Return what `seal_value` or `seal_function` sealed; raises whatever opening it raises."""
    return pickle.loads(sealed)


def blob_hash(blob: bytes | memoryview) -> bytes:
    """Return 16 bytes that name a sealed function, for transport and caches only.

    Two processes pickle one function to different bytes; `runs.code` compares functions.
    """
    return blake2b(blob, digest_size=16).digest()


def seal_or_explain(value: object, what: str) -> bytes:
    """Return a value, or a function, as bytes; where that fails, say what in it is to blame.

    Parameters
    ----------
    what : str
        What the value is to the user: "argument 3".

    Raises
    ------
    NotPicklable
        Names the culprit: "attribute .conn of Config is a _thread.lock".
    """
    return _explained(value, what, seal_value)


def _explained(value: object, what: str, seal: Callable[[object], bytes]) -> bytes:
    try:
        return seal(value)
    except SealError as error:
        reason = error.reason if error.reason == _TOO_DEEP else _culprit(value, error.reason)
        raise NotPicklable(what=what, reason=reason) from error


# --- what is to blame -----------------------------------------------------------------------


def _culprit(value: object, reason: str) -> str:
    steps: list[str] = []
    seen = {id(value)}
    while len(steps) < _MAX_DEPTH:
        found = next(_failing_parts(value, seen), None)
        if found is None:
            break
        step, value, reason = found
        seen.add(id(value))
        steps.append(step)
    subject = " in ".join(reversed(steps)) or "it"
    # CPython's own "TypeError: cannot pickle 'lock' object" only repeats the type.
    detail = "" if reason.startswith("TypeError: cannot pickle") else f" ({reason})"
    return f"{subject} is a {_type_name(value)}{detail}"


def _failing_parts(value: object, seen: set[int]) -> Iterator[tuple[str, object, str]]:
    for step, part in islice(_parts(value), _MAX_CHILDREN):
        if id(part) in seen:
            continue
        try:
            seal_value(part)
        except SealError as error:
            yield step, part, error.reason


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, FunctionType):
        return _function_parts(value)
    if isinstance(value, MethodType):
        return iter([(f"the object of method {value.__name__}", value.__self__), ("its function", value.__func__)])
    if isinstance(value, partial):
        return chain(
            [("the function of a partial", value.func)],
            ((f"argument {n} of a partial", part) for n, part in enumerate(value.args)),
            ((f"argument {name}= of a partial", part) for name, part in value.keywords.items()),
        )
    if isinstance(value, type):
        return ((f"attribute .{name} of class {value.__qualname__}", part) for name, part in vars(value).items())
    if type(value) is dict:
        return _entries("dict", value)
    if type(value) in (list, tuple, set, frozenset):
        return _items(type(value).__name__, value)  # type: ignore[arg-type]
    return _state_parts(value)


def _items(owner: str, values: Sequence[object] | Set[object]) -> Iterator[tuple[str, object]]:
    return ((f"item {n} of a {owner}", part) for n, part in enumerate(values))


def _entries(owner: str, entries: Mapping[object, object]) -> Iterator[tuple[str, object]]:
    for key, part in entries.items():
        yield f"a key of a {owner}", key
        shown = f"{key!r:.50}" if isinstance(key, (str, int, float)) else f"of a {_type_name(key)} key"
        yield f"entry {shown} of a {owner}", part


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    name = function.__name__
    for variable, part in captured(function).items():
        yield f"variable {variable} captured by {name}", part
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {name}", default
    for variable in global_names(function.__code__):
        part = function.__globals__.get(variable)
        if not isinstance(part, ModuleType):
            yield f"global {variable} used by {name}", part


def _state_parts(value: object) -> Iterator[tuple[str, object]]:
    owner = _type_name(value)
    try:
        reduced = value.__reduce_ex__(5)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - it cannot even be taken apart, so it is itself the culprit
        return
    if isinstance(reduced, str):
        return
    _, arguments, state, items, entries = (*reduced, None, None, None)[:5]
    states = state if isinstance(state, tuple) else (state,)
    for attributes in states:
        if isinstance(attributes, Mapping):
            for name, part in attributes.items():
                yield f"attribute .{name} of {owner}", part
        else:
            yield f"the state of {owner}", attributes
    for n, part in enumerate(arguments):
        yield f"part {n} of {owner}", part
    yield from _items(owner, list(items or ()))
    yield from _entries(owner, dict(entries or ()))


def _type_name(value: object) -> str:
    kind = type(value)
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def captured(function: FunctionType) -> dict[str, Any]:
    """Return the variables a function captured from the functions around it; those not yet set are left out."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            values[name] = cell.cell_contents
    return values


def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the names a function, or one nested in it, looks up outside itself; sorted.

    Unlike ``co_names`` this holds no attribute names.
    """
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _READS_GLOBAL}
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            names.update(global_names(nested))
    return tuple(sorted(names))
