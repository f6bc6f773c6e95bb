"""The protocol between a slot and its process: records and turns.

Of three pipes, one brings records to the process, one brings records back, and one brings *turns* of four bytes, each
the right to begin a message. The process takes a turn before each message, and the slot may take back the turns that
are left: a read of four bytes is atomic, so no message runs that was taken back.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import NamedTuple

import msgpack

from dqlab import platforms
from dqlab.documents import key_text, label_of
from dqlab.texts import kept, restored

TURN = struct.Struct("<I")
_KEY = struct.Struct("<IIH")
"""Turn, page, and the length of the key that follows."""
_PAGE, _PAGE_AT = struct.Struct("<I"), 4
_STEP = struct.Struct("<III")
"""Turn, how far its function is in the document, and of how much."""
_KEY_ROOM = 4096
_STEP_AT = _KEY_ROOM - _STEP.size
_STACK_MOST = 64 * 1024


class Say(IntEnum):
    """The type of a record."""

    HELLO = 0
    """To the process, first: its slot's environment and origin."""
    FUNCTION = 1
    """To the process: the function of the messages that follow, and where modules are found."""
    MESSAGE = 2
    READY = 3
    """From the process: it has started."""
    OPENED = 4
    """From the process: the function is opened, or cannot be, and the message begins."""
    OUTCOME = 5
    WANTS = 6
    """From the process: it reads documents ahead, and asks for announcements."""
    COMING = 7
    """To the process: the run, and the known messages after the next one."""
    BESIDE = 8
    """To the process: the answers that the next message keeps. From it: what its message has spent, and keeps."""


class Record(NamedTuple):
    """One record between a slot and its process."""

    say: int
    turn: int
    """The number of its message, from 1; 0 for records of no message."""
    body: bytes
    outcome: int
    """This and the fields below are of outcomes."""
    key: str | int | None
    version: str = ""
    seconds: float = 0.0
    """Time of the message; of OPENED, in which the objects of its function were made."""
    printed: int = 0
    """Bytes that the process has printed until then."""


def record(
    say: Say,
    turn: int = 0,
    body: bytes = b"",
    *,
    outcome: int = 0,
    key: str | int | None = None,
    version: str = "",
    seconds: float = 0.0,
    printed: int = 0,
) -> bytes:
    """Return the bytes of a record."""
    named = None if key is None else key_text(key)
    parts = say, turn, body, outcome, named, version, seconds, printed
    packed: bytes = msgpack.packb(parts, unicode_errors="surrogatepass")
    return packed


class Records:
    """Cuts a stream of bytes into records."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(unicode_errors="surrogatepass", max_buffer_size=0, use_list=False)

    def feed(self, data: bytes) -> None:
        """Add bytes that were read."""
        self._unpacker.feed(data)

    def take(self) -> list[Record]:
        """Remove and return the complete records; what is none, as other code may write it, becomes one of no type."""
        complete = list[Record]()
        try:
            for say, turn, body, outcome, named, *others in self._unpacker:
                complete.append(Record(say, turn, body, outcome, named and label_of(named), *others))
        except (TypeError, ValueError, AttributeError, msgpack.UnpackException):
            complete.append(Record(-1, 0, b"", 0, None))
        return complete


class LastWords:
    """A file in which a slot finds what its dead process was doing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        """Shared with the process: `faulthandler` writes a crash at the descriptor's position, behind the key."""

    @classmethod
    def make(cls) -> LastWords:
        """Make the file, which has no name."""
        words = cls(platforms.unnamed_file("dqlab-last-words"))
        os.lseek(words.fd, _KEY_ROOM, os.SEEK_SET)
        return words

    def note(self, turn: int, key: str) -> None:
        """Note the key of a message, which the slot does not know."""
        # The slot opens no payload, so only the process learns the key.
        named = kept(key)
        if len(named) <= _STEP_AT - _KEY.size:
            os.pwrite(self.fd, _KEY.pack(turn, 0, len(named)) + named, 0)

    def note_page(self, number: int) -> None:
        """Note the page of the message's document that native code reads, 0 for none."""
        os.pwrite(self.fd, _PAGE.pack(number), _PAGE_AT)

    def note_step(self, turn: int, number: int, total: int) -> None:
        """Note how far the function of a message is in its document."""
        os.pwrite(self.fd, _STEP.pack(turn, number, total), _STEP_AT)

    def step(self, turn: int) -> tuple[int, int]:
        """Return how far the function of a message is in its document, and of how much, 0 where it does not say."""
        noted = os.pread(self.fd, _STEP.size, _STEP_AT)
        at, number, total = _STEP.unpack(noted) if len(noted) == _STEP.size else (0, 0, 0)
        return (number, total) if turn and at == turn else (0, 0)

    def document(self, turn: int) -> tuple[str | None, int]:
        """Return the key of a message if it was the last one noted, and the page that native code was reading, or 0."""
        noted = os.pread(self.fd, _KEY_ROOM, 0)
        at, page, length = _KEY.unpack_from(noted) if len(noted) >= _KEY.size else (0, 0, 0)
        return (restored(noted[_KEY.size : _KEY.size + length]), page) if turn and at == turn else (None, 0)

    def stack(self) -> str:
        """Return the stack that `faulthandler` wrote, or "" if it had no time to."""
        return os.pread(self.fd, _STACK_MOST, _KEY_ROOM).decode("utf-8", "replace")

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
