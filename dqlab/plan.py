"""`Plan`: how consumers call a function, besides the function itself.

It travels beside the function in its blob: small settings as plain data, objects as one pickle.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from types import FunctionType
from typing import Any, Literal, Self

from dqlab.config import check_count, nbytes_or_none, seconds
from dqlab.errors import BadOption, DqlabError

GIVEN = ("init", "setup", "returns")
"""Fields that hold users' objects: they travel as a pickle, and are part of the code version. All others are settings,
which travel as plain data, and are no part of it."""

LOGS = ("failed", "all", "none")
"""Of which documents output is kept: of those that failed or were slow, which is the default, of all, or of none."""


AUTO: Literal["auto"] = "auto"
_LONGEST = 3600.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that a function takes together, as one list.

    A batch is filled across files and shards. Each document keeps its own result, failure and retries.

    Parameters
    ----------
    size : int or "auto", default "auto"
        Most documents in one batch. "auto" starts with 16 and doubles while more documents a second come through.
    max_bytes : int or str, optional
        Most bytes in one batch: of files, where the run counts bytes, else of the documents as they are sent. One
        larger document is a batch of its own.
    max_wait : float or str, default 1 s
        How long the first document of a batch waits for others; at the end of the input it does not wait.
    key : str, optional
        Documents of a batch share the value of this column, or attribute; those without it are together too.

    Raises
    ------
    BadOption
        A size below 1, a key that is no text, or something that is no size, no number of bytes, or no duration up to
        an hour.

    Examples
    --------
    >>> import dqlab as dq
    >>> dq.Batch(256, max_bytes="8MB").max_bytes
    8000000
    """

    size: int | Literal["auto"] = AUTO
    max_bytes: int | str | None = None
    max_wait: float | str = 1.0
    key: str | None = None

    def __post_init__(self) -> None:
        if self.size != AUTO:
            check_count("batch", self.size)
        object.__setattr__(self, "max_bytes", nbytes_or_none(self.max_bytes, name="max_bytes"))
        object.__setattr__(self, "max_wait", seconds(self.max_wait, name="max_wait"))
        if not 0 <= float(self.max_wait) <= _LONGEST:
            raise BadOption(option="max_wait", value=self.max_wait, problem="is not a duration from 0 s to 1 h.")
        if not (self.key is None or (isinstance(self.key, str) and self.key)):
            raise BadOption(option="key", value=self.key, problem="is no name of a column or an attribute.")

    @classmethod
    def of(cls, batch: Any) -> Batch | None:
        """Return what ``batch=`` of `map` gives."""
        if batch is None or isinstance(batch, Batch):
            return batch
        if isinstance(batch, str) and batch != AUTO:
            problem = "is a number, 'auto' or a dq.Batch. Nothing was submitted."
            raise BadOption(option="batch", value=batch, problem=problem)
        return cls(batch)


class Smaller(DqlabError):
    """Raise it in a function of a batch to have the batch called again in two halves. No document fails by it.

    A plain function need not: dqlab halves a batch that raises, until it has found the document to blame. A coroutine
    function, whose calls may cost money, is called again only for this. A batch of one document fails with it.

    Examples
    --------
    >>> raise Smaller()
    Traceback (most recent call last):
    dqlab.plan.Smaller: the batch is too large for the function
    """

    text = "the batch is too large for the function"


