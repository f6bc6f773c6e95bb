"""Listings made of listings: what they choose, in which order, and that they are the same each time."""

from __future__ import annotations

import operator
import pickle
import random
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.documents import Document, Documents, listing, parsed_natively
from dqlab.documents.listing import summarize
from dqlab.documents.parts import PageRange
from dqlab.errors import BadOption, DocumentChanged, DocumentEncrypted, LengthUnknown, UsageError
from dqlab.runs.submit.elements import why_empty
from tests.documents.test_archives import pack
from tests.kit.hugging_face import Dataset
from tests.kit.pdfs import encrypted_pdf, make_pdf

NUMBERS = st.none() | st.integers(0, 50)
DOCUMENTS = st.lists(
    st.builds(
        lambda key, size, pages: Document(key, "1", f"/n/{key}", size, pages), st.text(max_size=4), NUMBERS, NUMBERS
    ),
    max_size=30,
)


class Picture:
    """Another object at each reading."""


class Decoding(Dataset):
    """A dataset that makes its pictures of bytes whenever they are read."""

    def __getitem__(self, rows: slice) -> dict[str, list[Any]]:
        found = super().__getitem__(rows)
        return {**found, "picture": [Picture() for _ in found["picture"]]}

    def select_columns(self, names: list[str]) -> Decoding:
        return self


def keys(documents: Documents) -> list[str]:
    return [document.key for document in documents]


def long_tailed(n: int = 1_000) -> list[Document]:
    """Documents as they are: most are short, a few hold most of the pages."""
    draw = random.Random(5)
    return [
        Document(f"{at:04}.pdf", "1", f"/n/{at:04}.pdf", pages * 3_000, pages)
        for at in range(n)
        if (pages := max(1, int(draw.lognormvariate(2, 1.4))))
    ]


