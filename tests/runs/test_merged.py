"""Documents that were split come back whole: `run.results(merge=...)`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import BadOption, PartsMissing, RunFailed, SubmissionIncomplete
from dqlab.runs.failures import DeadLetter
from tests.kit.pdfs import make_pdf


@pytest.fixture
def papers(tmp_path: Path) -> dq.Documents:
    """Three PDFs of 5, 1 and 3 pages, and a text."""
    for name, pages in (("a.pdf", 5), ("b.pdf", 1), ("c.pdf", 3)):
        (tmp_path / name).write_bytes(make_pdf(*(f"{name} {at + 1}" for at in range(pages))))
    (tmp_path / "d.txt").write_text("plain")
    return dq.Documents.from_glob(f"{tmp_path}/*")


def texts(document: dq.Document) -> list[str]:
    if document.key.startswith("a.pdf#p3"):
        raise ValueError(document.key)
    return pages_of(document)


def pages_of(document: dq.Document) -> list[str]:
    if not document.key.partition("#")[0].endswith(".pdf"):
        return [document.text()]
    return [page.text().strip() for page in document.pages()]


def joined(parts: list[list[str]]) -> list[str]:
    return [text for part in parts for text in part]


WHOLE = {
    "a.pdf": [f"a.pdf {at}" for at in range(1, 6)],
    "b.pdf": ["b.pdf 1"],
    "c.pdf": [f"c.pdf {at}" for at in range(1, 4)],
    "d.txt": ["plain"],
}


def test_split_documents_come_back_whole_and_in_order(queue: dq.QueuePool, papers: dq.Documents) -> None:
    run = queue.map(pages_of, papers.split(2), executor="thread")

    whole = run.results(merge=joined)

    assert len(run.results()) == 7
    assert dict(whole.items()) == WHOLE
    assert (len(whole), list(whole.keys()), list(whole)) == (4, list(WHOLE), list(WHOLE.values()))
    assert (whole[0], whole[-1], whole[1:3]) == (WHOLE["a.pdf"], WHOLE["d.txt"], [WHOLE["b.pdf"], WHOLE["c.pdf"]])
    assert repr(whole).endswith("4 documents from 7 parts>")


def test_document_lacking_a_part_is_never_half_there(queue: dq.QueuePool, papers: dq.Documents) -> None:
    """Half a document that looks whole is worse than none."""
    run = queue.map(texts, papers.split(2), executor="thread", retry=dq.Retry(0))

    with pytest.raises(RunFailed):
        run.results(merge=joined)
    assert dict(run.results("skip", merge=joined).items()) == {key: WHOLE[key] for key in ("b.pdf", "c.pdf", "d.txt")}
    returned = dict(run.results("return", merge=joined).items())
    assert isinstance(returned["a.pdf"], DeadLetter)
    assert returned["a.pdf"].key == "a.pdf#p3-4of5"
    frame = run.results("return", merge=len).to_frame()
    assert list(frame.index) == list(WHOLE)
    assert frame.shape == (4, 1)


@pytest.mark.parametrize(
    ("chosen", "short"),
    [
        (lambda parts: parts.where("'#p5-' not in key"), ["a.pdf"]),
        (lambda parts: parts.where("'#p1-' not in key"), ["a.pdf", "c.pdf"]),
        (lambda parts: parts.where("'#p3-' not in key"), ["a.pdf", "c.pdf"]),
        (lambda parts: [*parts[:2], *parts[3:]], ["a.pdf"]),
    ],
    ids=["last", "first", "middle", "slices"],
)
def test_document_some_of_whose_parts_were_not_chosen_is_never_half_there(
    queue: dq.QueuePool, papers: dq.Documents, chosen: Any, short: list[str]
) -> None:
    """A condition on parts, as "pages == 40", leaves out the last one of a document, which looked whole without it."""
    run = queue.map(pages_of, chosen(papers.split(2)), executor="thread")

    with pytest.raises(PartsMissing, match=r"'a.pdf' .*5 pages.*docs.where\(\.\.\.\).split") as caught:
        run.results(merge=joined)
    assert (caught.value.document, caught.value.pages, caught.value.documents) == ("a.pdf", 5, short)
    assert dict(run.results("skip", merge=joined).items()) == {k: WHOLE[k] for k in WHOLE if k not in short}
    returned = dict(run.results("return", merge=joined).items())
    assert [key for key, value in returned.items() if isinstance(value, PartsMissing)] == short
    frame = run.results("return", merge=len).to_frame()
    assert list(frame.index) == list(WHOLE)
    assert frame.shape == (4, 1)


def test_document_whose_parts_were_not_all_submitted_is_never_half_there(
    queue: dq.QueuePool, papers: dq.Documents
) -> None:
    """Where a kernel was killed while it listed, the last document had its first parts alone."""

    def cut() -> Iterator[dq.Document]:
        yield from papers.split(2)[:2]
        raise OSError("the disk is gone")

    run = queue.map(pages_of, cut(), executor="thread")

    with pytest.raises(SubmissionIncomplete):
        run.results(merge=joined)
    assert dict(run.results("skip", merge=joined).items()) == {}
    assert isinstance(run.results("return", merge=joined)[0], PartsMissing)


def test_parts_of_documents_of_one_key_with_other_pages_are_told_apart(
    queue: dq.QueuePool, papers: dq.Documents
) -> None:
    """Longest first mixes their parts."""
    named = [dq.Document("a.pdf", each.version, each.where, each.size) for each in papers if each.key != "d.txt"]
    run = queue.map(pages_of, dq.Documents(named).split(1).longest_first(), executor="thread")

    assert sorted(run.results(merge=joined)) == [WHOLE["a.pdf"], WHOLE["b.pdf"], WHOLE["c.pdf"]]


def test_pages_of_two_documents_of_one_key_are_never_mixed(queue: dq.QueuePool, papers: dq.Documents) -> None:
    """Nothing says whose the parts are."""
    run = queue.map(pages_of, dq.Documents([papers[0], papers[0]]).split(2), executor="thread")

    with pytest.raises(BadOption, match=r"several documents with the key 'a.pdf' apart"):
        run.results(merge=joined)


def test_merge_that_fails_names_the_document(queue: dq.QueuePool, papers: dq.Documents) -> None:
    run = queue.map(pages_of, papers.split(2), executor="thread")

    def broken(parts: list[Any]) -> Any:
        return parts[0] + 1

    with pytest.raises(TypeError) as caught:
        list(run.results(merge=broken))
    assert "3 values of document 'a.pdf'" in caught.value.__notes__[0]
    with pytest.raises(BadOption, match="merge"):
        run.results(merge="join")  # type: ignore[call-overload]
