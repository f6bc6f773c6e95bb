"""Seals values and functions as bytes, which only the executor opens.

Owns the pickling rules: plain pickle where possible, cloudpickle where ``__main__`` is involved, and the search for the
part of a value that cannot be pickled. Knows no frames, queues or Dask.
"""

from __future__ import annotations

import dis
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import EnumMeta
from functools import cached_property, lru_cache, partial, singledispatch, update_wrapper
from hashlib import blake2b
from importlib import import_module
from io import BytesIO, TextIOWrapper
from itertools import islice
from threading import Lock
from types import CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any, NamedTuple, NewType, TypeVar, cast
from weakref import WeakValueDictionary

import cloudpickle
from cloudpickle.cloudpickle import (  # private; held by tests/cluster
    _DYNAMIC_CLASS_TRACKER_BY_ID,
    _class_setstate,
    _make_skeleton_class,
    _make_skeleton_enum,
)
from cloudpickle.cloudpickle import _dynamic_class_reduce as _class_by_value

from dqlab.cluster.transport.local_modules import (
    Opened,
    Reached,
    _open_after,
    _open_either,
    lazy_digests,
    lazy_imports,
    local_modules,
    package_of,
)
from dqlab.cluster.transport.wire import pack, unpack
from dqlab.errors import NotPicklable, in_words, users_code
from dqlab.failures.failure import class_name
from dqlab.imports import loaded
from dqlab.plan import Plan

_MAIN = ("__main__", "__mp_main__")
"""Names of the user's script: the second is its name in a child of `multiprocessing` that was spawned."""
_OF_CLASSES = re.compile(rb"_make_skeleton_")
"""Occurs in each pickle that contains a class by value."""
_MACHINERY = frozenset({"__builtins__", "__cached__", "__file__", "__loader__", "__name__", "__package__", "__spec__"})
_Cached = type(lru_cache(len))
_DISPATCHES = cast("FunctionType", singledispatch(len)).__code__
"""The code that all functions of `singledispatch` have."""
_OF_MEMBERS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})
_MAX_DEPTH = 4
_MAX_CHILDREN = 10_000
_TOO_DEEP = "it is nested too deeply"
# Pickles name the functions below by module and name: `_code_again`, `_cached_again`, `_property_again`,
# `_fill_dispatch`, `_empty_module`, `_same`, `_fill`, `_fill_members` and `_from_module`. Durable logs keep such
# pickles, so do not rename or move them.

_READS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})


