"""Documents of a web server that states no length: it sends chunks, from the start to the end, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.documents import storage
from dqlab.documents.parts import Member
from dqlab.errors import FileUnreadable
from tests.kit.http_server import serving
from tests.kit.pdfs import make_pdf

pytest.importorskip("aiohttp")

SIGNED = "?sign=a*b/c&to=d"
TEXTS = {f"{at:02}": f"word {at} " * 400 for at in range(40)}
CUT = b"cut off"


class _Chunked(BaseHTTPRequestHandler):
    """Gives files in chunks; ranges, lengths and times are not known here."""

    protocol_version = "HTTP/1.1"
    files: Mapping[str, bytes] = MappingProxyType({})

    def do_HEAD(self) -> None:
        self._begin()

    def do_GET(self) -> None:
        if not self._begin():
            return
        body = self.files[self.path]
        for at in range(0, len(body), 1_000):
            part = body[at : at + 1_000]
            if part.startswith(CUT):
                self.close_connection = True
                return
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")

    def _begin(self) -> bool:
        found = self.path in self.files
        self.send_response(200 if found else 404)
        self.send_header(*(("Transfer-Encoding", "chunked") if found else ("Content-Length", "0")))
        self.end_headers()
        return found


def parquet() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": list(TEXTS), "text": list(TEXTS.values())}), sink, row_group_size=7)
    return sink.getvalue()


def zipped() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for key, text in TEXTS.items():
            archive.writestr(key, text)
    return sink.getvalue()


def tarred() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for key, text in TEXTS.items():
            info = tarfile.TarInfo(key)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return sink.getvalue()


LINES = "".join(f"{json.dumps({'id': key, 'text': text})}\n" for key, text in TEXTS.items()).encode()
CSV = b"id,text\n" + b"".join(f"{key},{text}\n".encode() for key, text in TEXTS.items())
TEXT = TEXTS["07"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    _Chunked.files = {
        "/a.txt": TEXT.encode(),
        "/a.txt.gz": gzip.compress(TEXT.encode()),
        "/a.py": b"# coding: latin-1\nname = 'caf\xe9'\n",
        "/a.pdf": make_pdf("one", "two"),
        "/t.parquet": parquet(),
        "/l.jsonl": LINES,
        "/l.jsonl.gz": gzip.compress(LINES),
        "/t.csv": CSV,
        "/d.zip": zipped(),
        "/d.tar.gz": tarred(),
        "/cut.txt": TEXT.encode()[:1_000] + CUT,
        "/cut.parquet": parquet()[:2_000] + CUT,
    }
    _Chunked.files = {**_Chunked.files, **{f"{path}{SIGNED}": data for path, data in _Chunked.files.items()}}
    with serving(_Chunked, quiet=True) as url:
        yield url


@pytest.fixture(params=["in memory", "in a file"], autouse=True)
def _kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is kept in memory as long as it is small."""
    if request.param == "in a file":
        monkeypatch.setattr(storage, "IN_MEMORY", 1_000)


def one(url: str) -> dq.Document:
    (document,) = dq.Documents([url])
    assert (document.size, document.version) == (None, "")
    return document


WAYS: dict[str, tuple[str, Callable[[dq.Document], object], object]] = {
    "text": ("a.txt", lambda doc: doc.text(), TEXT),
    "text that may be wrong": ("a.txt", lambda doc: doc.text(errors="replace"), TEXT),
    "bytes": ("a.txt", lambda doc: doc.bytes(), TEXT.encode()),
    "awaited": ("a.txt", lambda doc: asyncio.run(doc.abytes()), TEXT.encode()),
    "pages of a text": ("a.txt", lambda doc: "".join(doc.pages()), TEXT),
    "compressed text": ("a.txt.gz", lambda doc: doc.text(), TEXT),
    "a source": ("a.py", lambda doc: doc.text().splitlines()[1], "name = 'caf\xe9'"),
    "a PDF": ("a.pdf", lambda doc: [page.text() for page in doc.pages()], ["one", "two"]),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_file_without_a_length_is_read_in_each_way(server: str, way: str) -> None:
    name, read, expected = WAYS[way]

    assert read(one(f"{server}/{name}")) == expected


PARTS: dict[str, Callable[[str], dq.Documents]] = {
    "rows of Parquet": lambda url: dq.Documents.from_parquet(f"{url}/t.parquet", key="id"),
    "records of JSON lines": lambda url: dq.Documents.from_jsonl(f"{url}/l.jsonl", key="id"),
    "records of compressed JSON lines": lambda url: dq.Documents.from_jsonl(f"{url}/l.jsonl.gz", key="id"),
    "records of CSV": lambda url: dq.Documents.from_csv(f"{url}/t.csv", key="id"),
    "members of a zip": lambda url: dq.Documents.from_archive(f"{url}/d.zip"),
    "members of a tar.gz": lambda url: dq.Documents.from_archive(f"{url}/d.tar.gz"),
}


def content(document: dq.Document) -> str:
    return document.text() if isinstance(document.part, Member) else document["text"]


@pytest.mark.parametrize("kind", PARTS)
def test_parts_of_a_file_without_a_length_are_read_in_any_order(server: str, kind: str) -> None:
    """Their places lie before what was read last, and a directory lies at the end."""
    listed = list(PARTS[kind](server))

    assert {each.key: content(each) for each in listed[::-1]} == TEXTS
    assert {each.key: content(each) for each in listed[1::3]} == dict(list(TEXTS.items())[1::3])


@pytest.mark.parametrize("kind", PARTS)
def test_a_question_mark_in_the_url_of_a_web_server_begins_its_query(server: str, kind: str) -> None:
    """Links that are signed have one. It was taken for a wildcard, and "there is no folder" was the answer."""
    named = PARTS[kind]
    url = f"{server}/{named(server)[0].where.rpartition('/')[2]}{SIGNED}"
    make = {"r": dq.Documents.from_jsonl, "m": dq.Documents.from_archive}[kind[0]]
    make = {"rows of Parquet": dq.Documents.from_parquet, "records of CSV": dq.Documents.from_csv}.get(kind, make)

    assert [content(each) for each in make(url)] == list(TEXTS.values())


def test_a_file_that_is_cut_off_is_no_shorter_file(server: str) -> None:
    """Without a length nothing else tells that the connection has ended early."""
    with pytest.raises(Exception, match=r"not completed|TransferEncodingError"):
        one(f"{server}/cut.txt").text()
    with pytest.raises(FileUnreadable, match=r"not completed|TransferEncodingError"):
        list(dq.Documents.from_parquet(f"{server}/cut.parquet", key="id"))
