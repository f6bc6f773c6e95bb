"""`examine` a cluster and `examine_store` without one: facts, then checks. Never hangs; raises for wrong use only."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from dqlab.checkup.checks import judge
from dqlab.checkup.facts import Facts, Process, Store, look_at_store
from dqlab.checkup.findings import Checkup
from dqlab.clock import SystemClock
from dqlab.config import seconds
from dqlab.errors import BadOption, DqlabError, LabClosed, UsageError
from dqlab.store.probe import Probe

if TYPE_CHECKING:
    from dqlab.cluster.transport.link import Link

__all__ = ["TIMEOUT", "examine", "examine_store"]

TIMEOUT = "10s"
"""How long an examination may take."""
_GRACE = 2.0
"""Seconds more after which the event loop itself counts as stuck."""


def examine(link: Link, *, of: str, stores: Sequence[Path] = (), timeout: float | str = TIMEOUT) -> Checkup:
    """Examine a cluster, with dqlab on it or without.

    Parameters
    ----------
    link : Link
        To its scheduler.
    of : str
        What to call it.
    stores : sequence of Path
        Looked at beside those of the open queues.
    timeout : float or str
        For everything together.

    Raises
    ------
    BadOption
        `timeout` is not a duration above zero.
    UsageError
        This is the client's own event loop, which would wait for itself.
    """
    from dqlab.checkup.gathering import Gathering  # needs Dask, and a store alone does not

    limit = _checked(timeout)
    gathering = Gathering(link, of, stores, limit)
    try:
        return judge(link.sync(gathering.gather(), timeout=limit + _GRACE))
    except UsageError:
        raise
    except LabClosed:  # Dask closes a client whose scheduler has ended
        return judge(gathering.nothing("the connection to it is closed"))
    except DqlabError as error:
        return judge(gathering.nothing(str(error).removesuffix(".")))


def examine_store(directory: Path, *, timeout: float | str = TIMEOUT) -> Checkup:
    """Examine a store that any process may have open, or none: its file system, its space, its queues' files.

    Raises
    ------
    BadOption
        It is no directory that can be read, or `timeout` is not a duration above zero.
    """
    limit, clock = _checked(timeout), SystemClock()
    at, began = clock.wall(), clock.monotonic()
    found: SimpleQueue[Store] = SimpleQueue()
    # A thread that nobody waits for: a file system that hangs holds it for ever.
    threading.Thread(target=lambda: found.put(look_at_store(directory)), name="dqlab-doctor", daemon=True).start()
    try:
        store = found.get(timeout=limit)
    except Empty:
        error = f"it did not answer within {limit:g} s"
        store = Store(str(directory), Probe(str(directory), error=error), error=error)
    else:
        if store.probe.error or not store.probe.made:
            reason = store.probe.error or "there is no such directory"
            problem = f"cannot be looked at: {reason}. Give the directory that keeps queues."
            raise BadOption(option="store", value=str(directory), problem=problem)
    took = clock.monotonic() - began
    return judge(Facts(f"store {directory}", Process(), stores=(store,), limit=limit, at=at, took=took))


def _checked(timeout: float | str) -> float:
    limit = seconds(timeout, name="timeout")
    if limit <= 0:
        raise BadOption(option="timeout", value=timeout, problem="is above zero.")
    return limit
