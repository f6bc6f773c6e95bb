"""The fragment that a saved notebook keeps."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.live.next_lines import NotebookNames
from dqlab.live.run_picture import Focus, Standing, run_view
from dqlab.live.tables import documents_table, status_table
from dqlab.stats import ClassStats, Counts, RunState, RunStats, Snapshot
from dqlab.stats.attention import failures_of
from tests.live.drawn import html_of, screen_of, table_html

pytestmark = pytest.mark.lowest

VOID = {"br", "img", "hr", "input", "meta"}


class Reader(HTMLParser):
    """Collects tags and attributes, and checks that tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in VOID
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


ALLOWED_TAGS = {"div", "b", "span", "table", "thead", "tbody", "tr", "th", "td", "code"}
ALLOWED_ATTRIBUTES = {"style", "role", "aria-label"}


def test_fragment_says_all_in_words_and_figures(done: RunStats) -> None:
    """Hosts that strip every style still show what happened."""
    text = Reader(html_of(run_view(done))).text

    for part in ("parse-invoices", "done, 212 dead", "47,998", "100 %", "KeyError", "totals:12"):
        assert part in text
    assert "Back to it: %dq attach parse-invoices -o run" in text


def test_fragment_is_small(done: RunStats) -> None:
    """It is stored in the notebook, and in each of its commits."""
    assert len(html_of(run_view(done)).encode()) < 6_200


def test_fragment_stays_small_with_the_longest_names(done: RunStats) -> None:
    """Eight classes with messages of a page each."""
    entry = ClassStats("f", "E" * 300, "m" * 5_000, "a" * 300, 1, 0, done.at, done.at, "k" * 5_000)
    view = run_view(replace(done, name="n" * 300, classes=(entry,) * 8, classes_total=900))

    html = html_of(view)
    assert len(html.encode()) < 9_000
    assert "and 3 more classes, listed by %dq failed" in html
    assert "and 892 more classes, 204 dead" in html


def letter(text: str) -> Any:
    """A dead document, all of whose texts are the same."""
    return SimpleNamespace(key=text, error=text, message=text, at=text, deliveries=1, version=text)


def test_fragment_needs_nothing_from_anywhere(done: RunStats, snapshot: Snapshot) -> None:
    """No script, class, image or link: it is the same on every host, for ever."""
    for html in (
        html_of(run_view(done)),
        table_html(status_table(snapshot)),
        table_html(documents_table([letter("e")])),
    ):
        reader = Reader(html)
        assert reader.tags <= ALLOWED_TAGS
        assert reader.attributes <= ALLOWED_ATTRIBUTES
        assert "url(" not in html


@given(st.text(st.characters(codec=None, categories=None), max_size=300))
def test_text_of_users_never_becomes_markup(text: str) -> None:
    """A message is data, also when it is `<script>`."""
    evil = f"<script>{text}</script>\"'&"
    entry = ClassStats(evil, evil, evil, evil, 1, 0, 0, 0, evil)
    stats = RunStats(
        evil, evil, RunState.STOPPED, Counts(dead=1, ready=2), why=evil, total=3, classes=(entry,), classes_total=1
    )

    for html in (html_of(run_view(stats)), table_html(documents_table([letter(evil)]))):
        reader = Reader(html)
        assert reader.tags <= ALLOWED_TAGS
        assert reader.attributes <= ALLOWED_ATTRIBUTES
        html.encode("utf-8")


def test_live_fragment_says_how_far_it_is_and_since_when_it_is_old(running: RunStats) -> None:
    """The same fragment is refreshed where there are no widgets."""
    html = html_of(run_view(running, standing=Standing(silence=running.at - 38)))

    assert "no answer" in html
    assert "<b>65.4 %</b> of pages" in html
    assert "No answer since 14:21:29" in html
    assert "315,894 pages" in html
    assert not re.search(r"background:#0A9F88", html)


def test_bar_has_its_sentence_for_screen_readers(running: RunStats) -> None:
    """A picture without words says nothing to many."""
    assert 'role="img" aria-label="65.4 percent of pages settled"' in html_of(run_view(running))


def test_way_back_stores_the_run_where_the_notebook_has_it(done: RunStats) -> None:
    """The cell has `-o reviews`, and the line below said `-o run`."""
    view = run_view(done, Focus(names=NotebookNames(run="reviews")))

    assert "Back to it: %dq attach parse-invoices -o reviews" in Reader(html_of(view)).text


def test_failures_name_the_version_that_made_them(done: RunStats) -> None:
    """What died under v1 stood there as failures of v2, after a retry of the others."""
    entry = ClassStats("f", "KeyError", "", "review:7", 2, 0, 0.0, 0.0, versions=("parse v1",))
    stats = replace(done, classes=(entry,))

    assert "review:7, parse v1" in Reader(html_of(run_view(stats))).text
    assert "review:7, parse v1" in screen_of(run_view(stats))
    assert failures_of(stats, stats.classes[0]).detail.startswith("review:7, parse v1")
