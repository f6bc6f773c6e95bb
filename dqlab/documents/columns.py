"""Names of columns that people choose: whether they are there, and what they might have meant.

Knows nothing of files: it is given the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from dqlab.errors import BadOption, ColumnNotFound, ColumnRepeated

__all__ = ["check_column", "check_columns", "chosen"]

_SHOWN = 20
"""Names that an error lists at most."""


def chosen(columns: Any) -> list[Any] | None:
    """Return the option `columns` as a list; None for all of them.

    Raises
    ------
    BadOption
        It is one text, no names at all, or a name stands in it twice.
    """
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        problem = f"is not a list of names. Nothing was listed. Write columns=[{columns!r}]."
        raise BadOption(option="columns", value=columns, problem=problem)
    names = list(columns)
    if not names:
        raise BadOption(
            option="columns", value=columns, problem="names none. Leave it out for all. Nothing was listed."
        )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        problem = f"has {twice[0]!r} twice. Nothing was listed. Name each column once."
        raise BadOption(option="columns", value=columns, problem=problem)
    return names


def check_columns(wanted: Iterable[Any], known: Sequence[Any], where: str) -> None:
    """Raise unless each name is that of one column.

    Raises
    ------
    ColumnNotFound, ColumnRepeated
    """
    there = Counter(known)
    for name in wanted:
        if name not in there:
            check_column(name, known, where, "submitted")
        if there[name] > 1:
            raise ColumnRepeated(where=where, column=name)


def check_column(name: Any, known: Sequence[Any], where: str, done: str) -> None:
    """Raise `ColumnNotFound`, with the names that come near, unless there is such a column."""
    if name in known:
        return
    texts = [each for each in known if isinstance(each, str)]
    near = get_close_matches(name, texts, n=1) if isinstance(name, str) else []
    near = near or [each for each in known if str(each) == str(name)]
    shown = ", ".join(map(repr, known[:_SHOWN])) or "none"
    if len(known) > _SHOWN:
        shown += f" and {len(known) - _SHOWN:,} more"
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if len(texts) == len(known) == 1 and (other := next((each for each in ";\t|" if each in texts[0]), None)):
        hint = f" Its columns seem to be separated by {other!r}: pass delimiter={other!r}."
    raise ColumnNotFound(where=where, column=name, hint=hint, done=done, known=shown)
