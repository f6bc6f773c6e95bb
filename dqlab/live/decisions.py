"""Keep what cells offer about runs until a user decides, wherever that happens.

A cell with other code for a run offers to retry with that code, or to start over. The live view of the run has a button
for the same; a line of another cell may do it, and so may another notebook. The act reports what was done, and a view
that only notices the act reports that: either way the offer shows it, and offers nothing more.

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
"""Shows what was done in place of an offer, in one call from any thread."""

_Run: TypeAlias = tuple[str, str]
"""Address of the scheduler, and name: a run that is started over keeps both."""


class _Offer(NamedTuple):
    """An offer about a run."""

    version: int
    """Number of code versions that its run had at the time."""
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
    """Act on a run, and report what was done, or keep its offers without a report."""
    key = cluster_of(source), run
    with _lock:
        # During the act, `noticed` stays silent: what it would notice is this act, which has more to report.
        _acting[key] += 1
    try:
        yield lambda said: decided(source, run, said)
    finally:
        with _lock:
            _acting[key] -= 1
            if not _acting[key]:
                # Else an entry would stay for each run that was ever acted on.
                del _acting[key]


def decided(source: object, run: str, said: str) -> None:
    """Report what was done with a run, so that no offer about it applies any more."""
    with _lock:
        offers = _open.pop((cluster_of(source), run), [])
    # Outside the lock: a `settle` is foreign code, and may offer again.
    for each in offers:
        each.settle(said)


def noticed(source: object, run: str, version: int, said: str) -> None:
    """Report a newer version of a run's code, given by an act that happened elsewhere."""
    key = cluster_of(source), run
    with _lock:
        known = _acting[key] > 0 or all(each.version >= version for each in _open.get(key, ()))
    if not known:
        decided(source, run, said)


def retried(documents: int, code: str, at: float) -> str:
    """Word what a retry did, as in ``Retried 41 documents with parse v2 at 14:03``."""
    return f"Retried {numbers.many(documents, 'document')} with {code} at {numbers.minute(at)}"
