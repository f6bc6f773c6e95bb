"""Members of archives, compared with zipfile and tarfile by hand; damaged, replaced, hostile and large ones."""

from __future__ import annotations

import bz2
import gc
import gzip
import io
import os
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dqlab.documents import Document, Documents, archives
from dqlab.errors import (
    BadOption,
    DocumentChanged,
    DocumentDamaged,
    DocumentEncrypted,
    DqlabWarning,
    InputNotFound,
    InputUnreadable,
    WrongKind,
)
from tests.kit.compressed import zstd_compress, zstd_decompress
from tests.kit.descriptors import count_files
from tests.kit.pdfs import make_pdf

NAMES = [
    "a.html",
    "deep/b.html",
    "deep/er/c.txt",
    "日本語/é ü.html",
    "with space%20.html",
    "empty.html",
    "caf\udce9.html",
]
FORMS = ["zip", "stored.zip", "tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"]


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """Each test opens its archives itself."""
    archives._kept.clear()


def contents(name: str) -> bytes:
    data = os.fsencode(name) * 37 if "empty" not in name else b""
    return data * (3_000 if name == "deep/b.html" else 1)


def pack(path: Path, names: list[str], of: Callable[[str], bytes] = contents) -> Path:
    """Make an archive of the kind that its name says."""
    if path.suffix == ".zip":
        method = zipfile.ZIP_STORED if "stored" in path.name else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(path, "w", method) as made:
            for name in names:
                made.writestr(name, of(name))
    else:
        kind = path.suffix.removeprefix(".").replace("tar", "").replace("zst", "")
        with tarfile.open(path, f"w:{kind}") as made:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size = len(of(name))
                made.addfile(info, io.BytesIO(of(name)))
        if path.suffix == ".zst":
            path.write_bytes(zstd_compress(path.read_bytes()))
    return path


def unpacked(path: Path) -> dict[str, bytes]:
    """Read an archive with the standard library alone."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as opened:
            return {info.filename: opened.read(info) for info in opened.infolist() if not info.is_dir()}
    plain = io.BytesIO(zstd_decompress(path.read_bytes())) if path.suffix == ".zst" else None
    with tarfile.open(path, fileobj=plain) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar if info.isreg()}  # type: ignore[union-attr]


def names_for(form: str) -> list[str]:
    """Names that a format can hold: zip has only text."""
    return [name for name in NAMES if "tar" in form or name.isprintable()]


@pytest.mark.parametrize("form", FORMS)
def test_members_are_what_the_standard_library_reads(tmp_path: Path, form: str) -> None:
    """Key, size and bytes, in the order of the archive, also after a journey to another process and in any order."""
    path = pack(tmp_path / f"dump.{form}", names_for(form))
    documents = list(Documents.from_archive(path))
    expected = unpacked(path)

    assert [document.key for document in documents] == list(expected) == names_for(form)
    assert [document.size for document in documents] == [len(data) for data in expected.values()]
    for order in (documents, documents[::-1], random.Random(1).sample(documents, len(documents))):
        for document in pickle.loads(pickle.dumps(order)):
            assert document.bytes() == expected[document.key]
    assert {document.where for document in documents} == {str(path)}
    assert all(document.version for document in documents)


@pytest.mark.parametrize("form", FORMS)
def test_pattern_of_members_means_what_it_means_for_files(tmp_path: Path, form: str) -> None:
    path = pack(tmp_path / f"dump.{form}", names_for(form))

    for pattern in ("**/*.html", "*.html", "deep/**", "deep/*", "?.html", "nothing*/*"):
        wanted = [document.key for document in Documents.from_archive(path, pattern)]
        plain = tmp_path / "plain"
        for name in names_for(form):
            (plain / name).parent.mkdir(parents=True, exist_ok=True)
            (plain / name).write_bytes(b"")
        found = [document.where for document in Documents.from_glob(f"{plain}/{pattern}")]
        assert sorted(f"{plain}/{key}" for key in wanted) == found


def test_members_of_one_name_are_documents_of_their_own(tmp_path: Path) -> None:
    """A tar that was appended to has them; results are told apart by position."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("same.txt", "one")
        for text in ("two", "three"):
            with pytest.warns(UserWarning, match="Duplicate name"):
                made.writestr("same.txt", text)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for text in (b"one", b"two", b"three"):
            info = tarfile.TarInfo("same.txt")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))

    for name in ("a.zip", "a.tar"):
        documents = pickle.loads(pickle.dumps(list(Documents.from_archive(tmp_path / name))))
        assert [(document.key, document.text()) for document in documents] == [
            ("same.txt", "one"),
            ("same.txt", "two"),
            ("same.txt", "three"),
        ]


