"""Checks, seals and explains a function as a run sends it, and warns about large or changed values."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from dqlab.cluster.transport.local_modules import is_local
from dqlab.cluster.transport.orders import Code
from dqlab.cluster.transport.sealed import (
    SealError,
    blob_hash,
    pack_function,
    seal_function,
    seal_value,
    with_plan_of,
    with_settings,
)
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.schemas import Typed, annotated
from dqlab.errors import BadOption, DqlabWarning, NotPicklable, PutError
from dqlab.numbers import many
from dqlab.numbers import size as size_text
from dqlab.plan import Plan, called, is_model
from dqlab.rules.book import CodeRecord
from dqlab.runs.code.source import RETURN_IT, Changed, attribute, changes, innermost, type_text
from dqlab.runs.code.versions import (
    CodeVersion,
    digests,
    exact_version,
    fingerprint,
    given_parts,
    version_and_values,
)
from dqlab.store.values import MAX_FUNCTION, too_large
from dqlab.texts import one_line
from dqlab.user_frames import level_of_user

LARGEST_CLASS = 64_000
"""Bytes of a sealed class, at most, that the record of a run keeps; each look at the run sends it."""


def sealed_function(
    fn: Callable[..., Any],
    *,
    options: Sequence[str] = (),
    plan: Plan | None = None,
    newest: Code | None = None,  # of the run that gets `fn`, to be called as that one is
) -> tuple[bytes, bytes, CodeVersion]:
    """Return a function's blob hash, blob and code version, or raise NotPicklable or PutError."""
    sealed = function_bytes(fn)  # first: an unpicklable value, such as a client, can take long to describe
    version, values = version_and_values(fn)
    plan = plan or Plan()
    version = version.with_given(digests(plan.given))  # a class in the function's annotation is in its version already
    if plan.returns is None:
        settings = plan.settings if newest is None else unpack(newest.blob)[0].get("plan", {})
        plan = replace(plan, returns=annotated(fn, batch="batch" in settings))
    if plan:
        objects = _given_bytes(plan.given) if plan.given else b""
        blob = pack_function(sealed, code=version.short, plan=plan, given=objects)
        if plan.returns is not None:
            version = replace(version, returns=_returns_record(plan.returns))
    else:
        blob = pack_function(sealed, code=version.short)
    if newest is not None:
        blob, version = keeping_plan(blob, version, newest)
    _check_object(fn, len(sealed))
    check_weight(version.name, len(blob), values)
    warn_of_changes(fn, (value for _, value in values))
    # The options that documents are opened with travel in the blob, so its hash covers them.
    blob = with_settings(blob, options=list(options)) if options else blob
    return blob_hash(blob), blob, version


def keeping_plan(blob: bytes, version: CodeVersion, newest: Code) -> tuple[bytes, CodeVersion]:
    """Return a packed function with the plan of its run's newest code, and its version then."""
    version = version.with_given(given_parts(newest.code.get("parts") or {}))
    version = replace(version, returns=version.returns or newest.code.get("returns"))
    return with_plan_of(blob, newest.blob, code=version.short), version


def function_bytes(fn: Callable[..., Any]) -> bytes:
    """Return a function's pickle, with what it uses of local modules, or raise NotPicklable."""
    return seal_function(fn, version=exact_version, fingerprint=fingerprint)


def code_record(version: CodeVersion, blob: bytes, *, planned: bool = False) -> CodeRecord:
    """Return a code version as the queue stores it; `planned`: with a plan beside its function."""
    record: CodeRecord = {
        "name": version.name,
        "hash": version.hash,
        "short": version.short,
        "source": version.source,
        "cell": version.cell,
        "blob": blob,
        "parts": version.parts,
    }
    record |= {"returns": version.returns} if version.returns else {}
    return {**record, "planned": True} if planned or version.returns else record


def _given_bytes(given: Mapping[str, Any]) -> bytes:
    return seal_function(given, exact_version, fingerprint, what="what travels with the function")


def _returns_record(typed: Typed) -> dict[str, Any]:
    """Return the class of the results as the queue stores it; without a large one, results are dicts."""
    sealed = _given_bytes({"returns": typed})
    return {"columns": typed.fields, "sealed": sealed if len(sealed) <= LARGEST_CLASS else b""}


class ChangesACopy(DqlabWarning):
    """The function changes a value of the notebook, but each consumer's process changes its own copy."""


_looked: set[CodeType] = set()
"""Code that `warn_of_changes` has looked at. A look costs more than a single call."""


def warn_of_changes(fn: Callable[..., Any], reached: Iterable[Any] = ()) -> None:
    """Warn about a function that changes values which only look shared, once until it is edited."""
    code = attribute(innermost(fn), "__code__")
    if type(code) is not CodeType or code in _looked:
        return
    _looked.add(code)
    if found := changes(fn, reached):
        _warn(found)