class SealError(Exception):
    """A value cannot be pickled, for a `reason` in one line."""

    # Internal: callers that can name the value raise NotPicklable from it. `reached` has the local modules from which
    # something was pickled before the failure.

    def __init__(self, reason: str, reached: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.reached = reason, set(reached)


def _code_with_its_file(code: CodeType) -> tuple[Any, ...]:
    return _code_again, (cloudpickle.Pickler.dispatch_table[CodeType](code), code.co_filename)


def _code_again(reduced: tuple[Callable[..., CodeType], tuple[Any, ...]], file: str) -> CodeType:
    make, arguments = reduced
    return make(*arguments).replace(co_filename=file)


def _open_file(file: TextIOWrapper) -> tuple[Any, ...]:
    """Refuse to pickle an open file, except the standard streams."""
    # Plain pickle refuses files too. cloudpickle would read the file to its end, and send its text in place of a file.
    for name in ("stdout", "stderr"):
        if file is getattr(sys, name):
            return getattr, (sys, name)
    raise pickle.PicklingError(f"cannot pickle {file!r}: open it where it is read, or pass its path or its text")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Extends cloudpickle's pickler by cached functions, and by local modules that travel by value."""

    # `version` returns a name for all that a function does and holds, or None: functions with the same name share one
    # cache in a process. `local` has the modules that travel by value, with their functions and classes. cloudpickle's
    # own `register_pickle_by_value` would change every pickle of the process. `elsewhere` has objects, by identity,
    # that only importing their module can make: (module, name).

    # cloudpickle 3.1.3 leaves out a code's file name, by which tracebacks find the lines of a file or cell.
    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child(
        {CodeType: _code_with_its_file, TextIOWrapper: _open_file}
    )

    def __init__(
        self,
        file: BytesIO,
        version: Callable[[Any], str | None] | None = None,
        local: Mapping[str, ModuleType] | None = None,
        elsewhere: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:
        super().__init__(file, protocol=5)
        self._version, self._local, self._elsewhere = version, local or {}, elsewhere or {}
        self._shells: dict[str, Opened] = {}
        self.taken: set[tuple[str, str]] = set()
        """Parts of local modules that the pickle contains: (module, name); name "": the whole module."""
        self.imports: set[str] = set()
        """Local modules that functions in the pickle import when they are called."""

    def reducer_override(self, value: Any) -> Any:
        """Return the reduction of a value that is pickled in a special way."""
        kind = type(value)
        if kind is _Cached and not self._stays(value):
            key = self._version(value) if self._version is not None else None
            names = {name: getattr(value, name, None) for name in ("__module__", "__name__", "__qualname__", "__doc__")}
            return _cached_again, (value.__wrapped__, value.cache_parameters(), key, names)
        if kind is cached_property:  # in Python 3.11 each has a lock, which cannot be pickled
            return _property_again, (value.func, value.attrname)
        if dispatches(value) and not self._stays(value):
            # Its cache, which it captures, has weak references. Two steps: the functions may call it.
            return singledispatch, (len,), dict(value.registry), None, None, _fill_dispatch
        if self._local and id(value) in self._elsewhere:
            return _from_module, self._elsewhere[id(value)]
        if self._local and kind is ModuleType and value.__name__ in self._local:
            self.taken.add((value.__name__, ""))
            state = {name: part for name, part in vars(value).items() if name not in _MACHINERY}
            return _same, (self._shell(value),), state, None, None, _fill
        if kind is NewType and not self._stays(value):  # cloudpickle refers to each by name
            return NewType, (value.__name__, value.__supertype__)
        if kind is TypeVar and not self._stays(value):
            stands: dict[str, Any] = {
                name: getattr(value, f"__{name}__") for name in ("bound", "covariant", "contravariant")
            }
            return partial(TypeVar, value.__name__, *value.__constraints__, **stands), ()
        if kind is FunctionType or issubclass(kind, type):
            return self._definition(value, kind)
        return super().reducer_override(value)

    def _definition(self, value: Any, kind: type) -> Any:
        """Return the reduction of a function or a class."""
        home = self._home(value) if self._local else None
        if home is not None:
            self.taken.add((home, value.__qualname__))
        # cloudpickle refers by name to what a spawned child has of the script.
        if home is None and getattr(value, "__module__", None) != _MAIN[1]:
            reduced = super().reducer_override(value)
        elif kind is not FunctionType:
            reduced = _class_by_value(value)
        else:
            # All functions of a module must share its one new dict as globals, so that they see each other's changes.
            if home is not None and value.__globals__ is vars(self._local[home]):
                self.globals_ref.setdefault(id(value.__globals__), Opened(vars, self._shell(self._local[home])))
            reduced = self._dynamic_function_reduce(value)
        if kind is FunctionType and home is None and reduced is not NotImplemented:
            self.imports |= lazy_imports(value.__code__, package_of(value.__globals__))
        return _with_all(value, reduced) if issubclass(kind, type) else reduced

    def _dynamic_function_reduce(self, function: FunctionType) -> Any:
        """Reduce a function by value, with globals that classes in its body read, which cloudpickle leaves out."""
        reduced, held = super()._dynamic_function_reduce(function), function.__globals__
        reduced[2][1]["__globals__"] |= {name: held[name] for name in global_names(function.__code__) if name in held}
        return reduced

    def _shell(self, module: ModuleType) -> Opened:
        """Return what opens as an empty module, which is filled later and has the globals of its functions."""
        # Two steps, because a module and its functions refer to each other.
        names = {name: getattr(module, name, None) for name in ("__name__", "__package__", "__file__")}
        return self._shells.setdefault(module.__name__, Opened(_empty_module, names))

    def _home(self, value: Any) -> str | None:
        """Return the name of the local module that has a value under its name."""
        module = getattr(value, "__module__", None)
        # A function made by `exec` has no module: cloudpickle would search all modules, and refer to it by name.
        for home in self._local if module is None else [module] if module in self._local else []:
            if _found(self._local[home], value.__qualname__) is value:
                return home
        return None

    def _stays(self, value: Any) -> bool:
        """Return whether a function can be imported by name in the process that opens it."""
        home, name = value.__module__, getattr(value, "__qualname__", value.__name__)
        return home not in (*_MAIN, *self._local) and _found(sys.modules.get(home), name) is value


def _found(module: Any, name: str) -> Any:
    """Return what a module has under a dotted name, the module itself for "", and None for nothing."""
    found = module
    for part in name.split(".") if name else ():
        found = getattr(found, part, None)
    return found


def _with_all(kind: Any, reduced: Any) -> Any:
    """Add to a class by value its slots and enum members, which cloudpickle leaves out."""
    return _with_slots(kind, _with_members(kind, reduced))


def _with_slots(kind: Any, reduced: Any) -> Any:
    """Add a class's slots to its skeleton."""
    # Without slots, instances of the remade class have a `__dict__`, for which the class here has no room when they
    # return.
    if not isinstance(reduced, tuple) or reduced[0] is not _make_skeleton_class or "__slots__" not in vars(kind):
        return reduced
    make, (meta, name, bases, given, *rest), *more = reduced
    # Read the slots from the finished class: `__slots__` itself has private names unmangled.
    slots = tuple(
        name
        for name, value in vars(kind).items()
        if isinstance(value, MemberDescriptorType) or name in ("__dict__", "__weakref__")
    )
    written = vars(kind).get("__orig_bases__", ())
    if NamedTuple in written:  # it would make the class again, and refuses slots: take the class that it made
        bases, given = kind.__bases__, given | {"__orig_bases__": written}
    return make, (meta, name, bases, given | {"__slots__": slots}, *rest), *more


def _with_members(kind: Any, reduced: Any) -> Any:
    """Add the attributes of an enum's members besides their values, which cloudpickle leaves out."""
    if not isinstance(kind, EnumMeta) or not isinstance(reduced, tuple) or reduced[-1] is not _class_setstate:
        return reduced
    members: dict[str, Any] = kind._member_map_
    held = {
        name: {key: part for key, part in vars(member).items() if key not in _OF_MEMBERS}
        for name, member in members.items()
    }
    return (*reduced[:2], (reduced[2], held), None, None, _fill_members) if any(held.values()) else reduced


def _fill_members(kind: Any, state: tuple[Any, dict[str, dict[str, Any]]]) -> None:
    _class_setstate(kind, state[0])
    for name, held in state[1].items():
        vars(kind._member_map_[name]).update(held)


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


def _fill_dispatch(made: Any, registry: dict[type, Callable[..., Any]]) -> None:
    for kind, function in registry.items():
        made.register(kind, function)
    update_wrapper(made, registry[object])


_caches: WeakValueDictionary[str, Any] = WeakValueDictionary()
"""Cached functions of this process by version, so that a model loaded once serves every function that calls it."""
_caches_lock = Lock()


def _cached_again(
    function: Callable[..., Any], parameters: dict[str, Any], key: str | None, names: dict[str, Any]
) -> Any:
    with _caches_lock:
        known = _caches.get(key) if key is not None else None
        if known is not None:
            return known
        made = lru_cache(**parameters)(function)
        for name, value in names.items():  # `function` may lack its own names yet, if it calls itself
            setattr(made, name, value)
        if key is not None:
            _caches[key] = made
        return made


def _by_value(value: object, version: Callable[[Any], str | None] | None = None) -> bytes:
    return _pickled(value, version)[0]


def _pickled(value: object, version: Callable[[Any], str | None] | None = None, **more: Any) -> tuple[bytes, _Pickler]:
    with BytesIO() as file:
        pickler = _Pickler(file, version, **more)
        try:
            pickler.dump(value)
            return file.getvalue(), pickler
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # see make_sealer
            too_deep = isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError)
            reached = {module for module, _ in pickler.taken}
            raise SealError(_TOO_DEEP if too_deep else in_words(error), reached) from error


def make_sealer(otherwise: Callable[[object], bytes] | None = None) -> Callable[[object], bytes]:
    """Return `seal_value` with its names bound locally, for loops over many small values."""
    # `otherwise` seals what plain pickle cannot.
    dumps, main, by_value = pickle.dumps, b"_main__", otherwise or _by_value  # the end of _MAIN
    refers = pickle.STACK_GLOBAL[0]

    def seal(value: object) -> bytes:
        try:
            sealed: bytes = dumps(value, 5)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001, S110 - it runs the value's own code, which may even call sys.exit
            pass  # what is raised below must not have this error as its context
        else:
            # Pickle refers to classes and functions of a notebook by name; no other process finds them there.
            # Looking for one byte costs a fifth of looking for a word, and small values refer to nothing.
            return sealed if refers not in sealed or sealed.find(main) < 0 else by_value(value)
        return by_value(value)

    return seal


def seal_all(values: Sequence[Any]) -> list[bytes] | None:
    """Return `seal_value` of each value, or None if one of them needs a look by itself."""
    try:
        sealed = [pickle.dumps(value, 5) for value in values]
    except BaseException:  # noqa: BLE001 - as in make_sealer: sealed one by one, it is the same element that fails
        return None
    whole = b"".join(sealed)
    return None if pickle.STACK_GLOBAL in whole and b"_main__" in whole else sealed


_seal = make_sealer()


def seal_value(value: object) -> bytes:
    """Return a value as bytes that any process with the same packages can open, or raise SealError."""
    return _seal(value)


def seal_function(
    function: Callable[..., Any] | Mapping[str, Any],
    version: Callable[[Any], str | None] | None = None,
    fingerprint: Callable[[list[Any]], Reached] | None = None,
    what: str = "",
) -> bytes:
    """Return a function as bytes, or raise NotPicklable that names the part to blame, in `what` or the function."""
    # Lambdas, nested functions and those of `__main__` travel by value; parts of local modules by name and by value
    # (see `local_modules`), but only by name without a `fingerprint`, which must be importable by name. `version`: see
    # `_Pickler`.
    name = getattr(function, "__qualname__", type(function).__qualname__)
    imports: set[str] = set()

    def seal(value: object) -> bytes:
        sealed, pickler = _pickled(value, version)
        imports.update(pickler.imports)
        return sealed

    try:
        sealed = seal(function)
    except SealError as error:
        raise _not_picklable(function, what or f"function {name}", error) from error
    if fingerprint is not None:
        local = local_modules()
        if next(named_in(sealed, local), None) is not None:
            sealed, further = _both(function, local, version, fingerprint, sealed)
            imports |= further
        if lazy := lazy_digests(imports) if imports else {}:
            sealed = pickle.dumps(Opened(_open_after, lazy, sealed), 5)
    return sealed


def _both(
    function: object,
    local: Mapping[str, ModuleType],
    version: Callable[[Any], str | None] | None,
    fingerprint: Callable[[list[Any]], Reached],
    named: bytes,
) -> tuple[bytes, frozenset[str]]:
    """Return a function sealed with local modules by name and by value, and the modules that it imports in a body."""
    # A worker opens the pickle that fits.
    valued, reason = None, ""
    try:
        valued, taken = _valued(function, version, local)
    except SealError as error:
        reason, taken = error.reason, {(name, "") for name in named_in(named, local)}
    if not taken:  # a nested function of a local module travels by value alone
        return named, frozenset()
    join = _joined if valued is not None else _joined.__wrapped__  # what is not in a pickle may have changed
    return join(named, valued, reason, tuple(sorted(taken)), fingerprint)


# Pickling shows what has changed; single calls come by the thousand, and to describe all that a function reaches takes
# longer.
@lru_cache(8)
def _joined(
    named: bytes,
    valued: bytes | None,
    reason: str,
    taken: tuple[tuple[str, str], ...],
    fingerprint: Callable[[list[Any]], Reached],
) -> tuple[bytes, frozenset[str]]:
    reached = fingerprint([_found(sys.modules[module], name) for module, name in taken])
    both = Opened(_open_either, list(taken), reached.digest, fingerprint, named, valued, reason)
    return _by_value(both), frozenset(reached.imports)


def named_in(sealed: bytes, names: Iterable[str]) -> Iterator[str]:
    """Yield the names that a pickle contains as texts."""
    # A short text in a pickle: this byte, its length, itself.
    yield from (name for name in names if bytes([0x8C, len(name.encode())]) + name.encode() in sealed)


def _valued(
    function: object, version: Callable[[Any], str | None] | None, local: Mapping[str, ModuleType]
) -> tuple[bytes, set[tuple[str, str]]]:
    """Return a function's pickle with local modules by value, and its parts of them."""
    # An object that cannot be pickled is fetched from its module instead, if it is a global of a module that the
    # function uses. Any other one is the final SealError.
    tried, elsewhere = set[str](), dict[int, tuple[str, str]]()
    while True:
        try:
            sealed, pickler = _pickled(function, version, local=local, elsewhere=elsewhere)
        except SealError as error:
            # Only modules that the function uses: trying the values of hundreds of modules takes half a second.
            further = error.reached - tried
            if not further:
                raise
            tried |= further
            elsewhere |= _unpicklable([local[name] for name in sorted(further)], local)
        else:
            return sealed, pickler.taken


def _unpicklable(modules: Iterable[ModuleType], local: Mapping[str, ModuleType]) -> dict[int, tuple[str, str]]:
    """Return the globals of local modules that cannot be pickled, like locks and connections, by identity."""
    found = {}
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType | type | ModuleType) or name in _MACHINERY:
                continue
            try:
                _pickled(value, local=local)
            except SealError:
                found[id(value)] = module.__name__, name
    return found


