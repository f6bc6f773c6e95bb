"""PDFs, HTML, encodings and compressed texts: what a document's methods make of them."""

from __future__ import annotations

import asyncio
import bz2
import contextlib
import gzip
import lzma
import os
import pickle
import random
import socket
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dqlab.documents import Document, Documents
from dqlab.documents.document import _read_early
from dqlab.documents.formats import HEAD, binary_kind
from dqlab.documents.kept_open import let_go
from dqlab.documents.storage import open_binary
from dqlab.errors import (
    BadOption,
    DocumentChanged,
    DocumentDamaged,
    DocumentEncrypted,
    ExtraMissing,
    PageFailed,
    WrongKind,
)
from tests.kit.compressed import ZSTD, zstd_compress
from tests.kit.http_server import serving
from tests.kit.pdfs import encrypted_pdf, make_pdf
from tests.kit.sampled import examples


def written(path: Path, contents: bytes) -> Document:
    """Write a file and list it."""
    path.write_bytes(contents)
    return Documents([path])[0]


# --- What a file is.


@pytest.mark.parametrize("name", ["1706.03762v7", "paper.gz", "paper.pdf.gz", "a.txt"])
def test_pdf_is_one_whatever_its_name(tmp_path: Path, name: str) -> None:
    """arXiv names its papers by number; their source was given for their text."""
    data = make_pdf("one", "two")
    stored = gzip.compress(data) if name.endswith(".gz") else data
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(name, stored)
    fsspec.filesystem("memory").pipe(f"/papers/{name}", stored)
    places = (Documents([f"memory://papers/{name}"]), Documents.from_archive(tmp_path / "a.zip"))

    for document in (written(tmp_path / name, stored), *(listing[0] for listing in places)):
        assert document.text() == document.text("latin-1") == document.text(errors="replace") == "one\ftwo"
        assert [(page.number, page.text()) for page in document.pages()] == [(1, "one"), (2, "two")]
        with pytest.raises(WrongKind, match=r"is a PDF, and doc\.html\(\) is not.*Use doc\.text\(\) or doc\.pages"):
            document.html()


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"PK\x03\x04\x14\0\6\0", r"a zip archive, as docx, .*Use dq\.Documents\.from_archive\(\), doc\.bytes\(\) or"),
        (bytes(257) + b"ustar", r"packed as tar, .*Use dq\.Documents\.from_archive\(\), doc\.bytes\(\) or"),
        (b"Rar!\x1a\x07\1\0", r"packed as rar, .*Use doc\.bytes\(\) or doc\.open\(\) with a library"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of an older Office"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", "a picture, "),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "a picture, "),
        (b"\0\0\0\x20ftypisom", "a recording, "),
        (b"\x7fELF\2\1\1", "a program, "),
        (b"SQLite format 3\0", "a database of SQLite, "),
        (gzip.compress(b"twice", mtime=0), "packed as gzip, "),
    ],
)
def test_what_is_no_text_is_called_by_its_kind(tmp_path: Path, head: bytes, said: str) -> None:
    """Instead of advice to name its encoding, or of what `errors="replace"` makes of it."""
    document = written(tmp_path / "a.txt.gz", gzip.compress(head + bytes(100)))

    for read in (
        document.text,
        document.html,
        lambda: next(document.pages()),
        lambda: document.open("r"),
        lambda: document.text("latin-1"),
        lambda: document.text(errors="replace"),
    ):
        with pytest.raises(WrongKind, match=rf"document '.*a\.txt\.gz' is {said}"):
            read()


@settings(max_examples=examples(100), deadline=None)
@given(
    st.sampled_from(["", "BM", "MZ", "PK", "BZh9", "Rar!", "7z", "ID3", "RIFF", "PAR1", "II*", "%PDF", "GIF8", "OggS"]),
    st.text(st.characters(exclude_categories=["Cc", "Cs"])),
    st.sampled_from(["utf-8", "cp1252", "shift_jis", "utf-16-le"]),
)
def test_no_text_begins_like_another_file(first: str, text: str, encoding: str) -> None:
    assert binary_kind((first + text).encode(encoding, "ignore")[:HEAD]) is None


