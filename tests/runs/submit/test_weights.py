"""What documents weigh in bars and estimates: pages where they are known, else bytes, else 1."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from dqlab.documents import Document, Documents
from dqlab.documents.parts import PageRange
from dqlab.runs.submit.elements import unit_of, weigher
from tests.kit.http_server import serving
from tests.kit.pdfs import make_pdf

SIZED = [Document(f"{at}.txt", "1", f"/n/{at}.txt", at) for at in range(3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for at in range(3):
        (tmp_path / f"{at}.txt").write_text("word " * at)
    (tmp_path / "paper.pdf").write_bytes(make_pdf("one", "two"))
    (tmp_path / "rows.csv").write_text("id,text\n1,a\n2,b\n")
    with zipfile.ZipFile(tmp_path / "dump.zip", "w") as made:
        made.writestr("a.txt", "some words")
    with tarfile.open(tmp_path / "dump.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"), io.BytesIO(b""))
    return tmp_path


KINDS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "files": ("bytes", lambda folder: Documents.from_glob(folder / "*.txt")),
    "PDFs that nobody counted": ("bytes", lambda folder: Documents.from_glob(folder / "*.pdf")),
    "members of a zip": ("bytes", lambda folder: Documents.from_archive(folder / "dump.zip")),
    "members of several archives": ("bytes", lambda folder: Documents.from_archive(folder / "dump.*")),
    "a slice": ("bytes", lambda folder: Documents.from_glob(folder / "*.txt")[1:]),
    "chosen": (
        "bytes",
        lambda folder: Documents.from_glob(folder / "*.txt").where("size > 1").sample(1).longest_first(),
    ),
    "a list of documents": ("bytes", lambda folder: list(SIZED)),
    "a listing of a list": ("bytes", lambda folder: Documents(SIZED)),
    "a list in which one size is unknown": ("", lambda folder: [*SIZED, Document("u", "", "http://h/u")]),
    "a list in which one has pages": ("", lambda folder: [*SIZED, Document("p", "1", "/n/p", 9, 2)]),
    "a list in which one is no document": ("", lambda folder: [*SIZED, "text"]),
    "an empty list": ("", lambda folder: []),
    "a generator": ("", lambda folder: iter(SIZED)),
    "paths": ("", lambda folder: Documents([folder / "0.txt"])),
    "parts of PDFs": ("", lambda folder: Documents.from_glob(folder / "*.pdf").split(pages=1)),
    "a listed part of a PDF": ("", lambda folder: [Document("a", "1", "/n/a.pdf", 9, part=PageRange(0, 1))]),
    "sources of Python": ("", lambda folder: Documents.stdlib()),
    "rows of a file": ("", lambda folder: Documents.from_csv(folder / "rows.csv", key="id")),
    "numbers": ("", lambda folder: [1, 2, 3]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_is_weighed_in_bytes_where_each_document_has_a_size_and_none_has_pages(
    folder: Path, kind: str
) -> None:
    """One that has neither would make the bar, and the speed, those of the others."""
    unit, make = KINDS[kind]

    assert unit_of(make(folder)) == unit


def test_files_of_a_web_server_are_not_weighed_in_bytes(folder: Path) -> None:
    """It may leave out how long they are, and that is not known before each has been asked for."""

    class Server(SimpleHTTPRequestHandler):
        def __init__(self, *about: Any) -> None:
            super().__init__(*about, directory=str(folder))

    with serving(Server) as url:
        assert unit_of(Documents.from_glob(f"{url}/0.txt")) == ""


@pytest.mark.parametrize(("size", "weight"), [(0, 1), (1, 1), (77, 77), (None, 1), (1 << 40, (1 << 32) - 1)])
def test_no_document_weighs_nothing(size: int | None, weight: int) -> None:
    """Empty files that are left would be nothing left; and 32 bits is what frames have for a weight."""
    document = Document("a", "", "/n/a", size)
    weigh = weigher("bytes", document)

    assert weigh is not None
    assert weigh(document) == weight


def test_documents_without_pages_weigh_one_beside_those_that_have_some() -> None:
    """They weighed nothing: an estimate of a run that had only such left divided by zero."""
    paged, bare = Document("a", "", "/n/a", 5, 3), Document("b", "", "/n/b", 5)
    weigh = weigher("", paged)

    assert weigh is not None
    assert [weigh(paged), weigh(bare), weigh("text")] == [3, 1, 1]
    assert weigher("", bare) is None
    assert weigher("", "text") is None
