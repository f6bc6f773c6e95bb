"""A call as one object: what a custom consumer gets, and what `put` takes instead of `submit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqlab.errors import BadOption


class Message:
    """A function and its arguments. Calling the message calls the function.

    Parameters
    ----------
    func : callable
        What is called.
    *args, **kwargs
        What it is called with.

    Attributes
    ----------
    id : int or None
        The message's id once it was delivered; None before.

    Raises
    ------
    BadOption
        `func` is not callable.
    """

    def __init__(self, func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        if not callable(func):
            raise BadOption(option="func", value=func, problem="is not a function.")
        self.func, self.args, self.kwargs = func, args, kwargs
        self.id: int | None = None

    def __repr__(self) -> str:
        name = getattr(self.func, "__qualname__", type(self.func).__qualname__)
        return f"<Message {name}(...): {'not delivered' if self.id is None else self.id}>"

    def __call__(self) -> Any:
        """Call the function and return its result, which for a coroutine function is an awaitable."""
        return self.func(*self.args, **self.kwargs)
