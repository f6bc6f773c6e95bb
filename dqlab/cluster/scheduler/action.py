"""One order of a person, as it comes from a page: what can be asked, and with which values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from dqlab.errors import BadOption

__all__ = ["Action"]

MOST_CONSUMERS = 10_000
_STATES = ("ready", "delayed", "dead")
_OF_QUEUES = ("pause", "resume", "drain", "scale", "purge", "compact")
_OF_RUNS = ("pause", "resume", "cancel", "retry")
_FIELDS = {"n": "scale", "state": "purge", "fingerprints": "retry", "limit": "retry"}
"""What only one action takes."""


@dataclass(frozen=True, slots=True)
class Action:
    """One order.

    Attributes
    ----------
    action : str
        pause, resume, drain, scale, purge, compact; of runs pause, resume, cancel, retry.
    queue, run : str
        On what; run "" = the queue.
    n : int or "auto"
        Consumers, to scale.
    state : str
        Messages to purge: ready, delayed or dead.
    fingerprints : tuple of str
        Failure classes to retry; none = all.
    limit : int or None
        Retry so many at most.
    """

    action: str
    queue: str
    run: str = ""
    n: int | Literal["auto"] = "auto"
    state: str = "dead"
    fingerprints: tuple[str, ...] = ()
    limit: int | None = None

    @classmethod
    def parse(cls, said: Any) -> Action:
        """Read what somebody sent as JSON.

        Raises
        ------
        BadOption
            It is no action, or one with a value that it cannot have; nothing was done.
        """
        if not isinstance(said, dict):
            raise _bad("action", said, "must be an object: {'action': 'pause', 'queue': 'default'}")
        for name in said.keys() - set(cls.__slots__):
            raise _bad(str(name)[:40], said[name], f"is no part of an action. There are: {', '.join(cls.__slots__)}")
        action, queue, run = _subject(said)
        for name, taker in _FIELDS.items():
            if name in said and action != taker:
                raise _bad(name, said[name], f"is for {taker} alone")
        if action == "scale" and "n" not in said:
            raise _bad("n", None, "must say how many consumers, or 'auto'")
        n, state, limit = said.get("n", "auto"), said.get("state", "dead"), said.get("limit")
        if n != "auto" and not _is_count(n, MOST_CONSUMERS):
            raise _bad("n", n, f"must be a number of consumers, 1 to {MOST_CONSUMERS:,}, or 'auto'")
        if state not in _STATES:
            raise _bad("state", state, "must be 'ready', 'delayed' or 'dead'")
        if limit is not None and not _is_count(limit):
            raise _bad("limit", limit, "must be how many at most, 1 or more")
        marks = said.get("fingerprints", [])
        if not isinstance(marks, list) or not all(isinstance(mark, str) and mark for mark in marks):
            raise _bad("fingerprints", marks, "must be a list of fingerprints of failure classes")
        return cls(action, queue, run, n, state, tuple(marks), limit)


def _subject(said: dict[str, Any]) -> tuple[str, str, str]:
    """Return what is to be done, and on which queue and run."""
    action, queue, run = said.get("action"), said.get("queue"), said.get("run", "")
    if not isinstance(run, str):
        raise _bad("run", run, "must be the name of a run")
    known = _OF_RUNS if run else _OF_QUEUES
    if not isinstance(action, str) or action not in known:
        raise _bad("action", action, f"must be one of {', '.join(known)} for a {'run' if run else 'queue'}")
    if not isinstance(queue, str) or not queue:
        raise _bad("queue", queue, "must be the name of a queue")
    return action, queue, run


def _bad(option: str, value: Any, problem: str) -> BadOption:
    said = value if not isinstance(value, str) else value[:100]
    return BadOption(option=option, value=said, problem=f"{problem}. Nothing was done.")


def _is_count(value: object, most: int = 1 << 53) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