def test_folders_links_and_devices_are_no_documents(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "folder").mkdir(parents=True)
    (tree / "folder/a.txt").write_text("a")
    (tree / "soft.txt").symlink_to("folder/a.txt")
    os.link(tree / "folder/a.txt", tree / "hard.txt")
    os.mkfifo(tree / "pipe.txt")
    for form in ("tar", "tar.gz"):
        with tarfile.open(tmp_path / f"a.{form}", f"w:{form[4:]}") as tar:
            for path in sorted(tree.rglob("*")):
                tar.add(path, str(path.relative_to(tree)), recursive=False)
        with pytest.warns(DqlabWarning, match=r"1 member of .* left out: hard links.*'hard.txt'"):
            documents = list(Documents.from_archive(tmp_path / f"a.{form}"))
        assert {document.key: document.text() for document in documents} == {"folder/a.txt": "a"}
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.mkdir("folder")
        link = zipfile.ZipInfo("soft.txt")
        link.external_attr = 0o120777 << 16
        made.writestr(link, "folder/a.txt")
        made.writestr("./folder//a.txt", "a")

    assert [(document.key, document.text()) for document in Documents.from_archive(tmp_path / "a.zip")] == [
        ("folder/a.txt", "a")
    ]


@pytest.mark.parametrize("form", ["zip", "tar"])
def test_names_that_lead_out_are_left_out_with_a_warning(tmp_path: Path, form: str) -> None:
    """Keys become paths where results are written."""
    path = pack(tmp_path / f"bad.{form}", ["../../etc/passwd", "/etc/shadow", "ok.txt", "a/../../b"])

    with pytest.warns(DqlabWarning, match=r"3 members of .*bad.* left out.*'\.\./\.\./etc/passwd', '/etc/shadow'"):
        assert [document.key for document in Documents.from_archive(path)] == ["ok.txt"]


def test_a_tar_is_a_tar_also_when_its_last_member_is_a_zip(tmp_path: Path) -> None:
    """A zip is known by its end."""
    inner = pack(tmp_path / "inner.zip", ["a.html"]).read_bytes()
    path = pack(tmp_path / "outer.tar", ["readme.txt", "inner.zip"], lambda name: inner if "zip" in name else b"read")
    readme, archive = Documents.from_archive(path)

    assert (readme.text(), archive.bytes()) == ("read", inner)
    with zipfile.ZipFile(io.BytesIO(archive.bytes())) as opened:
        assert opened.read("a.html") == contents("a.html")


# --- Damage.


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (b"7z\xbc\xaf\x27\x1c\0\4", "it is 7z, neither"),
        (b"Rar!\x1a\x07\1\0", "it is rar, neither"),
        (b"\n<!DOCTYPE HTML><html>404", "it is html, neither"),
        (b"<?xml version='1.0'?><Error><Code>AccessDenied", "it is xml, neither"),
        (make_pdf("one"), "it is pdf, neither"),
        (gzip.compress(b"text"), "it is gzip, neither"),
        (zstd_compress(b"text" * 300), "it is zstd, neither"),
        (b"text" * 300, "it is of no known kind, neither"),
        (b"", "it is empty, neither"),
    ],
    ids=["7z", "rar", "html", "xml", "pdf", "gzip", "zstd", "text", "empty"],
)
def test_what_is_another_kind_of_file_is_called_that(tmp_path: Path, held: bytes, said: str) -> None:
    """Copying it again, or retrying, would not help."""
    (tmp_path / "dump.zip").write_bytes(held)

    with pytest.raises(InputUnreadable, match=f"dump.zip' cannot be listed: {said}"):
        list(Documents.from_archive(tmp_path / "dump.zip"))


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.bz2", "tar.xz", "tar.zst"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_truncated_tar_gives_what_is_whole_and_then_an_error(tmp_path: Path, form: str, kept: float) -> None:
    """tarfile alone takes some of these ends for the end of the archive, and the rest would be lost in silence."""
    noise = random.Random(3)
    whole = {f"{at:02}.txt": noise.randbytes(3_000) for at in range(20)}
    path = pack(tmp_path / f"dump.{form}", list(whole), whole.__getitem__)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    found = []

    try:
        for document in Documents.from_archive(path):
            found.append(document)
    except InputUnreadable as error:
        listed = error.listed
    else:
        listed = 20  # what is missing is the empty end
    assert listed == len(found)
    for document in found[:-1]:
        assert document.bytes() == whole[document.key]