@pytest.mark.parametrize("kind", ["pipe", "link", "socket", "device"])
def test_what_is_no_regular_file_is_refused_instead_of_waited_for(tmp_path: Path, kind: str) -> None:
    """A pipe that nobody writes to held its consumer for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as bound, contextlib.chdir(tmp_path):  # its path may not be long
        bound.bind("socket")
    document = Documents(["/dev/zero" if kind == "device" else tmp_path / kind])[0]

    for read in (document.text, document.bytes, document.html, document.open, lambda: next(document.pages())):
        said = "pipe" if kind == "link" else kind
        with pytest.raises(WrongKind, match=rf"is a {said}, and reading is not.*Nothing was read. Use a regular file"):
            read()


# --- PDFs.


def test_pages_of_a_pdf_are_those_of_pdfium(tmp_path: Path) -> None:
    import pypdfium2

    texts = [f"page {at} (of \\ 7)" for at in range(1, 8)]
    document = written(tmp_path / "paper.pdf", make_pdf(*texts))
    pages = list(document.pages())
    by_hand = pypdfium2.PdfDocument(document.where)
    expected = [page.get_textpage().get_text_bounded() for page in by_hand]

    assert [page.number for page in pages] == [1, 2, 3, 4, 5, 6, 7]
    assert [page.text() for page in pages] == expected == texts
    assert document.text() == "\f".join(texts)
    assert document.page_count is None
    assert pages[2].image(dpi=72).size == (595, 842)
    assert pages[2].image().size == by_hand[2].render(scale=150 / 72).to_pil().size
    by_hand.close()


@pytest.mark.parametrize(
    ("contents", "error", "said"),
    [
        (encrypted_pdf(), DocumentEncrypted, r"'bad\.pdf' is encrypted.*Decrypt it first"),
        (make_pdf(), DocumentDamaged, r"'.*bad\.pdf' is damaged"),
        (b"", DocumentDamaged, r"bad\.pdf' is damaged.*Copy it again"),
        (b"<html>not found</html>", DocumentDamaged, "Data format error"),
        (make_pdf("one", "two")[:200], DocumentDamaged, "damaged"),
    ],
    ids=["encrypted", "no pages", "empty", "another format", "truncated"],
)
def test_pdf_that_cannot_be_opened_is_one_failure(
    tmp_path: Path, contents: bytes, error: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was opened before it: PDFium keeps the error of the call before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.pdf").write_bytes(contents)
    (document,) = Documents(["bad.pdf"])
    for before in (make_pdf("fine"), encrypted_pdf(), b"junk"):
        first = written(tmp_path / "before.pdf", before)
        with suppress(DocumentEncrypted, DocumentDamaged):
            list(first.pages())
        for read in (lambda: next(document.pages()), document.text):
            with pytest.raises(error, match=said):
                read()


def test_page_that_fails_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    document = written(tmp_path / "paper.pdf", make_pdf("one", "two", "three", broken=2))
    pages = list(document.pages())

    with pytest.raises(
        PageFailed, match=r"page 2 of document '.*paper\.pdf' cannot be read.*catch PageFailed"
    ) as caught:
        pages[1].text()
    with pytest.raises(PageFailed):
        pages[1].image()
    assert caught.value.page == 2
    assert [pages[0].text(), pages[2].text()] == ["one", "three"]


def test_picture_needs_pixels_and_pages_have_a_short_name(tmp_path: Path) -> None:
    page = next(written(tmp_path / "paper.pdf", make_pdf("one")).pages())

    for wrong in (0, -5, float("nan")):
        with pytest.raises(BadOption, match="dpi"):
            page.image(dpi=wrong)
    assert "paper.pdf" in repr(page)


def test_threads_read_pdfs_side_by_side(tmp_path: Path) -> None:
    """PDFium crashes the process when two threads are in it; they take turns, and the collector of garbage does too."""
    documents = []
    for at in range(40):
        texts = [f"document {at} page {page}" for page in range(1 + at % 7)]
        documents.append((written(tmp_path / f"{at}.pdf", make_pdf(*texts)), texts))

    def read(pair: tuple[Document, list[str]]) -> bool:
        document, texts = pair
        held = [page.text() for page in document.pages()]
        cycle: list[Any] = [next(document.pages())]
        cycle.append(cycle)
        return held == texts

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, documents * 5))


@pytest.mark.parametrize(
    ("package", "read"),
    [
        ("pypdfium2", lambda folder: next(written(folder / "a.pdf", make_pdf("one")).pages())),
        ("PIL.Image", lambda folder: next(written(folder / "a.pdf", make_pdf("one")).pages()).image()),
        ("selectolax.lexbor", lambda folder: written(folder / "a.html", b"<p>a").html()),
        ("webencodings", lambda folder: written(folder / "a.html", b"<p>a").html()),
        (ZSTD, lambda folder: written(folder / "a.txt.zst", zstd_compress(b"a")).text()),
    ],
)
def test_missing_package_names_the_extra(
    tmp_path: Path, package: str, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ExtraMissing, match=rf"{sys.executable} -m pip install 'dqlab\[documents\]'$") as raised:
        read(tmp_path)
    # It may come from a worker, in the middle of a document.
    assert "Nothing was changed" in str(raised.value)


# --- Texts.


@pytest.mark.parametrize(
    ("encoding", "taken"),
    [("utf-8", "utf-8"), ("utf-8-sig", "utf-8-sig"), ("utf-16", "utf-16"), ("utf-32", "utf-32"), ("cp1252", "cp1252")],
)
def test_encoding_is_found_and_stated(tmp_path: Path, encoding: str, taken: str) -> None:
    """Its mark first, then UTF-8, then what is likely."""
    text = "Élève à l'école: où est-ce que l'on a dû prêter cœur, âme et façon? « Là-bas », répond-il.\r\n" * 20
    document = written(tmp_path / "page.txt", text.encode(encoding))

    assert document.encoding is None
    assert document.text() == text.replace("\r\n", "\n")
    assert document.encoding == taken
    assert "".join(document.pages()) == document.text()
    assert document.encoding == taken
    with document.open("r") as stream:
        assert stream.read() == document.text()
    assert pickle.loads(pickle.dumps(document)) == document
    assert pickle.loads(pickle.dumps(document)).encoding is None


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Съешь же ещё этих мягких французских булок, да выпей чаю. Он шёл по улице и думал.\n", "cp1251"),
        ("吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n", "shift_jis"),
        ("他是一个很好的人。大家都喜欢他。今天的天气真不错。我们去公园吧。\n", "gb18030"),
        ("Der Fluß fließt über die Straße. Schöne Grüße aus Köln, wo es heute kühl ist.\n", "cp1252"),
    ],
)
def test_texts_of_other_languages_are_read_right(tmp_path: Path, text: str, encoding: str) -> None:
    """Whatever the name of the encoding that was found, the text counts."""
    assert written(tmp_path / "a.txt", (text * 8).encode(encoding)).text() == text * 8


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("It’s a “test” of Windows text with an em—dash and costs £5. " * 10, "cp1252"),
        ("“quotes” — dash €5 naïve résumé fiancée", "cp1252"),
        ("El Niño", "cp1252"),
        ("25 °C ± 2", "cp1252"),
        ("~45 –", "cp1252"),
        ("¿Qué tal? ¡Mañana más!", "cp1252"),
        ("Příliš žluťoučký kůň úpěl ďábelské ódy. Dnes je velmi hezké počasí a všichni jdou ven.", "cp1250"),
        ("Zażółć gęślą jaźń. Dzisiaj jest bardzo ładna pogoda i wszyscy wychodzą na dwór.", "cp1250"),
        ("Der Fluß fließt über die Straße. Schöne Grüße aus Köln.", "cp437"),
        ("Σήμερα ο καιρός είναι πολύ καλός και όλοι βγαίνουν έξω.", "cp1253"),
    ],
)
def test_signs_and_short_texts_of_windows_are_read_right(tmp_path: Path, text: str, encoding: str) -> None:
    """English with "£5" was read as Polish with "Ł5", and French words between quotes as a text of DOS."""
    assert written(tmp_path / "a.txt", text.encode(encoding)).text() == text


@pytest.mark.parametrize(
    "data",
    ["Größe, déjà vu, naïve: «ça»".encode() + b" caf\xe9", b"\xff\xfea", "日本語の本文です".encode() + b"\xe6\x97"],
)
def test_utf_with_a_damaged_place_is_not_guessed_to_be_something_else(tmp_path: Path, data: bytes) -> None:
    """All of it would be garbled, in silence."""
    document = written(tmp_path / "a.txt", data)

    with pytest.raises(UnicodeDecodeError, match=r"The rest is utf-(8|16)\. Pass encoding="):
        document.text()
    assert document.text(errors="replace").endswith("\ufffd")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_text_without_a_mark_is_read(tmp_path: Path, encoding: str) -> None:
    """Most of it is valid UTF-8, with a zero behind each letter."""
    for text in ("Hello, world\n", "Größe und Maß\n", "Привет, мир\n", "สวัสดี ชาวโลก\n", "हिन्दी में पाठ\n", "نص عربي\n"):
        document = written(tmp_path / "a.txt", text.encode(encoding))

        assert document.text() == document.text(errors="replace") == "".join(document.pages()) == text
        assert written(tmp_path / "a.html", f"<p>{text}".encode(encoding)).html() == text.rstrip()
    assert written(tmp_path / "a.txt", b"one\0two\0three\0").text() == "one\0two\0three\0"


def test_without_the_package_the_error_names_it_and_the_position(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "charset_normalizer", None)
    document = written(tmp_path / "page.txt", b"caf\xe9\n")

    for read in (document.text, lambda: next(document.pages()), lambda: document.open("r")):
        with pytest.raises(UnicodeDecodeError, match=r"pip install 'dqlab\[documents\]'.*encoding=") as caught:
            read()
        assert caught.value.start == 3
    assert document.text(errors="replace") == "caf\ufffd\n"
    assert document.text("latin-1") == "café\n"
    assert document.encoding == "latin-1"


def test_codec_that_makes_no_text_is_refused_as_an_encoding(tmp_path: Path) -> None:
    document = written(tmp_path / "a.txt", b"YQ==")

    for read in (document.text, document.html, partial(document.pages, 60), partial(document.open, "r")):
        with pytest.raises(BadOption, match="encoding='base64': is not a text encoding of Python"):
            read(encoding="base64")


def test_what_is_no_text_in_any_encoding_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    document = written(tmp_path / "noise.raw", b"\x99\0\0\0" + random.Random(1).randbytes(5_000))

    with pytest.raises(UnicodeDecodeError, match=r"No other encoding is likely.*document\.bytes\(\)"):
        document.text()


def test_a_large_text_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dqlab.documents.document.DETECTED_WITHIN", 100)
    text = "é line\n" * 200
    document = written(tmp_path / "large.txt", text.encode())

    assert "".join(document.pages()) == text == document.text()
    with pytest.raises(UnicodeDecodeError):
        list(written(tmp_path / "other.txt", text.encode("latin-1")).pages())


COMPRESSED = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd_compress}


@pytest.mark.parametrize("kind", COMPRESSED)
def test_compressed_text_is_read_and_its_bytes_are_those_stored(tmp_path: Path, kind: str) -> None:
    text = "ligne numéro\r\n" * 130
    stored = COMPRESSED[kind](text.encode())
    document = written(tmp_path / f"log.txt.{kind}", stored)

    assert document.text() == text.replace("\r\n", "\n")
    assert [page.count("\n") for page in document.pages()] == [60, 60, 10]
    assert (document.bytes(), document.size) == (stored, len(stored))
    assert document.bytes(decompress=True) == text.encode()
    assert asyncio.run(document.abytes()) == stored
    assert asyncio.run(document.abytes(decompress=True)) == text.encode()
    with document.open("r", "utf-8") as stream:
        assert stream.readline() == "ligne numéro\n"
    assert written(tmp_path / "plain.txt", b"x").bytes(decompress=True) == b"x"


@pytest.mark.parametrize("kind", COMPRESSED)
def test_compressed_text_is_decompressed_whatever_its_name(tmp_path: Path, kind: str) -> None:
    stored = COMPRESSED[kind](b"one\n")
    other = next(each for each in COMPRESSED if each != kind)

    for document in (written(tmp_path / "log", stored), written(tmp_path / f"log.{other}", stored)):
        assert document.text() == document.text("ascii") == next(document.pages()) == "one\n"
        assert document.bytes(decompress=True) == asyncio.run(document.abytes(decompress=True)) == b"one\n"
        assert document.bytes() == stored


class _Encoding(BaseHTTPRequestHandler):
    """Gives `contents`, and may call their compression the encoding of its answer, as Apache does."""

    contents: dict[str, bytes]
    encoded: bool

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        body = self.contents[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if self.encoded:
            kind = self.path.partition("?")[0].rpartition(".")[2]
            self.send_header("Content-Encoding", {"gz": "gzip", "zst": "zstd"}[kind])
        self.end_headers()
        return body


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("kind", ["gz", "zst", "gz?sign=1.2"])
def test_a_compressed_file_is_the_same_whether_a_server_calls_it_encoded_or_not(kind: str, encoded: bool) -> None:
    """It arrived decompressed, and its text failed as "Not a gzipped file"."""
    stored, lines = map(COMPRESSED[kind.partition("?")[0]], (b"one\ntwo\n", b'{"n": 7}\n'))
    contents = {f"/a.txt.{kind}": stored, f"/b.jsonl.{kind}": lines}
    with serving(type("_Here", (_Encoding,), {"contents": contents, "encoded": encoded}), quiet=True) as url:
        [document] = Documents([f"{url}/a.txt.{kind}"])
        sized = Document(document.key, "", document.where, size=len(stored))

        assert document.text() == "one\ntwo\n"
        assert document.bytes() == stored
        assert asyncio.run(document.abytes()) == stored
        assert document.open().read() == stored
        assert _read_early(sized) == stored
        assert Documents.from_jsonl(f"{url}/b.jsonl.{kind}")[0]["n"] == 7
        let_go()  # what is open ends before its server


def test_options_for_a_web_server_are_kept_where_it_has_a_compressed_file() -> None:
    """What keeps its answer as it is stored must not take the place of a user's own headers."""
    seen: list[dict[str, str]] = []

    class Noting(_Encoding):
        contents, encoded = {"/a.txt.gz": gzip.compress(b"one", mtime=0)}, True

        def _answer(self) -> bytes:
            seen.append({name: self.headers[name] for name in ("X-Mine", "Accept-Encoding")})
            return super()._answer()

    with serving(Noting, quiet=True) as url:
        options = {"headers": {"X-Mine": "yes"}}
        assert Documents([f"{url}/a.txt.gz"], storage_options=options)[0].text() == "one"

    assert seen
    assert all(each == {"X-Mine": "yes", "Accept-Encoding": "identity"} for each in seen)


