"""A line cut into words.

Words end at spaces, except inside quotes and brackets, so that Python expressions need no quotes of
their own: ``--over [f(x) for x in docs]``. A word that is one quoted text loses its quotes. Knows no
command.
"""

from __future__ import annotations

from dqlab.errors import UsageError

__all__ = ["split"]

_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "'\""


def split(line: str) -> list[str]:
    """Return the words of a line; what stands behind a free ``#`` is a comment.

    Raises
    ------
    UsageError
        A quote or a bracket is never closed.
    """
    words: list[str] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at == len(line) or line[at] == "#":
            return words
        end = _word_end(line, at)
        words.append(_unquoted(line[at:end]))
        at = end


def _word_end(line: str, at: int) -> int:
    missing: list[tuple[str, int]] = []
    while at < len(line):
        character = line[at]
        if character in _QUOTES:
            at = _text_end(line, at)
            continue
        if character in _CLOSED_BY:
            missing.append((_CLOSED_BY[character], at))
        elif missing and character == missing[-1][0]:
            missing.pop()
        elif character.isspace() and not missing:
            break
        at += 1
    if missing:
        raise _never_closed(line, missing[-1][1])
    return at


def _text_end(line: str, start: int) -> int:
    """Return the place behind the text that is quoted from `start` on."""
    at = start + 1
    while at < len(line) and line[at] != line[start]:
        at += 2 if line[at] == "\\" else 1
    if at >= len(line):
        raise _never_closed(line, start)
    return at + 1


def _never_closed(line: str, at: int) -> UsageError:
    return UsageError(reason=f"the {line[at]} in {line[at : at + 20]!r} is never closed; nothing was done.")


def _unquoted(word: str) -> str:
    option, equals, value = word.partition("=")
    if equals and option.startswith("--"):
        return f"{option}={_unquoted(value)}"
    if word and word[0] in _QUOTES and _text_end(word, 0) == len(word):
        return word[1:-1].replace("\\" + word[0], word[0])
    return word