@pytest.mark.parametrize("end", [0, 100, 512])
def test_tar_without_its_end_mark_is_listed_with_a_warning(tmp_path: Path, end: int) -> None:
    """Some programs write none; or it is cut off between two members, where other readers are silent."""
    path = pack(tmp_path / "dump.tar", ["a.html", "b.html"])
    with tarfile.open(path) as tar:
        second = tar.getmember("b.html").offset
    path.write_bytes(path.read_bytes()[:second] + bytes(end))

    with pytest.warns(DqlabWarning, match=r"dump.tar' has no end mark.*compare its size"):
        assert {each.key: each.bytes() for each in Documents.from_archive(path)} == unpacked(path)


def test_damage_inside_a_compressed_tar_is_noticed_when_it_is_listed(tmp_path: Path) -> None:
    """Only its end has a checksum, and tarfile does not read so far."""
    noise = {f"{at}.bin": random.Random(at).randbytes(50_000) for at in range(3)}
    path = pack(tmp_path / "dump.tar.gz", list(noise), noise.__getitem__)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))

    with tarfile.open(path) as tar:
        assert len(tar.getnames()) == 3
    with pytest.raises(InputUnreadable, match=r"CRC check failed.*3 documents of it"):
        list(Documents.from_archive(path))


@pytest.mark.parametrize("form", ["zip", "stored.zip"])
def test_damaged_member_is_one_failure_with_its_name(tmp_path: Path, form: str) -> None:
    """The others are read."""
    noise = {f"{at}.bin": random.Random(at).randbytes(50_000) for at in range(3)}
    path = pack(tmp_path / f"dump.{form}", list(noise), noise.__getitem__)
    data = bytearray(path.read_bytes())
    documents = list(Documents.from_archive(path))
    data[data.index(noise["1.bin"][25_000:25_010])] ^= 0xFF
    stamp = path.stat()
    path.write_bytes(bytes(data))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    archives._kept.clear()

    assert documents[0].bytes() == noise["0.bin"]
    with pytest.raises(DocumentDamaged, match=r"'1\.bin' is damaged.*BadZipFile.*refreshed"):
        documents[1].bytes()
    assert documents[2].bytes() == noise["2.bin"]


def test_encrypted_member_is_one_failure(tmp_path: Path) -> None:
    path = pack(tmp_path / "dump.zip", ["secret.txt", "open.txt"])
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    secret, plain = Documents.from_archive(path)

    with pytest.raises(DocumentEncrypted, match=r"'secret.txt' is encrypted.*Decrypt it first"):
        secret.bytes()
    assert plain.bytes() == contents("open.txt")


@pytest.mark.parametrize(("method", "named"), [(9, "deflate64"), (200, "method 200")])
def test_unknown_compression_is_one_failure_that_names_it(tmp_path: Path, method: int, named: str) -> None:
    """It is not damaged: Windows packs files above 2 GB with Deflate64. A copy would be the same."""
    path = pack(tmp_path / "dump.zip", ["odd.txt"])
    data = bytearray(path.read_bytes())
    data[8] = data[data.index(b"PK\x01\x02") + 10] = method
    path.write_bytes(bytes(data))
    (odd,) = Documents.from_archive(path)

    for read in (odd.bytes, odd.open):
        with pytest.raises(WrongKind, match=rf"'odd.txt' is compressed by {named}.*Use 7z to unpack the archive"):
            read()


# --- Change.