# --- HTML.


def test_text_of_a_page_is_what_a_reader_sees(tmp_path: Path) -> None:
    source = """<!DOCTYPE html><html><head><title>T</title><style>p { color: red }</style></head>
    <body><!-- no --><h1>Annual <em>re</em>port</h1><script>var x = "<p>no</p>";</script>
    <p>It was a&nbsp;good
    year &amp; more.<br>Really.</p><ul><li>one<li>two</ul><table><tr><td>a</td><td>b</td></tr></table>
    <noscript>no</noscript><template><p>no</p></template><div>tail</div></body></html>"""
    document = written(tmp_path / "page.html", source.encode())

    assert document.html().splitlines() == [
        "Annual report",
        "It was a good year & more.",
        "Really.",
        "one",
        "two",
        "a",
        "b",
        "tail",
    ]


@pytest.mark.parametrize(
    ("data", "text", "encoding"),
    [
        ('<meta charset="iso-8859-1"><p>café €'.encode("cp1252"), "café €", "cp1252"),
        (
            "<META CONTENT='a; charset=x-sjis' HTTP-EQUIV=Content-Type><p>日本①".encode("cp932"),
            "日本①",
            "cp932",
        ),
        ('<!-- <meta charset="koi8-r"> --><meta charset=windows-1251><p>Да'.encode("cp1251"), "Да", "cp1251"),
        ("<script>'<meta charset=koi8-r>'</script><meta charset=windows-1251><p>Да".encode("cp1251"), "Да", "cp1251"),
        ('<meta name="a" content="charset=koi8-r"><meta charset=cp1251><p>Да'.encode("cp1251"), "Да", "cp1251"),
        ('<a data-x="<meta charset=koi8-r>"><meta charset=cp1251><p>Да'.encode("cp1251"), "Да", "cp1251"),
        ("<?xml version='1.0' encoding='windows-1251'?><p>Да</p>".encode("cp1251"), "Да", "cp1251"),
        ("<meta charset=gb2312><p>\U00020087 €".encode("gb18030"), "\U00020087 €", "gb18030"),
        ('<meta charset="utf-16"><p>é'.encode(), "é", "utf-8"),
        ('<meta charset="base64"><p>é'.encode(), "é", "utf-8"),
        ("<p>naïve".encode(), "naïve", "utf-8"),
        ("<p>é".encode("utf-16"), "é", "utf-16"),
        ('<meta charset="klingon"><p>é'.encode(), "é", "utf-8"),
        ('<meta charset="utf-8"><p>caf\xe9 x'.encode("latin-1"), "caf\ufffd x", "utf-8"),
        (b"", "", "utf-8"),
        (b"\xff\xfe", "", "utf-16"),
    ],
)
def test_encoding_of_a_page_is_its_mark_or_what_it_declares(
    tmp_path: Path, data: bytes, text: str, encoding: str
) -> None:
    document = written(tmp_path / "page.html", data)

    assert document.html() == text
    assert document.encoding == encoding


