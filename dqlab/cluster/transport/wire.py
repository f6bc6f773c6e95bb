"""What crosses a border between processes, and how: dataclasses as plain data, beside any number of opaque parts.

Arguments or an answer of a call become one `bytes`, with a small msgpack dict before the parts.

Dask serialises a list argument element by element: 10,000 messages take 203 ms as a list, and 3 ms as one `bytes`.

::

    u32 size of meta | u32 number of parts | u64 size of each part | meta | parts
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Self, TypeAlias, get_args, get_origin, get_type_hints

import msgpack

from dqlab.rules.reports import fields_of, plain
from dqlab.texts import EXACT, SHOWN

_HEAD = struct.Struct("<II")
LARGE_PART = 64 << 10
"""Least bytes of a part that is cheaper to send beside a message than to copy into it."""


class Apart(NamedTuple):
    """Arguments or an answer with large parts beside it, which are sent without a copy."""

    head: bytes | memoryview
    """The packed rest, with empty parts in the place of the large ones."""
    parts: Mapping[int, bytes | memoryview]
    """Large parts by number."""


Packed: TypeAlias = bytes | memoryview | Apart
"""Arguments or an answer, as sent between processes."""


def pack(meta: Mapping[str, Any], *parts: bytes | memoryview) -> bytes:
    """Pack plain data (numbers, strings, bytes, lists, dicts) and opaque parts."""
    # EXACT: a text with lone surrogates, like the name of a file, must arrive unchanged.
    body = msgpack.packb(meta, use_bin_type=True, unicode_errors=EXACT)
    head = _HEAD.pack(len(body), len(parts))
    return b"".join((head, struct.pack(f"<{len(parts)}Q", *map(len, parts)), body, *parts))


def pack_apart(meta: Mapping[str, Any], *parts: bytes | memoryview) -> bytes | Apart:
    """Pack plain data and opaque parts, with large parts beside."""
    large = {at: part for at, part in enumerate(parts) if len(part) >= LARGE_PART}
    if not large:
        return pack(meta, *parts)
    return Apart(pack(meta, *(b"" if at in large else part for at, part in enumerate(parts))), large)


def unpack(blob: Packed) -> tuple[dict[str, Any], list[memoryview]]:
    """Return the plain data and the parts of packed bytes."""
    # Parts are views: they keep the whole blob alive. Copy a part that is kept for long.
    if isinstance(blob, Apart):
        meta, parts = unpack(blob.head)
        for number, part in blob.parts.items():
            parts[number] = memoryview(part)
        return meta, parts
    view = memoryview(blob)
    size, count = _HEAD.unpack_from(view)
    sizes = struct.unpack_from(f"<{count}Q", view, _HEAD.size)
    at = _HEAD.size + 8 * count
    meta = msgpack.unpackb(view[at : at + size], raw=False, strict_map_key=False, unicode_errors=EXACT)
    at += size
    parts = []
    for length in sizes:
        parts.append(view[at : at + length])
        at += length
    return meta, parts


def pack_report(totals: Mapping[str, Any]) -> bytes:
    """Pack a report for views, with texts made valid, or raise any error if it is not plain data."""
    packed: bytes = msgpack.packb(totals, use_bin_type=True, unicode_errors=SHOWN)
    return packed


def unpack_report(packed: bytes) -> dict[str, Any]:
    """Return a packed report, with lists in place of tuples."""
    totals: dict[str, Any] = msgpack.unpackb(packed, raw=False, strict_map_key=False)
    return totals


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
    found = [(field.name, _nested(hints[field.name])) for field in fields(kind)]
    nested = [(name, each) for name, each in found if each is not None]
    return _Codec([(field.name, field.default) for field in fields(kind)], nested)


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