@dataclass(frozen=True, slots=True)
class Plan:
    """How consumers call a function; it is false with None in each field: as a plain function of one document."""

    init: Mapping[str, Any] | None = None
    """The arguments of a class, of which a slot makes one object, and calls that; see `is_model`."""
    setup: Mapping[str, Callable[[], Any]] | None = None
    """Makers of the objects that each call gets as keywords; a slot calls each of them once."""
    returns: Any = None
    """The `datasets.schemas.Typed` of its results."""
    batch: Batch | None = None
    """The function takes a list of documents."""
    logs: str | None = None
    """Of which documents output is kept: "all" or "none"; None: of those that failed or were slow."""
    threads: int | None = None
    """Most calls of a plain function at once in one consumer's process, each in a thread."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Return the plan of these settings and objects; what a newer version has sent is left out."""
        known = {field.name for field in fields(cls)}
        if "batch" in settings:
            settings = {**settings, "batch": Batch(**settings["batch"])}
        return cls(**{name: value for name, value in {**settings, **given}.items() if name in known})

    @property
    def settings(self) -> dict[str, Any]:
        """The settings, as plain data."""
        settings = {name: value for name, value in self._set.items() if name not in GIVEN}
        if self.batch is not None:
            settings["batch"] = asdict(self.batch)
        if self.init is not None or self.setup:
            settings["makes"] = True
        # Whoever writes rows need not open the class, which may import a user's modules.
        return settings if self.returns is None else {**settings, "columns": self.returns.fields}

    @property
    def given(self) -> dict[str, Any]:
        """The objects that travel along, by field."""
        return {name: value for name, value in self._set.items() if name in GIVEN}

    @property
    def _set(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def __bool__(self) -> bool:
        return bool(self._set)


def _call_of(fn: object) -> FunctionType | None:
    """Return the `__call__` that a class has of its own or inherits, without asking its metaclass."""
    kinds = type.__dict__["__mro__"].__get__(fn) if issubclass(type(fn), type) else ()
    calls = (type.__dict__["__dict__"].__get__(kind).get("__call__") for kind in kinds)
    return next((call for call in calls if type(call) is FunctionType), None)


def is_model(fn: object) -> bool:
    """Return whether a function is a class whose objects are called, and not the class itself."""
    # A class without a `__call__` of its own, as `str` or a dataclass, is called with each document.
    return _call_of(fn) is not None


def called(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is called with each document: of a class whose objects are called, their `__call__`."""
    return _call_of(fn) or fn


def planned(
    fn: Callable[..., Any],
    *,
    init: Any = None,
    setup: Any = None,
    returns: Any = None,
    batch: Any = None,
    threads: int = 0,
    logs: Any = "failed",
) -> Plan:
    """Return the plan that the keywords of `map` ask for, or raise BadOption; nothing was submitted then."""
    if logs not in LOGS:
        raise BadOption(option="logs", value=logs, problem="is 'failed', 'all' or 'none'. Nothing was submitted.")
    for option, value in (("init", init), ("setup", setup)):
        if value is not None and not (isinstance(value, Mapping) and all(map(_is_name, value))):
            problem = "must be a dict whose keys are names. Nothing was submitted."
            raise BadOption(option=option, value=value, problem=problem)
    if init is not None and not is_model(fn):
        problem = "needs a class as fn. For a function: functools.partial(fn, name=value). Nothing was submitted."
        raise BadOption(option="init", value=init, problem=problem)
    for name, make in (setup or {}).items():
        if not callable(make):
            problem = f"{name!r} is no function that makes the object. Nothing was submitted."
            raise BadOption(option="setup", value=make, problem=problem)
    if is_model(fn):
        why = "cannot be made with them: {}. Pass all: init={{'name': value}}. Nothing was submitted."
        _check_made("init", fn, f"{fn.__name__} {why}", **(init or {}))
    elif issubclass(type(fn), type):
        why = "is a class without __call__, and cannot be made with a document: {}. Nothing was submitted."
        _check_made("fn", fn, why, None)
    batch = Batch.of(batch)
    if threads and (setup or is_model(fn) or batch is not None):
        problem = "is for plain functions: classes, setup and batches have one call at a time in each slot."
        raise BadOption(option="concurrency", value=fn, problem=problem)
    init, setup = dict(init or {}) if is_model(fn) else None, dict(setup) if setup else None
    kept = None if logs == "failed" else logs
    return Plan(init=init, setup=setup, returns=returns, batch=batch, threads=threads or None, logs=kept)


def _is_name(key: object) -> bool:
    return isinstance(key, str) and key.isidentifier()


def _check_made(option: str, kind: Callable[..., Any], problem: str, *args: Any, **named: Any) -> None:
    """Raise BadOption for arguments with which an object of a class certainly cannot be made."""
    with suppress(ValueError):  # it has no signature to look at
        signature = inspect.signature(kind)
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            value = named if option == "init" else kind
            raise BadOption(option=option, value=value, problem=problem.format(error)) from None
