"""Define the look of message states: word, glyph, colour.

A colour never stands alone: every view puts the glyph or the word beside it. The live widget has its own colours for
light and dark in `extension/style/shared.css`; text and static HTML use these, which are readable on any background.

"""

from __future__ import annotations

from enum import Enum, StrEnum


class Ink(StrEnum):
    """The meaning of a text, with its ANSI parameter for a terminal's colours."""

    PLAIN = ""
    STRONG = "1"
    QUIET = "2"
    GOOD = "32"
    BAD = "31"
    WARN = "33"
    READY = "34"
    DELAYED = "35"
    GONE = "90"


class StateLook(Enum):
    """The look of a message's state, in the order in which bars stack states."""

    def __init__(self, field: str, word: str, glyph: str, mark: str, ink: Ink, static: str) -> None:
        # `field` is a name in `Counts`, `mark` the glyph's ASCII twin in bars, `static` a CSS colour for static HTML
        # with a contrast of at least 3:1 on white and on black.
        self.field, self.word, self.glyph, self.mark, self.ink, self.static = field, word, glyph, mark, ink, static

    ACKED = ("acked", "acked", "●", "#", Ink.GOOD, "#0A9F88")
    DEAD = ("dead", "dead", "✕", "x", Ink.BAD, "#E0533F")
    LOST = ("lost", "lost", "✕", "x", Ink.BAD, "#E0533F")
    LEASED = ("leased", "unacked", "◐", "*", Ink.WARN, "#9A6200")
    READY = ("ready", "ready", "○", ".", Ink.READY, "#2B66CC")
    DELAYED = ("delayed", "delayed", "◔", ".", Ink.DELAYED, "#A485C4")
    CANCELLED = ("cancelled", "cancelled", "⊘", "-", Ink.GONE, "#686B72")


STATES = {state.field: state for state in StateLook}
"""By name in `Counts`."""
