"""Consumers that are made of a user's class.

The class stays sealed until a slot's thread opens it, so that a class that cannot be imported or made fails messages
and never the worker.
"""

from __future__ import annotations

import inspect
import threading
from typing import Any

from dqlab.cluster.consumer.actor import ConsumerActor
from dqlab.cluster.consumer.message import Message
from dqlab.cluster.consumer.running.chunk import Chunk
from dqlab.cluster.consumer.running.execution import Work, message_here
from dqlab.cluster.transport.sealed import open_value


class PreparedConsumer(ConsumerActor):
    """Makes a user's object in the thread of each slot before anything runs there; calls run as they are."""

    # `options` are those of `ConsumerActor` and `sealed`, the user's class.
    def __init__(self, name: str, queue: str, shards: int, options: dict[str, Any]) -> None:
        super().__init__(name, queue, shards, options)
        self._sealed: bytes = options["sealed"]
        self._here = threading.local()

    def _prepare(self) -> Any:
        return self._consumer

    def _consumer(self) -> Any:
        """Return this thread's object, which the first call makes."""
        # One object for each slot, so that no two threads ever use the same one.
        consumer = getattr(self._here, "consumer", None)
        if consumer is None:
            consumer = open_value(self._sealed)()
            consumer.name = self.name
            self._here.consumer = consumer
        return consumer


class CustomConsumer(PreparedConsumer):
    """Calls `process_item` of a user's object with each value that was put, or with a `Message` for a call."""

    def _values(self) -> Any:
        return lambda: Work(self._consumer().process_item)

    def _calls(self) -> Any:
        return self._as_message

    def _as_message(self, work: Work, chunk: Chunk) -> Work:
        """Return a function that passes the chunk's calls to `process_item`, each as one `Message`."""
        process_item, func = self._consumer().process_item, work.call

        def message(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message:
            delivered = Message(func, *args, **kwargs)
            here = message_here()
            assert here is not None, "only a message's run calls this"
            position = here[1]
            assert position is not None, "asked for in the call itself"
            delivered.id = chunk.id_at(position)
            return delivered

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await process_item(message(args, kwargs))

        def called(*args: Any, **kwargs: Any) -> Any:
            return process_item(message(args, kwargs))

        return Work(awaited if inspect.iscoroutinefunction(process_item) else called, work.code)
