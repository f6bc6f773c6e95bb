"""The root of all errors: a sentence with named gaps, and the values that fill them.

A gap for a count may name the counted noun, and words that depend on the count: ``{left:message}`` becomes "1 message"
or "2 messages", ``{left:waits|wait}`` one of the two words. ``{value:brief}`` is a short ``repr`` of any value.
"""

from __future__ import annotations

import re
import reprlib
from contextlib import suppress
from string import Formatter
from typing import Any, ClassVar

from dqlab.errors.rendering import rendered
from dqlab.numbers import many
from dqlab.texts import block, one_line

_ENDS_A_SENTENCE = re.compile(r"\{(\w+)\}\.(?=\s|$)")


class _Sentences(Formatter):
    """Fills gaps as `str.format` does, counts with their nouns and verbs."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Return a value as its gap wants it."""
        if format_spec == "brief":
            return one_line(_BRIEFLY.repr(value), 200)
        if isinstance(value, int) and "|" in format_spec:
            one, several = format_spec.split("|")
            return one if value == 1 else several
        if isinstance(value, int) and _NOUN.fullmatch(format_spec):
            return many(value, format_spec)
        return super().format_field(value, format_spec)


_NOUN = re.compile(r"[a-z ]{2,}")
"""A noun has two letters or more: Python's own formats of numbers, such as "d", have one."""
_SENTENCES = _Sentences()
_BRIEFLY = reprlib.Repr()
_BRIEFLY.maxstring = _BRIEFLY.maxother = _BRIEFLY.maxlong = 200


class DqlabError(Exception):
    """Root of all errors of dqlab.

    Parameters
    ----------
    **fields
        Values for the gaps in `text`. Each becomes an attribute, unchanged; the sentence shows it printable.
    """

    text: ClassVar[str] = "dqlab failed"

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.fields = fields
        sentence = _SENTENCES.vformat(self.text, (), _without_second_period(self.text, fields))
        self.sentence = sentence if sentence.isprintable() else block(sentence)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("fields", {})  # `self.fields` would recurse while an error is unpickled
        if name in fields:
            return fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}")

    def __str__(self) -> str:
        return self.sentence

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.fields)

    def _render_traceback_(self) -> list[str]:
        """Render for IPython, which calls it by this name."""
        return rendered(self)


class DqlabWarning(UserWarning):
    """A warning of dqlab; a notebook shows only its sentence, without the file and line it came from."""


def _without_second_period(text: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the values, without the period of a sentence where the text has one after its gap."""
    ending = (name for name in _ENDS_A_SENTENCE.findall(text) if isinstance(fields.get(name), str))
    return fields | {name: fields[name].removesuffix(".") for name in ending}


def _rebuild(kind: type[DqlabError], fields: dict[str, Any]) -> DqlabError:
    return kind(**fields)


def in_words(error: BaseException) -> str:
    """Return class and text of any error, whose text may raise in turn."""
    with suppress(BaseException):  # what broke first is what counts
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    return type(error).__name__


class _UsersCode:
    """Ends a block at any exception of users' code in it, also `SystemExit`, but for Ctrl-C."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and not issubclass(kind, KeyboardInterrupt)


users_code = _UsersCode()
