"""When a service that refuses a call may be called again, as its answer says it."""

from __future__ import annotations

from typing import Any

from dqlab.documents.servers import asked_wait
from dqlab.rules.retry import Later


def later_from(response: Any, *, default: float | str = 1.0, only_me: bool = False) -> Later:
    """Return the `Later` to raise for an answer of a service that says when to call again.

    It reads ``Retry-After``, ``retry-after-ms``, and the ``...ratelimit...reset...`` headers in use, of the limits of
    which nothing is left. Errors that clients raise themselves need none of this: they are understood as they are.

    Parameters
    ----------
    response : object
        With ``headers``, as a response or an error of httpx, aiohttp, requests, openai or anthropic; or the headers.
    default : float or str, default 1 s
        For how long where it does not say.
    only_me : bool, default False
        As in `Later`.

    Returns
    -------
    Later

    Raises
    ------
    BadOption
        `default` is not a duration, is below zero, or above 30 days.

    Examples
    --------
    >>> raise dq.later_from({"Retry-After": "7"})
    Traceback (most recent call last):
    dqlab.rules.retry.Later: not now; try again in 7 s
    """
    return Later(asked_wait(response) or default, only_me=only_me)
