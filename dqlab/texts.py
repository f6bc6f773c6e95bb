r"""Text from users, kept exactly between our own processes and made valid wherever other programs read it.

File names that are not UTF-8 reach Python with lone surrogates (``os.fsdecode``), and names, keys and messages may
hold line breaks, terminal escapes, text that runs backwards, or a megabyte. UTF-8, and with it msgpack, JSON, HTTP,
terminals and notebooks, refuses the first and obeys the others. Owns these ways to handle such text, and no HTML:

::

    kept, restored      exact and reversible: keys, messages and sources in frames, logs and calls of ours
    shown, valid        what is valid stays as it is, the byte 0xE9 becomes ``\xe9``: reports, JSON, metrics
    one_line, block     printable besides, and short: what people read
    as_name             valid and short: what reports, views and orders call a document
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

EXACT = "surrogatepass"
"""Name of the codec error handler that keeps lone surrogates; reading the text back needs the same one."""
SHOWN = "dqlab.shown"
"""Name of the codec error handler that writes lone surrogates as escapes."""
NAME_LENGTH = 300
"""Most characters of a document's name in a report; views cut at the same length."""
JOINERS = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"
"""Unprintable characters that join letters of some scripts, and families of emoji."""

_GONE = "\N{REPLACEMENT CHARACTER}"
_ESCAPED_BYTES = range(0xDC80, 0xDD00)
"""The results of ``surrogateescape`` for the bytes 0x80 to 0xFF."""


_PLAIN_WORD = re.compile(r"[\w./:@%+,…][\w./:@%+,…-]*")
"""A word that needs no quotes, in `%dq` and in a shell."""


def kept(text: str) -> bytes:
    """Return text as bytes that `restored` turns into the same text, with any characters."""
    return f"{text}".encode("utf-8", EXACT)  # a row's key may be a whole number


def restored(data: bytes) -> str:
    """Return the text that `kept` was given."""
    return data.decode("utf-8", EXACT)


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    codes = map(ord, error.object[error.start : error.end])
    return "".join(
        f"\\x{code - 0xDC00:02x}" if code in _ESCAPED_BYTES else f"\\u{code:04x}" for code in codes
    ), error.end


codecs.register_error(SHOWN, _escape)


def shown(text: str) -> str:
    r"""Return text that is valid Unicode, with escapes for lone surrogates (``\xe9`` for a byte, else ``\udabc``)."""
    if text.isascii():
        return text
    return text.encode("utf-8", SHOWN).decode()


def valid(data: Any) -> Any:
    """Return plain data (dicts, lists, tuples, scalars) in which every text is `shown`, keys included."""
    if isinstance(data, str):
        return shown(data)
    if isinstance(data, Mapping):
        return {valid(key): valid(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [valid(each) for each in data]
    return data


def brief(text: str, limit: int) -> str:
    """Return text of at most `limit` characters, with an ellipsis where it was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def as_name(text: object) -> str:
    """Return the name of a document in reports, views and orders, valid and of at most `NAME_LENGTH` characters."""
    return brief(shown(str(text)), NAME_LENGTH)


def said_by(value: object) -> str:
    """Return ``str(value)`` as an exact `str`, or a note where it raises."""
    try:
        return str.__str__(str(value))  # of a subclass of str too, whose own methods would run later
    except BaseException as error:  # noqa: BLE001 - __str__ is the user's code, and may even call sys.exit
        return f"<str() of it raised {type(error).__name__}>"


def one_line(text: object, limit: int = 120) -> str:
    """Return text as one printable line of at most `limit` characters, with an ellipsis where it was cut."""
    # Cut before it is examined: a text may have a megabyte. White space shrinks, so four times the limit is kept.
    raw = shown(said_by(text)[: 4 * limit + 16])
    line = "".join(
        character if character.isprintable() or character in JOINERS else _GONE for character in " ".join(raw.split())
    )
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def as_word(text: object) -> str:
    """Return text as one word of a line of `%dq` or of a shell, in quotes where it needs them."""
    word = one_line(text)
    if _PLAIN_WORD.fullmatch(word):
        return word
    quote = "'" if "'" not in word else '"'
    return quote + word.replace(quote, "\\" + quote) + quote


def block(text: object, limit: int = 20_000) -> str:
    """Return text of several printable lines, of at most `limit` characters, with tabs as four spaces."""
    said = said_by(text)
    lines = shown(said[:limit]).expandtabs(4).splitlines()
    printable = [
        "".join(each if each.isprintable() or each in JOINERS else " " if each.isspace() else _GONE for each in line)
        for line in map(str.rstrip, lines)
    ]
    return "\n".join(printable) + ("\n…" if len(said) > limit else "")
