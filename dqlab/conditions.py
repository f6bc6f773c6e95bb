"""Conditions over named fields: ``error == 'KeyError' and deliveries < 3``, ``size < 50e6 and not key in ['a', 'b']``.

Owns a language of comparisons (``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in``, ``is None``) joined by
``and``, ``or``, ``not``, over fields, texts, numbers, None and lists. `ast` parses a condition and the closures built
here run it, never `eval`, so a condition from a web page can only compare. The caller names the fields, their kinds,
and how each is read.
"""

from __future__ import annotations

import ast
import difflib
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from dqlab.errors import BadOption
from dqlab.numbers import count, many
from dqlab.texts import one_line

__all__ = ["Field", "Fields", "Unmet", "compile_condition"]


class Field(NamedTuple):
    """A name that conditions may use, and how its value (or None) is read."""

    kind: type[str] | type[int]
    """Whether the values are texts or numbers."""
    get: Callable[[Any], Any]
    instead: str = ""
    """What to write, in words, for a comparison with the other kind."""


class Fields(NamedTuple):
    """The fields of one language."""

    fields: Mapping[str, Field]
    meant: Mapping[str, str]
    """Words that people write instead, in lower case, and the field that they mean."""
    example: str
    """A comparison, for error messages."""
    option: str = "where"
    """The name that errors give the condition."""


VALUES = 5
"""Most values of a field that are named where nothing meets a condition."""
KEPT = 1_000
"""Most different values of a field that are counted one by one."""
_CONSTANTS = {"false": "False", "none": "None", "null": "None", "true": "True"}
_MAX_LENGTH = 10_000
_MAX_DEPTH = 50
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUAL: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {ast.Eq: operator.eq, ast.NotEq: operator.ne}
_SINGLE_EQUALS = re.compile(r"(?<![=!<>])=(?!=)")

_Condition = Callable[[Any], bool]


class _Kind(Enum):
    TEXT = "text"
    NUMBER = "a number"
    TRUTH = "True or False"
    NONE = "None"
    LIST = "a list"


class _Operand(NamedTuple):
    get: Callable[[Any], Any]
    kind: _Kind
    node: ast.expr
    members: tuple[_Operand, ...] = ()


def compile_condition(condition: str, fields: Fields) -> Callable[[Any], bool]:
    """Return a condition as a predicate, or raise `BadOption` with the piece that is not understood and its place."""
    return _Compiler(condition, fields).compile()


class Unmet:
    """Counts the values of the fields that a condition names, to explain why nothing meets it."""

    def __init__(self, condition: str, fields: Fields) -> None:
        tree = ast.parse(condition.strip(), mode="eval")
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        self._values: dict[str, Counter[Any]] = {name: Counter() for name in names if name in fields.fields}
        self._fields, self._wanted = fields.fields, _wanted(tree)

    @property
    def names(self) -> frozenset[str]:
        """The fields that the condition names."""
        return frozenset(self._values)

    def add(self, each: Any) -> None:
        """Count the values of one object that does not meet the condition."""
        for name, values in self._values.items():
            value = self._fields[name].get(each)
            if len(values) < KEPT or value in values:
                values[value] += 1

    def said(self) -> str:
        """Return one sentence with the values there are, and a second one with the value that may have been meant."""
        there = [f"{name} {self._spread(name)}" for name, values in self._values.items() if values]
        said = f"There are: {'; '.join(there)}." if there else ""
        near = self._near()
        return f"{said} Did you mean {near!r}?".strip() if near is not None else said

    def _spread(self, name: str) -> str:
        values = self._values[name]
        known = {value: amount for value, amount in values.items() if value is not None}
        if not known:
            return "has no value"
        unknown = f", no value in {count(values[None])}" if None in values else ""
        if len(known) > VALUES and self._fields[name].kind is int:
            return f"from {count(min(known))} to {count(max(known))}{unknown}"
        most = sorted(known, key=lambda value: (-known[value], str(value)))
        shown = [f"{_spelled(value)} ({count(known[value])})" for value in most[:VALUES]]
        more = f" and {many(len(known) - VALUES, 'other')}" if len(known) > VALUES else ""
        return f"{', '.join(shown)}{more}{unknown}"

    def _near(self) -> str | None:
        """Return the value that a text of the condition may stand for, or None where no value is near."""
        for name, texts in self._wanted.items():
            there = [value for value in self._values.get(name, ()) if isinstance(value, str)]
            for text in texts:
                if text in there:
                    continue
                # Errors of builtins, `__main__` and dqlab are named without their module; people write it all the same.
                last = text.rpartition(".")[2].lower()
                same = [value for value in there if value.lower() in (text.lower(), last)]
                near = same or difflib.get_close_matches(text, there, n=1)
                if near:
                    return one_line(near[0], 60)
        return None