def open_value(sealed: bytes | memoryview) -> Any:
    """Return the value that `seal_value` or `seal_function` sealed."""
    return pickle.loads(sealed)


def open_here(sealed: bytes | memoryview) -> Any:
    """Return a value sealed elsewhere, without changing the classes of this process."""
    # cloudpickle sends the state of a class along with its instances, and sets that state where they are opened. That
    # is right in a consumer. In the notebook it would undo later changes of the class, once for each value.
    return _Keeping(BytesIO(sealed)).load() if _OF_CLASSES.search(sealed) else pickle.loads(sealed)


def open_all_here(sealed: Sequence[bytes | memoryview], whole: bytes | memoryview) -> list[Any]:
    """Return `open_here` of each value, searching `whole`, which contains them all, only once."""
    # No `map`: a value that raises StopIteration when it is opened would end it, and the rest would be lost in silence.
    if _OF_CLASSES.search(whole):
        return [open_here(each) for each in sealed]
    loads = pickle.loads
    return [loads(each) for each in sealed]


class _Keeping(pickle.Unpickler):
    """Opens values without changing the classes that this process already has."""

    def __init__(self, file: BytesIO) -> None:
        super().__init__(file)
        self._kept: list[type] = []

    def find_class(self, module: str, name: str) -> Any:
        found = super().find_class(module, name)
        if found is _make_skeleton_class or found is _make_skeleton_enum:
            return partial(self._skeleton, found)
        if found is _class_setstate or found is _fill_members:
            return partial(self._fill, found)
        return found

    def _skeleton(self, make: Callable[..., type], *args: Any) -> type:
        """Return the existing class of a cloudpickle id, or make a new one."""
        # In both of cloudpickle's functions, the id is the last argument but one.
        kept: type | None = None if args[-2] is None else _DYNAMIC_CLASS_TRACKER_BY_ID.get(args[-2])
        if kept is None:
            return make(*args)
        self._kept.append(kept)
        return kept

    def _fill(self, fill: Callable[..., Any], kind: type, state: Any) -> None:
        if not any(kind is kept for kept in self._kept):
            fill(kind, state)


