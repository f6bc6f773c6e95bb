"""What may be written after `%dq`."""

from __future__ import annotations

import pytest

from dqlab.errors import UsageError
from dqlab.jupyter.commands import ACTIONS
from dqlab.jupyter.grammar import COMMANDS, find, overview


def test_every_command_has_an_action() -> None:
    """What the help promises exists, and what exists is in the help."""
    assert list(COMMANDS) == list(ACTIONS)


def test_overview_lists_every_command() -> None:
    """`%dq?` is the manual."""
    text = overview()

    assert all(f"%dq {name}" in text for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_twin_in_python(name: str) -> None:
    """Who outgrows the magic finds the call."""
    assert f"In Python: {COMMANDS[name].twin}" in COMMANDS[name].help()


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


def test_compact_and_gc_say_what_each_does_and_when_it_is_of_use() -> None:
    """Both gave back "the disk space of what is settled", and nothing said which, or when it is of use."""
    for name, other in (("compact", "%dq gc"), ("gc", "%dq compact QUEUE")):
        text = " ".join(COMMANDS[name].help().split())
        assert other in text
        assert "by itself when more than half" in text
        assert "%dq drop" in text
    assert "a durable queue" in COMMANDS["compact"].summary
    assert "every durable queue" in COMMANDS["gc"].summary


def test_option_may_hold_its_value() -> None:
    """As in every shell."""
    options = COMMANDS["connect"].parse(["-n4", "--out=lab"])

    assert (options.n, options.out) == (4, "lab")


def test_option_is_never_abbreviated() -> None:
    """`--re` must not become another option on the day a second one begins so."""
    with pytest.raises(UsageError, match="no option --ret"):
        COMMANDS["submit"].parse(["f", "--over", "docs", "--ret", "3"])
