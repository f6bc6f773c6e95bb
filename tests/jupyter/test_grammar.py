"""What may be written after `%dq`."""

from __future__ import annotations

import pytest

from dqlab.errors import UsageError
from dqlab.jupyter.commands import ACTIONS
from dqlab.jupyter.grammar import COMMANDS, find


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