def pack_function(blob: bytes, *, code: str, plan: Plan | None = None, given: bytes = b"") -> bytes:
    """Join a function's pickle with its short code version and its plan, whose objects `given` holds sealed."""
    if not plan:
        return pack({"code": code}, blob)
    return pack({"code": code, "plan": plan.settings}, blob, *([given] if given else []))


def with_plan_of(blob: bytes, earlier: bytes, *, code: str) -> bytes:
    """Add the plan of another packed function below its own, for a run that gets new code."""
    meta, (function, *own) = unpack(blob)
    before, (_, *given) = unpack(earlier)
    plan = before.get("plan", {}) | meta.get("plan", {})
    return pack(meta | {"code": code, "plan": plan}, function, *given, *own) if plan else blob


def opened_plan(blob: bytes) -> Plan | None:
    """Return the plan in a packed function, or None if it has none; opening it runs users' imports."""
    meta, (_, *given) = unpack(blob)
    if "plan" not in meta:
        return None
    objects: dict[str, Any] = {}
    for each in given:
        objects |= open_value(each)
    return Plan.of(meta["plan"], objects)


def with_settings(blob: bytes, **settings: Any) -> bytes:
    """Add settings, plain data, to a packed function: those of a retry, or `options` that documents are opened with."""
    meta, parts = unpack(blob)
    return pack(meta | settings, *parts)


