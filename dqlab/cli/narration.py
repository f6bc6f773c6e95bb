"""What a running notebook says, as lines in a terminal or a log.

Owns the choice of what is worth a line: streams as they come, displays once, and of a display
that is replaced many times only the lines that changed, at most once a second. Knows messages of
the Jupyter protocol, and nothing of kernels or runs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, TextIO

from dqlab.clock import Clock, SystemClock

__all__ = ["Narrator", "plain"]

MAX_LINES = 12
"""Lines printed of one display."""
MAX_CHANGES = 3
"""Lines printed of one replacement of a display."""
REDRAW = 1.0
"""Seconds between two replacements of one display that are printed."""

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BARE_OBJECT = re.compile(r"<[\w.]+ (object|at 0x)[^>]*>")


def plain(text: str) -> str:
    """Return a text without colours and cursor movements."""
    return _ESCAPE.sub("", text)


class Narrator:
    """Prints the messages of one cell after the other, indented under its title.

    Parameters
    ----------
    out : TextIO
        Where the lines go.
    clock : Clock, optional
        The machine's by default.
    """

    def __init__(self, out: TextIO, clock: Clock | None = None) -> None:
        self._out = out
        self._clock = clock or SystemClock()
        self._open = False
        self._started = self._spoke = 0.0
        self._partial = ""
        self._shown: dict[str, tuple[str, float]] = {}
        self._held: dict[str, str] = {}

    def begin(self, title: str) -> None:
        """Print a cell's title."""
        self._open, self._started = True, self._clock.monotonic()
        self._print(title)

    def hear(self, kind: str, content: Mapping[str, Any]) -> None:
        """Print what one message says, if it says something to people.

        Parameters
        ----------
        kind : str
            The message's type: "stream", "display_data", "update_display_data", "execute_result" or "error".
        content : mapping
            As the Jupyter protocol lays it out for that type.
        """
        if kind == "stream":
            self._stream(content["text"])
        elif kind in ("display_data", "execute_result", "update_display_data"):
            identity = (content.get("transient") or {}).get("display_id")
            self._display(content["data"].get("text/plain", ""), identity)
        elif kind == "error":
            self._say(f"{content['ename']}: {content['evalue']}")

    def end(self) -> None:
        """Print what was held back, and how long the cell took; does nothing when none is open."""
        if not self._open:
            return
        self._say(self._partial)
        for identity, text in self._held.items():
            self._changes(identity, text)
        self._held.clear()
        self._partial = ""
        self._say(f"{self._clock.monotonic() - self._started:.1f} s")
        self._open = False

    async def beat(self, silence: float) -> None:
        """Say that the cell still works whenever nothing was printed for `silence` seconds; never returns."""
        while True:
            await asyncio.sleep(silence / 4)
            now = self._clock.monotonic()
            if self._open and now - self._spoke >= silence:
                self._say(f"... {now - self._started:.0f} s")

    def _stream(self, text: str) -> None:
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._say(line.rstrip("\r").rpartition("\r")[2])  # of a line drawn over itself, the last

    def _display(self, text: str, identity: str | None) -> None:
        if not text or _BARE_OBJECT.fullmatch(text.strip()):
            return
        if identity is None or identity not in self._shown:
            lines = text.splitlines()
            for line in lines[:MAX_LINES]:
                self._say(line)
            if len(lines) > MAX_LINES:
                self._say(f"... {len(lines) - MAX_LINES} more lines")
            if identity is not None:
                self._shown[identity] = text, self._clock.monotonic()
        elif self._clock.monotonic() - self._shown[identity][1] >= REDRAW:
            self._changes(identity, text)
            self._held.pop(identity, None)
        else:
            self._held[identity] = text

    def _changes(self, identity: str, text: str) -> None:
        before = self._shown[identity][0].splitlines()
        for line in [line for line in text.splitlines() if line not in before][:MAX_CHANGES]:
            self._say(line)
        self._shown[identity] = text, self._clock.monotonic()

    def _say(self, text: str) -> None:
        for line in plain(text).splitlines():
            if line.strip():
                self._print(f"      {line.rstrip()}")

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)
        self._spoke = self._clock.monotonic()
