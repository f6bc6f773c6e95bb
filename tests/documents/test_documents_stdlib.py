"""The standard library as a corpus that everybody has."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from dqlab.documents import Document, Documents
from dqlab.errors import InputNotFound


@pytest.fixture(scope="module")
def library() -> list[Document]:
    """Return the whole listing, made once."""
    return list(Documents.stdlib())


def test_library_is_listed_without_its_tests(library: list[Document]) -> None:
    """Tests hold deliberately broken sources, and would double the corpus."""
    keys = [document.key for document in library]
    folders = {part for key in keys for part in key.split("/")[:-1]}

    assert {"json/decoder.py", "argparse.py", "xml/etree/ElementTree.py"} <= set(keys)
    assert not folders & {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    assert keys == sorted(keys)
    assert 400 < len(keys) < 1200


def test_page_count_is_the_number_of_pages_read(library: list[Document]) -> None:
    """Estimates and weights rely on it; every source is also decodable as its coding line says."""
    assert [document.page_count for document in library] == [sum(1 for _ in document.pages()) for document in library]


def test_references_to_the_library_are_small(library: list[Document]) -> None:
    """They are what the quickstart sends."""
    import pickle

    assert max(len(pickle.dumps(document)) for document in library) <= 300


def test_counting_the_library_agrees_with_listing_it(library: list[Document]) -> None:
    """Counting does not open the sources, and finds the same."""
    assert len(Documents.stdlib()) == len(library)
    assert list(Documents.stdlib()[10:20]) == library[10:20]


@pytest.mark.parametrize(
    ("contents", "pages"), [(b"", 1), (b"x", 1), (b"x\n" * 60, 1), (b"x\n" * 60 + b"y", 2), (b"x\n" * 40_000, 667)]
)
def test_pages_are_lines_by_sixty_rounded_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contents: bytes, pages: int
) -> None:
    """Also without a last newline, and across the chunks in which a large file is read."""
    (tmp_path / "module.py").write_bytes(contents)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})

    assert [document.page_count for document in Documents.stdlib()] == [pages]


def test_python_without_its_sources_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen distributions have none."""
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "gone")})

    with pytest.raises(InputNotFound, match="gone"):
        Documents.stdlib()
