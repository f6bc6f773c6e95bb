"""Explains what a function takes along to its consumers, and what its version depends on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from dqlab.cluster.transport.local_modules import is_local
from dqlab.cluster.transport.sealed import SealError, seal_value
from dqlab.errors import BadOption, NotPicklable
from dqlab.numbers import size as size_text
from dqlab.runs.code.changes import RETURN_IT, Changed, changes
from dqlab.runs.code.sealing import function_bytes
from dqlab.runs.code.source import attribute, type_text
from dqlab.runs.code.versions import CodeVersion, version_and_values

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
    try:
        size = len(seal_value(value))
    except SealError:
        size = None
    return Captured(name, typed, size, compared)
