"""Seals a function as a run sends and records it, and warns about large or changed values."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import CodeType, FunctionType, ModuleType
from typing import Any

from dqlab.cluster.transport.orders import Code
from dqlab.cluster.transport.sealed import (
    SealError,
    blob_hash,
    pack_function,
    seal_function,
    seal_value,
    with_options,
    with_plan_of,
)
from dqlab.cluster.transport.wire import unpack
from dqlab.datasets.schemas import Typed, annotated
from dqlab.errors import BadOption, DqlabWarning, PutError
from dqlab.numbers import size as size_text
from dqlab.plan import Plan, is_model
from dqlab.rules.book import CodeRecord
from dqlab.runs.code.changes import RETURN_IT, Changed, changes
from dqlab.runs.code.source import attribute, innermost
from dqlab.runs.code.versions import (
    CodeVersion,
    digests,
    exact_version,
    fingerprint,
    given_parts,
    version_and_values,
)
from dqlab.store.values import MAX_FUNCTION, too_large
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
    blob = with_options(blob, options) if options else blob
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


def _largest(values: Iterable[tuple[str, Any]]) -> str:
    """Return the largest value in words, or "" if none can be measured."""
    sizes: dict[str, int] = {}
    for name, value in values:
        if issubclass(type(value), FunctionType | type | ModuleType):
            continue
        try:
            sizes[name] = len(seal_value(value))
        except SealError:
            continue
    if not sizes:
        return ""
    name = max(sizes, key=lambda each: sizes[each])
    return f"; the largest is `{name}`, {size_text(sizes[name])}"
