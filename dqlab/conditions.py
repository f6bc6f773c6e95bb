"""Conditions over named fields: ``error == 'KeyError' and deliveries < 3``, ``size < 50e6 and 'draft' not in key``.

A condition is a Python expression over the fields that its caller names, evaluated in the process of the user who
wrote it. So nothing that comes from another process, or from a web page, may become one.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dqlab.errors import BadOption
from dqlab.keywords import meant
from dqlab.texts import one_line


class Fields(NamedTuple):
    """The fields that conditions may name, with their types, and how the value of one is read."""

    kinds: Mapping[str, type]
    read: Callable[[Any, str], Any]
    option: str = "where"


class _Unknown:
    """Stands for None, to be neither below nor above anything, and to contain nothing."""

    __lt__ = __le__ = __gt__ = __ge__ = __contains__ = lambda *_: False

    def __eq__(self, other: object) -> bool:
        return other is None or other is self

    def __hash__(self) -> int:
        return hash(None)

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


_UNKNOWN = _Unknown()
_EQUALS: dict[type[ast.cmpop], ast.cmpop] = {ast.Is: ast.Eq(), ast.IsNot: ast.NotEq()}
"""So that ``pages is None`` holds for `_UNKNOWN`."""


class Condition:
    """A condition as a predicate; raises `BadOption` for one that is not understood, or that fails for an item."""

    def __init__(self, text: str, fields: Fields) -> None:
        self.text, self._fields = text, fields
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError) as error:
            reason = f"{getattr(error, 'msg', error)}. Write == to compare, and text in quotes"
            raise self._refused(f"is no Python expression: {reason}.") from None
        nodes = list(ast.walk(tree))
        for node in nodes:
            if isinstance(node, ast.Compare):
                node.ops = [_EQUALS.get(type(op), op) for op in node.ops]
        names = [node for node in nodes if isinstance(node, ast.Name)]
        # A builtin is known where it is called: in ``error == KeyError`` it is a text without its quotes.
        called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        known = {name.id for name in names if isinstance(name.ctx, ast.Store)} | called & vars(builtins).keys()
        self.names = list(dict.fromkeys(name.id for name in names if name.id not in known))
        for name in self.names:
            if name not in fields.kinds:
                said = f"Fields are {', '.join(fields.kinds)}; text goes in quotes: {name!r}."
                raise self._refused(f"{name} is not a field.{meant(name, fields.kinds)} {said}")
        self._code = compile(tree, "<where>", "eval")
        try:  # refused at once, and not by the first item, in another thread
            self._evaluated({name: fields.kinds[name]() for name in self.names})
        except (ArithmeticError, LookupError, ValueError):
            pass  # real values may suit where empty ones do not
        except Exception as error:
            raise self._refused(f"{error}.") from error

    def __call__(self, item: Any) -> bool:
        """Return whether an item meets the condition."""
        values = ((name, self._fields.read(item, name)) for name in self.names)
        try:
            return self._evaluated({name: _UNKNOWN if value is None else value for name, value in values})
        except Exception as error:
            raise self._refused(f"{type(error).__name__}: {error}, where {self.values(item)}.") from error

    def values(self, item: Any) -> str:
        """Return in words which values an item has in the fields that the condition names."""
        return ", ".join(f"{name} is {one_line(repr(self._fields.read(item, name)), 60)}" for name in self.names)

    def _evaluated(self, values: dict[str, Any]) -> bool:
        met = eval(self._code, values)
        if type(met) is not bool:  # else ``error == 'a' or 'b'`` holds for every item
            raise TypeError(f"it is {one_line(repr(met), 60)}, not True or False; compare each side of and, or, not")
        return met

    def _refused(self, problem: str) -> BadOption:
        return BadOption(option=self._fields.option, value=self.text, problem=problem)


def condition_of(given: str | Callable[[Any], object], fields: Fields) -> Callable[[Any], object]:
    """Return what a user gave as a predicate, or raise `BadOption`."""
    if isinstance(given, str):
        return Condition(given, fields)
    if not callable(given):
        raise BadOption(option=fields.option, value=given, problem="neither an expression nor a callable.")
    return given
