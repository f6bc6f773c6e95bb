"""Describes arrays, frames and tensors by their content, for code versions.

A library is looked up among the loaded modules and never imported: without it, no value of it can exist. Values up to
64 MB are read whole; of a larger one, evenly spaced blocks of the same size in all.
"""

from __future__ import annotations

import pickle
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

from dqlab.imports import loaded
from dqlab.texts import kept

__all__ = ["WHOLE", "Content", "content_of", "flat"]

WHOLE = 64 << 20
"""Bytes up to which a value is read whole, and bytes that are read of a larger one."""
BLOCKS = 1024
"""Evenly spaced stretches that are read of a larger value, including its start and its end."""
_OBJECT = 4
"""How many times as long as its pointer an object takes to read; texts have some 30 bytes."""
_FLAT = frozenset({str, bytes, int, float, bool, type(None)})
_SORTED = frozenset({str, bytes, int})

Look = Callable[[object], bytes]
"""Describes a value inside another one."""


@dataclass(frozen=True, slots=True)
class Content:
    """The digest of what a value holds."""

    digest: bytes
    """Equal for equal content, in every process."""
    size: int
    """Bytes in memory, as the value's library counts them."""
    sampled: bool = False
    """Whether the value was too large to be read whole."""


def content_of(value: Any, look: Look) -> Content | None:
    """Return the content of an array, frame or tensor, None for anything else, or raise as its library does."""
    kind = type(value)
    if isinstance(value, array):
        data = value.tobytes()
        return Content(_digest("array.array", value.typecode, data), len(data))
    if kind in (bytes, bytearray, memoryview):
        return _buffer(value)
    for library, describe in _LIBRARIES.items():
        if library in sys.modules and any(base.__module__.partition(".")[0] == library for base in kind.__mro__):
            found = describe(loaded(library), value, look)
            if found is not None:
                return found
    return None


def flat(items: Iterable[object], *, ordered: bool = True) -> bytes | None:
    """Return the digest of many plain values at once, or None if one of them is not plain."""
    # Without `ordered`, the values must have one sortable type: sorting makes the digest independent of set order.
    values = list(items)
    kinds = set(map(type, values))
    if not ordered and (len(kinds) > 1 or not kinds <= _SORTED):
        return None
    if not kinds <= _FLAT:
        return None
    hash = _Digest()
    pickler = pickle.Pickler(hash, 5)
    pickler.fast = True  # no memo: equal texts give the same bytes, as one object or as two
    pickler.dump(values if ordered else sorted(values))
    return hash.digest()


