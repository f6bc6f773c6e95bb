"""Decides whether a run's messages run in processes of their own, and with which limits of time and memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, Self, TypeAlias

from dqlab.config import check_count, check_timeout, nbytes_or_none, seconds_or_none
from dqlab.errors import BadOption

Executor: TypeAlias = Literal["auto", "thread", "process"]
"""Where a run's function runs."""
GPUS = "gpus"
"""Devices among what a run needs, beside the names of Dask's resources."""

_NO_DEVICES = "is a coroutine function, and those run in the consumer's event loop. Devices are for plain functions."
_IN_THE_LOOP = "is a coroutine function, and those run in the consumer's event loop. Use asyncio.timeout() inside it."


@dataclass(frozen=True, slots=True)
class Isolation:
    """Limits of the processes that a run's messages run in."""

    timeout: float | None = None
    """Seconds for one message."""
    memory: int | None = None
    """Resident bytes of one process."""
    max_messages: int | None = None
    """Messages after which a process is replaced."""
    gpus: float | None = None
    """Devices that one process sees, or its share of one."""

    @classmethod
    def of(cls, record: dict[str, Any] | None) -> Self | None:
        """Return the limits in a run record, or None for a run in threads."""
        return None if record is None else cls(**record)

    def record(self) -> dict[str, Any]:
        """Return the limits as plain data for a run record."""
        return asdict(self)


def isolation(
    executor: Executor,
    fn: Callable[..., Any],
    *,
    timeout: float | str | None = None,
    memory: int | str | None = None,
    max_messages: int | None = None,
    gpus: float | None = None,
    native: bool = False,
) -> Isolation | None:
    """Return the limits of a run's processes, or None if its function runs in threads."""
    # Threads and coroutine functions cannot be killed, so a limit for them is a BadOption. With `native`, "auto" means
    # a process: native code opens the documents, and may crash.
    if executor not in ("auto", "thread", "process"):
        raise BadOption(option="executor", value=executor, problem="is 'auto', 'thread' or 'process'.")
    limits = Isolation(
        seconds_or_none(timeout, name="timeout"), nbytes_or_none(memory, name="memory"), max_messages, gpus
    )
    if limits.timeout is not None:
        check_timeout("timeout", limits.timeout)
    if max_messages is not None:
        check_count("max_messages_per_process", max_messages)
    if gpus is not None:
        _check_amount("gpus", gpus, gpus)
        if gpus > 1 and gpus % 1:
            raise BadOption(option="gpus", value=gpus, problem="is a whole number, or a share of one device, as 0.5.")
    given = {"timeout": timeout, "memory": memory, "max_messages_per_process": max_messages, "gpus": gpus}
    option, value = next(((name, value) for name, value in given.items() if value is not None), (None, None))
    if executor == "thread" and option is not None:
        why = "what it sees is set before its first import" if option == "gpus" else "a thread cannot be killed"
        problem = f"needs a process: {why}. Leave executor= out, or pass executor='process'."
        raise BadOption(option=option, value=value, problem=problem)
    if executor == "auto" and option is None and native and not is_coroutine(fn):
        return limits
    if executor != "process" and option is None:
        return None
    if callable(fn) and is_coroutine(fn):
        why = _NO_DEVICES if option == "gpus" else _IN_THE_LOOP
        raise BadOption(option=option or "executor", value=value or executor, problem=f"the function {why}")
    return limits


def needs_of(gpus: float | None, resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return what a slot must have to run a message, from a user's options, or raise `BadOption`."""
    if resources is not None and not isinstance(resources, Mapping):
        raise BadOption(option="resources", value=resources, problem="is amounts by name, as {'GPU': 1}.")
    for name, amount in (resources or {}).items():
        if not isinstance(name, str) or name == GPUS:
            raise BadOption(option="resources", value=name, problem="is no resource of Dask; devices are gpus=1.")
        _check_amount(f"resources[{name!r}]", amount, resources)
    return {**(resources or {}), **({} if gpus is None else {GPUS: gpus})}


def _check_amount(option: str, amount: Any, value: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, int | float) or not 0 < amount < math.inf:
        raise BadOption(option=option, value=value, problem="is a number above zero.")


def is_coroutine(call: Callable[..., Any]) -> bool:
    """Return whether a call returns an awaitable, or an asynchronous generator, that an event loop must run."""
    while type(call) is partial:
        call = call.func
    is_one = inspect.iscoroutinefunction, inspect.isasyncgenfunction
    return any(each(call) or each(type(call).__call__) for each in is_one)