@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("how", ["in place", "renamed over"])
def test_replaced_archive_gives_changed_documents_never_wrong_bytes(tmp_path: Path, form: str, how: str) -> None:
    """Also where it had been open: places and directories of the old one are of no use in the new one."""
    path = pack(tmp_path / f"dump.{form}", ["a.txt", "b.txt", "gone.txt"])
    documents = list(Documents.from_archive(path))
    assert documents[0].bytes() == contents("a.txt")
    other = pack(tmp_path / f"other.{form}", ["new.txt", "b.txt", "a.txt"], lambda name: f"now {name}".encode())
    if how == "in place":
        path.write_bytes(other.read_bytes())
    else:
        other.rename(path)
    os.utime(path, ns=(1, 1))

    for document in documents:
        with pytest.raises(DocumentChanged, match=r"has changed since it was listed.*refreshed\(\)") as caught:
            document.bytes()
        assert caught.value.document == document.key
        assert caught.value.was == document.version != caught.value.now
    assert [document.refreshed().text() for document in documents[:2]] == ["now a.txt", "now b.txt"]
    with pytest.raises(DocumentChanged):
        documents[2].refreshed()


def test_wrong_arguments_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputNotFound):
        Documents.from_archive(tmp_path / "none.zip")
    with pytest.raises(InputNotFound):
        Documents.from_archive(tmp_path / "nowhere/*.zip")
    with pytest.raises(BadOption, match="that is a folder"):
        Documents.from_archive(tmp_path)
    for wrong in (5, None, b"a.zip"):
        with pytest.raises(BadOption, match="archive"):
            Documents.from_archive(wrong)  # type: ignore[arg-type]
    pack(tmp_path / "a.zip", [])
    for pattern in ("", 5):
        with pytest.raises(BadOption, match="pattern"):
            Documents.from_archive(tmp_path / "a.zip", pattern)  # type: ignore[arg-type]
    assert list(Documents.from_archive(tmp_path / "a.zip")) == []
    with pytest.raises(InputNotFound):
        Documents.from_archive(tmp_path / "*.tar")


# --- Many members, many threads.


def test_archive_is_opened_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its directory is what made members of large archives slow."""
    path = pack(tmp_path / "dump.zip", [f"{at}.txt" for at in range(50)])
    opened = []
    real = zipfile.ZipFile.__init__
    monkeypatch.setattr(zipfile.ZipFile, "__init__", lambda self, *a, **k: (opened.append(1), real(self, *a, **k))[1])

    for document in Documents.from_archive(path):
        document.bytes()
    assert len(opened) == 1


def test_ascending_reads_of_a_compressed_tar_start_its_decompressor_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots are almost in order, so going back a little starts nothing. Going back far does, and is right."""
    monkeypatch.setattr(archives, "RECENT", 1 << 19)
    noise = {f"{at:03}.bin": random.Random(at).randbytes(20_000) for at in range(60)}
    path = pack(tmp_path / "dump.tar.bz2", list(noise), noise.__getitem__)
    fed = []
    real = bz2.BZ2Decompressor

    class Counting:
        def __init__(self) -> None:
            fed.append(1)
            self._inner = real()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    monkeypatch.setattr("bz2.BZ2Decompressor", Counting)
    documents = list(Documents.from_archive(path))
    listed = len(fed)
    for at in range(0, 60, 3):
        for document in (documents[at + 2], documents[at]):
            assert document.bytes() == noise[document.key]
    assert len(fed) == listed
    assert documents[5].bytes() == noise["005.bin"]
    assert len(fed) == listed + 1


@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz"])
def test_threads_share_an_archive(tmp_path: Path, form: str) -> None:
    """Eight slots, one file, members interleaved byte by byte."""
    noise = {f"{at:02}.bin": random.Random(at).randbytes(at * 2_000) for at in range(40)}
    path = pack(tmp_path / f"dump.{form}", list(noise), noise.__getitem__)
    documents = list(Documents.from_archive(path))

    def read(document: Document) -> bool:
        with document.open() as stream:
            pieces = list(iter(lambda: stream.read(700), b""))
        return b"".join(pieces) == noise[document.key]

    with ThreadPoolExecutor(8) as pool:
        shuffled = random.Random(4).sample(documents * 3, 120)
        assert all(pool.map(read, shuffled))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_archives_are_closed(tmp_path: Path) -> None:
    paths = [pack(tmp_path / f"{at}.{form}", ["a.txt"]) for at in range(20) for form in ("zip", "tar", "tar.gz")]
    for path in paths:
        assert [document.bytes() for document in Documents.from_archive(path)] == [contents("a.txt")]
    gc.collect()

    assert 0 < count_files(tmp_path) <= archives.KEPT
    archives._kept.clear()
    gc.collect()
    assert count_files(tmp_path) == 0


