"""What is suggested in place of a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import dqlab as dq
from dqlab.jupyter.grammar import COMMANDS
from dqlab.keywords import nearest


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("progress", COMMANDS, ""),
        ("stop", COMMANDS, ""),
        ("staus", COMMANDS, "status"),
        ("stauts", COMMANDS, "status"),
        ("max_size", ["maxsize", "max_bytes"], "maxsize"),
        ("from_folder", dir(dq.Documents), ""),
        ("Retry", ["retry"], "retry"),
    ],
)
def test_a_guess_is_the_word_with_a_few_letters_mended(word: str, known: Iterable[str], near: str) -> None:
    """`%dq progress` was answered "Did you mean purge?"."""
    assert nearest(word, known) == near
