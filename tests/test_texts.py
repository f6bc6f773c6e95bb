"""Text that users bring along: kept exactly, or made valid."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.cluster.transport.wire import pack, pack_report, unpack, unpack_report
from dqlab.errors import UsageError
from dqlab.failures.failure import Failure
from dqlab.store.journal import pack_plain, unpack_plain
from dqlab.texts import block, kept, one_line, restored, shown, valid
from tests.kit.nasty import NASTY_ERRORS, NASTY_TEXTS

ANY_TEXT = st.text(st.characters(codec=None, categories=None), max_size=60)


@given(ANY_TEXT)
def test_kept_text_comes_back_exactly(text: str) -> None:
    """A key opens its file, and names its result, only as it is; pairs of lone surrogates included."""
    record = Failure(*["f"] * 5, text, *["c"] * 3, 0.0, 0.0)

    assert restored(kept(text)) == text
    assert unpack(pack({text: [text]}))[0] == {text: [text]}
    assert unpack_plain(pack_plain([text])) == [text]
    assert Failure.from_bytes(record.to_bytes()) == record


@given(ANY_TEXT)
def test_shown_text_is_valid_and_stays_as_it_is_where_it_can(text: str) -> None:
    """JSON, HTTP, msgpack and terminals refuse lone surrogates, and take everything else."""
    said = shown(text)

    said.encode()
    assert shown(said) == said
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert said == text
    assert unpack_report(pack_report({"text": text})) == {"text": said}
    assert valid({text: [(text,)]}) == {said: [[said]]}


def test_bytes_of_a_file_name_can_be_read() -> None:
    """Python's own marks for them are letters that no font has."""
    assert shown(os.fsdecode(b"caf\xe9.txt")) == one_line(os.fsdecode(b"caf\xe9.txt")) == "caf\\xe9.txt"
    assert shown("\ud800") == "\\ud800"


@pytest.mark.parametrize("text", NASTY_TEXTS, ids=range(len(NASTY_TEXTS)))
def test_what_people_read_is_printable(text: str) -> None:
    """An escape sequence would clear the screen of a user who reads about a failure."""
    for said in (one_line(text), block(text), str(UsageError(reason=text))):
        said.encode()
        assert said.replace("\n", "").replace("\u200d", "").replace("\u200c", "").isprintable()
    assert len(one_line(text)) <= 120
    assert "\n" not in one_line(text)


@pytest.mark.parametrize("error", NASTY_ERRORS, ids=range(len(NASTY_ERRORS)))
def test_any_exception_becomes_a_record_that_travels(error: BaseException) -> None:
    """Whatever its class and its methods do: a failure that cannot be recorded would be lost with its chunk."""
    failure = Failure.from_exception(error, when=1.0, seconds=0.5)

    assert Failure.from_bytes(failure.to_bytes()) == failure
    assert all(type(text) is str for text in (failure.error, failure.message, failure.traceback, failure.at))
    assert len(failure.error) <= 300
    json.dumps(unpack_report(pack_report({"error": failure.error, "message": failure.message})), ensure_ascii=False)