def settings_in(blob: bytes) -> dict[str, Any]:
    """Return the code version of a packed function, and the settings beside it."""
    return unpack(blob)[0]


def opened_blob(blob: bytes) -> memoryview:
    """Return the pickle in a packed function."""
    return unpack(blob)[1][0]


def blob_hash(blob: bytes | memoryview) -> bytes:
    """Return 16 bytes that name a sealed function in transport and caches."""
    # Never compare functions by it: two processes pickle one function to different bytes. `runs.code` compares them.
    return blake2b(blob, digest_size=16).digest()


def seal_or_explain(value: object, what: str, number: int | None = None) -> bytes:
    """Return a value as bytes, or raise NotPicklable that names the culprit inside `what`, like "value 3"."""
    try:
        return _seal(value)
    except SealError as error:
        raise _not_picklable(value, what if number is None else f"{what} {number}", error) from error


def _not_picklable(value: object, what: str, error: SealError) -> NotPicklable:
    reason = error.reason if error.reason == _TOO_DEEP else _culprit(value, error.reason)
    return NotPicklable(what=what, reason=reason)


# --- the search for the culprit ---------------------------------------------------------------


def _culprit(value: object, reason: str) -> str:
    steps: list[str] = []
    seen = {id(value)}
    while len(steps) < _MAX_DEPTH and (found := _failing(value, seen)) is not None:
        step, value, reason = found
        seen.add(id(value))
        steps.append(step)
    subject, kind = " in ".join(reversed(steps)) or "it", class_name(type(value))
    # CPython's own "TypeError: cannot pickle 'lock' object" only repeats the type.
    detail = "" if reason == f"TypeError: cannot pickle {kind!r} object" else f" ({reason})"
    return f"{subject} is a {kind}{detail}"


