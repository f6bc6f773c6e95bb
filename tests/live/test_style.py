"""Strings from users on one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dqlab.live.style import columns, cut
from dqlab.texts import one_line

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=400)


@given(ANY_TEXT, st.integers(1, 100))
def test_one_line_is_short_printable_and_can_be_sent(text: str, limit: int) -> None:
    """A surrogate breaks the message to the front end, an escape sequence breaks the terminal."""
    line = one_line(text, limit)

    line.encode("utf-8")
    assert len(line) <= limit
    assert not any(character in line for character in "\n\r\t\x1b\x00\u202e\u2066")


def test_terminal_escapes_lose_their_power() -> None:
    """A document's name must not clear the screen of a user who reads about its failure."""
    assert "\x1b" not in one_line("a\x1b[2Jb")


def test_a_megabyte_is_cut_before_it_is_read() -> None:
    """Exceptions can carry whole documents."""
    assert one_line("x" * 10**6, 10) == "xxxxxxxxx…"


@given(st.text(max_size=50), st.integers(0, 60))
def test_cut_fits_whatever_the_letters(text: str, limit: int) -> None:
    """Letters of some scripts take two columns, accents take none."""
    assert columns(cut(text, limit)) <= limit


def test_wide_letters_count_twice() -> None:
    """Else a table of Japanese file names loses its columns."""
    assert columns("請求書.pdf") == 10
    assert cut("請求書.pdf", 6) == "請求…"