XHTML = """<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops">
<head><title/><script src="a.js"/><style/></head><body epub:type="chapter"><h1>One<a id="p1"/> two</h1><div/>
<p>a&nbsp;b &zzz; <![CDATA[1 < 2 & 3]]><span/></p><iframe/><noscript/><p>&mine; last</p></body></html>"""


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        (XHTML, ["One two", "a b &zzz; 1 < 2 & 3", "&mine; last"]),
        (f"\ufeff\n<?xml version='1.0'?>{XHTML}", ["One two", "a b &zzz; 1 < 2 & 3", "&mine; last"]),
        (f"<!DOCTYPE html [<!ENTITY mine 'my'>]>{XHTML}", ["One two", "a b &zzz; 1 < 2 & 3", "my last"]),
        ('<html xmlns="http://www.w3.org/1999/xhtml"><p>soup<br>is read', ["soup", "is read"]),
        (f"<?xml version='1.0'?><body>{'<div>' * 2000}deep{'</div>' * 2000}</body>", ["deep"]),
    ],
)
def test_xhtml_keeps_what_stands_behind_empty_elements(tmp_path: Path, source: str, lines: list[str]) -> None:
    """Chapters of EPUBs have `<title/>`, which begins a title without an end in HTML, and so empties the page."""
    assert written(tmp_path / "chapter.xhtml", source.encode()).html("utf-8").splitlines() == lines