@pytest.mark.cluster
def test_child_of_a_fork_opens_archives_itself(tmp_path: Path) -> None:
    """Both would move one place in the file."""
    noise = {f"{at}.bin": random.Random(at).randbytes(200_000) for at in range(6)}
    path = pack(tmp_path / "dump.stored.zip", list(noise), noise.__getitem__)
    documents = list(Documents.from_archive(path))
    assert documents[0].bytes()

    child = os.fork()
    if child == 0:
        right = all(documents[at % 6].bytes() == noise[f"{at % 6}.bin"] for at in range(60))
        os._exit(0 if right else 3)
    assert all(documents[at % 6].bytes() == noise[f"{at % 6}.bin"] for at in range(60))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_tar_that_goes_on_behind_its_end_mark_is_listed_with_a_warning(
    tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    """GNU tar stops there in silence: tars that `cat` joined, or the rest of a longer tar below."""
    first, second = (pack(tmp_path / name, [f"{name}.txt"]).read_bytes() for name in ("1.tar", "2.tar"))
    another = "10,240 bytes .* end mark"
    for more, said in ((second, another), (b"rest", "4 bytes .* end mark\\.")):
        path = tmp_path / "joined.tar"
        path.write_bytes(packed(first + more))
        archives._kept.clear()
        with pytest.warns(DqlabWarning, match=said) as caught:
            assert [document.key for document in Documents.from_archive(path)] == ["1.tar.txt"]
        assert caught[0].filename == __file__


def test_names_of_any_kind_are_keys_and_open(tmp_path: Path) -> None:
    """All are there, as `_rels/.rels` in a docx; in a pattern, hidden ones match a dot, as on disk."""
    odd = ["line\nbreak.txt", "back\\slash.txt", "tr ail ", "\U0001f600.txt", "l" * 4_000, "C:/x.txt", "%2e%2e/x"]
    path = pack(tmp_path / "odd.zip", [*odd, ".hidden", "a/./b//c.txt"], lambda name: name.encode())

    assert {document.key: document.bytes().decode() for document in Documents.from_archive(path)} == {
        **{name: name for name in odd},
        ".hidden": ".hidden",
        "a/b/c.txt": "a/./b//c.txt",
    }
    assert ".hidden" not in [document.key for document in Documents.from_archive(path, "**")]
    assert [document.key for document in Documents.from_archive(path, "**/.*")] == [".hidden"]


def test_forms_of_zip_and_tar_that_other_programs_write_are_read(tmp_path: Path) -> None:
    """Self-extracting, streamed, by other methods; several parts of gzip, headers without a magic number."""
    inside = pack(tmp_path / "plain.zip", ["x.txt"]).read_bytes()
    (tmp_path / "program.exe").write_bytes(b"MZ" + bytes(500) + inside)
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / f"{method}.zip", "w", method) as made:
            made.writestr("x.txt", contents("x.txt"))
    tar = pack(tmp_path / "plain.tar", ["x.txt"]).read_bytes()
    (tmp_path / "parts.tgz").write_bytes(gzip.compress(tar[:700]) + gzip.compress(tar[700:]) + bytes(64))
    old = bytearray(tar)
    old[257:265], old[148:156] = bytes(8), b" " * 8
    old[148:156] = b"%06o\0 " % sum(old[:512])
    (tmp_path / "old.tar").write_bytes(bytes(old))

    for name in ("program.exe", "12.zip", "14.zip", "parts.tgz", "old.tar"):
        found = [(document.key, document.bytes()) for document in Documents.from_archive(tmp_path / name)]
        assert found == [("x.txt", contents("x.txt"))]