@pytest.mark.parametrize(
    ("condition", "by_hand"),
    [
        ("size < 20", lambda d: d.size is not None and d.size < 20),
        ("size < 2e1 and pages >= 3", lambda d: None not in (d.size, d.n_pages) and d.size < 20 and d.n_pages >= 3),
        ("size is None or not pages == 3", lambda d: d.size is None or d.n_pages != 3),
        ("'a' in key", lambda d: "a" in d.key),
        ("key in ['a', 'b'] and version == '1'", lambda d: d.key in ("a", "b")),
        ("where != '/n/a'", lambda d: d.where != "/n/a"),
        ("5 <= size <= 9", lambda d: d.size is not None and 5 <= d.size <= 9),
        ("pages not in (1, 2)", lambda d: d.n_pages not in (1, 2)),
    ],
)
@given(documents=DOCUMENTS)
def test_condition_chooses_what_python_would(condition: str, by_hand: Any, documents: list[Document]) -> None:
    assert list(Documents(documents).where(condition)) == list(filter(by_hand, documents))
    assert list(Documents(documents).where(by_hand)) == list(filter(by_hand, documents))


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("size = 3", "Write == to compare"),
        ("siez < 3", "Did you mean 'size'"),
        ("bytes < 3", "bytes is not a field. Fields are key, size, pages, version, where;"),
        ("size < 'a'", "'<' not supported"),
        ("key < 3", "'<' not supported"),
        ("", "no Python expression"),
        (7, "neither an expression nor a callable"),
    ],
)
def test_condition_that_cannot_be_understood_is_refused_at_once(condition: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Documents([]).where(condition)


@given(documents=DOCUMENTS)
def test_longest_come_first_and_nothing_is_lost(documents: list[Document]) -> None:
    ordered = list(Documents(documents).longest_first())
    known = [d.n_pages for d in ordered if d.n_pages is not None and d.size is None]

    assert sorted(map(repr, ordered)) == sorted(map(repr, documents))
    assert known == sorted(known, reverse=True)
    assert [d for d in ordered if d.size is d.n_pages is None] == [d for d in documents if d.size is d.n_pages is None]
    unknown = sum(d.size is d.n_pages is None for d in documents)
    assert all(d.size is not None or d.n_pages is not None for d in ordered[: len(ordered) - unknown])


def test_bytes_stand_for_pages_where_these_are_unknown() -> None:
    """At the bytes a page of the others: 30 kB are ten pages here."""
    documents = [
        Document("three", "1", "/3", 9_000, 3),
        Document("ten", "1", "/10", 30_000),
        Document("twelve", "1", "/12", 36_000, 12),
        Document("nothing", "1", "/0"),
    ]

    assert keys(Documents(documents).longest_first()) == ["twelve", "ten", "three", "nothing"]
    assert keys(Documents([documents[1], Document("b", "1", "/b", 40_000)]).longest_first()) == ["b", "ten"]


@pytest.mark.parametrize("by", ["pages", "size", None])
def test_sample_is_the_same_each_time_and_in_the_order_of_the_whole(by: Any) -> None:
    documents = long_tailed()
    sample = Documents(documents).sample(100, by=by)
    chosen = list(sample)

    assert len(chosen) == len(sample) == len({document.key for document in chosen}) == 100
    assert list(sample) == chosen == list(Documents(list(documents)).sample(100, by=by))
    assert chosen == sorted(chosen, key=documents.index)
    assert list(Documents(documents).sample(100, by=by, seed=1)) != chosen
    assert list(Documents(iter(documents)).sample(100, by=by)) == chosen


@pytest.mark.parametrize("by", ["pages", "size"])
def test_sample_has_as_many_short_and_long_documents_as_the_whole(by: Any) -> None:
    """Each tenth of the sizes has its tenth of the sample, whatever the seed."""
    lengths = random.Random(8).sample(range(1, 1_001), 1_000)
    documents = [Document(f"{at}", "1", f"/n/{at}", length * 9, length) for at, length in enumerate(lengths)]
    ranked = sorted(documents, key=operator.attrgetter("size"))
    tenth = {document.key: at // 100 for at, document in enumerate(ranked)}
    for seed in range(5):
        counts = [0] * 10
        for document in Documents(documents).sample(50, by=by, seed=seed):
            counts[tenth[document.key]] += 1
        assert all(4 <= count <= 6 for count in counts), counts


def test_sample_of_rows_whose_values_are_made_again_at_each_reading_has_as_many_as_wanted() -> None:
    """Pictures of a dataset are decoded at each reading, and their text shows where in memory they are."""
    rows = Documents.from_hf(Decoding({"id": [f"r{at}" for at in range(300)], "picture": [0] * 300}), key="id")
    sample = rows.sample(20)

    assert len(keys(sample)) == 20
    assert keys(sample) == keys(sample)
    assert keys(sample) == keys(Documents.from_frame(pd.DataFrame({"id": keys(rows)}), key="id").sample(20))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1,), "n=-1"),
        ((2.5,), "n=2.5"),
        ((True,), "n=True"),
        ((5, "words"), "by='words'"),
        ((5, None, "x"), "seed='x'"),
    ],
)
def test_sample_of_nonsense_is_refused_at_once(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Documents([]).sample(*arguments)


def test_operations_follow_each_other_and_are_lazy(tmp_path: Path) -> None:
    for at in range(30):
        (tmp_path / f"{at:02}.txt").write_bytes(b"x" * at)
    documents = Documents.from_glob(tmp_path / "*.txt").where("size > 4").sample(20, by="size").longest_first()[::2]
    first = list(documents)

    assert len(first) == len(documents) == 10
    assert [document.size for document in first] == sorted((document.size for document in first), reverse=True)
    (tmp_path / "99.txt").write_bytes(b"x" * 99)
    assert Documents.from_glob(tmp_path / "*.txt").where("size > 4").longest_first()[0].key == "99.txt"
    assert repr(documents) == (
        f"Documents.from_glob('{tmp_path}/*.txt').where('size > 4').sample(20, by='size').longest_first()[::2]"
    )


def test_operations_on_an_iterator_are_used_up_like_it() -> None:
    for make in (
        lambda d: d.where("size > 0"),
        lambda d: d.longest_first(),
        lambda d: d.sample(3),
        lambda d: d.split(pages=2),
    ):
        chosen = make(Documents(iter(long_tailed(5))))
        assert not chosen.repeats
        with pytest.raises(LengthUnknown):
            len(chosen)
        assert list(chosen)
        with pytest.raises(UsageError):
            list(chosen)


# --- Parts of PDFs.


def papers(folder: Path) -> Documents:
    for name, count in (("a.pdf", 7), ("b.PDF", 3), ("c.pdf", 4), ("d.pdf", 1)):
        (folder / name).write_bytes(make_pdf(*(f"{name} {at}" for at in range(1, count + 1))))
    (folder / "e.txt").write_text("text")
    (folder / "f.pdf").write_bytes(encrypted_pdf())
    (folder / "g.pdf").write_bytes(make_pdf())
    return Documents.from_glob(folder / "*")


def test_long_pdfs_come_in_parts_of_pages(tmp_path: Path) -> None:
    whole = papers(tmp_path)
    parts = whole.split(pages=3)
    read = pickle.loads(pickle.dumps(list(parts)))

    names = "a.pdf#p1-3of7 a.pdf#p4-6of7 a.pdf#p7-7of7 b.PDF c.pdf#p1-3of4 c.pdf#p4-4of4 d.pdf e.txt f.pdf g.pdf"
    assert keys(parts) == names.split()
    assert [document.page_count for document in read[:7]] == [3, 3, 1, 3, 3, 1, 1]
    assert [(page.number, page.text()) for document in read[:3] for page in document.pages()] == [
        (at, f"a.pdf {at}") for at in range(1, 8)
    ]
    assert read[1].text() == "a.pdf 4\fa.pdf 5\fa.pdf 6"
    assert read[0].bytes() == (tmp_path / "a.pdf").read_bytes()
    assert {(document.version, document.size) for document in read[:3]} == {(whole[0].version, whole[0].size)}
    assert len(parts) == 10
    with pytest.raises(DocumentEncrypted):
        list(read[8].pages())
    assert len(pickle.dumps(read[0])) <= 300 + len(str(tmp_path))


@pytest.mark.parametrize("now", [3, 6, 8, 12])
def test_parts_of_a_pdf_that_has_other_pages_now_have_changed(tmp_path: Path, now: int) -> None:
    """Read again with `refreshed()`, a longer PDF would come together without its last pages."""
    path = tmp_path / "a.pdf"
    path.write_bytes(make_pdf(*"1234567"))
    parts = list(Documents.from_glob(path).split(3).split(2))
    path.write_bytes(make_pdf(*map(str, range(1, now + 1))))

    for part in parts:
        with pytest.raises(DocumentChanged, match=f"of 7 pages.*of {now} pages.*map the documents again under another"):
            list(part.refreshed().pages())
    path.write_bytes(make_pdf(*"abcdefg"))
    assert [[page.text().strip() for page in part.refreshed().pages()] for part in parts] == [
        ["a", "b"],
        ["c"],
        ["d", "e"],
        ["f"],
        ["g"],
    ]


def test_size_of_parts_is_that_of_their_files_each_once(tmp_path: Path) -> None:
    """Of parts that were chosen, without the first of a file, it was 0 bytes."""
    sizes = {}
    for name in ("a.pdf", "b.pdf"):
        (tmp_path / name).write_bytes(make_pdf(*name * 2))
        sizes[name] = (tmp_path / name).stat().st_size
    parts = Documents.from_glob(tmp_path / "*.pdf").split(3)

    for chosen in (parts, parts.longest_first(), parts.where("pages == 1"), parts[1:]):
        assert summarize(chosen).size == sum(sizes.values())
    assert summarize(parts.where("'a.pdf' in key")).size == sizes["a.pdf"]


def test_parts_of_parts_and_of_archives_are_parts(tmp_path: Path) -> None:
    of = {"deep/a.pdf": make_pdf(*map(str, range(1, 8)))}
    for form in ("zip", "tar.gz"):
        documents = Documents.from_archive(pack(tmp_path / f"x.{form}", list(of), of.__getitem__))
        parts = pickle.loads(pickle.dumps(list(documents.split(pages=4))))

        assert [document.key for document in parts] == ["deep/a.pdf#p1-4of7", "deep/a.pdf#p5-7of7"]
        assert [page.text() for document in parts for page in document.pages()] == list("1234567")
        assert keys(documents.split(pages=4).split(pages=3)) == [
            "deep/a.pdf#p1-3of7",
            "deep/a.pdf#p4-4of7",
            "deep/a.pdf#p5-7of7",
        ]
        assert isinstance(parts[0].part, PageRange)
        assert parts[0].refreshed() == parts[0]
        assert parsed_natively(documents.split(pages=4))
        assert parsed_natively(parts)


def test_pdf_of_this_machine_is_found_by_its_first_bytes(tmp_path: Path) -> None:
    """A run over papers of arXiv, which have no ".pdf", uses processes, and splits them."""
    (tmp_path / "1706.03762v7").write_bytes(make_pdf("one", "two", "three"))
    (tmp_path / "notes").write_bytes(b"no PDF")
    documents = Documents.from_glob(tmp_path / "*")

    assert keys(documents.split(pages=2)) == ["1706.03762v7#p1-2of3", "1706.03762v7#p3-3of3", "notes"]
    assert parsed_natively(documents)
    assert not parsed_natively(documents[1:])


@pytest.mark.parametrize("pages", [0, -3, 2.5, None, True, "40"])
def test_parts_of_nonsense_are_refused_at_once(pages: Any) -> None:
    with pytest.raises(BadOption, match="pages="):
        Documents([]).split(pages=pages)


def test_asking_for_the_executor_does_not_list_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """`map` returns at once; only its submitting thread lists."""
    given = []

    def make() -> Any:
        for at in range(100):
            given.append(at)
            yield Document(f"{at}.pdf", "1", f"/n/{at}.pdf", at, 1)

    assert parsed_natively(Documents(make).sample(50).longest_first())
    assert len(given) == 1
    assert listing.parsed_natively(Documents(make).where("size > 2"))
    assert len(given) == 5


# --- Large folders.


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("key == 'c.tx'", "none of the documents matches where(\"key == 'c.tx'\")."),
        ("size > 1e6", "none of the documents matches where('size > 1e6')."),
        (lambda document: False, "none of the documents matches where(<lambda>)."),
    ],
)
def test_condition_that_no_document_meets_is_answered_by_what_there_is(
    tmp_path: Path, condition: Any, said: str
) -> None:
    """`pages > 100` before pages are counted met nothing, and the advice was to check a path that was right."""
    for length, name in enumerate(["a.txt", "b.txt", "c.txt"], 1):
        (tmp_path / name).write_text("x" * length)
    docs = Documents.from_glob(tmp_path / "*.txt")

    assert said in docs.where(condition).why_none()
    assert said in docs.where(condition).sample(2).longest_first()[1:].why_none()
    assert said in docs.where(condition).where("size > 0").why_none()
    assert summarize(docs.where(condition)).none == docs.where(condition).why_none()
    assert said.removesuffix(".")[5:] in why_empty(docs.where(condition))
    assert docs.where("size > 0").why_none() == docs[:0].why_none() == Documents([]).where("size > 0").why_none() == ""
    assert docs.where(condition).filtered
    assert not docs.filtered