def test_entities_that_multiply_are_not_resolved(tmp_path: Path) -> None:
    entity = f"<!ENTITY much '{'a' * 10_000}'>"
    source = f"<?xml version='1.0'?><!DOCTYPE p [{entity}]><p>{'&much;' * 2_000}</p>"

    assert len(written(tmp_path / "bomb.xhtml", source.encode()).html()) < len(source)


# --- Change.


def test_file_that_changed_since_it_was_listed_is_a_failure_with_the_way_out(tmp_path: Path) -> None:
    """Half of a run over the old contents and half over the new ones would look like one result."""
    document = written(tmp_path / "a.txt", b"before")
    (tmp_path / "a.txt").write_bytes(b"after that")

    for read in (document.bytes, document.text, document.open, lambda: next(document.pages())):
        with pytest.raises(DocumentChanged, match=r"has changed.*None of it.*refreshed\(\).*another name") as caught:
            read()
    with pytest.raises(DocumentChanged):
        asyncio.run(document.abytes())
    assert caught.value.document == document.key
    assert caught.value.was == document.version
    assert caught.value.now == document.refreshed().version
    assert document.refreshed().text() == "after that"
    assert document.refreshed().size == 10


@pytest.mark.parametrize("version", ["", "1", "2024-01", "v2", "6-x"])
def test_versions_that_users_have_made_are_not_compared(tmp_path: Path, version: str) -> None:
    (tmp_path / "a.txt").write_text("before")

    assert Document("a", version, str(tmp_path / "a.txt"), 6).text() == "before"
    assert Document("a", version, str(tmp_path / "a.txt")).text() == "before"


