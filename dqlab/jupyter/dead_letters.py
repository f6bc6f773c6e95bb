"""One dead document for display, found by a word and shown with its traceback."""

from __future__ import annotations

import reprlib
from difflib import get_close_matches

from dqlab.errors import UsageError, in_words
from dqlab.jupyter.wrapping import fitted
from dqlab.live.display import Mode, mode
from dqlab.live.parts import Code, Title, line
from dqlab.live.render import render_html
from dqlab.live.style import Ink
from dqlab.notebook import with_cells
from dqlab.numbers import many
from dqlab.runs.failures import DeadLetter, Failures, letter_named
from dqlab.texts import block, one_line

TITLE = 100
"""Most characters of a message that fit into a title."""
PRINTED = "it printed:"


def find_letter(failures: Failures, word: str) -> DeadLetter:
    """Return the dead document with this key, message id or "#POSITION" in the input, or raise `UsageError`."""
    keys: list[str] = []
    if (found := letter_named(failures, word, keys)) is not None:
        return found
    near = get_close_matches(word, keys, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"It has {many(len(keys), 'dead document')}: %dq failed"
    raise UsageError(reason=f"run {failures.name!r} has no dead document {word!r}. {hint}")


def letter_bundle(letter: DeadLetter, **_: object) -> dict[str, str]:
    """Return a dead document as text and, unless only text is wanted, as HTML."""
    head, lines, traceback = _head(letter), _lines(letter), block(with_cells(letter.traceback.rstrip()))
    said = [line if line[:1].isspace() else fitted(line) for line in traceback.split("\n")]  # code stays as it is
    printed = block(letter.logs)
    text = "\n".join([*map(fitted, (head, *lines)), "", *said, *(("", PRINTED, printed) if printed else ())])
    if mode() is Mode.TEXT:
        return {"text/plain": text}
    output = (line(PRINTED, Ink.QUIET), Code(printed)) if printed else ()
    html = render_html((Title(head), *(line(each, Ink.QUIET) for each in lines), Code(traceback), *output))
    return {"text/plain": text, "text/html": html}


def _head(letter: DeadLetter) -> str:
    """Return document and error in one line, without a long message that the traceback repeats."""
    message = one_line(letter.message, 300)
    repeated = len(message) > TITLE and letter.message[:TITLE] in letter.traceback
    return f"{one_line(letter.key)}  {one_line(letter.error)}{f': {message}' * (bool(message) and not repeated)}"


def _lines(letter: DeadLetter) -> list[str]:
    code = f"code {one_line(letter.version)}, " if letter.version else ""
    place = one_line(letter.at) or "a place unknown"
    return [
        f"dead after {many(letter.deliveries, 'delivery')} ({one_line(letter.reason)}), {code}at {place}",
        f"document: {_document(letter)}",
        f"message {letter.id}, position {letter.ordinal} in the input",
    ]


def _document(letter: DeadLetter) -> str:
    try:
        return one_line(_SHORT.repr(letter.document), 300)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - opening it runs arbitrary code of its class
        return f"cannot be opened here: {one_line(in_words(error))}"


_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 300
