"""The elements of an input: what is copied, what each weighs, and a hash by which a queue recognises them."""

from __future__ import annotations

import hashlib
import threading
import warnings
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from enum import Enum
from typing import Any

from dqlab.cluster.transport.sealed import SealError, seal_value
from dqlab.documents.document import Document
from dqlab.documents.labelled import Labelled
from dqlab.documents.listing import Documents
from dqlab.documents.parts import Member
from dqlab.documents.sources import Given, Glob, LongestFirst, Sample, Source, Unpacked, Where, Window
from dqlab.errors import DqlabWarning, UsageError, users_code
from dqlab.numbers import many, size
from dqlab.rules.puts import Submitted
from dqlab.rules.ranges import ENDLESS, Ranges
from dqlab.texts import kept
from dqlab.user_frames import level_of_user

WORTH = 5_000
"""Elements from which on the classes cost about a second, here and on the consumers."""
_MAIN = ("__main__", "__mp_main__")


class ClassTravels(DqlabWarning):
    """The elements are objects of a class of the notebook, which is sent along with each of them."""


_warned: set[str] = set()
"""Classes that the user was warned about."""


def tell_class(elements: Iterable[Any]) -> None:
    """Warn once about a class of the notebook when many of its objects are mapped."""
    # Only these have a first element that can be looked at: reading an iterator would consume it.
    if not isinstance(elements, tuple | list) or len(elements) < WORTH:
        return
    kind = type(elements[0])
    if kind.__module__ not in _MAIN or issubclass(kind, Enum) or kind.__qualname__ in _warned:
        return
    try:
        each = size(len(seal_value(elements[0])))
    except SealError:  # the submission raises it, with the element's position
        return
    _warned.add(kind.__qualname__)
    name = kind.__qualname__
    text = (
        f"the {len(elements):,} elements are objects of {name}, a class of this notebook, which travels with each of "
        f"them ({each}); plain values are sent a hundred times faster. Put {name} into a module that the consumers "
        "can import, or pass plain values, such as vars(element) or dataclasses.asdict(element), and make the object "
        "in the function."
    )
    warnings.warn(text, ClassTravels, stacklevel=level_of_user())


BYTES = "bytes"
_MOST = (1 << 32) - 1
"""Largest weight that fits the 32 bits of a frame; larger documents weigh as much."""


def unit_of(elements: Any) -> str:
    """Return "bytes" if all documents of an input have sizes and none has pages, else ""."""
    # A listing is judged by its source: looking at its documents would list the storage.
    if isinstance(elements, Documents):
        return BYTES if _is_sized(elements._source) else ""
    return BYTES if _are_sized(elements) else ""


def _is_sized(source: Source) -> bool:
    """Return whether the source of a listing gives a size with each document, and pages with none."""
    while isinstance(source, Window | Where | Sample | LongestFirst):
        source = source.source
    if isinstance(source, Given):
        return _are_sized(source.iterable)
    return isinstance(source, Unpacked) or (isinstance(source, Glob) and source.sized)


def _are_sized(elements: Any) -> bool:
    return type(elements) in (list, tuple) and bool(elements) and all(map(_has_size, elements))


def _has_size(element: Any) -> bool:
    whole = type(element) is Document and (element.part is None or type(element.part) is Member)
    return whole and element.size is not None and not element.page_count


def weigher(unit: str, first: Any) -> Callable[[Any], int] | None:
    """Return the function that weighs the elements of a run, given its unit and first element, or None."""
    if unit == BYTES:
        return _bytes_of
    return _pages_of if type(first) is Document and first.page_count else None


# At least 1: documents without weight would vanish from bars and estimates before they are done.
def _bytes_of(element: Any) -> int:
    return min(max((type(element) is Document and element.size) or 1, 1), _MOST)


def _pages_of(element: Any) -> int:
    return (type(element) is Document and element.page_count) or 1


BLOCK = 500
"""Elements that are hashed at once."""


def identity(element: Any, payload: bytes) -> bytes:
    """Return what identifies an element of an input: key and version of a document, else its pickle."""
    if type(element) is not Document:
        return payload
    # Without a version, only the place tells two documents with the same key apart.
    return kept(f"{element.key}\0{element.version or element.where}\n")


