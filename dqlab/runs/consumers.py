"""The classes that users subclass to define how messages are processed.

A `ConsumerPool` sends the class to the workers, where each slot of a consumer has an object of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from dqlab.cluster.consumer.actor import Message


class ConsumerBaseClass(ABC):
    """Subclass it and define `process_item`.

    dqlab creates the object without arguments on its worker, and uses it in one thread: open connections and load
    models in ``__init__``. If that raises, the leased messages fail and are retried.

    Attributes
    ----------
    name : str
        The consumer's name; set once ``__init__`` has returned.
    """

    name: str = ""

    @abstractmethod
    def process_item(self, item: Any) -> Any:
        """Process one message; may be a coroutine function.

        Parameters
        ----------
        item : object
            The value that was put, or a `Message` for a call that was submitted.

        Returns
        -------
        object
            The message's result, kept by the queue; None if there is nothing to keep.
        """


class GeneralConsumer(ConsumerBaseClass):
    """Run calls; a plain value becomes a dead letter."""

    def process_item(self, item: Message) -> Any:
        """Call the function of a message; override it to do something around the call."""
        return item()


class DummyConsumer(ConsumerBaseClass):
    """Acknowledge every message with the result None, and run nothing: to empty a queue, or to measure one."""

    def process_item(self, item: Any) -> None:
        """Do nothing."""