class _Digest:
    """A file that keeps only the digest of what is written."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        """Add bytes to the digest."""
        self._hash.update(data)
        return len(data)

    def digest(self) -> bytes:
        """Return the digest of what was written, 16 bytes."""
        return self._hash.digest()


def _digest(*parts: str | bytes | memoryview) -> bytes:
    hash = blake2b(digest_size=16)
    for part in parts:
        data = kept(part) if isinstance(part, str) else part
        # The length first: "ab" + "c" must differ from "a" + "bc".
        hash.update(len(data).to_bytes(8, "little"))
        hash.update(data)
    return hash.digest()


def _stretches(count: int, whole: int) -> Iterator[tuple[int, int]]:
    """Yield the stretches to read of `count` elements when `whole` may be read, all or evenly spaced blocks."""
    if count <= whole:
        yield 0, count
        return
    length = max(1, whole // BLOCKS)
    blocks, end = min(BLOCKS, whole, count), 0
    for number in range(blocks):
        first = (count - length) * number // max(1, blocks - 1)
        yield max(first, end), first + length  # rounding may make neighbours overlap
        end = first + length


def _rows(count: int, size: int) -> Any:
    """Return the numbers of the rows of a frame to read, or None to read all."""
    if size <= WHOLE:
        return None
    stretches = list(_stretches(count, min(count, max(BLOCKS, count * WHOLE // size))))
    np = loaded("numpy")
    if np is None:
        return [row for first, end in stretches for row in range(first, end)]
    return np.concatenate([np.arange(first, end) for first, end in stretches])


def _buffer(value: bytes | bytearray | memoryview) -> Content:
    view = memoryview(value)
    shape = f"{view.format} {view.shape}"
    data = memoryview(view.tobytes()) if not view.c_contiguous else view.cast("B") if view.nbytes else memoryview(b"")
    parts = [data[a:b] for a, b in _stretches(len(data), WHOLE)]
    return Content(_digest(type(value).__name__, shape, *parts), len(data), len(data) > WHOLE)


# --- one function for each library ----------------------------------------------------------


def _numpy(np: Any, value: Any, look: Look) -> Content | None:
    if isinstance(value, np.dtype):
        return Content(_digest("dtype", repr(value)), 0)
    if isinstance(value, np.generic) and not isinstance(value, np.void | np.object_):
        return Content(_digest("scalar", repr(value.dtype), value.tobytes()), value.nbytes)
    if isinstance(value, np.void):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray):
        return None
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    more = b""
    if isinstance(value, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(value)
        more = _values(np, mask, look) + look([value.fill_value, value.hardmask])
        value = np.where(mask, np.zeros((), value.dtype), value.data)  # a masked element may hold any value
    elif type(value) not in (np.ndarray, np.memmap):
        more = look(vars(value)) if hasattr(value, "__dict__") else b""
    plain = value.view(np.ndarray) if type(value) is not np.ndarray else value
    return Content(_digest(kind, _values(np, plain, look), more), plain.nbytes, _weight(plain) > WHOLE)


def _weight(values: Any) -> int:
    """Return the cost of reading an array, in bytes."""
    dtype = values.dtype
    return int(values.nbytes) * (_OBJECT if getattr(dtype, "hasobject", False) or dtype.kind == "T" else 1)


def _values(np: Any, values: Any, look: Look) -> bytes:
    """Describe a plain array by its shape, type and bytes in C order, whatever its layout in memory."""
    dtype = values.dtype
    head = f"{dtype!r} {values.shape}"
    if dtype.fields is not None:  # padding between fields holds arbitrary bytes
        return _digest(head, *(_values(np, values[name], look) for name in dtype.names))
    if dtype.hasobject or dtype.kind == "T":
        each = max(1, dtype.itemsize) * _OBJECT
        items = (item for a, b in _stretches(values.size, WHOLE // each) for item in values.flat[a:b].tolist())
        return _digest(head, _items(items, look))
    if not values.nbytes:
        return _digest(head)
    whole = values.nbytes <= WHOLE
    if whole or values.flags.c_contiguous:
        data = memoryview(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
        return _digest(head, *(data[a:b] for a, b in _stretches(len(data), WHOLE)))
    stretches = _stretches(values.size, WHOLE // dtype.itemsize)
    return _digest(head, *(values.flat[a:b].tobytes() for a, b in stretches))


def _items(items: Iterable[object], look: Look) -> bytes:
    listed = list(items)
    return flat(listed) or look(listed)


def _pandas(pd: Any, value: Any, look: Look) -> Content | None:
    if not isinstance(value, pd.DataFrame | pd.Series | pd.Index | pd.api.extensions.ExtensionArray):
        return None
    part = partial(_pandas_part, pd, look=look)
    if isinstance(value, pd.RangeIndex):
        return Content(part(value), 0)
    usage = getattr(value, "memory_usage", None)
    size = int(value.nbytes) if usage is None else int(pd.Series(usage(deep=False)).sum())
    columns = [value.iloc[:, at] for at in range(value.shape[1])] if isinstance(value, pd.DataFrame) else [value]
    rows = _rows(len(value), max(size, sum(map(_weight, columns))))
    kind = f"{type(value).__qualname__} {len(value)}"
    attributes = look(_attributes(value))
    if rows is not None:
        value = value.take(rows)
    return Content(_digest(kind, part(value), attributes), size, rows is not None)


def _attributes(value: Any) -> list[object]:
    """Return the attributes of a pandas frame, series or index besides its values."""
    own = {name: getattr(value, name, None) for name in getattr(value, "_metadata", ())}
    flags = getattr(value, "flags", None)
    return [getattr(value, "attrs", None), getattr(flags, "allows_duplicate_labels", None), own]


def _pandas_part(pd: Any, value: Any, look: Look) -> bytes:
    part = partial(_pandas_part, pd, look=look)
    if isinstance(value, pd.DataFrame):
        columns = (part(value.iloc[:, at].array) for at in range(value.shape[1]))
        return _digest("frame", part(value.columns), part(value.index), *columns)
    if isinstance(value, pd.Series):
        return _digest("series", look(value.name), part(value.index), part(value.array))
    if isinstance(value, pd.RangeIndex):
        return _digest("range", f"{value.start} {value.stop} {value.step}", look(value.name))
    if isinstance(value, pd.MultiIndex):
        levels = [*map(part, value.levels), *(_values(loaded("numpy"), codes, look) for codes in value.codes)]
        return _digest("levels", look(list(value.names)), *levels)
    if isinstance(value, pd.Index):
        return _digest("index", look(value.name), str(getattr(value, "freqstr", None)), part(value.array))
    np = loaded("numpy")
    if isinstance(value, pd.Categorical):
        codes = _values(np, np.asarray(value.codes), look)
        return _digest("categorical", f"{value.ordered}", part(value.categories), codes)
    if isinstance(value, pd.arrays.IntervalArray):
        return _digest("interval", value.closed, part(value.left), part(value.right))
    dtype = str(value.dtype)
    numbers = getattr(value, "asi8", None)  # times, as pandas stores them
    if numbers is not None:
        return _digest(dtype, _values(np, numbers, look))
    if isinstance(value, pd.arrays.NumpyExtensionArray | np.ndarray):
        return _digest(dtype, _values(np, value.to_numpy(), look))
    missing = np.asarray(value.isna(), dtype=bool)
    items = np.array(value.to_numpy(dtype=object), dtype=object)  # a copy: to_numpy may return the user's own array
    items[missing] = None  # `missing` describes these; NaN, NA and None stand for the same
    return _digest(dtype, _values(np, missing, look), _items(items.tolist(), look))


def _polars(pl: Any, value: Any, look: Look) -> Content | None:
    if not isinstance(value, pl.DataFrame | pl.Series):
        return None
    size = int(value.estimated_size())
    rows = _rows(len(value), size)
    head = f"{type(value).__qualname__} {len(value)}"
    if rows is not None:
        value = value[rows]
    columns = value.get_columns() if isinstance(value, pl.DataFrame) else [value]
    parts = [_column(repr(column.dtype), column.name, column, column.null_count(), look) for column in columns]
    return Content(_digest(head, *parts), size, rows is not None)


def _pyarrow(pa: Any, value: Any, look: Look) -> Content | None:
    if not isinstance(value, pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray):
        return None
    size = int(value.nbytes)
    rows = _rows(len(value), size)
    tabular = isinstance(value, pa.Table | pa.RecordBatch)
    names = value.schema.names if tabular else [""]
    kind = value.schema.serialize().to_pybytes() if tabular else str(value.type)  # its text shortens metadata
    head = f"{type(value).__qualname__} {len(value)}"
    if rows is not None:
        value = value.take(pa.array(rows))
    columns = [
        # Array.to_numpy() refuses what it would have to copy, such as booleans; that of a ChunkedArray copies.
        pa.chunked_array([column]) if isinstance(column, pa.Array) else column
        for column in (value.columns if tabular else [value])
    ]
    parts = [
        _column(str(column.type), name, column, column.null_count, look)
        for name, column in zip(names, columns, strict=True)
    ]
    return Content(_digest(head, kind, *parts), size, rows is not None)


def _column(kind: str, name: str, column: Any, missing: int, look: Look) -> bytes:
    """Describe a column of polars or Arrow by its numbers, or by its values where it holds other things."""
    np = loaded("numpy")
    if np is not None and not missing:
        values = np.asarray(column.to_numpy())
        if values.dtype.kind in "iufbmM":
            return _digest(kind, name, _values(np, values, look))
    listed = column.to_list() if hasattr(column, "to_list") else column.to_pylist()
    return _digest(kind, name, _items(listed, look))


def _torch(torch: Any, value: Any, look: Look) -> Content | None:
    if not isinstance(value, torch.Tensor):
        return None
    # As bytes, since NumPy lacks types such as bfloat16; flat first, since a scalar tensor has no view as bytes.
    data = value.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
    head = f"{type(value).__qualname__} {value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad}"
    return Content(_digest(head, _values(loaded("numpy"), data, look)), data.nbytes, data.nbytes > WHOLE)


_LIBRARIES: dict[str, Callable[[Any, Any, Look], Content | None]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _pyarrow,
    "torch": _torch,
}
