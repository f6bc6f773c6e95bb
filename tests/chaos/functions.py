"""What runs on the consumers: functions that note in a file, outside of dqlab, when they begin and end.

What each of them must return is computed a second time by the checks, from the source and the number alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import dqlab as dq
from tests.chaos import stacks, truth

__all__ = ["KINDS", "Element", "answer", "elements", "function", "ordinal_of", "told", "trait_of", "work"]

Element: TypeAlias = tuple[str, int, str, float]
"""Where it comes from (a run, or a queue into which it was put), its number, its trait, seconds."""

Answer: TypeAlias = list[object] | dict[str, object]

KINDS = ("thread", "process", "coroutine", "document", "large", "rows")
"""Where a function runs (thread, process, event loop), that it takes documents with odd names, or returns much; or that
its results go to a sink."""

SINKS = ("rows",)

LARGE = 4_000_000
"""Characters of a large result: a dozen and a half of them are more than one record of a log holds."""

ODD_NAME = "caf\udce9 \x1b[31m\u2028</script>.txt"
"""Behind the name of each document: bytes that are no UTF-8, a terminal's escape, a line separator, markup."""

ODD_VALUES: tuple[Any, ...] = (
    "x",
    None,
    "",
    math.nan,
    -0.0,
    math.inf,
    2**70,
    "caf\udce9",
    "\x00\x1b[31m\u2028</script>",
    b"\xff\x00",
    {"a": None, 1: (2, [])},
    frozenset({1}),
    [[]],
    "\U0001f600" * 90,
)


class Unprintable(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("this exception has no text")

    __repr__ = __str__


class Unpicklable(Exception):
    """It holds what cannot travel."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


ODD_ERRORS: tuple[Callable[[str], BaseException], ...] = (
    ValueError,
    lambda key: ValueError(f"{key} caf\udce9 \x1b[31m\x00"),
    lambda key: Unprintable(key),
    lambda key: Unpicklable(key),
    lambda key: LookupError(key, b"\xff"),
    lambda key: ValueError(key * 100_000),
    lambda key: ExceptionGroup(key, [ValueError(key), OSError(5, "caf\udce9")]),
    lambda key: TimeoutError(),
)


def answer(source: str, number: int, kind: str = "thread") -> Answer:
    """Return what the function returns for an element."""
    if kind == "large":
        return [source, number, f"{number:08}" * (LARGE // 8)]
    if kind in SINKS:
        return {"source": source, "number": number, "value": told(ODD_VALUES[number % len(ODD_VALUES)])}
    return [source, number, ODD_VALUES[number % len(ODD_VALUES)]]


def told(value: object) -> str:
    """Return what a client passes on of a value: all of it if short, else its digest. NaN equals NaN."""
    text = repr(value)
    return text if len(text) < 400 else hashlib.blake2b(text.encode("utf-8", "surrogatepass")).hexdigest()


def trait_of(number: int) -> str:
    """Return "sound"; "flaky", which fails once; or "broken", which fails until its function is mended."""
    if number % 61 == 7:
        return "broken"
    return "flaky" if number % 43 == 5 else "sound"


def elements(source: str, n: int, seconds: float, trickle: float, kind: str = "thread") -> Iterator[Any]:
    """Yield the documents of a run."""
    for number in range(n):
        if trickle:
            time.sleep(trickle)  # a producer that takes its time, for the plan to hit it half-way
        one = source, number, trait_of(number), seconds
        yield document(*one) if kind == "document" else one


def document(source: str, number: int, trait: str, seconds: float) -> dq.Document:
    """Return an element as a document; what is to be done stands in its name."""
    key = f"{source}|{number}|{trait}|{seconds}|{ODD_NAME}"
    return dq.Document(key=key, version="1", where=f"/nowhere/{ODD_NAME}", n_pages=1 + number % 3)


def ordinal_of(key: int | str, source: str) -> int:
    """Return the number of the element that has this key in its run; -1 for a key that no element has."""
    if isinstance(key, int):
        return key
    found = key.split("|")
    return int(found[1]) if len(found) == 5 and found[0] == source and found[4] == ODD_NAME else -1


def function(kind: str, *, mended: bool = False) -> Callable[[Any], Any]:
    """Return the function of a load, or the one in which what fails for good is mended."""
    return _FUNCTIONS[kind if kind in _FUNCTIONS else "thread"][mended]


def work(element: Element) -> Answer:
    """Take some time and answer, as the element's trait says."""
    return _run(element, mended=False)


def mend(element: Element) -> Answer:
    """Do the same where `work` fails for good."""
    return _run(element, mended=True)


async def work_async(element: Element) -> Answer:
    """Do the same beside others, which end in an order of their own."""
    return await _run_async(element, mended=False)


async def mend_async(element: Element) -> Answer:
    """Do the same where `work_async` fails for good."""
    return await _run_async(element, mended=True)


def work_document(element: dq.Document) -> Answer:
    """Do the same for a document."""
    return _run(_element(element), mended=False)


def mend_document(element: dq.Document) -> Answer:
    """Do the same where `work_document` fails for good."""
    return _run(_element(element), mended=True)


def work_large(element: Element) -> Answer:
    """Do the same, and return much."""
    return _run(element, mended=False, kind="large")


def mend_large(element: Element) -> Answer:
    """Do the same where `work_large` fails for good."""
    return _run(element, mended=True, kind="large")


def work_row(element: Element) -> Answer:
    """Do the same, and return what a table can have."""
    return _run(element, mended=False, kind="rows")


def mend_row(element: Element) -> Answer:
    """Do the same where `work_row` fails for good."""
    return _run(element, mended=True, kind="rows")


_FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "thread": (work, mend),
    "coroutine": (work_async, mend_async),
    "document": (work_document, mend_document),
    "large": (work_large, mend_large),
    "rows": (work_row, mend_row),
}


def _element(document: dq.Document) -> Element:
    source, number, trait, seconds, _ = document.key.split("|")
    return source, int(number), trait, float(seconds)


def _run(element: Element, *, mended: bool, kind: str = "thread") -> Answer:
    source, number, trait, seconds = element
    stacks.listen()
    key = f"{source}:{number}"
    truth.began(key)
    well = False
    try:
        time.sleep(seconds)  # the work it does
        _fail(key, number, trait, mended=mended)
        well = True
    finally:
        truth.ended(key, well=well)
    return answer(source, number, kind)


async def _run_async(element: Element, *, mended: bool) -> Answer:
    source, number, trait, seconds = element
    stacks.listen()
    key = f"{source}:{number}"
    truth.began(key)
    well = False
    try:
        await asyncio.sleep(seconds * (1 + 7 * number % 11))
        _fail(key, number, trait, mended=mended)
        well = True
    finally:
        truth.ended(key, well=well)
    return answer(source, number)


def _fail(key: str, number: int, trait: str, *, mended: bool) -> None:
    if (trait == "broken" and not mended) or (trait == "flaky" and _first_time(key)):
        raise ODD_ERRORS[number % len(ODD_ERRORS)](f"{key} is {trait}")


def _first_time(key: str) -> bool:
    try:
        os.close(os.open(truth.directory() / f"failed-{key}", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True
