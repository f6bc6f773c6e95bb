"""Dataclasses that cross a border between processes as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Self, get_args, get_origin, get_type_hints

from dqlab.cluster.transport.wire import Packed, pack, pack_apart, unpack
from dqlab.rules.reports import fields_of, plain

__all__ = ["PlainData"]


class PlainData:
    """Base of dataclasses that cross a border between processes."""

    # A field may be plain data, a dataclass, an enum, a named tuple, a list of those, or None.
    __slots__ = ()

    def to_wire(self) -> dict[str, Any]:
        """Return plain data."""
        kind: Any = type(self)
        codec = _codec(kind)
        # Fields with their defaults are left out. `is not`: an equal value of another type, such as 0 for False, stays.
        wire = {name: value for name, default in codec.defaults if (value := getattr(self, name)) is not default}
        for name, nested in codec.nested:
            if wire.get(name) is not None:
                wire[name] = nested.pack(wire[name])
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Self:
        """Return the object that `to_wire` was called on."""
        kind: Any = cls
        codec = _codec(kind)
        # A newer version may send fields that this one does not know.
        known = {name: wire[name] for name, _ in codec.defaults if name in wire}
        for name, nested in codec.nested:
            if known.get(name) is not None:
                known[name] = nested.open(known[name])
        return cls(**known)

    def pack(self, *parts: bytes | memoryview) -> bytes:
        """Pack it with opaque parts."""
        return pack(self.to_wire(), *parts)

    def pack_apart(self, *parts: bytes | memoryview) -> Packed:
        """Pack it with opaque parts that may be large."""
        return pack_apart(self.to_wire(), *parts)

    @classmethod
    def unpack(cls, body: Packed) -> tuple[Self, list[memoryview]]:
        """Return what was packed, and its parts as views."""
        meta, parts = unpack(body)
        return cls.from_wire(meta), parts


class _Nested(NamedTuple):
    """How values of a field become plain data, and how plain data becomes them."""

    pack: Callable[[Any], Any]
    open: Callable[[Any], Any]


class _Codec(NamedTuple):
    defaults: Sequence[tuple[str, object]]
    nested: Sequence[tuple[str, _Nested]]


@cache  # resolving type hints takes much longer than packing a message
def _codec(kind: Any) -> _Codec:
    hints = get_type_hints(kind)
    found = [(each.name, _nested(hints[each.name])) for each in fields(kind)]
    nested = [(name, each) for name, each in found if each is not None]
    return _Codec([(each.name, each.default) for each in fields(kind)], nested)


def _nested(hint: Any) -> _Nested | None:
    """Return how a field of this type crosses a border, or None for plain data."""
    if get_origin(hint) is UnionType:
        (hint,) = [each for each in get_args(hint) if each is not NoneType][:1]
    if get_origin(hint) is list:
        item = _nested(get_args(hint)[0])
        return None if item is None else _Nested(lambda values: [*map(item.pack, values)], _list_of(item.open))
    if not isinstance(hint, type):
        return None
    if issubclass(hint, PlainData):
        return _Nested(hint.to_wire, hint.from_wire)
    if is_dataclass(hint):
        return _Nested(plain, lambda value: hint(**fields_of(hint, value)))
    if issubclass(hint, Enum):
        return _Nested(lambda value: value.value, hint)
    if issubclass(hint, tuple) and hint is not tuple:  # msgpack packs a named tuple as a list
        return _Nested(list, lambda value: hint(*value))
    return None


def _list_of(opened: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [*map(opened, values)]
