"""What a pattern matches, on disk and behind fsspec."""

from __future__ import annotations

import asyncio
import glob
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dqlab.documents import Document, Documents
from dqlab.errors import BadOption, ExtraMissing, InputNotFound, InputUnreadable
from tests.kit.sampled import examples

NAMES = st.sampled_from(["a", "b", "a.txt", "b.txt", "a-b", "é.txt", ".hidden", "[x]"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
PARTS = st.sampled_from(["**", "*", "a", "*.txt", "?.txt", "[ab]", "[!a]*", ".*", "[[]x]"])
PATTERNS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def keys(documents: Documents) -> list[str]:
    """Return the keys in the order of the listing."""
    return [document.key for document in documents]


def tree(root: Path, *paths: str) -> None:
    """Make small files, each with its own path as text."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.fsencode(path))


@pytest.fixture
def memory() -> str:
    """Return the URL of a folder in fsspec's memory, empty but for one file beside it."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    system.makedirs("/corpus")
    system.pipe("/beside.txt", b"")
    return "memory://corpus"


@pytest.mark.long
@settings(max_examples=examples(150), deadline=None)
@given(paths=st.lists(PATHS, max_size=8), pattern=PATTERNS)
@example(paths=["a"], pattern="a/**")
def test_pattern_matches_what_the_standard_glob_does(paths: list[str], pattern: str) -> None:
    """One meaning of a wildcard, the one people know; on disk and in a store, each file once and in order."""
    system = fsspec.filesystem("memory")
    with tempfile.TemporaryDirectory() as folder:
        root, url = Path(folder, "start"), f"memory://{Path(folder).name}/start"
        for path in ["file", *paths]:
            parents = list((root / path).parents)[: path.count("/")]
            if not (root / path).exists() and not any(parent.is_file() for parent in parents):
                tree(root, path)
                system.pipe(f"{url}/{path}", path.encode())
        found = glob.glob(f"*/{pattern}", root_dir=folder, recursive=True)  # noqa: PTH207 - means other things by **
        # Of a file `a`, the pattern `a/**` gives `a/` there, which no file is called.
        expected = sorted({path for path in found if not path.endswith("/") and Path(folder, path).is_file()})

        assert keys(Documents.from_glob(f"{folder}/*/{pattern}")) == expected
        assert keys(Documents.from_glob(f"memory://{Path(folder).name}/*/{pattern}")) == expected


@pytest.mark.parametrize("start", ["{tmp}/missing", "memory://missing", "file://{tmp}/missing"])
def test_missing_folder_is_reported_at_once_with_its_path(tmp_path: Path, start: str) -> None:
    """A typo gives an error in its own cell, not a run of nothing."""
    place = start.format(tmp=tmp_path)

    with pytest.raises(InputNotFound, match="missing"):
        Documents.from_glob(f"{place}/*.txt")


def test_folder_removed_after_the_call_is_reported_when_listed(tmp_path: Path) -> None:
    """Not as an empty listing, which would look like success."""
    (tmp_path / "inbox").mkdir()
    documents = Documents.from_glob(tmp_path / "inbox/*")
    (tmp_path / "inbox").rmdir()

    with pytest.raises(InputNotFound, match="inbox"):
        next(iter(documents))


def test_file_removed_while_listing_is_left_out(tmp_path: Path) -> None:
    """Between the folder and the file lies time; the file is gone, so it is not listed."""
    tree(tmp_path, "a.txt", "b.txt", "c.txt", "d/e.txt")
    listing = iter(Documents.from_glob(tmp_path / "**"))
    seen = [next(listing).key]

    (tmp_path / "b.txt").unlink()
    (tmp_path / "d/e.txt").unlink()
    (tmp_path / "d").rmdir()

    assert seen + [document.key for document in listing] == ["a.txt", "c.txt"]


def test_links_to_files_and_folders_are_followed(tmp_path: Path) -> None:
    """Corpora are often farms of links; size and version are those of what the link leads to."""
    tree(tmp_path, "store/one.txt", "store/more/two.txt")
    (tmp_path / "farm").mkdir()
    (tmp_path / "farm/1.txt").symlink_to(tmp_path / "store/one.txt")
    (tmp_path / "farm/more").symlink_to(tmp_path / "store/more")
    documents = Documents.from_glob(tmp_path / "farm/**/*.txt")

    assert [(document.key, document.size) for document in documents] == [("1.txt", 13), ("more/two.txt", 18)]


def test_circle_of_links_ends(tmp_path: Path) -> None:
    """One careless link must not make a listing endless."""
    tree(tmp_path, "a/1.txt")
    (tmp_path / "a/again").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")

    assert keys(Documents.from_glob(tmp_path / "**/*.txt")) == ["a/1.txt"]


def test_dangling_links_and_pipes_are_not_documents(tmp_path: Path) -> None:
    """The one cannot be read and the other would be read for ever."""
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe.txt")

    assert keys(Documents.from_glob(tmp_path / "*.txt")) == []


def test_unreadable_names_are_listed_and_open(tmp_path: Path) -> None:
    """Names in any script, with spaces, or in no encoding at all."""
    tree(tmp_path, "日本語.txt", "a b%20c.txt", "caf\udce9.txt")
    documents = Documents.from_glob(tmp_path / "*.txt")

    assert [document.text() for document in documents if document.key != "caf\udce9.txt"] == [
        "a b%20c.txt",
        "日本語.txt",
    ]
    assert len(documents) == 3


def test_listing_and_looking_at_one_url_give_the_same_version(memory: str) -> None:
    """A run over a pattern can be attached to with the same files named one by one."""
    fsspec.filesystem("memory").pipe("/corpus/a.txt", b"one")
    listed = Documents.from_glob(f"{memory}/*.txt")[0]

    assert Documents([listed.where])[0].version == listed.version != ""


def test_chained_url_lists_inside_an_archive(tmp_path: Path) -> None:
    """The pattern is in the first URL of the chain, the archive in the rest."""
    with zipfile.ZipFile(tmp_path / "texts.zip", "w") as archive:
        archive.writestr("d/x.txt", "inside")
        archive.writestr("y.pdf", "beside")
    documents = Documents.from_glob(f"zip://**/*.txt::{tmp_path}/texts.zip")

    assert [(document.key, document.text()) for document in documents] == [("d/x.txt", "inside")]


@pytest.mark.parametrize("pattern", [5, None, b"*.txt", ["a.txt"]])
def test_a_pattern_of_another_kind_is_refused_with_the_way_out(pattern: Any) -> None:
    with pytest.raises(BadOption, match=r"is not a path or URL.*Documents\(paths\)"):
        Documents.from_glob(pattern)


@pytest.mark.parametrize("pattern", ["zip:///tmp/none.zip/**", "zip://**/*.txt::/nowhere/none.zip", "s4://bucket/*"])
def test_a_file_system_that_fails_ends_in_one_sentence(pattern: str) -> None:
    """And not in ninety lines of fsspec, which leave open what was wrong."""
    with pytest.raises(BadOption, match=r"cannot be listed: .* Nothing was listed"):
        Documents.from_glob(pattern)


@pytest.mark.cluster
def test_folder_without_permission_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Left out in silence, half of a corpus would look like all of it."""
    tree(tmp_path, "a/1.txt", "locked/2.txt", "z/3.txt")
    (tmp_path / "locked").chmod(0)
    if os.geteuid() == 0:  # root may read it: another user looks
        for folder in (tmp_path, *tmp_path.parents):
            if folder != Path("/tmp") and folder.owner() == "root" and Path("/tmp") in folder.parents:
                folder.chmod(0o755)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            try:
                _expect_unreadable(tmp_path)
            except BaseException:  # noqa: BLE001 - a child of pytest must not come back
                os._exit(3)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        (tmp_path / "locked").chmod(0o755)
        assert ended == 0
    else:
        _expect_unreadable(tmp_path)
        (tmp_path / "locked").chmod(0o755)


def _expect_unreadable(folder: Path) -> None:
    listing = iter(Documents.from_glob(folder / "**/*.txt"))
    assert next(listing).key == "a/1.txt"
    with pytest.raises(InputUnreadable, match=r"locked' cannot be listed: PermissionError.*Get the permission"):
        next(listing)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("abfs://bucket/*.txt", "adlfs", "azure"),
        ("gs://bucket/*.txt", "gcsfs", "gcs"),
        ("s3://bucket/*.txt", "s3fs", "s3"),
        ("simplecache::s3://bucket/*.txt", "s3fs", "s3"),
    ],
)
def test_url_without_its_package_says_which_extra_to_install(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is listed, and where a document is opened: workers may lack what the notebook has."""
    monkeypatch.setitem(sys.modules, package, None)
    for scheme in ("abfs", "gs", "s3"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)

    for opens in (
        lambda: Documents.from_glob(url),
        lambda: Documents.from_archive(url.replace("*.txt", "a.zip")),
        lambda: list(Documents.from_jsonl(url)),
        lambda: Document("a.txt", "", url.replace("*", "a")).text(),
        lambda: asyncio.run(Document("a.txt", "", url.replace("*", "a")).abytes()),
    ):
        with pytest.raises(ExtraMissing, match=rf"need {package}, .*pip install 'dqlab\[{extra}\]'"):
            opens()


def test_a_package_that_a_file_system_needs_is_named_whatever_fsspec_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was "pip install ImportError: SFTPFileSystem requires ..."."""
    monkeypatch.setitem(sys.modules, "paramiko", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)

    with pytest.raises(ExtraMissing, match=r"sftp:// need paramiko, .*pip install paramiko$"):
        Documents.from_glob("sftp://host/*.txt")
