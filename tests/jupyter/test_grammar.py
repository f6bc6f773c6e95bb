"""What may be written after `%dq`: words, options, and text that is broken between words."""

from __future__ import annotations

import pytest

from dqlab.errors import UsageError
from dqlab.jupyter.commands import ACTIONS
from dqlab.jupyter.grammar import COMMANDS, find, split
from dqlab.jupyter.wrapping import fitted


def test_every_command_has_an_action() -> None:
    """What the help promises exists, and what exists is in the help."""
    assert list(COMMANDS) == list(ACTIONS)


def test_unknown_command_names_the_nearest() -> None:
    """A typing error costs one look."""
    with pytest.raises(UsageError, match=r"Did you mean submit\?"):
        find("sumbit")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["f", "--ovr", "docs"], "no option --ovr. Did you mean --over?"),
        (["f", "--on-existin=new", "--over", "x"], "no option --on-existin. Did you mean --on-existing?"),
        (["f", "--over", "a", "b"], "does not understand 'b'. An expression with spaces stands in quotes"),
        (["f"], "required: --over. See %dq submit -h"),
        (["f", "--over", "docs", "-o", "my run"], "'my run' is not a name for a variable"),
        (["f", "--over", "docs", "--retries", "some"], "--retries"),
        (["f", "--over", "docs", "--stop-if", "no"], "--stop-if: 'no' is neither a whole number, a share"),
    ],
)
def test_mistake_is_named(words: list[str], said: str) -> None:
    """As an error of ours: argparse itself would end the process."""
    with pytest.raises(UsageError) as caught:
        COMMANDS["submit"].parse(words)

    assert said in str(caught.value)


def test_option_may_hold_its_value() -> None:
    """As in every shell."""
    options = COMMANDS["connect"].parse(["-n4", "--out=lab"])

    assert (options.n, options.out) == (4, "lab")


def test_option_is_never_abbreviated() -> None:
    """`--re` must not become another option on the day a second one begins so."""
    with pytest.raises(UsageError, match="no option --ret"):
        COMMANDS["submit"].parse(["f", "--over", "docs", "--ret", "3"])


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
