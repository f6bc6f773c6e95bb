"""What runs on the consumers: functions that note in a file, outside of dqlab, when they begin and end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TypeAlias

from tests.chaos import stacks, truth

__all__ = ["Element", "answer", "elements", "mended", "trait_of", "work"]

Element: TypeAlias = tuple[str, int, str, float]
"""Where it comes from (a run, or a queue into which it was put), its number, its trait, seconds."""


def answer(source: str, number: int) -> list[object]:
    """Return what the function returns for an element."""
    return [source, number, "x" * (number % 97)]


def trait_of(number: int) -> str:
    """Return "sound"; "flaky", which fails once; or "broken", which fails until its function is mended."""
    if number % 61 == 7:
        return "broken"
    return "flaky" if number % 43 == 5 else "sound"


def elements(source: str, n: int, seconds: float, trickle: float) -> Iterator[Element]:
    """Yield the documents of a run."""
    for number in range(n):
        if trickle:
            time.sleep(trickle)  # a producer that takes its time, for the plan to hit it half-way
        yield source, number, trait_of(number), seconds


def work(element: Element) -> list[object]:
    """Take some time and answer, as the element's trait says."""
    return _run(element, mended=False)


def mended(element: Element) -> list[object]:
    """Do the same where `work` fails for good."""
    return _run(element, mended=True)


def _run(element: Element, *, mended: bool) -> list[object]:
    source, number, trait, seconds = element
    stacks.listen()
    key = f"{source}:{number}"
    truth.began(key)
    well = False
    try:
        time.sleep(seconds)  # the work it does
        if (trait == "broken" and not mended) or (trait == "flaky" and _first_time(key)):
            raise ValueError(f"{key} is {trait}")
        well = True
    finally:
        truth.ended(key, well=well)
    return answer(source, number)


def _first_time(key: str) -> bool:
    try:
        os.close(os.open(truth.directory() / f"failed-{key}", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
