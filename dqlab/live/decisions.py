"""What cells offer about runs until a user decides, wherever that happens.

A cell whose run has other code offers to retry with it, or to start over. The live view of the run has a button that
does the same, a line of another cell may, and so may another notebook. What acts here reports what it did, and what
only sees it reports that: either way the offer shows it, and offers nothing more.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from dqlab import numbers
from dqlab.live.feeds import cluster_of

__all__ = ["Settle", "decided", "deciding", "is_offered", "noticed", "offered", "retried"]

Settle: TypeAlias = Callable[[str], object]
"""Shows in place of an offer what was done; called once, from any thread."""

_Run: TypeAlias = tuple[str, str]
"""Address of the scheduler, and name: a run that is started over keeps both."""


class _Offer(NamedTuple):
    """An offer, and how many code versions its run had by then."""

    version: int
    settle: Settle


_lock = threading.Lock()
_open: dict[_Run, list[_Offer]] = {}
_acting: Counter[_Run] = Counter()


def offered(source: object, run: str, version: int, settle: Settle) -> None:
    """Note an offer about a run, made while `version` was the newest version of the run's code."""
    with _lock:
        _open.setdefault((cluster_of(source), run), []).append(_Offer(version, settle))


def is_offered(source: object, run: str) -> bool:
    """Return whether a cell offers something about a run."""
    with _lock:
        return (cluster_of(source), run) in _open


@contextmanager
def deciding(source: object, run: str) -> Iterator[Settle]:
    """Act on a run, and report what was done; without a report its offers stay.

    What is noticed during the block is this act, which has more to report.

    Parameters
    ----------
    source : object
        The run, its queue or its lab.
    run : str
        Its name.
    """
    key = cluster_of(source), run
    with _lock:
        _acting[key] += 1
    try:
        yield lambda said: decided(source, run, said)
    finally:
        with _lock:
            _acting[key] -= 1
            if not _acting[key]:
                del _acting[key]  # one for each run ever acted on would stay


def decided(source: object, run: str, said: str) -> None:
    """Report what was done with a run, so that nothing that was offered about it applies any more."""
    with _lock:
        offers = _open.pop((cluster_of(source), run), [])
    for each in offers:
        each.settle(said)


def noticed(source: object, run: str, version: int, said: str) -> None:
    """Report that a run has a newer version of its code, which something out of sight has given it."""
    key = cluster_of(source), run
    with _lock:
        known = _acting[key] > 0 or all(each.version >= version for each in _open.get(key, ()))
    if not known:
        decided(source, run, said)


def retried(documents: int, code: str, at: float) -> str:
    """Return what a retry did: ``Retried 41 documents with parse v2 at 14:03``; `at` is seconds since 1970 UTC."""
    return f"Retried {numbers.many(documents, 'document')} with {code} at {numbers.minute(at)}"
