"""Classes of fields as columns: what an annotation says about results, and values of these classes as rows and back.

These classes are Pydantic models, dataclasses, attrs classes, named tuples and typed dicts. A column is plain data: the
name of an Arrow type, a list with one column, a dict of columns by name, or None where the values decide. Knows neither
Arrow nor a cluster, and needs neither Pydantic nor attrs.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import itertools
import json
import operator
import sys
import types
import typing
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import reduce
from operator import attrgetter
from pathlib import PurePath
from typing import Any, TypeAlias

from dqlab.datasets.plain import deep, is_pydantic, plain
from dqlab.errors import AnswerInvalid, BadOption
from dqlab.texts import brief, one_line

Column: TypeAlias = Any
_SCALARS: dict[Any, str] = {
    bool: "bool",
    int: "int64",
    float: "double",
    str: "string",
    bytes: "binary",
    datetime.date: "date32[day]",
    datetime.datetime: "timestamp[us]",
    datetime.time: "time64[us]",
    datetime.timedelta: "duration[us]",
    decimal.Decimal: "decimal(38,9)",
}
_PARSERS: dict[Any, Callable[[str], Any]] = {
    **{kind: kind.fromisoformat for kind in (datetime.date, datetime.datetime, datetime.time)},
    decimal.Decimal: decimal.Decimal,
}
"""How texts of JSON become values that JSON has no form for."""
_LISTS = (list, tuple, set, frozenset, collections.deque)
_RAW = 8_000
"""Most characters of an invalid answer that its failure keeps."""


def annotated(fn: Any, *, batch: bool = False) -> Typed | None:
    """Return the class of fields that a function is annotated to return, or None for any other annotation, or none.

    With `batch`, and of a function that yields, several of the class stand for it. An annotation that cannot be
    evaluated counts as none.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not isinstance(fn, types.FunctionType | types.MethodType):
        fn = getattr(fn if isinstance(fn, type) else type(fn), "__call__", None)  # noqa: B004
    fn = getattr(fn, "__func__", fn)
    try:
        near = dict(zip(fn.__code__.co_freevars, (cell.cell_contents for cell in fn.__closure__ or ()), strict=True))
        only: Any = types.SimpleNamespace(__annotations__={"": fn.__annotations__["return"]})
        said = typing.get_type_hints(only, fn.__globals__, near, include_extras=True)[""]
    except Exception:  # noqa: BLE001 - evaluating an annotation runs users' code
        return None
    return _typed(said, batch=batch or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn))


def declared(returns: Any, *, batch: bool = False) -> Typed:
    """Return the class that ``returns=`` gives, or raise `BadOption` if it is not a class of fields."""
    if (typed := _typed(returns, batch=batch)) is None:
        problem = "is no Pydantic model, dataclass, attrs class, named tuple or TypedDict. Nothing was submitted."
        raise BadOption(option="returns", value=returns, problem=problem)
    return typed


def _typed(said: Any, *, batch: bool) -> Typed | None:
    inner, _ = _without_none(said)
    origin, several = typing.get_origin(inner), collections.abc.Iterable | collections.abc.AsyncIterable
    if batch and isinstance(origin, type) and issubclass(origin, several):
        said = typing.get_args(inner)[0]  # as of `list[Invoice]`
        inner, _ = _without_none(said)
    return None if _fields_of(typing.get_origin(inner) or inner) is None else Typed(said)


def _without_none(said: Any) -> tuple[Any, bool]:
    """Return an annotation without ``| None``, and whether it had that."""
    args = typing.get_args(said)
    if typing.get_origin(said) is typing.Annotated:
        return _without_none(args[0])
    if not _is_union(said) or types.NoneType not in args:
        return said, False
    return reduce(operator.or_, (arg for arg in args if arg is not types.NoneType)), True


def _is_union(said: Any) -> bool:
    return typing.get_origin(said) in (typing.Union, types.UnionType)