def _failing(value: object, seen: set[int]) -> tuple[str, object, str] | None:
    """Return the first part of a value that cannot be pickled, as (what it is, the part, why not)."""
    with users_code:  # to take a value apart runs its own code, which may raise anything
        for step, part in islice(_parts(value), _MAX_CHILDREN):
            try:
                if id(part) not in seen:
                    seal_value(part)
            except SealError as error:
                return step, part, error.reason
    return None


def _parts(value: Any) -> Iterator[tuple[str, object]]:
    kind: Any = type(value)  # not `isinstance`, which trusts the value's own `__class__`
    if kind is FunctionType:
        yield from _function_parts(value)
    elif kind is dict:
        yield from ((f"entry {key!r:.50} of a dict", part) for key, part in value.items())
    elif kind in (list, tuple):
        yield from ((f"item {n} of a {kind.__name__}", part) for n, part in enumerate(value))
    elif issubclass(kind, type):
        own = {name: part for name, part in vars(value).items() if not name.startswith(("__", "_abc_"))}
        yield from ((f"attribute .{name} of class {class_name(value)}", part) for name, part in own.items())
    else:
        reduced: Any = (*value.__reduce_ex__(5), None)
        arguments, state = reduced[1:3]
        # With slots, the state is two mappings. Of what has no state, the arguments make it again.
        for attributes in state if type(state) is tuple else (state,):
            held = attributes.items() if isinstance(attributes, Mapping) else ()
            yield from ((f"attribute .{name} of {class_name(kind)}", part) for name, part in held)
        yield from ((f"part {n} of {class_name(kind)}", part) for n, part in enumerate(arguments))


