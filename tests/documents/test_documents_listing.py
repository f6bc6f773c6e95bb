"""Listings: what may be given, and what iterating, counting and slicing cost."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqlab.documents import Document, Documents
from dqlab.errors import BadOption, UsageError

SMALL = st.none() | st.integers(0, 12)


def references(n: int) -> list[Document]:
    """Make references to files that need not exist."""
    return [Document(str(i), "1", f"/nowhere/{i}") for i in range(n)]


def test_paths_urls_and_documents_can_be_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever names an input; the default key is the name as it was given."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.txt").write_text("a")
    fsspec.filesystem("memory").pipe("/mixed.txt", b"four")
    given = ["in/a.txt", Path("in/a.txt"), "memory://mixed.txt", f"file://{tmp_path}/in/a.txt", *references(1)]
    documents = list(Documents(given))

    assert [document.key for document in documents] == [
        "in/a.txt",
        "in/a.txt",
        "memory://mixed.txt",
        f"file://{tmp_path}/in/a.txt",
        "0",
    ]
    assert [document.where for document in documents[:2]] == [str(tmp_path / "in/a.txt")] * 2
    assert [document.size for document in documents] == [1, 1, 4, 1, None]
    assert documents[3].where == str(tmp_path / "in/a.txt")


def test_key_function_names_each_element() -> None:
    """Keys appear in results and failures; people want their own names there."""
    documents = Documents(references(2), key=lambda document: f"case {document.key}")

    assert [(document.key, document.where) for document in documents] == [
        ("case 0", "/nowhere/0"),
        ("case 1", "/nowhere/1"),
    ]


def test_key_that_is_no_string_is_refused_with_its_position() -> None:
    """Keys travel as text; a number would come back as something else."""
    with pytest.raises(BadOption, match="int for element 0"):
        list(Documents(references(1), key=lambda document: 7))  # type: ignore[arg-type, return-value]


def test_element_of_another_kind_is_refused_with_the_way_out() -> None:
    """Numbers, rows and bytes are mapped as they are, without this class."""
    for element in (3, b"a.txt", ("a.txt", 1), None):
        listing = iter(Documents([*references(2), element]))

        assert len(list(islice(listing, 2))) == 2
        with pytest.raises(UsageError, match=r"element 2 is a .*pool\.map"):
            next(listing)


def test_what_cannot_be_iterated_is_refused_at_once() -> None:
    """In the cell where it was written."""
    with pytest.raises(BadOption, match="int cannot be iterated"):
        Documents(7)  # type: ignore[arg-type]


def test_set_is_refused_since_its_order_differs_between_kernels() -> None:
    """Its keys stood for other documents after a restart."""
    with pytest.raises(BadOption, match=r"frozenset of 2 elements.*order.*sorted\(x\).*Nothing was listed"):
        Documents(frozenset({"a.txt", "b.txt"}))


def _dask_frame() -> Any:
    """Return what has the name and the shape of one, which need not be installed."""
    kind = type("DataFrame", (list,), {"__module__": "dask.dataframe.core", "columns": ["path"], "shape": (1, 1)})
    return kind(["path"])


@pytest.mark.parametrize(
    ("elements", "way_out"),
    [
        ({"a.txt": 1}, r"dict.*mapping.*list\(d\)"),
        (_dask_frame(), r"dask\.DataFrame.*column names.*from_dask\(df\)"),
        (pd.DataFrame({"path": ["a.txt"]}), r"pandas\.DataFrame.*column names.*from_frame\(df\).*df\['text'\]"),
    ],
)
def test_what_iterates_as_its_names_is_refused(elements: Any, way_out: str) -> None:
    """A dict or a table was listed as its keys, each taken for the path of a file."""
    with pytest.raises(BadOption, match=f"{way_out}.*Nothing was listed"):
        Documents(elements)


def test_missing_file_is_listed_without_version_and_fails_when_opened(tmp_path: Path) -> None:
    """Consumers may see what the notebook does not; if not, one message fails, not the submission."""
    missing = str(tmp_path / "missing.txt")
    document = Documents([missing])[0]

    assert (document.version, document.size) == ("", None)
    with pytest.raises(FileNotFoundError):
        document.bytes()


def test_iterator_gives_its_documents_once() -> None:
    """A second pass would silently be empty, and a resumed run would skip everything."""
    documents = Documents(iter(references(2)))

    assert len(list(documents)) == 2
    with pytest.raises(UsageError, match="Pass a list, or a callable"):
        iter(documents)


def test_callable_is_called_again_for_each_pass() -> None:
    """The way to map a generator and still resume it."""

    def produce() -> Iterator[Document]:
        yield from references(3)

    documents = Documents(produce)

    assert [len(list(documents)) for _ in range(2)] == [3, 3]
    assert len(documents) == 3


def test_listing_takes_one_element_at_a_time() -> None:
    """An input of millions is never held."""
    taken: list[int] = []

    def produce() -> Iterator[Document]:
        for document in references(10):
            taken.append(int(document.key))
            yield document

    next(iter(Documents(produce)))

    assert taken == [0]


@given(n=st.integers(0, 10), start=SMALL, stop=SMALL, step=st.none() | st.integers(1, 4), limit=SMALL)
def test_slices_are_those_of_a_list(n: int, start: int | None, stop: int | None, step: int | None, limit: int) -> None:
    """Slices of slices too, with the same length, and without listing until iterated."""
    known, documents = references(n), Documents(references(n))

    assert list(documents[start:stop:step][:limit]) == known[start:stop:step][:limit]
    assert len(documents[start:stop:step][:limit]) == len(known[start:stop:step][:limit])


def test_counting_from_the_end_is_refused() -> None:
    """It would list everything behind the user's back."""
    documents = Documents(references(3))

    for index in (-1, slice(-2, None), slice(None, -1), slice(None, None, -1)):
        with pytest.raises(BadOption, match="list"):
            documents[index]
    with pytest.raises(BadOption, match="forward"):
        documents[::0]


