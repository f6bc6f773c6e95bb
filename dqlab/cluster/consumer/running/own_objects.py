"""Objects that each consumer has of its own, such as clients that belong to an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Own(threading.local, Generic[T]):
    def __init__(self, make: Callable[[], T]) -> None:
        self.make = make
        self.made: tuple[Any, T] | None = None

    def __call__(self) -> T:
        loop = asyncio._get_running_loop()
        if self.made is None or self.made[0] is not loop:
            self.made = loop, self.make()
        return self.made[1]

    def __reduce__(self) -> tuple[Callable[[Callable[[], T]], Callable[[], T]], tuple[Callable[[], T]]]:
        return per_consumer, (self.make,)


def per_consumer(make: Callable[[], T], /) -> Callable[[], T]:
    """Return a function that returns each consumer's own object, which it makes at the consumer's first call.

    Consumers of one process have an event loop each, and a client of one loop does not work in another one, so a client
    must be in no variable of a module and in no `functools.cache`. With ``concurrency=``, each thread of a plain
    function has its own object. If the object has to be closed at the end, let ``setup=`` of the run make it instead.

    Parameters
    ----------
    make : callable
        Makes the object, without arguments. Its errors are those of the call.

    Returns
    -------
    callable
        Returns the object.

    Examples
    --------
    >>> @dq.per_consumer
    ... def client():
    ...     return httpx.AsyncClient()
    >>> async def ask(paper):
    ...     return (await client().get(paper["url"])).text
    """
    return _Own(make)
