"""Standard output and error of a worker: what a message prints there also goes into its chunk's `output`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from dqlab.cluster.consumer.running.execution import alone, message_here


class Stream:
    """A text stream that passes everything on, and notes what the running message writes."""

    # Everything else is the stream's own, and so is what is written: whoever reads the worker's log finds all of it.
    # `name`: where `sys` has it, and the stream of bytes below.
    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def __reduce__(self) -> Any:
        return attrgetter(self._name), (sys,)  # as `sys.stdout` itself travels with a function

    def write(self, data: Any) -> int:
        """Write text, or bytes."""
        written: int = self._stream.write(data)
        _note(data if type(data) is str else bytes(data))
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Stream:
        """The stream of bytes below."""
        return Stream(self._stream.buffer, f"{self._name}.buffer")


def install() -> None:
    """Have standard output and error of this process note what messages print, unless they do."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and type(stream) is not Stream:
            setattr(sys, name, noting := Stream(stream, name))
            for handler in logging.root.handlers:  # made before, as by a preload script
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(noting)


def _note(data: bytes | str) -> None:
    """Add what was written to the output of the message that runs here."""
    # A thread that the function has started has no message of its own. Where one message runs in this process, it is
    # that one's; where several run, nobody can say whose it is.
    chunk, position = message_here() or alone() or (None, None)
    if chunk is not None and position is not None and data and (ring := chunk.ring_at(position)) is not None:
        ring.write(data)
