"""Values and functions as sealed bytes, opened only by the executor that runs them.

Owns the pickling rules: plain pickle where it serves, cloudpickle where ``__main__`` is involved,
and the search for what in a value cannot be pickled. Knows nothing of frames, queues or Dask.
"""

from __future__ import annotations

import dis
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import chain, islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle

from dqlab.errors import NotPicklable

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


def _by_value(value: object) -> bytes:
    try:
        sealed: bytes = cloudpickle.dumps(value, protocol=5)
        return sealed
    except Exception as error:  # see make_sealer
        if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
            raise SealError(_TOO_DEEP) from error
        raise SealError(f"{type(error).__name__}: {error}") from error


def make_sealer() -> Callable[[object], bytes]:
    """Return `seal_value` with its names bound locally, for loops over many small values."""
    dumps, main, shortest, by_value = pickle.dumps, b"__main__", _SHORTEST_REFERENCE, _by_value

    def seal(value: object) -> bytes:
        try:
            sealed: bytes = dumps(value, 5)
        except Exception:  # noqa: BLE001 - pickling runs the value's own code, which may raise anything
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


def seal_function(function: Callable[..., Any]) -> bytes:
    """Return a function as bytes: lambdas, nested functions and those of ``__main__`` travel by value.

    Raises
    ------
    NotPicklable
        It holds something that cannot be pickled; names it.
    """
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return _explained(function, f"function {name}", _by_value)


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
    except Exception:  # noqa: BLE001 - it cannot even be taken apart, so it is itself the culprit
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