def _spelled(value: Any) -> str:
    return repr(one_line(value, 60)) if isinstance(value, str) else str(value)


def _wanted(tree: ast.AST) -> dict[str, list[str]]:
    """Return the texts with which each field is compared for equality, also those in lists."""
    wanted: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for one, op, other in zip(sides, node.ops, sides[1:], strict=False):
            if not isinstance(op, ast.Eq | ast.In):
                continue
            for field, constant in ((one, other), (other, one)):
                members = constant.elts if isinstance(constant, ast.List | ast.Tuple) else [constant]
                if isinstance(field, ast.Name):
                    texts = [each.value for each in members if isinstance(each, ast.Constant)]
                    wanted.setdefault(field.id, []).extend(text for text in texts if isinstance(text, str))
    return wanted


class _Compiler:
    """Turns one expression into nested closures, and refuses any syntax that it does not know."""

    def __init__(self, where: str, fields: Fields) -> None:
        self.where, self.language = where, fields
        self.text = where.strip().replace("\r\n", "\n").replace("\r", "\n")

    def compile(self) -> _Condition:
        if not self.text or len(self.text) > _MAX_LENGTH:
            raise self.refused(f"an expression has 1 to {_MAX_LENGTH:,} characters.")
        try:  # conditions come from web pages: length and depth are bounded, and a parser's failure is the user's error
            tree = ast.parse(self.text, mode="eval")
        except SyntaxError as error:
            hint = " Write == to compare." if _SINGLE_EQUALS.search(self.text) else ""
            raise self.refused(f"{error.msg} at character {error.offset or 1}.{hint}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise self.refused(f"cannot be read: {error}.") from None
        return self.condition(tree.body, 0)

    def condition(self, node: ast.expr, depth: int) -> _Condition:
        if depth > _MAX_DEPTH:
            raise self.refused(f"nested more than {_MAX_DEPTH} deep.")
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = [self.condition(value, depth + 1) for value in values]
                every = all if isinstance(op, ast.And) else any
                return lambda each: every(part(each) for part in parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.condition(operand, depth + 1)
                return lambda each: not inner(each)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [self.operand(side) for side in (left, *comparators)]
                parts = [self.comparison(*pair) for pair in zip(sides, ops, sides[1:], strict=False)]
                return parts[0] if len(parts) == 1 else lambda each: all(part(each) for part in parts)
            case ast.Constant(value=bool(truth)):
                return lambda _: truth
            case ast.Name() | ast.Constant():
                self.operand(node)
                raise self.refused(
                    f"{self.piece(node)} is not a condition by itself; compare it, as in {self.language.example}."
                )
        raise self.refused(f"{self.piece(node)} is not understood; write comparisons joined by and, or, not.")

    def operand(self, node: ast.expr) -> _Operand:
        match node:
            case ast.Name(id=name):
                field = self.language.fields.get(name)
                if field is None:
                    raise self.refused(f"{self.piece(node)} is not a field. {self.meant(name)}")
                return _Operand(field.get, _Kind.TEXT if field.kind is str else _Kind.NUMBER, node)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                members = tuple(self.constant(element) for element in elements)
                values = tuple(member.get(None) for member in members)
                return _Operand(lambda _: values, _Kind.LIST, node, members)
        return self.constant(node)

    def constant(self, node: ast.expr) -> _Operand:
        match node:
            case ast.Constant(value=str() | bool() | int() | float() | None as value):
                return _Operand(lambda _: value, _kind(value), node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return _Operand(lambda _: -number, _Kind.NUMBER, node)
        raise self.refused(
            f"{self.piece(node)} is not understood; compare fields with text, numbers, None or lists of them."
        )

    def comparison(self, left: _Operand, op: ast.cmpop, right: _Operand) -> _Condition:
        get_left, get_right = left.get, right.get
        match op:
            case ast.In() | ast.NotIn():
                inside = self.membership(left, right)
                return inside if isinstance(op, ast.In) else lambda each: not inside(each)
            case ast.Is() | ast.IsNot():
                if right.kind is not _Kind.NONE:
                    raise self.refused(f"is compares with None only; write == before {self.piece(right.node)}.")
                wanted = isinstance(op, ast.Is)
                return lambda each: (get_left(each) is None) is wanted
            case ast.Eq() | ast.NotEq():
                self.same_kind(left, right)
                equal = _EQUAL[type(op)]
                return lambda each: equal(get_left(each), get_right(each))
        self.same_kind(left, right)
        if left.kind not in (_Kind.TEXT, _Kind.NUMBER) or right.kind is _Kind.NONE:
            raise self.refused(f"{self.piece(right.node)} has no order; compare with == or !=.")
        below = _ORDER[type(op)]

        def ordered(each: Any) -> bool:
            one, other = get_left(each), get_right(each)
            # None is neither below nor above anything; Python would raise TypeError in the middle of a listing.
            return one is not None and other is not None and below(one, other)

        return ordered

    def membership(self, left: _Operand, right: _Operand) -> _Condition:
        get_left, get_right = left.get, right.get
        if right.kind is _Kind.LIST:
            for member in right.members:
                self.same_kind(left, member)
            return lambda each: get_left(each) in get_right(each)
        if right.kind is not _Kind.TEXT:
            raise self.refused(f"in looks inside texts and lists; {self.piece(right.node)} is {right.kind.value}.")
        if left.kind is not _Kind.TEXT:
            raise self.refused(f"only text is in a text; {self.piece(left.node)} is {left.kind.value}.")

        def within(each: Any) -> bool:
            part, whole = get_left(each), get_right(each)
            return part is not None and whole is not None and part in whole

        return within

    def same_kind(self, left: _Operand, right: _Operand) -> None:
        """Refuse a comparison that can never be true, which is a typing error and not a filter."""
        for side in (left, right):
            if side.kind is _Kind.LIST:
                raise self.refused(f"{self.piece(side.node)} is a list; write in before it.")
        if left.kind is not right.kind and _Kind.NONE not in (left.kind, right.kind):
            one, other = self.piece(left.node), self.piece(right.node)
            what = f"{one} is {left.kind.value}, {other} is {right.kind.value}; they are never equal."
            raise self.refused(f"{what} {self.instead(left, right)}".rstrip())

    def instead(self, *sides: _Operand) -> str:
        """Return what to write for a field that is compared with the other kind, or "" where nothing is known."""
        named = (self.language.fields[side.node.id] for side in sides if isinstance(side.node, ast.Name))
        return next((field.instead for field in named), "")

    def piece(self, node: ast.expr) -> str:
        """Return a piece of the expression as the user wrote it, with its place."""
        segment = ast.get_source_segment(self.text, node) or "it"
        lines = self.text.split("\n")
        before = lines[node.lineno - 1].encode()[: node.col_offset].decode()  # `ast` counts bytes, people characters
        skipped = len(self.where) - len(self.where.lstrip())
        place = skipped + sum(len(line) + 1 for line in lines[: node.lineno - 1]) + len(before) + 1
        return f"{segment if len(segment) <= 60 else segment[:59] + '…'} (character {place})"

    def refused(self, problem: str) -> BadOption:
        shown = self.where if len(self.where) <= 200 else self.where[:199] + "…"
        return BadOption(option=self.language.option, value=shown, problem=problem)

    def meant(self, name: str) -> str:
        fields = self.language.fields
        # KeyError is not a misspelt key: names of classes are compared with only if they differ in case alone.
        close = difflib.get_close_matches(name.lower(), fields, n=1, cutoff=0.6 if name.islower() else 1.0)
        meant = {**_CONSTANTS, **self.language.meant}.get(name.lower()) or (close[0] if close else None)
        if meant:
            return f"Did you mean {meant}? Fields are {', '.join(fields)}."
        return f"Fields are {', '.join(fields)}; text goes in quotes: {name!r}."


def _kind(value: object) -> _Kind:
    if value is None:
        return _Kind.NONE
    if isinstance(value, bool):  # before numbers: True is an int
        return _Kind.TRUTH
    return _Kind.TEXT if isinstance(value, str) else _Kind.NUMBER
