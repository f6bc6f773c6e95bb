"""Standard output and error of a worker: what a message prints there also goes into its chunk's `output`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any

from dqlab.cluster.consumer.running.execution import alone, message_here


class Stream:
    """A text stream that passes everything on, and notes what the running message writes."""

    # Everything else is the stream's own, and so is what is written: whoever reads the worker's log finds all of it.
    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self._name = stream, name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def __reduce__(self) -> Any:
        return getattr, (sys, self._name)  # as `sys.stdout` itself travels with a function

    def write(self, text: str) -> int:
        """Write text."""
        written: int = self._stream.write(text)
        _note(text)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        """The stream of bytes below."""
        return _Bytes(self._stream.buffer)


class _Bytes:
    """A stream of bytes that passes everything on likewise."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._stream, attribute)

    def write(self, data: Any) -> int:
        """Write bytes."""
        written: int = self._stream.write(data)
        _note(bytes(data))
        return written


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
    here = message_here() or alone()
    if here is None:
        return
    chunk, position = here
    ring = None if position is None or not data else chunk.ring_at(position)
    if ring is not None:
        ring.write(data)
