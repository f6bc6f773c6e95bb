"""Values of Arrow columns as plain Python.

Owns which type each becomes: texts, numbers, lists and dicts as Arrow has them, null as None, NaN as NaN, times as
`datetime` to the microsecond. Knows nothing of files. Imports pyarrow when it is called.
"""

from __future__ import annotations

from typing import Any

__all__ = ["plain"]


def plain(array: Any) -> list[Any]:
    """Return the values of an Arrow array, or of a part of a column."""
    import pyarrow as pa

    if isinstance(array, pa.ChunkedArray):
        if array.num_chunks != 1:
            return [value for chunk in array.chunks for value in plain(chunk)]
        array = array.chunk(0)
    kind = array.type
    types = pa.types
    if types.is_dictionary(kind):
        return plain(array.dictionary_decode())
    if _quick(types, kind, array):
        try:  # a tenth of the time of to_pylist, which makes a scalar of each value first
            values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
            return values
        except (ImportError, NotImplementedError):  # pyarrow comes without numpy, since 18
            pass
    coarse = _to_microseconds(pa, kind)
    if coarse is not kind:
        # Of nanoseconds pyarrow makes objects of pandas, if pandas can be imported; elsewhere an error.
        if types.is_timestamp(kind):  # a cast rounds towards 1970, which is up for what came before
            import pyarrow.compute

            array = pyarrow.compute.floor_temporal(array, unit="microsecond")
        array = array.cast(coarse, safe=False)
    return array.to_pylist()  # type: ignore[no-any-return]


def _quick(types: Any, kind: Any, array: Any) -> bool:
    """Whether numpy makes the same of it: it has no null for numbers, and an int with nulls becomes a float."""
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return True
    numeric: bool = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    return numeric and not array.null_count


def _to_microseconds(pa: Any, kind: Any) -> Any:
    """Return the type with microseconds in place of nanoseconds; the same object if it has none."""
    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_list(kind) or types.is_large_list(kind):
        inner = _to_microseconds(pa, kind.value_type)
        if inner is kind.value_type:
            return kind
        field = kind.value_field.with_type(inner)
        return pa.large_list(field) if types.is_large_list(kind) else pa.list_(field)
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        inner = [_to_microseconds(pa, field.type) for field in fields]
        if all(new is field.type for new, field in zip(inner, fields, strict=True)):
            return kind
        return pa.struct([field.with_type(new) for field, new in zip(fields, inner, strict=True)])
    if types.is_map(kind):
        key, item = _to_microseconds(pa, kind.key_type), _to_microseconds(pa, kind.item_type)
        return kind if key is kind.key_type and item is kind.item_type else pa.map_(key, item)
    return kind
