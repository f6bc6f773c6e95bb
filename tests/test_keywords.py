"""What is suggested in place of a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dqlab as dq
from dqlab.cli.command import main
from dqlab.errors import UsageError
from dqlab.jupyter.grammar import COMMANDS, find
from dqlab.keywords import _INSTEAD, _LOSES, nearest


def edits(word: str, other: str) -> int:
    """The letters that differ, after Wagner and Fischer (1974); here a change counts as one."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(word, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


NAMES = [*COMMANDS, *dir(dq.Run), *dir(dq.Lab)]


@given(st.sampled_from(NAMES), st.text("abcdefghijklmnopqrstuvwxyz_", max_size=3), st.integers(0, 9))
def test_a_guess_is_two_letters_away_at_most_and_loses_nothing(name: str, more: str, at: int) -> None:
    """`%dq progress` was answered "Did you mean purge?"."""
    word = name[:at] + more + name[at + len(more) :]
    near = nearest(word, NAMES)

    assert near not in _LOSES
    assert not near or edits(word.lower(), near.lower()) <= 4  # letters that trade places count once, here twice


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("progress", COMMANDS, ""),
        ("stop", COMMANDS, ""),
        ("purg", COMMANDS, ""),
        ("cancle", COMMANDS, ""),
        ("staus", COMMANDS, "status"),
        ("stauts", COMMANDS, "status"),
        ("max_size", ["maxsize", "max_bytes"], "maxsize"),
        ("from_folder", dir(dq.Documents), ""),
        ("Retry", ["retry"], "retry"),
    ],
)
def test_a_guess_is_the_word_with_one_or_two_letters_mended(word: str, known: Iterable[str], near: str) -> None:
    assert nearest(word, known) == near


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("progress", "Did you mean watch, or status?"),
        ("list", "Did you mean runs, or queues?"),
        ("stop", "Did you mean pause?"),
        ("help", "Did you mean -h?"),
        ("vacuum", "Did you mean compact, for one queue, or gc, for all of them?"),
    ],
)
def test_a_word_of_another_tool_leads_to_the_command_in_a_notebook_and_in_a_shell(
    word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "Did you mean history?" was the answer to `list` and to `stop`."""
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        find(word)
    assert main([word]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_every_sentence_about_a_name_can_be_filled_in() -> None:
    for name, sentence in _INSTEAD.items():
        assert "{" not in sentence.format(name=name, value=1)
