"""The message that runs here, for the code that runs in it: what it asks, notes and prints."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from dqlab.frame import Kind

if TYPE_CHECKING:
    from dqlab.documents import Document
    from dqlab.printed import Ring


class Queued:
    """Messages that run, by position, with what is noted of them: a chunk, a batch, or those of a process."""

    running: int | None = None
    """The message that runs."""
    document: tuple[int, str] | None = None
    """Position and key of the document that began last."""
    stopped = False
    """No more messages may be taken."""
    waits = False
    """Whether taking a message may wait for it, which is not part of the message's time."""
    kind = Kind.ELEMENT
    """What the payloads are."""
    began = 0.0
    """When the first message began, seconds of `time.perf_counter`, as below; 0 where that is unknown."""
    todo: Any
    """The messages to run, with `popleft`."""
    done: Any
    """Takes outcomes: others than results whole, by `append`, results as their columns, the payload last."""
    ended: Any
    """When each message ended; written before its outcome is in `done`, which another thread reads."""
    versions: Any
    """The versions of documents, written before their outcomes too."""
    cancelled: Any
    """The messages that are not to run, or whose results are dropped."""
    spent: dict[int, dict[str, float]]
    """What messages have spent, by position and unit."""
    once: dict[int, dict[bytes, bytes]]
    """The answers that messages keep, by position and call."""

    def messages(self) -> Any:
        """Return the bytes of each message."""
        raise NotImplementedError

    def opening(self) -> tuple[Any, Any]:
        """Return a function that opens a message, and what it takes for each."""
        raise NotImplementedError

    def is_cancelled(self, index: int | None) -> bool:
        """Return whether a message that runs was cancelled."""
        return index in self.cancelled

    def read_on(self, document: Document) -> None:
        """Note that the function of a document behind a URL begins: those that follow may be read meanwhile."""

    def rest(self) -> None:
        """Note that no message is left."""

    def ring_at(self, index: int) -> Ring | None:
        """Return where to write what a message prints, or None where nothing is kept."""
        return None

    def note_step(self, index: int, number: int, total: int) -> None:
        """Note how far a message's function is in its document, 0 for nowhere; a `total` of 0 is not known."""

    def place_of(self, index: int, given: Sequence[Any]) -> int | None:
        """Return the position of the message that a call with these arguments is for, or None if nothing says it."""
        return index

    def pay(self, index: int, amounts: Mapping[str, float]) -> None:
        """Note what a message has spent."""
        so_far = self.spent.setdefault(index, {})
        for unit, amount in amounts.items():
            so_far[unit] = so_far.get(unit, 0.0) + amount

    def keep(self, index: int, answers: Mapping[bytes, bytes]) -> None:
        """Keep answers for a message until it has a result."""
        self.once.setdefault(index, {}).update(answers)


running: ContextVar[tuple[Queued, int | None] | None] = ContextVar("dqlab_running", default=None)
"""The chunk that runs in this context, and the message's position; None stands for the chunk's `running`."""
active: dict[Queued, bool] = {}
"""The chunks that run in this process, and whether each runs one message after another."""


def message_here() -> tuple[Queued, int] | None:
    """Return the chunk that runs in this context and the position of its message, or None outside a message."""
    # Where coroutines run, `chunk.running` is the message that has run longest: only the context knows the caller's.
    here = running.get()
    if here is None:
        return None
    chunk, index = here[0], here[0].running if here[1] is None else here[1]
    return None if index is None else (chunk, index)


def message_near() -> tuple[Queued, int] | None:
    """Return the same, or in a thread without a message the one that runs in this process, if it runs alone."""
    if running.get() is not None:
        return message_here()
    chunks = list(active.items())  # a copy, in one step: other threads change it
    if len(chunks) != 1 or not chunks[0][1] or (index := chunks[0][0].running) is None:
        return None
    return chunks[0][0], index


_forked = False
"""Whether this process is a copy that a function made by forking."""
_CAME_BACK = (
    b"dqlab: a function forked, and returned or raised in the child too. The child ends here; the message's outcome is "
    b"that of the parent. End children with os._exit().\n"
)


def _note_fork() -> None:
    global _forked
    here = running.get()
    if here is not None:  # a function has forked; a nursery forks workers too, but outside a message
        _forked = True
        here[0].stopped = True  # so that `run_calls` leaves its loop and reaches `end_if_forked`


os.register_at_fork(after_in_child=_note_fork)


def end_if_forked() -> None:
    """End this process if a function has made it by forking and has returned in it too."""
    # The chunk and the pipes or sockets for its outcomes belong to the original process. A copy that continued would
    # run messages twice and write its outcomes between the others.
    if _forked:
        os.write(2, _CAME_BACK)
        os._exit(1)


class Stream:
    """A text stream that passes everything on, and notes what the running message writes."""

    # The stream does everything else itself, and writes all text: the worker's log has all of it.
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
        noted = data if type(data) is str else bytes(data)
        # A thread that the function has started has no message of its own. Where one message runs in this process, it
        # is that one's; where several run, nobody can say whose it is.
        if noted and (here := message_near()) is not None and (ring := here[0].ring_at(here[1])) is not None:
            ring.write(noted)
        return written

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Stream:
        """The stream of bytes below."""
        return Stream(self._stream.buffer, f"{self._name}.buffer")


def note_output() -> None:
    """Have standard output and error of this process note what messages print, unless they do."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and type(stream) is not Stream:
            setattr(sys, name, noting := Stream(stream, name))
            for handler in logging.root.handlers:  # made before, as by a preload script
                if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                    handler.setStream(noting)