# --- Coroutines.


def test_reading_lets_other_coroutines_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a local file too: its disk may be a network's."""
    document = written(tmp_path / "slow", b"late")
    went_on = threading.Event()

    def slow(where: str) -> Any:
        assert went_on.wait(20)
        return open_binary(where)

    monkeypatch.setattr("dqlab.documents.document.open_binary", slow)

    async def other() -> None:
        went_on.set()

    async def main() -> bytes:
        data, _ = await asyncio.gather(document.abytes(), other())
        return data

    assert asyncio.run(main()) == b"late"


def test_reading_uses_the_asynchronous_method_of_a_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred requests at a time need no hundred threads."""
    from fsspec.asyn import AsyncFileSystem

    class Slow(AsyncFileSystem):
        protocol = "dqslow"
        together = most = 0

        async def _cat_file(self, path: str, start: Any = None, end: Any = None, **_: Any) -> bytes:
            if "missing" in path:
                raise FileNotFoundError(path)
            Slow.together += 1
            Slow.most = max(Slow.most, Slow.together)
            if Slow.together == 60:
                all_there.set()
            await all_there.wait()
            return os.fsencode(path)

    fsspec.register_implementation("dqslow", Slow, clobber=True)
    all_there = asyncio.Event()
    documents = [Document(str(at), "", f"dqslow://bucket/{at}") for at in range(60)]
    threads = threading.active_count()

    async def main() -> list[bytes]:
        return await asyncio.gather(*(document.abytes() for document in documents))

    assert asyncio.run(main()) == [b"bucket/%d" % at for at in range(60)]
    assert threading.active_count() <= threads + 1
    with pytest.raises(FileNotFoundError):
        asyncio.run(Document("x", "", "dqslow://bucket/missing").abytes())
