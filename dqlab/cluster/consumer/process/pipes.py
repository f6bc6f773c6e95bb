"""The protocol between a slot and its process over pipes: records with a head of 30 bytes.

Three pipes. Records go into the process and come out of it; *turns* go in, four bytes for each
message, the right to begin it. The process takes one before each message, and the slot may take back
those that are not taken yet: a read of four bytes is atomic, so no message runs that was taken back.
"""

from __future__ import annotations

import os
import struct
from enum import IntEnum
from typing import NamedTuple

from dqlab import platforms
from dqlab.texts import kept, restored

__all__ = ["TURN", "LastWords", "Record", "Records", "Say", "record"]

TURN = struct.Struct("<I")
_HEAD = struct.Struct("<BBIiIdQ")
_KEY = struct.Struct("<IIH")
"""Turn, page, and how many bytes of a key follow."""
_PAGE, _PAGE_AT = struct.Struct("<I"), 4
_KEY_ROOM = 4096
_STACK_MOST = 64 * 1024


class Say(IntEnum):
    """What a record is about."""

    HELLO = 0
    """To the process, first: whose it is."""
    FUNCTION = 1
    """To the process: what the messages behind it run, and where modules are found."""
    MESSAGE = 2
    READY = 3
    """From the process: it has started."""
    OPENED = 4
    """From the process: the function is opened, or cannot be; the message begins."""
    OUTCOME = 5
    WANTS = 6
    """From the process: it reads documents ahead, and wants to know what comes next."""
    COMING = 7
    """To the process: what comes behind the next message, as far as is known, and the run of that."""


class Record(NamedTuple):
    """One record; `turn` is the number of its message, from 1.

    A record of an outcome also has the key and the version of the document, and how many seconds the message took.
    """

    say: int
    turn: int
    body: bytes
    outcome: int
    key: str | None
    version: str = ""
    seconds: float = 0.0


def record(
    say: Say,
    turn: int = 0,
    body: bytes = b"",
    *,
    outcome: int = 0,
    key: str | None = None,
    version: str = "",
    seconds: float = 0.0,
) -> bytes:
    """Return a record's bytes."""
    if key is None and not version:
        return _HEAD.pack(say, outcome, turn, -1, 0, seconds, len(body)) + body
    named, versioned = b"" if key is None else kept(key), kept(version)
    lengths = -1 if key is None else len(named), len(versioned)
    return b"".join((_HEAD.pack(say, outcome, turn, *lengths, seconds, len(body)), named, versioned, body))


class Records:
    """Cuts a stream of bytes into records."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take in what was read."""
        self._buffer += data

    def take(self) -> list[Record]:
        """Return the records that are complete."""
        buffer, at, complete = self._buffer, 0, []
        while len(buffer) - at >= _HEAD.size:
            say, outcome, turn, named, versioned, seconds, length = _HEAD.unpack_from(buffer, at)
            start = at + _HEAD.size
            behind = start + max(named, 0)
            middle = behind + versioned
            if len(buffer) < middle + length:
                break
            key = None if named < 0 else restored(bytes(buffer[start:behind]))
            version = restored(bytes(buffer[behind:middle])) if versioned else ""
            at = middle + length
            complete.append(Record(say, turn, bytes(buffer[middle:at]), outcome, key, version, seconds))
        del buffer[:at]
        return complete


class LastWords:
    """A file of a process in which its slot finds, once it is dead, what it was doing.

    Parameters
    ----------
    fd : int
        Shared with the process; a crash of it is described at the descriptor's position.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def make(cls) -> LastWords:
        """Make the file; it has no name."""
        words = cls(platforms.unnamed_file("dqlab-last-words"))
        os.lseek(words.fd, _KEY_ROOM, os.SEEK_SET)
        return words

    def note(self, turn: int, key: str) -> None:
        """Note a message's key, for it is not known before the message is opened."""
        named = kept(key)
        if len(named) <= _KEY_ROOM - _KEY.size:
            os.pwrite(self.fd, _KEY.pack(turn, 0, len(named)) + named, 0)

    def note_page(self, number: int) -> None:
        """Note which page of the message's document native code is at; 0: none."""
        os.pwrite(self.fd, _PAGE.pack(number), _PAGE_AT)

    def key(self, turn: int) -> str | None:
        """Return a message's key, if it was noted and no later one was."""
        noted = os.pread(self.fd, _KEY_ROOM, 0)
        if len(noted) < _KEY.size:
            return None
        at, _, length = _KEY.unpack_from(noted)
        return restored(noted[_KEY.size : _KEY.size + length]) if turn and at == turn else None

    def page(self, turn: int) -> int:
        """Return the page of a message's document that native code was at; 0: none that is known."""
        noted = os.pread(self.fd, _KEY.size, 0)
        if len(noted) < _KEY.size:
            return 0
        at, page, _ = _KEY.unpack(noted)
        return page if turn and at == turn else 0

    def stack(self) -> str:
        """Return where a crash was, as `faulthandler` wrote it; "" when it had no time to."""
        return os.pread(self.fd, _STACK_MOST, _KEY_ROOM).decode("utf-8", "replace")

    def close(self) -> None:
        """Forget it."""
        os.close(self.fd)