def _warn(changed: list[Changed]) -> None:
    several: dict[str, list[str]] = {}
    for each in changed:
        several.setdefault(each.function, []).append(str(each))
    what = "; ".join(f"{function} changes {', '.join(names)}" for function, names in several.items())
    text = f"{what}: each consumer's process changes a copy of its own, and what is here stays as it is. {RETURN_IT}"
    warnings.warn(text, ChangesACopy, stacklevel=level_of_user())


class Uncomparable(DqlabWarning):
    """The function of the attached run reads a value that cannot be compared, or was made by an earlier dqlab."""


def warn_of_uncertain(run: str, version: CodeVersion) -> None:
    """Warn about values that may have changed since the run was made without changing the code version."""
    if not version.uncertain:
        return
    names = [f"`{value.split(' of ')[0]}`" for value in version.uncertain]
    named, them = ", ".join(dict.fromkeys(names)), "it" if len(names) == 1 else "one of them"
    _warn_of_comparison(f"run {run!r}: cannot compare {named}: use on_existing='new' if {them} changed.")


def warn_of_scheme(run: str, name: str) -> None:
    """Warn that a run has code versions of an earlier release, and that only its function's text was compared."""
    _warn_of_comparison(
        f"run {run!r} was made by an earlier dqlab: of `{name}` only the text was compared, and it is the same: use "
        "on_existing='new' if something that it uses changed."
    )


def _warn_of_comparison(text: str) -> None:
    frame = sys._getframe(level_of_user() - 1)
    # Not `warnings.warn`, which warns once per line: a cell is run again just because something changed.
    warnings.warn_explicit(text, Uncomparable, frame.f_code.co_filename, frame.f_lineno, registry={})


_CODE = FunctionType | type | ModuleType
HEAVY = 50_000_000
"""Bytes above which a function causes a warning: each shard keeps it, and each consumer's process has a copy."""


class HeavyFunction(DqlabWarning):
    """The function takes large values along to its consumers."""


def _check_object(fn: object, nbytes: int) -> None:
    """Raise BadOption for a large object as a function, which its class would make on the consumers."""
    kind = type(fn)
    if nbytes > HEAVY and is_model(kind):
        problem = (
            f"is an object of {size_text(nbytes)}, which was made here and would be sent to each process of "
            f"consumers. Pass its class, and the arguments to make it there: map({kind.__name__}, documents, "
            "init={...}). Nothing was submitted."
        )
        raise BadOption(option="fn", value=f"<{kind.__name__}>", problem=problem)


def check_weight(name: str, nbytes: int, values: Iterable[tuple[str, Any]]) -> None:
    """Raise PutError if a queue cannot keep the blob, and warn about a large one."""
    # Shards refuse it too, but only after the run has its name.
    if nbytes > MAX_FUNCTION:
        raise PutError(reason=too_large(nbytes, _largest(values)))
    if nbytes > HEAVY:
        text = (
            f"{name} is {size_text(nbytes)} as it is sent, with the values that it reads{_largest(values)}. Each "
            "process of consumers gets a copy. Load it there instead: a function with @functools.cache loads it once "
            "in each."
        )
        warnings.warn(text, HeavyFunction, stacklevel=level_of_user())


def _size_of(value: Any) -> int | None:
    """Return the bytes of a value's pickle, or None if it has none."""
    try:
        return len(seal_value(value))
    except SealError:
        return None


def _largest(values: Iterable[tuple[str, Any]]) -> str:
    """Return the largest value in words, or "" if none can be measured."""
    measured = ((name, _size_of(value)) for name, value in values if not issubclass(type(value), _CODE))
    sizes = {name: size for name, size in measured if size is not None}
    if not sizes:
        return ""
    name = max(sizes, key=lambda each: sizes[each])
    return f"; the largest is `{name}`, {size_text(sizes[name])}"


# --- what it takes along -------------------------------------------------------------------

LARGE = 16 << 20
"""Bytes above which a value is worth a warning: it is pickled with the function and sent to every consumer."""