def _function_parts(function: FunctionType) -> Iterator[tuple[str, object]]:
    name = function.__name__
    for variable, part in captured(function).items():
        yield f"variable {variable} captured by {name}", part
    for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        yield f"a default of {name}", default
    for variable in global_names(function.__code__):
        part = function.__globals__.get(variable)
        if not issubclass(type(part), ModuleType):
            yield f"global {variable} used by {name}", part


def dispatches(value: object) -> bool:
    """Return whether a value is a function of `functools.singledispatch`."""
    return type(value) is FunctionType and value.__code__ is _DISPATCHES


def captured(function: FunctionType) -> dict[str, Any]:
    """Return the variables that a function captured from enclosing functions, without those not set yet."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            values[name] = cell.cell_contents
    return values


@lru_cache(1000)
def global_names(code: CodeType) -> tuple[str, ...]:
    """Return the sorted global names that a function, or one nested in it, reads."""
    # Not `co_names`, which has attribute names too. A class's body reads its own `__annotations__` to fill them.
    names = {i.argval for i in dis.get_instructions(code) if i.opname in _READS_GLOBAL}
    for nested in code.co_consts:
        if isinstance(nested, CodeType):
            names.update(global_names(nested))
    return tuple(sorted(names - {"__annotations__"}))


_LEAST = 64
"""Bytes of data of a row below which it is pickled by itself."""


def _around(sealed: bytes, row: Any) -> tuple[bytes, bytes] | None:
    """Return what stands before and after the data of a row in its pickle, or None where that is not certain."""
    if row.dtype.hasobject or row.nbytes < _LEAST or not row.flags.c_contiguous:
        return None
    data = row.tobytes()
    at = sealed.find(data)
    # Pickle copies the data as they are, so one occurrence is them; of two, one may be something else.
    return None if at < 0 or at != sealed.rfind(data) else (sealed[:at], sealed[at + len(data) :])


def seal_rows(rows: Any, seal: Callable[[Any], bytes]) -> list[bytes] | None:
    """Return each row of a numpy array as `seal` would, or None if `rows` is nothing of that kind."""
    numpy = loaded("numpy")
    if numpy is None or type(rows) is not numpy.ndarray or rows.ndim < 2 or not len(rows):
        return None
    around = _around(seal(rows[0]), rows[0]) if rows.flags.c_contiguous and not rows.dtype.hasobject else None
    if around is None:
        return None
    before, after = around
    return [before + row.tobytes() + after for row in rows]


def open_alike(sealed: Sequence[bytes]) -> list[Any]:
    """Return the value of each pickle; those that are rows like the first one are opened at once."""
    loads, numpy = pickle.loads, loaded("numpy")
    first: Any = loads(sealed[0]) if sealed else None
    is_row = numpy is not None and type(first) is numpy.ndarray and first.ndim
    around = _around(sealed[0], first) if is_row else None
    if numpy is None or around is None:
        return [loads(each) for each in sealed]
    (before, after), size = around, len(sealed[0])
    if not all(len(each) == size and each.startswith(before) and each.endswith(after) for each in sealed):
        return [loads(each) for each in sealed]
    data = bytearray().join([memoryview(each)[len(before) : size - len(after)] for each in sealed])
    return list(numpy.frombuffer(data, first.dtype).reshape(len(sealed), *first.shape))
