"""Texts and exceptions as documents and functions of strangers have them."""

from __future__ import annotations

from typing import Any

__all__ = ["NASTY_ERRORS", "NASTY_TEXTS"]

NASTY_TEXTS = (
    "caf\udce9.txt",
    "\ud800 high",
    "\udfff low",
    "\ud83d\ude00",  # a pair that nobody joined
    "nul \x00 nul",
    "\x1b[2J\x1b]0;title\x07 escapes",
    "\u202e right to left \u2066",
    "lines \n \r \x0b \x85 \u2028 \u2029 ends",
    "</script><b onload=x>&amp;'\"",
    "😀 \U0010fffe",
    "b'\\xff'",
    "%s {name} \\udce9",
    "x" * 1_000_000,
    "",
)


class SaysNothing(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Leaves(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Interrupts(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class SaysBytes(Exception):
    def __str__(self) -> str:
        return b"no text"  # type: ignore[return-value]


class _Text(str):
    __slots__ = ()

    def __getitem__(self, index: Any) -> str:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 3


class SaysAnotherText(Exception):
    def __str__(self) -> str:
        return _Text("\udce9 more than three")


class _Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__qualname__", "__name__"):
            raise RuntimeError("no")
        return "\udce9" if name == "__module__" else super().__getattribute__(name)


class OddClass(Exception, metaclass=_Meta):
    pass


class HasNotes(Exception):
    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no")


NASTY_ERRORS: tuple[BaseException, ...] = (
    *(ValueError(text) for text in NASTY_TEXTS),
    SaysNothing(),
    Leaves(),
    Interrupts(),
    SaysBytes(),
    SaysAnotherText(),
    OddClass("x"),
    HasNotes("x"),
    type("caf", (Exception,), {"__module__": None})("x"),
    type("N" * 1_000_000, (Exception,), {"__module__": "\x1b[2J\udce9"})("x"),
    ExceptionGroup("\udce9", [ValueError("\ud800"), SaysNothing()]),
    UnicodeEncodeError("utf-8", "caf\udce9", 3, 4, "surrogates not allowed"),
    OSError(2, "No such file", "caf\udce9.txt"),
)
