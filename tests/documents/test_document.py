"""One document: reading it, and carrying it to another process."""

from __future__ import annotations

import io
import math
import pickle
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.documents import Document, Documents
from dqlab.documents import document as document_module
from dqlab.errors import BadOption, DocumentChanged
from tests.kit.sampled import examples

TEXT = st.lists(st.sampled_from(["a", "é", "\n", "\r", "\r\n", "\x0c", "\u2028", "\ufeff"]), max_size=40).map("".join)


def written(path: Path, contents: bytes) -> Document:
    """Write a file and return a reference to it."""
    path.write_bytes(contents)
    return Document(path.name, "1", str(path))


def in_memory(contents: bytes) -> Document:
    """Put a file into fsspec's memory and return a reference to it."""
    fsspec.filesystem("memory").pipe("/documents/page.txt", contents)
    return Document("page.txt", "1", "memory://documents/page.txt")


@given(
    key=st.text(),
    version=st.text(),
    where=st.text(),
    size=st.none() | st.integers(0, (1 << 63) - 1),
    pages=st.none() | st.integers(0, (1 << 32) - 1),
)
def test_document_survives_pickling(key: str, version: str, where: str, size: int | None, pages: int | None) -> None:
    """The key is sent as part of `where` when it can be; what arrives is the same all the same."""
    for place in (where, where + key):
        document = Document(key, version, place, size, pages)

        assert pickle.loads(pickle.dumps(document)) == document


@pytest.mark.parametrize("pages", [3, 3.0, np.int64(3), np.uint8(3), np.float32(3), Fraction(3)])
def test_whole_numbers_of_any_type_become_ints(pages: Any) -> None:
    """A column of pandas has floats as soon as one number is missing."""
    document = Document("a.pdf", "", "/a.pdf", pages, pages)

    assert (type(document.size), type(document.n_pages)) == (int, int)
    assert (document.size, document.page_count) == (3, 3)


@pytest.mark.parametrize("part", ["size", "n_pages"])
@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -1, -1.0, 3.5, 1 << 63, 1e300, "3", pd.NA, pd.NaT, Decimal("NaN"), [], 1j]
)
def test_numbers_that_count_nothing_are_refused_with_the_documents_name(part: str, value: Any) -> None:
    """Further on they would end the put of a thousand documents, with an error that names none of them."""
    with pytest.raises(BadOption, match=f"{part} of document 'a.pdf'=.*None where it is unknown"):
        Document("a.pdf", "", "/a.pdf", **{part: value})


@pytest.mark.parametrize(
    "parts", [(7, "", "/a"), ("a", None, "/a"), ("a", "", Path("/a")), (math.nan, "", "/a"), (b"a", "", "/a")]
)
def test_names_that_are_no_strings_are_refused(parts: tuple[Any, Any, Any]) -> None:
    """A missing name in a table is a float."""
    with pytest.raises(BadOption, match=r"of a document=.*is not a string"):
        Document(*parts)


def test_pickled_document_is_small() -> None:
    """A million documents are a million of these, in the queue and in the log."""
    key = "corpus/2024/letters/volume-17/letter-000123-from-paris-to-london.txt"
    document = Document(key, "1048576-1778312133000000000", f"/home/someone/projects/archive/{key}", 1 << 20, 400)

    assert len(pickle.dumps(document)) <= 260


def test_undecodable_file_name_survives_pickling_and_opens(tmp_path: Path) -> None:
    """Linux file names are bytes; one that is not utf-8 must not end a run."""
    name = "caf\udce9.txt"
    document = pickle.loads(pickle.dumps(written(tmp_path / name, b"old")))

    assert document.key == name
    assert document.bytes() == b"old"


@pytest.mark.cluster
def test_reading_local_documents_needs_no_fsspec(tmp_path: Path) -> None:
    """Local documents need nothing but the standard library."""
    (tmp_path / "a.txt").write_text("a")
    program = (
        "import sys; from dqlab.documents import Documents\n"
        "sys.modules['fsspec'] = None  # from here on, importing it fails\n"
        f"assert [d.text() for d in Documents.from_glob({str(tmp_path / '*.txt')!r})] == ['a']\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


@settings(max_examples=examples(50))
@given(text=TEXT, lines=st.integers(1, 5))
def test_pages_joined_are_the_text(text: str, lines: int) -> None:
    """No character is lost or doubled between pages, whatever ends the lines."""
    document = in_memory(text.encode())
    pages = list(document.pages(lines))

    assert "".join(pages) == document.text()
    assert document.text() == io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8-sig").read()
    assert all(page.count("\n") == lines for page in pages[:-1])
    assert pages[-1].count("\n") <= lines


def test_errors_and_encoding_given_by_the_reader_win(tmp_path: Path) -> None:
    """A caller may know better than the file."""
    document = written(tmp_path / "a.py", b"# coding: utf-8\ncaf\xe9\n")

    assert document.text("latin-1").endswith("café\n")
    assert document.text(errors="replace").endswith("caf\ufffd\n")
    assert "".join(document.pages(encoding="latin-1")).endswith("café\n")


def test_documents_are_not_opened_for_writing(tmp_path: Path) -> None:
    """A slip of the mode must not destroy an input."""
    document = written(tmp_path / "a.txt", b"a")

    with pytest.raises(BadOption, match="only read"):
        document.open("wb")  # type: ignore[call-overload]
    with pytest.raises(BadOption, match="encoding"):
        document.open("rb", "utf-8")  # type: ignore[call-overload]
    assert document.bytes() == b"a"


def test_a_file_that_is_written_again_while_it_is_read_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared as it was opened alone, it gave what the writer had left of it."""
    path = tmp_path / "a.txt"
    path.write_text("old text")
    (document,) = Documents([path])

    class Late(io.FileIO):
        def read(self, size: int | None = -1) -> bytes:
            path.write_text("old")
            return super().read(size)

    monkeypatch.setattr(document_module, "open_binary", Late)

    for name in ("bytes", "text", "html"):
        path.write_text("old text")
        with pytest.raises(DocumentChanged):
            getattr(document.refreshed(), name)()
