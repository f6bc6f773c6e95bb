"""Whether two results are the same: by default, and as users say it with `close`, `same` and `same_words`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from numbers import Number, Real
from typing import Any, TypeAlias

from dqlab.cluster.transport.sealed import SealError, seal_value
from dqlab.errors import BadOption

Equal: TypeAlias = Callable[[Any, Any], Any]
_ABSENT = object()


def close(rel: float = 1e-6, abs: float = 0.0) -> Equal:
    """Return what `Run.compare` takes as `equal`: numbers are the same if they differ by little.

    Numbers are compared wherever they stand: in lists, dicts, arrays and attributes. All else has to be equal.

    Parameters
    ----------
    rel : float, default 1e-6
        Largest difference, as a share of the larger number.
    abs : float, default 0
        Largest difference that never counts, for numbers near zero.

    Raises
    ------
    BadOption
        A difference is not a number of at least 0.

    Examples
    --------
    >>> dq.close(0.01)({"score": 0.990}, {"score": 0.991})
    True
    """
    for name, value in (("rel", rel), ("abs", abs)):
        if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf):
            raise BadOption(option=name, value=value, problem="is the largest difference, a number of 0 or more.")
    return _Same(number=lambda one, other: math.isclose(one, other, rel_tol=rel, abs_tol=abs), within=(rel, abs)).of


def same(*fields: str) -> Equal:
    """Return what `Run.compare` takes as `equal`: only these fields of the results count.

    Parameters
    ----------
    *fields : str
        Keys of dicts, or attributes of objects.

    Raises
    ------
    BadOption
        There is none, or one is not a text.

    Examples
    --------
    >>> dq.same("label")({"label": "tax", "score": 0.8}, {"label": "tax", "score": 0.7})
    True
    """
    if not fields or not all(isinstance(field, str) for field in fields):
        raise BadOption(option="fields", value=fields, problem="are the names of the fields that count: same('label').")

    def equal(one: Any, other: Any) -> bool:
        return all(same_value(_field(one, field), _field(other, field)) for field in fields)

    return equal


def same_words(one: Any, other: Any) -> bool:
    r"""Return whether two results are the same but for white space and capitals in their texts; see `Run.compare`.

    Examples
    --------
    >>> dq.same_words("Net  total\n", "net total")
    True
    """
    return _Same(text=lambda one, other: one.casefold().split() == other.casefold().split()).of(one, other)


def same_value(one: Any, other: Any) -> bool:
    """Return whether two results are the same: equal, or with the same parts.

    NaN is the same as NaN, and a tuple or an array as a list, since rows of a sink come back as lists. Objects without
    an equality of their own are the same if their classes have the same name, and their attributes are the same.
    """
    return _Same().of(one, other)


def same_row(one: Any, other: Any) -> bool:
    """Return whether two results are the same where one is a row of a sink, which has null for a missing key."""
    return _Same(nulls=True).of(one, other)


class _Same:
    """Walks two values side by side."""

    def __init__(
        self,
        number: Callable[[Any, Any], bool] | None = None,
        text: Callable[[str, str], bool] | None = None,
        within: tuple[float, float] = (0.0, 0.0),
        *,
        nulls: bool = False,
    ) -> None:
        self._number, self._text, self._within, self._nulls = number, text, within, nulls

    def of(self, one: Any, other: Any) -> bool:
        """Return whether two values are the same."""
        try:
            return self._same(one, other)
        except RecursionError:  # a value that contains itself
            return _sealed(one, other)

    def _same(self, one: Any, other: Any) -> bool:
        if isinstance(one, bool) or isinstance(other, bool):
            return type(one) is type(other) and one is other
        if isinstance(one, Number) and isinstance(other, Number):
            return self._numbers(one, other)
        if isinstance(one, str) and isinstance(other, str) and self._text is not None:
            return self._text(one, other)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            return len(one) == len(other) and all(map(self._same, one, other))
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            alike = self._nulls or one.keys() == other.keys()
            return alike and all(self._same(one.get(key), other.get(key)) for key in one.keys() | other.keys())
        if _is_array(one) or _is_array(other):
            return self._arrays(one, other)
        if isinstance(one, type) and isinstance(other, type):  # a cell that runs again defines its classes anew
            return _name(one) == _name(other)
        return _equal(one, other) or self._alike(one, other)

    def _numbers(self, one: Any, other: Any) -> bool:
        if one == other or (one != one and other != other):
            return True
        real = isinstance(one, Real) and isinstance(other, Real)
        return self._number is not None and real and self._number(one, other)

    def _arrays(self, one: Any, other: Any) -> bool:
        import numpy as np

        if not (_is_array(one) and _is_array(other)):
            one, other = (each.tolist() if _is_array(each) else each for each in (one, other))
            return isinstance(one, list | tuple) and isinstance(other, list | tuple) and self._same(one, other)
        one, other = np.asarray(one), np.asarray(other)
        if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
            return False
        if one.dtype.kind in "fc":
            rel, absolute = self._within
            return bool(np.isclose(one, other, rtol=rel, atol=absolute, equal_nan=True).all())
        return all(map(self._same, one.flat, other.flat)) if one.dtype == object else bool((one == other).all())

    def _alike(self, one: Any, other: Any) -> bool:
        """Return whether two objects of classes with one name have the same parts."""
        if _name(type(one)) != _name(type(other)):
            return False
        whole = getattr(one, "equals", None)  # as tables and series of pandas, polars and pyarrow
        if callable(whole):
            with suppress(Exception):  # a method of that name with another meaning
                return whole(other) is True or bool(whole(other))
            return _sealed(one, other)
        mine, its = _parts(one), _parts(other)
        return self._same(mine, its) if mine and its else _sealed(one, other)


def _equal(one: Any, other: Any) -> bool:
    with suppress(Exception):  # a comparison that raises, or has no truth, says nothing
        return one is other or bool(one == other)
    return False


def _sealed(one: Any, other: Any) -> bool:
    """Return whether two values have the same pickle."""
    try:
        return seal_value(one) == seal_value(other)
    except SealError:
        return False


def _parts(value: Any) -> dict[str, Any]:
    """Return the attributes of an object by name."""
    slots = [name for kind in type(value).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if name != "__dict__" and hasattr(value, name)}
    return found | dict(getattr(value, "__dict__", {}))


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_array(value: Any) -> bool:
    # Tables and series have an index besides their values, and a method that compares both.
    return hasattr(value, "__array__") and getattr(value, "shape", ()) != () and not hasattr(value, "equals")


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, _ABSENT)
    return getattr(value, name, _ABSENT)