class Typed:
    """A class of fields that results have: makes rows of them, and objects of the rows."""

    # It travels with the annotations as they were evaluated where the class is: elsewhere their names may be unknown.
    def __init__(self, said: Any, known: Mapping[Any, list[_Field]] | None = None) -> None:
        inner, self._optional = _without_none(said)
        self._said, self._forms = said, _Forms(known)
        self._form = self._forms.of(inner)
        self.kind: Any = typing.get_origin(inner) or inner
        self.fields: dict[str, Column] = self._form.column
        """Columns by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Typed, (self._said, self._forms.known)

    def row(self, value: Any) -> Any:
        """Return a result as the plain data of a row, or raise `AnswerInvalid`."""
        if type(value) is self.kind or (not issubclass(self.kind, dict) and isinstance(value, self.kind)):
            return self._form.row(value)
        if value is None and self._optional:
            return None
        return self._form.row(self._answered(value))

    def _answered(self, answer: Any) -> Any:
        """Return an object of the class for a dict or a JSON text."""
        try:
            is_text = isinstance(answer, str | bytes | bytearray)
            if is_pydantic(self.kind):
                return _validated(self.kind.model_validate_json if is_text else self.kind.model_validate, answer)
            given = _tried(json.loads, answer, "JSON") if is_text else answer
            for name in given if isinstance(given, Mapping) else ():
                if name not in self.fields:
                    raise _Unfit(f"{self.kind.__name__} has no such field", str(name))
            return self._form.value(given)
        except _Unfit as error:
            field = ".".join(reversed(error.path))
            reason = one_line(f"field {field!r}: {error}" if field else error, 400)
            invalid = AnswerInvalid(type=self.kind.__name__, field=field, reason=reason)
            invalid.add_note(f"The answer was: {brief(answer if isinstance(answer, str) else _repr(answer), _RAW)}")
            raise invalid from None

    def value(self, row: Any) -> Any:
        """Return the object for a row, or the row where the class does not take it."""
        try:
            return self._form.value(row, lenient=True)
        except Exception:  # noqa: BLE001 - the class may have changed, and making its object runs users' code
            return row


# --- annotations ---------------------------------------------------------------------------------


class _Unfit(Exception):
    """A part of an answer does not fit its annotation."""

    def __init__(self, reason: str, *path: str) -> None:
        super().__init__(reason)
        self.path = list(path)
        """Names of fields, the innermost first."""


def _same(value: Any) -> Any:
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class _Form:
    """What an annotation says about a value."""

    column: Column = None
    row: Callable[[Any], Any] = _same
    """Returns a value as the plain data of a row, or raises anything for what is of another kind."""
    value: Callable[..., Any] = _same
    """Returns the value for that plain data, or for JSON of it, or raises `_Unfit`."""
    kind: type | None = None
    """What has exactly this type is a value."""


def _or_none(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return call if call is _same else lambda each: None if each is None else call(each)


class _Forms:
    """Makes the forms of annotations; a class within itself has no column there."""

    def __init__(self, known: Mapping[Any, list[_Field]] | None = None) -> None:
        self.known = dict(known or {})
        """Fields by class."""
        self._made: dict[Any, Any] = {}

    def of(self, said: Any, told: Iterable[Any] = ()) -> _Form:  # noqa: C901 - a line for each kind
        """Return the form of an annotation, with what ``Annotated`` tells about it."""
        origin, args = typing.get_origin(said), typing.get_args(said)
        if origin is typing.Annotated:
            return self.of(args[0], args[1:])
        if origin in (typing.Required, typing.NotRequired, typing.Final):
            return self.of(args[0], told)
        if isinstance(said, typing.NewType):
            return self.of(said.__supertype__, told)
        if _is_union(said):
            return self._union(said, told)
        if origin is typing.Literal:
            return _one_of(args)
        kind = origin or said
        if not isinstance(kind, type):
            return _Form()
        if kind in _SCALARS:
            return _scalar(kind, told)
        if kind in self.known or _fields_of(kind) is not None:
            return self._record(said, kind, args)
        if issubclass(kind, enum.Enum):
            plainly = _one_of([member.value for member in kind])
            return _Form(plainly.column, lambda each: each.value, functools.partial(_made, kind))
        if issubclass(kind, uuid.UUID | PurePath) or kind.__module__ == "pydantic.networks":
            return _Form("string", str, functools.partial(_made, kind))
        if issubclass(kind, dict) or kind is collections.abc.Mapping:
            key, inner = map(self.of, args) if len(args) == 2 else (_Form(), _Form())
            return _mapping(key, inner)
        if issubclass(kind, _LISTS) or (issubclass(kind, Collection) and kind.__module__ == "collections.abc"):
            parts = [self.of(arg) for arg in args if arg is not ...] or [_Form()]
            return _list(kind if kind in _LISTS else list, parts)
        return _Form()

    def _union(self, said: Any, told: Iterable[Any]) -> _Form:
        inner, optional = _without_none(said)
        if not _is_union(inner):
            form = self.of(inner, told)
        else:
            members = typing.get_args(inner)
            first = functools.partial(_first, [self.of(member) for member in members])
            form = _Form("double" if set(members) == {int, float} else None, deep, first)
        return _Form(form.column, _or_none(form.row), _or_none(form.value), form.kind) if optional else form

    def _record(self, said: Any, kind: type, args: tuple[Any, ...]) -> _Form:
        if said not in self._made:
            self._made[said] = None
            if kind not in self.known:
                self.known[kind] = _fields_of(kind) or []
            types_of = dict(zip(getattr(kind, "__parameters__", ()), args, strict=False))
            fields = self.known[kind]
            record = _Record(kind, fields, [self.of(_filled(field.said, types_of), field.told) for field in fields])
            self._made[said] = _Form(record.column, record.row, record.value)
        its = self._made
        return its[said] or _Form(None, lambda each: its[said].row(each), lambda each: its[said].value(each))


def _filled(said: Any, types_of: Mapping[Any, Any]) -> Any:
    """Return an annotation with types in place of its type variables."""
    if isinstance(said, typing.TypeVar):
        return types_of.get(said, Any)
    variables = getattr(said, "__parameters__", ()) if typing.get_args(said) else ()
    return said[tuple(types_of.get(variable, Any) for variable in variables)] if variables else said


def _scalar(kind: Any, told: Iterable[Any]) -> _Form:
    column, parse = _SCALARS[kind], _PARSERS.get(kind)
    if kind is decimal.Decimal:
        told = list(told)
        digits, places = (
            next((n for each in told if (n := getattr(each, name, None)) is not None), None)
            for name in ("max_digits", "decimal_places")
        )
        if digits is not None and places is not None and digits <= 38:
            column = f"decimal({digits},{places})"

    def value(given: Any) -> Any:
        each = plain(given)
        if type(each) is kind:
            return each
        if type(each) is int and kind in (float, decimal.Decimal):
            return kind(each)
        if type(each) is float and kind is decimal.Decimal:
            return kind(str(each))
        if type(each) is str and parse is not None:
            return _tried(parse, each, kind.__name__)
        if type(each) is dict and kind is bytes and "base64" in each:  # as JSON has them in the rest of a row
            return base64.b64decode(each["base64"])
        raise _unfit(given, kind.__name__)

    return _Form(column, _same, value, kind)


def _one_of(values: Iterable[Any]) -> _Form:
    allowed = list(values)
    kinds = {type(each.value if isinstance(each, enum.Enum) else each) for each in allowed}

    def value(each: Any) -> Any:
        if not any(type(one) is type(each) and one == each for one in allowed):
            raise _unfit(each, f"one of {', '.join(map(_repr, allowed))}")
        return each

    return _Form(_SCALARS.get(*kinds) if len(kinds) == 1 else None, deep, value)


def _list(make: Any, forms: list[_Form]) -> _Form:
    """Return the form of lists, or of tuples whose parts have separate forms."""
    fixed = len(forms) > 1

    def parts(each: Any) -> Iterable[tuple[_Form, Any]]:
        each = plain(each)  # of an array of numpy
        if not isinstance(each, _LISTS) or (fixed and len(each) != len(forms)):
            raise _unfit(each, f"list of {len(forms)}" if fixed else "list")
        return zip(forms if fixed else itertools.repeat(forms[0], len(each)), each, strict=True)

    to_row, kinds = forms[0].row, {forms[0].kind}

    def row(each: Any) -> Any:
        if type(each) is list and not fixed:
            return [to_row(part) for part in each]
        return [form.row(part) for form, part in parts(each)]

    def value(each: Any) -> Any:
        if type(each) is list and not fixed and set(map(type, each)) == kinds:
            return make(each)
        return make([_within(str(at), form, part) for at, (form, part) in enumerate(parts(each))])

    same = make is list and to_row is _same  # a list of plain data is plain
    alike = all(form.column == forms[0].column for form in forms)
    return _Form([forms[0].column] if alike else None, _same if same else row, value)


def _mapping(key: _Form, inner: _Form) -> _Form:
    def value(each: Any) -> Any:
        if not isinstance(each, Mapping):
            raise _unfit(each, "dict")
        return {_within(str(k), key, k): _within(str(k), inner, v) for k, v in each.items()}

    return _Form(None, lambda each: {key.row(k): inner.row(v) for k, v in each.items()}, value)


def _first(forms: list[_Form], value: Any) -> Any:
    """Return what the first form makes of a value that fits it."""
    for form in forms:
        with suppress(_Unfit):
            return form.value(value)
    raise _unfit(value, "value of its types")


def _within(name: str, form: _Form, value: Any) -> Any:
    try:
        return value if type(value) is form.kind else form.value(value)
    except _Unfit as error:
        error.path.append(name)
        raise


def _made(kind: Any, value: Any) -> Any:
    return value if isinstance(value, kind) else _tried(kind, value, kind.__name__)


def _tried(make: Callable[[Any], Any], value: Any, what: str) -> Any:
    try:
        return make(value)
    except Exception as error:  # a user's class may raise anything
        raise _unfit(value, what) from error


def _unfit(value: Any, what: str) -> _Unfit:
    return _Unfit(f"{one_line(_repr(value), 100)} is no {what}")


def _repr(value: Any) -> str:
    with suppress(Exception):  # it runs users' code
        return repr(value)
    return f"a {type(value).__name__}"


# --- classes of fields ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    said: Any
    told: tuple[Any, ...] = ()
    """What ``Annotated`` tells beside the type."""
    argument: str | None = ""
    """The argument of the class that sets it, None if there is none."""
    required: bool = False


def _fields_of(kind: Any) -> list[_Field] | None:
    """Return the fields of a class, or None if it is not a class of fields."""
    if not isinstance(kind, type):
        return None
    if is_pydantic(kind):
        model: Any = kind
        if not model.__pydantic_complete__:  # a name in it was not defined yet; sent like this, it is of no use
            model.model_rebuild(raise_errors=False)
        return [
            _Field(name, each.annotation, tuple(each.metadata), required=each.is_required())
            for name, each in model.model_fields.items()
        ] or None
    some: list[tuple[str, str | None, bool]]
    if dataclasses.is_dataclass(kind):
        some = [
            (each.name, each.name if each.init else None, each.default is each.default_factory)  # both are MISSING
            for each in dataclasses.fields(kind)
        ]
    elif (own := getattr(kind, "__attrs_attrs__", None)) is not None:
        some = [(each.name, each.alias if each.init else None, repr(each.default) == "NOTHING") for each in own]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        some = [(name, name, name not in getattr(kind, "_field_defaults", ())) for name in kind._fields]
    elif issubclass(kind, dict) and hasattr(kind, "__required_keys__"):
        some = [  # of annotations in quotes, Python counts optional ones as required
            (name, name, name in kind.__required_keys__ and typing.get_origin(each) is not typing.NotRequired)
            for name, each in _hints(kind).items()
        ]
    else:
        return None
    said = _hints(kind)
    return [_Field(name, said.get(name, Any), (), given, needed) for name, given, needed in some] or None


def _hints(kind: type) -> dict[str, Any]:
    """Return the annotations of a class, without those that name what is not defined where the class is."""
    made: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = vars(sys.modules[base.__module__]) if base.__module__ in sys.modules else {}
        for name, said in inspect.get_annotations(base).items():
            only: Any = types.SimpleNamespace(__annotations__={name: said})
            with suppress(Exception):  # evaluating annotations runs users' code
                made |= typing.get_type_hints(only, names, include_extras=True)
    return made


def _validated(validate: Callable[[Any], Any], answer: Any) -> Any:
    """Return what Pydantic makes of an answer, or raise `_Unfit` with the first field that does not fit."""
    try:
        return validate(answer)
    except Exception as error:  # a user's validator may raise anything
        listed = error.errors(include_url=False) if hasattr(error, "errors") else []
        if not listed:
            raise _Unfit(f"{type(error).__name__}: {error}") from error
        first, *more = listed
        also = f" (and {len(more)} more)" if more else ""
        raise _Unfit(f"{first['msg']}{also}", *map(str, reversed(first["loc"]))) from error


class _Record:
    """Makes rows of the objects of one class, and objects of the rows."""

    def __init__(self, kind: Any, fields: list[_Field], forms: list[_Form]) -> None:
        self._kind, self._is_pydantic, self._is_dict = kind, is_pydantic(kind), issubclass(kind, dict)
        self._extra = self._is_pydantic and kind.model_config.get("extra") == "allow"
        self._names = [field.name for field in fields]
        # `attrgetter` returns a tuple for several names only.
        self._get = attrgetter(*self._names, "__class__")
        self._rows = [(f.name, form.row) for f, form in zip(fields, forms, strict=True) if form.row is not _same]
        self._fields = list(zip(fields, forms, strict=True))
        self.column = {field.name: form.column for field, form in self._fields}

    def row(self, each: Any) -> Any:
        if self._is_dict:
            row = dict(each)
        elif type(each) is not self._kind:  # of a derived class, with fields of its own
            return deep(each)
        elif self._is_pydantic:
            row = each.__dict__.copy()
            if len(row) != len(self._names):  # it has cached properties, or was made without some fields
                row = {name: row[name] for name in self._names if name in row}
            row |= each.__pydantic_extra__ or {}
        else:
            row = dict(zip(self._names, self._get(each), strict=False))
        for name, make in self._rows:
            if name in row:
                try:
                    row[name] = make(row[name])
                except Exception:  # noqa: BLE001 - of another type than annotated
                    row[name] = deep(row[name])
        return row

    def value(self, row: Any, *, lenient: bool = False) -> Any:
        """Return the object for a row or an answer; with `lenient`, parts stay as they are that do not fit."""
        if not isinstance(row, Mapping):
            if not self._is_dict and isinstance(row, self._kind):
                return row
            raise _unfit(row, f"{self._kind.__name__} or dict")
        made = {}
        for field, form in self._fields:
            # A column has null for a field that a typed dict may leave out.
            if field.name in row and (field.required or not self._is_dict or row[field.name] is not None):
                try:
                    made[field.name] = _within(field.name, form, row[field.name])
                except _Unfit:
                    if not lenient:
                        raise
                    made[field.name] = row[field.name]
            elif field.required:
                raise _Unfit("it is missing", field.name)
        if self._extra:
            made |= {name: each for name, each in row.items() if name not in made and each is not None}
        return self._built(made, lenient=lenient)

    def _built(self, made: dict[str, Any], *, lenient: bool) -> Any:
        if self._is_pydantic:
            return self._kind.model_construct(**made)
        if self._is_dict:
            return made
        try:
            value = self._kind(**{f.argument: made[f.name] for f, _ in self._fields if f.argument and f.name in made})
        except Exception as error:  # noqa: BLE001 - a user's class may raise anything
            if not lenient:
                raise _Unfit(f"{self._kind.__name__} refused it ({type(error).__name__}: {error})") from None
            value = object.__new__(self._kind)  # it takes more, or checks what it took before
        for field, _ in self._fields:
            if field.name in made and not isinstance(value, tuple) and (lenient or field.argument is None):
                object.__setattr__(value, field.name, made[field.name])
        return value
