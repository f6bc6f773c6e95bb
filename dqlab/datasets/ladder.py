"""Which small parts are worth a merge: a row is written again a few times, however many parts there are."""

from __future__ import annotations

__all__ = ["AT_ONCE", "Ladder"]

AT_ONCE = 16
"""Parts of about one size that are merged together."""


class Ladder:
    """Small parts by size: `AT_ONCE` of one step make one of the next.

    Parameters
    ----------
    enough : int
        Rows from which on a part is left as it is.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._steps: dict[int, list[tuple[str, int]]] = {}

    def add(self, part: str, rows: int) -> None:
        """Note a part that was written."""
        if rows < self._enough:
            self._steps.setdefault(_step(rows), []).append((part, rows))

    def take(self) -> list[tuple[str, int]]:
        """Return parts to be merged now, each with its rows, and forget them; none while there are few."""
        for step, parts in self._steps.items():
            if len(parts) >= AT_ONCE:
                self._steps[step] = parts[AT_ONCE:]
                return parts[:AT_ONCE]
        return []


def _step(rows: int) -> int:
    step = 0
    while rows >= AT_ONCE:
        rows, step = rows // AT_ONCE, step + 1
    return step
