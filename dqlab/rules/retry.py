"""Options of a queue: how often and how soon a message is delivered again; and `Later`, which asks for a delay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from random import Random
from typing import Any, cast

from dqlab.config import check_count, check_timeout, seconds
from dqlab.errors import BadOption, DqlabError
from dqlab.failures.failure import path_of

_MAX_DOUBLINGS = 64
SHORTEST = 0.1
"""Least seconds for which a function may send its message away: one without a delay would come back in a hot loop."""
_LONGEST = 30 * 24 * 3600.0
"""Most seconds for which a function may send its message away: longer than that, its wait would go unnoticed."""


# Functions that raise it by this name, `from dqlab import Later`, lie in logs of queues: it stays in this module.
class Later(DqlabError):
    """Raise it in a function to get the message again later; this is not a failure, and does not count.

    For a busy service that reports when to retry: the consumer runs other messages until then. With `early_ack` the
    message is dead instead, because it is never redelivered.

    Parameters
    ----------
    delay : float or str
        Seconds, or "30s", at most 30 days; the message is not delivered again earlier. Less than 0.1 s counts as 0.1 s.
    only_me : bool, default False
        In a run with ``limit=`` or ``concurrency=``, as every run of a coroutine function has, all of the run waits:
        a busy service is busy for everybody. True: this message alone.

    Raises
    ------
    BadOption
        Not a duration, below zero, or above 30 days.

    Examples
    --------
    >>> raise Later("30s")
    Traceback (most recent call last):
    dqlab.rules.retry.Later: not now; try again in 30 s
    """

    text = "not now; try again in {seconds:g} s"

    def __init__(self, delay: float | str, *, only_me: bool = False) -> None:
        found = seconds(delay, name="delay")
        if found > _LONGEST:
            raise BadOption(option="delay", value=delay, problem="is more than 30 days.")
        super().__init__(seconds=max(SHORTEST, found))
        self.only_me = only_me

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.fields['seconds']!r}{', only_me=True' if self.only_me else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), only_me=self.only_me), (self.fields["seconds"],)


@dataclass(frozen=True)
class Retry:
    """Retries after exceptions, with exponential backoff.

    Parameters
    ----------
    retries : int, default 3
        Deliveries after the first exception; 0 sends a message to the dead letters at its first exception.
    backoff : float or str, default 1 s
        Longest delay before the first retry; doubles for each further one. Seconds, or "500ms".
    max_backoff : float or str, default 5 min
        No delay is longer.
    jitter : bool, default True
        Draw each delay from 0 to its bound, so that messages that failed together do not return together
        (full jitter; M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    on : exception classes or their names, optional
        Retry these only. They are retried even if they are of the classes that never are, such as `FileNotFoundError`.
    never : exception classes or their names, optional
        Do not retry these. The nearest class of an exception that is named here, in `on`, or among those that are never
        retried decides: with ``on=OSError``, a `FileNotFoundError` still is not. A name is a class's own, "Timeout", or
        has its module, "requests.exceptions.Timeout".

    Raises
    ------
    BadOption
        A negative or fractional number of retries, something that is not a duration, or a class that is not one of
        exceptions, or is in both `on` and `never`.

    Examples
    --------
    >>> Retry(5, on=(TimeoutError, "RateLimitError"), never="AuthenticationError").on
    ('builtins.TimeoutError', 'RateLimitError')
    """

    retries: int = 3
    backoff: float | str = 1.0
    max_backoff: float | str = 300.0
    jitter: bool = True
    on: type[BaseException] | str | Iterable[type[BaseException] | str] = ()
    never: type[BaseException] | str | Iterable[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        check_count("retries", self.retries, least=0)
        for option in ("on", "never"):
            object.__setattr__(self, option, _names_of(option, getattr(self, option)))
        if both := set(self._on) & set(self._never):
            raise BadOption(option="never", value=", ".join(sorted(both)), problem="is in on= too.")
        object.__setattr__(self, "backoff", seconds(self.backoff, name="backoff"))
        object.__setattr__(self, "max_backoff", seconds(self.max_backoff, name="max_backoff"))

    def delay(self, exceptions: int, random: Random) -> float:
        """Return the seconds to wait before retry number `exceptions`, counted from 1."""
        doublings = min(max(exceptions - 1, 0), _MAX_DOUBLINGS)
        bound = min(float(self.max_backoff), float(self.backoff) * 2.0**doublings)
        return random.uniform(0.0, bound) if self.jitter else bound

    def allows(self, kinds: str, *, rejected: bool = False) -> bool:
        """Return whether `on` and `never` let a failure be retried that has these `Failure.kinds`."""
        # A failure that its consumer has `rejected` may be retried only where its class is the reason for that.
        lines = kinds.split("\n")
        return any(map(self._allows, lines)) and not (rejected and not all(line.startswith("!") for line in lines))

    def _allows(self, line: str) -> bool:
        for kind in line.removeprefix("!").split(" "):
            for names, verdict in ((self._on, True), (self._never, False)):
                if any(kind == name or kind.endswith(f".{name}") for name in names):
                    return verdict
        return not (self._on or line.startswith("!"))

    @property
    def _on(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.on)

    @property
    def _never(self) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self.never)

    def record(self) -> dict[str, Any]:
        """Return the options as plain data, without names of classes where there are none."""
        classes = {option: list(names) for option, names in (("on", self._on), ("never", self._never)) if names}
        return {name: value for name, value in asdict(self).items() if name not in ("on", "never")} | classes


def as_retry(given: object) -> Retry | None:
    """Return the `Retry` that a user's option means: a number of retries, False for none, None or True for default."""
    if given is None or given is True or isinstance(given, Retry):
        return given if isinstance(given, Retry) else None
    if not isinstance(given, int):
        problem = "is neither a number of retries nor a Retry; write 5, or dq.Retry(5, on=TimeoutError)."
        raise BadOption(option="retry", value=given, problem=problem)
    return Retry(int(given))


def _names_of(option: str, given: Any) -> tuple[str, ...]:
    """Return the names of some exception classes."""
    several = (given,) if isinstance(given, str | type) else given
    if not isinstance(several, Iterable):
        several = (None,)
    names: list[Any] = list(several)
    names = [path_of(name) if isinstance(name, type) and issubclass(name, BaseException) else name for name in names]
    if not all(isinstance(name, str) and name for name in names):
        problem = "is not a class of exceptions, its name, or several of them, as on=(TimeoutError, 'RateLimitError')."
        raise BadOption(option=option, value=given, problem=problem)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class QueueOptions:
    """Options of a queue, checked when they are made."""

    visibility_timeout: float = 60.0
    """Seconds a lease lasts unless it is renewed."""
    max_deliveries: int = 5
    """Deliveries that count and end without an exception, after which a message becomes a dead letter: its consumer
    died, or its lease ended, while it ran there as a suspect."""
    retry: Retry = field(default_factory=Retry)
    """What happens after exceptions, and how many there may be."""
    maxsize: int | None = 100_000
    """Most messages (ready + delayed + leased) of one lane; None = no limit."""
    max_bytes: int | None = 1 << 30
    """The same for the bytes of their payloads."""

    def __post_init__(self) -> None:
        check_timeout("visibility_timeout", self.visibility_timeout)
        check_count("max_deliveries", self.max_deliveries)
        if self.maxsize is not None:
            check_count("maxsize", self.maxsize)
        if self.max_bytes is not None:
            check_count("max_bytes", self.max_bytes)
        if not isinstance(self.retry, Retry):
            raise BadOption(option="retry", value=self.retry, problem="a dq.Retry(...).")