class Digest:
    """Rolling hash of an input."""

    def __init__(self, confirmed: Callable[[], int]) -> None:
        # Returns how many of the first elements the queue holds; `at` is not asked about fewer.
        self._confirmed = confirmed
        self._lock = threading.Lock()
        """Guards folding: one thread adds elements, and another one records them while the input yields none."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._folded = 0
        self._pending: list[bytes] = []
        """Elements that are not folded yet. The list is never replaced, so `update` appends without the lock."""
        self._blocks: deque[tuple[int, Any, list[bytes]]] = deque()
        """Elements that are hashed but not confirmed: position, hash before them, hashed bytes."""
        self._back_to: int | None = None
        """While set, elements from here on are kept, even if they are confirmed meanwhile."""

    def update(self, element: Any, payload: bytes) -> None:
        """Add the next element."""
        self.extend((identity(element, payload),))

    def extend(self, payloads: Sequence[bytes]) -> None:
        """Add the next elements by what identifies them."""
        self._pending.extend(payloads)
        if len(self._pending) > BLOCK:
            with self._lock:
                self._fold()

    @property
    def count(self) -> int:
        """Elements added so far."""
        with self._lock:
            return self._folded + len(self._pending)

    def at(self, count: int) -> str:
        """Return the digest of the first `count` elements, which must not be fewer than the confirmed ones."""
        with self._lock:
            self._fold()
            for first, before, inputs in self._blocks:
                if first <= count < first + len(inputs):
                    hash = before.copy()
                    hash.update(b"".join(inputs[: count - first]))
                    return str(hash.hexdigest())
            assert count >= self._folded, f"the digest of the first {count:,} elements was forgotten"
            return self._hash.hexdigest()

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep all elements that are not confirmed now, while the queue is asked what it holds."""
        with self._lock:
            self._fold()
            # The answer may be older than the next confirmation: `at` then asks about fewer elements than are
            # confirmed.
            self._back_to = self._confirmed()
        try:
            yield
        finally:
            with self._lock:
                self._back_to = None

    def _fold(self) -> None:
        if not self._pending:
            return
        # One update with a joined block costs a tenth of one update per element.
        inputs = self._pending[:]
        del self._pending[: len(inputs)]  # in place: the other thread may append behind them meanwhile
        self._blocks.append((self._folded, self._hash.copy(), inputs))
        self._hash.update(b"".join(inputs))
        self._folded += len(inputs)
        confirmed = self._confirmed() if self._back_to is None else self._back_to
        while self._blocks and self._blocks[0][0] + len(self._blocks[0][2]) <= confirmed:
            self._blocks.popleft()

    def submitted(self, held: Ranges, before: Submitted) -> Submitted:
        """Return the record of what the queue holds of the input, given the ordinals it holds and the record before."""
        through = min(held.gaps(0, ENDLESS)[0][0], self.count)
        beyond = Ranges(held.within(through, ENDLESS))
        if not beyond:
            return Submitted(through, self.at(through), beyond)
        end = max(hi for _, hi in beyond)
        # The input may not have been read that far again: then the earlier record knows the digest at the end.
        return Submitted(through, self.at(through), beyond, self.at(end) if end <= self.count else before.end_digest)


def key_of(element: Any, ordinal: int) -> Any:
    """Return the key of an element's result, which is the ordinal for an element without a key."""
    if type(element) is Labelled:
        return element.label
    return element.key if type(element) is Document else ordinal


def why_empty(elements: Iterable[Any]) -> str:
    """Return what to do about an input without elements, as a sentence without its full stop."""
    if isinstance(elements, Iterator):
        kind = type(elements).__name__
        article = "an" if kind[0].lower() in "aeiou" else "a"
        return f"Make the input again: {article} {kind} yields its elements only once"
    if isinstance(elements, Documents) and (none := elements.why_none()):
        return none[0].upper() + none[1:].removesuffix(".")
    return "Check its path or pattern"


def repeats(elements: Iterable[Any]) -> bool:
    """Return whether the elements can be read more than once."""
    return elements.repeats if isinstance(elements, Documents) else not isinstance(elements, Iterator)


_LASTING = (tuple, range, frozenset)


_DICTS: tuple[Any, ...] = ({}, OrderedDict())


_VIEWS = [type(view) for each in _DICTS for view in (each.keys(), each.values(), each.items())]


_COPIED = (list, deque, *_VIEWS)
"""Builtin types whose copy costs one reference per element. Copying others may load elements, or never end."""


def as_mapped(elements: Any) -> Any:
    """Return a copy of a builtin container, so that later changes do not matter, and anything else as it is."""
    if type(elements) in _COPIED:
        return tuple(elements)
    if type(elements) in (array, bytearray):
        return elements[:]
    return elements


def length_of(elements: Any) -> int | None:
    """Return the number of elements, or None if it is unknown, slow to compute or cannot change."""
    if type(elements) in _LASTING or isinstance(elements, Iterator | Documents):
        return None
    if hasattr(elements, "__dask_graph__"):  # its len() computes the collection
        return None
    with users_code:  # no len(), or the user's own one fails
        return len(elements)
    return None


def watched(elements: Iterable[Any], had: int | None) -> Iterable[Any]:
    """Return the elements, or a generator of them that raises UsageError when `had` is no longer their number."""
    return elements if had is None else _counted(elements, had)


def _counted(elements: Iterable[Any], had: int) -> Iterator[Any]:
    exact, read = isinstance(elements, Sequence | Set), 0
    for element in elements:
        if read == had and exact and length_of(elements) != had:
            raise _resized(had, "more")
        read += 1
        yield element
    # A user's len() may be an estimate, or count what is left: only one that changed and is not `read` proves it.
    if read != had and length_of(elements) != had:
        raise _resized(had, f"{read:,}")


def _resized(had: int, read: str) -> UsageError:
    return UsageError(
        reason=f"the input had {many(had, 'element')} when it was mapped and gave {read} when it was read: it was "
        "changed meanwhile. Map a copy of it: list(batch)."
    )
