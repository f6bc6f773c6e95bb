"""A line cut into words, and text broken between words."""

from __future__ import annotations

import pytest

from dqlab.errors import UsageError
from dqlab.jupyter.grammar import split
from dqlab.jupyter.wrapping import fitted


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("submit f --over docs", ["submit", "f", "--over", "docs"]),
        ("--over [f(x) for x in docs]", ["--over", "[f(x) for x in docs]"]),
        ("--over load('my file')", ["--over", "load('my file')"]),
        ("--where \"error == 'KeyError'\"", ["--where", "error == 'KeyError'"]),
        ("--where=\"error == 'KeyError'\"", ["--where=error == 'KeyError'"]),
        (r"--where 'key == \'a\''", ["--where", "key == 'a'"]),
        ("--over a == b", ["--over", "a", "==", "b"]),
        ("status  # the queues", ["status"]),
        ("show a#b.txt", ["show", "a#b.txt"]),
        ("  ", []),
    ],
)
def test_words_end_at_spaces_outside_of_quotes_and_brackets(line: str, words: list[str]) -> None:
    """An expression is written as it would be in Python, without a second layer of quotes."""
    assert split(line) == words


@pytest.mark.parametrize("line", ["--over [1, 2", "--where 'error", "--over f("])
def test_open_end_is_refused(line: str) -> None:
    """Guessing where the expression was meant to end would submit something else."""
    with pytest.raises(UsageError, match="never closed"):
        split(line)


def test_words_and_commands_stay_whole() -> None:
    """What is copied from a terminal has to work."""
    address, text = "/a/very/long/path/" + "x" * 80, "It is kept, and comes back with: %dq compact pages-80 now"

    assert fitted(f"see {address}", 40).split("\n") == ["see", address]
    assert fitted(text, 50) == "It is kept, and comes back with:\n%dq compact pages-80 now"
    assert fitted("    %dq retry run --fn extract    # its 17 failed documents", 30).count("\n") == 0
    assert fitted("  - a b c", 7) == "  - a b\n  c"
    assert fitted("one\n\ntwo") == "one\n\ntwo"
