"""What Python says of a few mistakes is not enough on another process: the record of a failure adds what it takes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dqlab.documents import Document, Documents
from dqlab.failures.failure import Failure, retryable


def failed(function: Callable[[Any], Any], argument: Any = None) -> tuple[BaseException, Failure]:
    """Return what a function raises, and its record."""
    try:
        function(argument)
    except Exception as error:  # noqa: BLE001 - it is what the test is about
        return error, Failure.from_exception(error, skip=1, when=1.7e9, seconds=0.5)
    raise AssertionError("nothing was raised")


@pytest.fixture
def document(tmp_path: Path) -> Document:
    (tmp_path / "a.txt").write_text("one")
    return Documents.from_glob(tmp_path / "*.txt")[0]


def test_a_variable_that_was_set_after_connecting_is_explained() -> None:
    """ "KeyError: 'MYVAR'. Fix the function" said of a notebook that had just set it."""
    _, record = failed(lambda _: os.environ["DQLAB_NOT_SET"])

    assert record.message.startswith("'DQLAB_NOT_SET': ")
    assert "consumers have the environment variables that were set when they were started, as by dq.connect" in (
        record.message
    )
    assert failed(lambda _: {}["DQLAB_NOT_SET"])[1].message == "'DQLAB_NOT_SET'", "of any other mapping"


def test_a_relative_path_is_explained_with_the_folder_of_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `os.chdir` in the notebook the file was there, and the consumers did not find it."""
    monkeypatch.chdir(tmp_path)

    _, record = failed(lambda _: Path("here.txt").read_bytes())

    assert record.message.startswith("[Errno 2] No such file or directory: 'here.txt'; ")
    assert f"from the folder in which the consumer was started, {tmp_path}; os.chdir" in record.message
    absolute = str(tmp_path / "gone.txt")
    assert (
        failed(lambda _: Path(absolute).read_bytes())[1].message == f"[Errno 2] No such file or directory: {absolute!r}"
    )


@pytest.mark.parametrize(
    "wrong",
    [len, open, lambda doc: doc + "x", lambda doc: "x" + doc, lambda doc: "x" in doc, lambda doc: list(doc), int],
    ids=["len", "open", "add", "radd", "in", "list", "int"],
)
def test_a_document_that_is_used_as_its_text_is_explained_and_fails_once(wrong: Any, document: Document) -> None:
    """It was tried four times, and "object of type 'Document' has no len()" does not say what to write."""
    error, record = failed(lambda doc: wrong(doc), document)

    assert record.message.startswith(str(error))
    assert "doc.text() returns its text, doc.bytes() its bytes, doc.where its path" in record.message
    assert not retryable(error)


def test_a_document_in_the_hands_of_a_library_is_explained_and_retried(document: Document) -> None:
    """What a library makes of it need not be the same the next time."""
    error, record = failed(lambda doc: json.dumps({"x": re.sub("a", "b", doc)}), document)

    assert "doc.text() returns its text" in record.message
    assert retryable(error)


def test_documents_of_others_are_left_alone() -> None:
    """Parsers have classes of that name too."""

    class Document:
        pass

    _, record = failed(lambda doc: len(doc), Document())

    assert record.message == "object of type 'Document' has no len()"
