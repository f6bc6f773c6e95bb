"""Neighbours that one message stands for are, message by message, those that are listed one by one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.documents.document import Document, place_within, sealed_document, sealed_key
from dqlab.documents.parts import Line, Member, Row
from dqlab.documents.spans import Listed, Numbers, Rows, Span, grouped, opened, spans_of
from dqlab.runs.submit.elements import Digest

seal = pickle.dumps
texts = st.text(max_size=9)
keys = st.none() | st.lists(st.text() | st.integers(-(1 << 63), 1 << 64), min_size=1, max_size=40)


@st.composite
def drawn_rows(draw: st.DrawFn) -> Rows:
    named = draw(keys)
    count = draw(st.integers(1, 400)) if named is None else len(named)
    before, group, at = draw(st.integers(0, 1 << 40)), draw(st.integers(0, 300)), draw(st.integers(0, 1 << 20))
    about = draw(texts), "/data/a.parquet", draw(texts), before, group, count
    versions = None if named is None or draw(st.booleans()) else [draw(st.text(min_size=1)) for _ in named]
    return Rows(*about, keys=named, at=at, versions=versions)


rows = drawn_rows()
numbers = st.builds(
    lambda first, n: Numbers(range(first, first + n)), st.integers(0, (1 << 31) - 401), st.integers(1, 400)
)
members = st.builds(lambda key, name, offset: (key, Member(key if name is None else name, offset)),
                    st.text(), st.none() | texts, st.just(-1) | st.integers(0, 1 << 40))  # fmt: skip


@st.composite
def drawn_listed(draw: st.DrawFn) -> Listed:
    sizes, head = st.none() | st.integers(0, (1 << 63) - 1), f"/data/{draw(texts)}"
    named = draw(st.lists(members, min_size=1, max_size=40))
    if draw(st.booleans()):
        documents = [Document(key, draw(texts), head, draw(sizes), part=part) for key, part in named]
    else:
        documents = [Document(key, draw(texts), head + key, draw(sizes)) for key, _ in named]
    place = place_within(documents[0])
    assert place is not None
    return Listed(place, documents)


listed = drawn_listed()
spans = rows | numbers | listed


@given(spans)
def test_messages_of_a_span_open_as_its_elements(span: Span) -> None:
    assert [pickle.loads(message) for message in span.messages(seal)] == list(span)


@given(spans, st.data())
def test_the_digest_of_a_span_is_that_of_its_elements(span: Span, data: st.DataObject) -> None:
    """Else a run whose submission was cut off could not go on with the same input."""
    through = data.draw(st.integers(0, len(span)))
    one_by_one, at_once = Digest(lambda: 0), Digest(lambda: 0)
    for element in span:
        one_by_one.update(element, seal(element))

    at_once.extend(span.digested(0, through, seal))
    at_once.extend(span.digested(through, len(span), seal))

    assert at_once.at(through) == one_by_one.at(through)
    assert at_once.at(len(span)) == one_by_one.at(len(span))


@given(rows | listed)
def test_documents_of_a_span_are_named_without_running_code_of_users(span: Rows | Listed) -> None:
    """Views and dead letters name a document by its message alone."""
    first = next(iter(span.messages(seal)))

    row = next(iter(span))
    assert sealed_document(first) == row
    assert sealed_key(first) == row.key


def test_a_range_becomes_spans_only_where_one_pickle_stands_for_all() -> None:
    def listed(elements: Any) -> list[int]:
        return [x for each in spans_of(elements) for x in (each if isinstance(each, Numbers) else (each,))]

    for given_range in (range(0), range(3), range(70_000), range(-2, 3), range(5, 0, -1), range(2**31 - 2, 2**31 + 2)):
        assert listed(given_range) == list(given_range)
    assert all(isinstance(each, Numbers) for each in spans_of(range(3)))
    assert not any(isinstance(each, Numbers) for each in spans_of(range(-2, 3)))


def test_an_input_of_a_user_is_only_iterated() -> None:
    """Whatever else it answers to."""

    class Answers(list[int]):
        def __getattr__(self, name: str) -> object:
            return lambda: self[:1]

    elements = Answers([1, 2])

    assert spans_of(elements) is elements


def test_a_row_of_a_span_keeps_its_columns_and_those_of_its_folder() -> None:
    added = (("year", 2024),)
    span = Rows("year=2024/a.parquet", "/data/year=2024/a.parquet", "v", 10, 2, 3, 5, added)

    second = pickle.loads(list(span.messages(seal))[1])

    assert (second.key, second.part) == ("year=2024/a.parquet:11", Row(2, 1, 5, added))


@given(spans, st.data())
def test_a_part_of_a_span_opens_at_once_as_message_by_message(span: Span, data: st.DataObject) -> None:
    """A consumer opens a lease of a thousand rows by one pickle."""
    messages = span.messages(seal)
    lo = data.draw(st.integers(0, len(span) - 1))
    part = messages.cut(lo, data.draw(st.integers(1, len(span) - lo)))

    assert list(opened(part) or ()) == [pickle.loads(message) for message in part]


@given(spans)
def test_a_span_weighs_what_its_elements_weigh(span: Span) -> None:
    def size(each: Any) -> int | None:
        return each.size if isinstance(each, Document) else None

    assert list(map(size, span.heavy(0, len(span)))) == list(map(size, span))


def test_a_listing_is_grouped_in_its_order_and_what_came_before_an_error_comes_first() -> None:
    """Rows between files, places that change, and a server that stops in the middle."""
    given_documents = [
        *(Document(f"{at}.txt", "v", f"/a/{at}.txt", at) for at in range(1200)),
        Document("b.txt", "v", "/other/b.txt", 1),
        Document("4", "v", "/a/rows.jsonl", 9, part=Line(0, 9)),
        *(Document(f"{at}", "", "/a.zip", 3, part=Member(f"{at}")) for at in range(3)),
    ]

    def listing() -> Iterator[Document]:
        yield from given_documents
        raise OSError("gone")

    found, sizes = list[Document](), list[int]()

    def read() -> None:
        for each in grouped(listing()):
            found.extend(each if isinstance(each, Span) else [each])
            sizes.append(len(each) if isinstance(each, Span) else 1)

    with pytest.raises(OSError, match="gone"):
        read()

    assert found == given_documents
    assert max(sizes) <= 1000
    assert sizes[-3:] == [1, 1, 3]
