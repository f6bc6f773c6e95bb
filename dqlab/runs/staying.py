"""What cannot leave the process that made it, and the error of a function that takes it along."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["StaysHere"]


class StaysHere:
    """An object that talks to the cluster for one process, and is not pickled."""

    _way_out: ClassVar[str]
    """What a function takes along in its place."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"it stays in the process that made it; {self._way_out}")  # pickle asks for a TypeError
