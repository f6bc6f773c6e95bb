"""A listing of documents as a table, bounded in time."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from dqlab.documents import Document, Documents, listing
from dqlab.documents.listing import summarize
from dqlab.live.display import text_of
from dqlab.live.tables import listing_table, table_of
from tests.documents.test_archives import pack
from tests.kit.compressed import ZSTD
from tests.kit.pdfs import make_pdf
from tests.live.drawn import table_text


def corpus(folder: Path) -> Documents:
    for at in range(7):
        (folder / f"{at}.txt").write_bytes(b"x" * 1_000)
    (folder / "b.pdf").write_bytes(make_pdf("one"))
    (folder / "log.txt.gz").write_bytes(b"")
    (folder / "README").write_bytes(b"")
    return Documents.from_glob(folder / "*")


def test_table_shows_the_first_five_what_there_is_and_the_line_that_submits_it(tmp_path: Path) -> None:
    documents = corpus(tmp_path)
    text = table_text(table_of(summarize(documents), "docs[:100]"))
    size = sum(document.size or 0 for document in documents)

    assert [row[0].text for row in listing_table(documents).rows] == ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt"]
    assert "10 documents" in text
    assert f"{size / 1000:.1f} kB" in text
    assert "7 txt · 1 without ending · 1 pdf · 1 txt.gz" in text
    assert text.splitlines()[-1].strip() == "%%dq submit --over docs[:100] --watch -o run"
    assert "pages" not in text
    assert "so far" not in text


def test_sums_of_what_is_known_in_part_say_at_least() -> None:
    documents = [Document(f"{at}", "1", f"/n/{at}", at or None, at % 2 or None) for at in range(8)]
    text = table_text(listing_table(Documents(documents)))

    assert ">28 B" in text
    assert ">4" in text


def test_what_cannot_be_read_is_counted_and_named(tmp_path: Path) -> None:
    documents = Documents([tmp_path / "gone.txt", Document("far", "", "s9://b/far"), *corpus(tmp_path)])
    text = "".join(table_text(listing_table(documents)).split())

    # Where the directory's name is long, the path is cut before its end.
    assert re.search(r"2documentscannotbereadfromhere:/\S*(/gone\.txt|…),far", text)


@pytest.mark.parametrize(
    ("name", "package"), [("B.PDF", "pypdfium2"), ("b.html", "selectolax.lexbor"), ("b.txt.zst", ZSTD)]
)
def test_formats_that_cannot_be_read_without_an_extra_are_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    """All documents of a run failed for it, after the cell that had shown them without a word."""
    (tmp_path / name).write_bytes(b"")
    documents = Documents.from_glob(tmp_path / "*")
    assert "extra" not in table_text(listing_table(documents))

    monkeypatch.setitem(sys.modules, package, None)
    text = " ".join(table_text(listing_table(documents)).split())

    kind = name.partition(".")[2].lower()
    assert f"1 {kind}: need the extra documents: {sys.executable} -m pip install 'dqlab[documents]'" in text


def test_error_of_a_listing_stands_below_what_came_before_it(tmp_path: Path) -> None:
    path = pack(tmp_path / "a.tar", ["a.html", "b.html"])
    path.write_bytes(path.read_bytes()[:1_500])
    text = table_text(listing_table(Documents.from_archive(path)))

    assert "a.html" in text
    assert "the listing ends there: InputUnreadable: " in text


def test_counting_stops_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that answers slowly, or not at all, must not hold up the notebook."""
    go_on = threading.Event()

    def slowly() -> Iterator[Document]:
        for at in range(3):
            yield Document(f"{at}", "1", f"/n/{at}", 1)
        go_on.wait()
        yield Document("late", "1", "/n/late", 1)

    found = summarize(Documents(slowly), patience=0.2)
    text = table_text(table_of(found, "docs"))
    go_on.set()

    assert (found.count, found.whole) == (3, False)
    assert "so far: counting was stopped after 2 s" in text
    assert listing.PATIENCE == 2.0


def test_iterator_is_not_used_up_by_showing_it() -> None:
    documents = Documents(iter([Document("a", "1", "/a")]))
    text = table_text(listing_table(documents))

    assert "from an iterator" in text
    assert len(list(documents)) == 1


def test_rows_are_shown_as_rows(tmp_path: Path) -> None:
    """They are chosen and counted as files are; those of a frame lie nowhere, and can be read."""
    frame = pd.DataFrame({"id": range(10, 19), "text": list("abcdefghi")})
    frame.to_parquet(tmp_path / "rows.parquet")
    for rows in (Documents.from_frame(frame, key="id"), Documents.from_parquet(tmp_path / "rows.parquet", key="id")):
        chosen = rows.where("'1' in key and key != '12'").sample(5).longest_first()
        text = table_text(listing_table(rows))

        assert "9 documents" in text
        assert "row" in text
        assert "cannot be read" not in text
        assert len({document["text"] for document in chosen}) == len(chosen) == 5
        assert list(rows.split(pages=3)) == list(rows)


def test_listing_that_a_condition_leaves_empty_names_the_condition(tmp_path: Path) -> None:
    """Their path was right, and "check the path" sent people the wrong way."""
    (tmp_path / "a.txt").write_text("a")
    text = table_text(listing_table(Documents.from_glob(tmp_path / "*.txt").where("key == 'b.txt'")))

    assert "check the path" not in text
    assert "key == 'b.txt'" in text


def test_listing_shows_itself_with_the_name_of_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = corpus(tmp_path)
    notebook = SimpleNamespace(user_ns={"_": documents, "papers": documents}, kernel=None)
    monkeypatch.setattr("dqlab.live.tables.shell", lambda: notebook)
    assert "%%dq submit --over papers --watch -o run" in text_of(documents)
    began = time.monotonic()
    assert repr(documents) == f"Documents.from_glob('{tmp_path}/*')"
    assert time.monotonic() - began < 1
