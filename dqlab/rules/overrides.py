"""Messages that run another function than their frame names, after a retry with new code."""

from __future__ import annotations

from collections.abc import Iterator

from dqlab.rules.ranges import Ranges

__all__ = ["Overrides"]


class Overrides:
    """Ids by function; empty in nearly every lane."""

    __slots__ = ("_by_function",)

    def __init__(self) -> None:
        self._by_function: dict[bytes, Ranges] = {}

    def __bool__(self) -> bool:
        return bool(self._by_function)

    def items(self) -> Iterator[tuple[bytes, Ranges]]:
        """Yield each function and the ids that have it."""
        yield from self._by_function.items()

    def assign(self, lo: int, hi: int, function: bytes) -> None:
        """Give the ids ``[lo, hi)`` a function, in place of any other."""
        self.discard(lo, hi)
        self._by_function.setdefault(function, Ranges()).add(lo, hi)

    def discard(self, lo: int, hi: int) -> None:
        """Give the ids ``[lo, hi)`` their frames' functions again."""
        for function, ids in list(self._by_function.items()):
            ids.discard(lo, hi)
            if not ids:
                del self._by_function[function]

    def split(self, lo: int, hi: int) -> Iterator[tuple[int, int, bytes | None]]:
        """Yield ``[lo, hi)`` as stretches of one function each, in order; None = the frame's own."""
        if not self._by_function:
            yield lo, hi, None
            return
        assigned = [(a, b, function) for function, ids in self._by_function.items() for a, b in ids.within(lo, hi)]
        for a, b, function in sorted(assigned):
            if lo < a:
                yield lo, a, None
            yield a, b, function
            lo = b
        if lo < hi:
            yield lo, hi, None
