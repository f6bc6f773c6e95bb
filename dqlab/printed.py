"""What a document has printed: its first and last bytes while it runs, and the text that is kept of them."""

from __future__ import annotations

import re
import struct
from threading import Lock
from time import monotonic
from typing import Self

from dqlab.texts import SHOWN, kept, restored

HALF = 8 << 10
"""Bytes kept of the beginning, and as many of the end."""
_CUT = struct.Struct("<Q")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
"""Sequences that color or move in a terminal."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MARK_S = 1.0
"""Seconds between two marks of when something was written."""
_MARKS = 4096


class Logs(str):
    """What one document has printed, as text.

    Attributes
    ----------
    cut : int
        Bytes left out in the middle, where the text says so; 0 for none.
    """

    __slots__ = ("cut",)
    cut: int

    @classmethod
    def of(cls, text: str, cut: int = 0) -> Self:
        """Return a text of which `cut` bytes are left out."""
        logs = cls(text)
        logs.cut = cut
        return logs

    def __repr__(self) -> str:
        return str(self).rstrip("\n")  # a prompt shows the lines

    def to_bytes(self) -> bytes:
        """Return what `from_bytes` reads."""
        return _CUT.pack(self.cut) + kept(self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Return the text that `to_bytes` wrote."""
        return cls.of(restored(bytes(data[_CUT.size :])), _CUT.unpack_from(data)[0])


class Ring:
    """The first and the last 8 KiB that were written, where each line has the state that a terminal shows last."""

    __slots__ = ("_head", "_line", "_lock", "_marks", "_tail", "_total")

    def __init__(self) -> None:
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        self._line = b""
        """The last line without its end, which a carriage return may still replace."""
        self._marks: list[tuple[float, int]] = []
        """When a second began in which something was written, in steady seconds, and how much was there before."""
        self._lock = Lock()  # a function's own threads may print at the same time

    def __len__(self) -> int:
        """Return at least as many bytes as are kept."""
        return min(self._total + len(self._line), 2 * HALF)

    def write(self, data: bytes | str) -> None:
        """Add what was written."""
        now = monotonic()
        with self._lock:
            if not self._marks or now >= self._marks[-1][0] + MARK_S:
                self._marks.append((now, self._total))
                del self._marks[:-_MARKS]
            written = self._line + (data.encode("utf-8", SHOWN) if isinstance(data, str) else data)
            stop = written.rfind(b"\n") + 1
            lines, line = written[:stop], _last_state(written[stop:])
            if b"\r" in lines:
                lines = b"\n".join(_last_state(each).rstrip(b"\r") for each in lines.split(b"\n"))
            if len(line) > HALF:  # no line of a progress bar
                lines, line = lines + line, b""
            self._line = line
            self._total += len(lines)
            room = HALF - len(self._head)
            if room:
                self._head += lines[:room]
            self._tail += lines[room:][-HALF:]
            if len(self._tail) > 2 * HALF:
                del self._tail[:-HALF]

    def logs(self, seconds: float | None = None) -> Logs:
        """Return what was written so far as text, or in so many seconds before now and up to a second more."""
        with self._lock:
            line = self._line.rstrip(b"\r")
            head, tail = bytes(self._head), (bytes(self._tail) + line)[-HALF:]
            total = self._total + len(line)
            skip = 0 if seconds is None else self._before(monotonic() - seconds, total)
            cut = max(0, min(total - len(head) - len(tail), total - len(tail) - skip))
            head, tail = head[skip:], tail[max(0, skip - (total - len(tail))) :]
        if not cut:
            return Logs.of(_text((head + tail).decode("utf-8", "replace")))
        begin, end = head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return Logs.of(_text(f"{begin}\n... {cut:,} bytes left out ...\n{end}"), cut)

    def _before(self, moment: float, total: int) -> int:
        """Return how many bytes were written a second before a moment, or earlier."""
        at = next((at for at, (began, _) in enumerate(self._marks) if began > moment - MARK_S), None)
        return total if at is None else self._marks[at][1] if at else 0  # marks before the first one are forgotten


def _last_state(line: bytes) -> bytes:
    """Return what a terminal shows last of a line that carriage returns begin again."""
    written = line.rstrip(b"\r")
    return line[written.rfind(b"\r") + 1 :] if b"\r" in line else line


def _text(written: str) -> str:
    """Return text without the escapes of terminals, and with a replacement for what cannot be printed."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", _ESCAPES.sub("", written))