@dataclass(frozen=True, slots=True)
class Captured:
    """One value that a function reads.

    Attributes
    ----------
    name : str
        The variable, and the function that reads it, as in "table of score".
    kind : str
        Its type.
    size : int or None
        Bytes of its pickle; None if it cannot be pickled.
    compared : str
        "content", "type only" or "release".
    """

    name: str
    kind: str
    size: int | None
    compared: str


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a function takes along and what its version depends on, displayed as text.

    Attributes
    ----------
    version : CodeVersion
    values : tuple of Captured
        Largest first.
    size : int or None
        Bytes of the function as it is sent; None if it cannot be sent.
    problem : str
        Why it cannot be sent; "" if it can.
    changed : tuple of Changed
        What it changes outside itself; in a consumer's process it changes a copy.
    """

    version: CodeVersion
    values: tuple[Captured, ...]
    size: int | None
    problem: str = ""
    changed: tuple[Changed, ...] = ()

    def __repr__(self) -> str:
        sent = f"sent as {size_text(self.size)}" if self.size is not None else f"cannot be sent: {self.problem}"
        lines = [self.version.explain(), sent]
        lines += [f"  {part}" for part in self.version.parts if part.startswith(("code of", "class", "module"))]
        for value in self.values:
            size = size_text(value.size) if value.size is not None else "-"
            lines.append(f"  {value.name}: {value.kind}, {size}, compared by {value.compared}")
        for value in self.values:
            if value.size is not None and value.size > LARGE:
                lines.append(
                    f"! {value.name} is {size_text(value.size)} and is pickled along with the function. Load it "
                    "inside: a function with @functools.cache loads it once in each process."
                )
        lines += [
            f"! {each.function} changes {each}: a copy in each consumer's process. {RETURN_IT}" for each in self.changed
        ]
        return "\n".join(lines)


def explain(fn: Callable[..., Any]) -> Explanation:
    """List the values that a function takes to its consumers, and the parts that its version depends on.

    Sends nothing; reads and pickles each value once.

    Parameters
    ----------
    fn : callable
        As for `map`.

    Returns
    -------
    Explanation
        Shows itself as text.

    Raises
    ------
    BadOption
        `fn` is not callable.

    Examples
    --------
    >>> import dqlab as dq
    >>> len(dq.explain(len).values)
    0
    """
    if not callable(fn):
        raise BadOption(option="fn", value=fn, problem="is not a function.")
    version, values = version_and_values(fn)
    size, problem = None, ""
    try:
        size = len(function_bytes(fn))
    except NotPicklable as error:
        problem = str(error)
    found = {name: value for name, value in values if not issubclass(type(value), FunctionType | type)}
    rows = [_captured(name, value, version) for name, value in found.items()]
    rows.sort(key=lambda row: (-(row.size or 0), row.name))
    changed = tuple(changes(fn, (value for _, value in values)))
    return Explanation(version, tuple(rows), size, problem, changed)


def _captured(name: str, value: Any, version: CodeVersion) -> Captured:
    typed = type_text(type(value))
    uncertain = any(each.startswith(f"{name} (") for each in version.uncertain)
    compared = "type only" if uncertain else "content"
    if issubclass(type(value), ModuleType):
        return Captured(name, f"module {attribute(value, '__name__')}", 0, "content" if is_local(value) else "release")
    return Captured(name, typed, _size_of(value), compared)


# --- whether it can be called --------------------------------------------------------------


def check_function(value: object, *, option: str = "fn") -> None:
    """Raise BadOption for a value that cannot be called."""
    if callable(value):
        return
    problem = "is not a function. Pass the function itself, not what a call of it returns. Nothing was submitted."
    raise BadOption(option=option, value=value, problem=problem)


def check_takes_one(fn: Callable[..., Any], plan: Plan | None = None) -> None:
    """Raise BadOption for a function, method or partial that certainly cannot take one positional argument."""
    signature = own_signature(called(fn))
    if signature is None:  # let through: classes and other callables may show a signature that is not their own
        return
    names = (plan.setup or {}) if plan is not None else {}
    try:
        signature.bind(*([None] * (1 + is_model(fn))), **dict.fromkeys(names))
    except TypeError as error:
        problem = (
            f"cannot be called with one document: {_with_parameters(error, signature)} Nothing was submitted. Map a "
            "function of one argument; bind the others with functools.partial(fn, name=value), or pass each document "
            "as one tuple, which the function unpacks."
        )
        raise BadOption(option="fn", value=fn, problem=problem) from None


def check_takes(
    fn: Callable[..., Any],
    signature: inspect.Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    position: int,
) -> None:
    """Raise BadOption for a single call whose arguments certainly cannot be bound, naming its `position`."""
    if signature is None:
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        many_arguments = many(len(args) + len(kwargs), "argument")
        problem = (
            f"cannot be called with the {many_arguments} of call {position}: {_with_parameters(error, signature)} "
            "Nothing was submitted. Pass the arguments that it takes: submit(fn, *args, **kwargs), or (fn, args, "
            "kwargs) in batch_submit."
        )
        raise BadOption(option="fn", value=fn, problem=problem) from None


def own_signature(fn: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, method or partial, or None if calls may bind by another one."""
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    own = inner.__func__ if isinstance(inner, MethodType) else inner
    if not isinstance(own, FunctionType) or hasattr(own, "__signature__"):
        return None
    try:
        # Not the signature of the wrapped function: the wrapper may add arguments.
        return inspect.signature(fn, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _with_parameters(error: TypeError, signature: inspect.Signature) -> str:
    return f"{error}. Its parameters are {one_line(str(signature), 100)}."
