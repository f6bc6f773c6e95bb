"""Pages of PDFs are counted on the consumers: `docs.probe(lab)`."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import LengthUnknown
from tests.kit.pdfs import encrypted_pdf, make_pdf

pytestmark = pytest.mark.cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, pages in (("a.pdf", 3), ("b.pdf", 1)):
        (tmp_path / name).write_bytes(make_pdf(*map(str, range(pages))))
    (tmp_path / "c.txt").write_text("plain")
    (tmp_path / "d.pdf").write_bytes(encrypted_pdf())
    return tmp_path


def pages_of(documents: dq.Documents) -> dict[str, int | None]:
    return {document.key: document.page_count for document in documents}


def test_pages_are_counted_where_functions_run(queue: dq.QueuePool, folder: Path) -> None:
    """Forty thousand PDFs would keep a notebook busy for an hour; what cannot be opened ends nothing."""
    probed = dq.Documents.from_glob(f"{folder}/*").probe(queue)

    assert pages_of(probed) == {"a.pdf": 3, "b.pdf": 1, "c.txt": None, "d.pdf": None}
    assert [document.key for document in probed.where("pages > 2")] == ["a.pdf"]
    assert [document.key for document in probed.split(2)] == [
        "a.pdf#p1-2of3",
        "a.pdf#p3-3of3",
        "b.pdf",
        "c.txt",
        "d.pdf",
    ]
    assert repr(probed).endswith(".probe()")
    assert probed[0] == next(iter(probed))


def test_what_was_counted_is_taken_again_until_a_file_changes(queue: dq.QueuePool, folder: Path) -> None:
    """In the run's results, which a store keeps: the next kernel counts nothing."""
    documents = dq.Documents.from_glob(f"{folder}/*")

    made: list[Any] = []

    class Noting:
        def map(self, fn: Any, documents: Any, **options: Any) -> dq.Run:
            made.append(queue.map(fn, documents, **options))
            return made[-1]

    assert pages_of(documents.probe(Noting()))["a.pdf"] == 3
    assert pages_of(documents.probe(Noting()))["a.pdf"] == 3
    assert made[0].id == made[1].id
    (folder / "a.pdf").write_bytes(make_pdf(*"12345"))
    assert pages_of(documents.probe(queue))["a.pdf"] == 5


def test_members_of_one_name_have_counts_of_their_own(queue: dq.QueuePool, tmp_path: Path) -> None:
    """A tar has some after `tar --append`: all had the count of the last one, and `split` lost pages of the first."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        for pages in ("123", "12345", "1"):
            info, pdf = tarfile.TarInfo("a.pdf"), make_pdf(*pages)
            info.size = len(pdf)
            made.addfile(info, io.BytesIO(pdf))

    assert [document.page_count for document in dq.Documents.from_archive(path).probe(queue)] == [3, 5, 1]


def test_changed_file_loses_its_count(queue: dq.QueuePool, folder: Path) -> None:
    probed = dq.Documents.from_glob(f"{folder}/*").probe(queue)
    (folder / "a.pdf").write_bytes(make_pdf(*"12345"))

    assert pages_of(probed) == {"a.pdf": None, "b.pdf": 1, "c.txt": None, "d.pdf": None}


def test_nothing_to_count_makes_no_run_and_iterators_are_refused(queue: dq.QueuePool, folder: Path) -> None:
    (text,) = dq.Documents.from_glob(f"{folder}/*.txt").probe(queue)

    assert text.page_count is None
    with pytest.raises(LengthUnknown):
        dq.Documents(iter([f"{folder}/a.pdf"])).probe(queue)