def test_repr_says_where_documents_come_from_and_lists_nothing(tmp_path: Path) -> None:
    """Notebooks show objects unasked."""

    def never() -> Iterator[Document]:
        raise AssertionError("listed")

    pattern = str(tmp_path / "*.txt")

    assert repr(Documents.from_glob(pattern)[:10]) == f"Documents.from_glob({pattern!r})[:10]"
    assert repr(Documents(never)[2:][::3]).endswith("never)[2:][::3]")
    assert repr(Documents(references(2))) == "Documents(<list>)"
    assert repr(Documents.stdlib()) == "Documents.stdlib()"


def test_repr_of_a_glob_says_when_nothing_matches(tmp_path: Path) -> None:
    """A misspelt pattern is found before anything is submitted."""
    pattern = str(tmp_path / "*.txt")
    assert repr(Documents.from_glob(pattern)) == f"Documents.from_glob({pattern!r}): 0 documents"

    (tmp_path / "a.txt").touch()

    assert repr(Documents.from_glob(pattern)) == f"Documents.from_glob({pattern!r})"


@pytest.mark.parametrize(("element", "said"), [("foo://x", "Protocol not known: foo"), ("a\0b", "null byte")])
def test_an_element_that_can_be_no_place_is_named(element: str, said: str) -> None:
    listed = iter(Documents(["/no/such/file", element]))
    assert next(listed).size is None

    with pytest.raises(BadOption, match=rf"element 1=.*{said}.*before it were listed"):
        next(listed)


@pytest.mark.parametrize(
    ("url", "advice"), [("memory://", "memory://NAME/**"), ("memory://below/", "memory://below/**")]
)
def test_a_folder_behind_a_url_is_refused_with_a_pattern_that_is_one(url: str, advice: str) -> None:
    fsspec.filesystem("memory").pipe("/below/a.txt", b"a")

    with pytest.raises(BadOption, match=re.escape(f"Use {advice!r}")):
        Documents.from_glob(url)
