"""Listing files of a web server that ends a transfer early, or never answers: a typed error that names the file."""

from __future__ import annotations

import asyncio
import io
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dqlab as dq
from dqlab.documents import parquet, storage
from dqlab.documents.servers import ServerBusy
from dqlab.errors import (
    BadOption,
    DocumentError,
    DqlabWarning,
    FileUnreadable,
)
from dqlab.failures.failure import retryable
from tests.kit.http_server import serving

pytest.importorskip("aiohttp")


def _zipped() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", "x" * 300_000)
    return packed.getvalue()


def _tarred() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in "abcdef":
            info = tarfile.TarInfo(name)
            info.size = 100_000
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    return packed.getvalue()


def _rows() -> bytes:
    packed = io.BytesIO()
    pq.write_table(pa.table({"id": range(1000), "text": ["x" * 500] * 1000}), packed, compression="none")
    return packed.getvalue()


FILES = {
    "a.parquet": _rows(),
    "a.jsonl": b'{"id": 1, "text": "%s"}\n' % (b"x" * 200) * 2000,
    "a.csv": b"id,t\n" + b"1,2\n" * 100_000,
    "a.zip": _zipped(),
    "a.tar": _tarred(),
}


class _Cutting(BaseHTTPRequestHandler):
    """Gives half of a file and hangs up; with a length, or in chunks; with the kind of the file, or without."""

    protocol_version = "HTTP/1.1"
    files: Mapping[str, bytes] = MappingProxyType(FILES)

    def do_HEAD(self) -> None:
        self._begin()

    def do_GET(self) -> None:
        way, body = self._begin()
        half = body[: len(body) // 2]
        if way == "chunks":
            for at in range(0, len(half), 65_536):
                part = half[at : at + 65_536]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        else:
            self.wfile.write(half)
        self.close_connection = True

    def _begin(self) -> tuple[str, bytes]:
        way, name = self.path.strip("/").split("/")
        body = self.files[name]
        self.send_response(200)
        self.send_header(*(("Transfer-Encoding", "chunked") if way == "chunks" else ("Content-Length", str(len(body)))))
        if way != "unnamed":
            self.send_header("Content-Type", "application/octet-stream")
        self.end_headers()
        return way, body


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving(_Cutting, quiet=True) as address:
        yield address


WAYS = ("length", "chunks", "unnamed")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("make", "name"), [(dq.Documents.from_jsonl, "a.jsonl"), (dq.Documents.from_csv, "a.csv")], ids=["jsonl", "csv"]
)
def test_a_file_whose_transfer_ends_early_ends_its_listing_by_name(
    server: str, way: str, make: Callable[..., dq.Documents], name: str
) -> None:
    with pytest.raises(FileUnreadable, match=rf"{way}/{name}' cannot be read as .*not completed.*server") as caught:
        list(make(f"{server}/{way}/{name}"))

    assert type(caught.value.__cause__) is ServerBusy


@pytest.mark.parametrize("way", WAYS)
def test_a_transfer_of_parquet_that_ends_early_ends_its_listing_and_is_tried_again_by_functions(
    server: str, way: str
) -> None:
    with pytest.raises(FileUnreadable, match=rf"{way}/a.parquet' cannot be read as Parquet: .*not completed.*server"):
        list(dq.Documents.from_parquet(f"{server}/{way}/a.parquet"))
    with pytest.raises(ServerBusy, match="not completed") as caught:
        parquet.ParquetTable(f"{server}/{way}/a.parquet")
    assert retryable(caught.value)


# --- silence ---


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that takes connections, and never answers."""
    monkeypatch.setattr(storage, "SILENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_urls_of_a_server_that_does_not_answer_are_listed_with_a_warning(silent: str) -> None:
    with pytest.warns(
        DqlabWarning,
        match=rf"{silent}/0.txt' did not answer in time.*client_kwargs.*Size and version",
    ) as caught:
        documents = list(dq.Documents([f"{silent}/{at}.txt" for at in range(100)]))

    assert [(each.key, each.size, each.version) for each in documents[98:]] == [
        (f"{silent}/98.txt", None, ""),
        (f"{silent}/99.txt", None, ""),
    ]
    assert len(caught) == 1, "the others of that server are not asked for"


def test_a_file_of_a_server_that_does_not_answer_is_not_taken_for_none(silent: str) -> None:
    with pytest.raises((BadOption, FileUnreadable), match=rf"{silent}/a.txt.*[Tt]imeout"):
        list(dq.Documents.from_glob(f"{silent}/a.txt"))


@pytest.mark.parametrize("url", ["{}/a.txt", "simplecache::{}/a.txt"])
def test_seconds_of_silence_are_an_option(silent: str, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr(storage, "SILENCE", 600)
    kwargs = {"client_kwargs": {"timeout": 0.1}}
    options = {"http": kwargs} if "::" in url else kwargs
    with pytest.warns(DqlabWarning, match="did not answer"):
        (document,) = dq.Documents([url.format(silent)], storage_options=options)

    assert document.size is None


def test_reading_from_a_server_that_does_not_answer_ends(silent: str) -> None:
    with pytest.raises(TimeoutError, match=r"a.txt' did not answer in time.*Nothing of it was read.*timeout") as caught:
        dq.Document("a.txt", "", f"{silent}/a.txt").text()

    assert not isinstance(caught.value, DocumentError), "it is tried again"


READ: dict[str, Callable[[dq.Document], object]] = {
    "text": lambda document: document.text(),
    "stream": lambda document: document.open().read(),
    "awaited": lambda document: asyncio.run(document.abytes()),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("length", [True, False])
def test_reading_from_a_server_that_stops_in_the_middle_names_it(
    monkeypatch: pytest.MonkeyPatch, read: str, length: bool
) -> None:
    """FSTimeoutError without a word was all that the failure had."""
    monkeypatch.setattr(storage, "SILENCE", 0.1)
    over = threading.Event()

    class Stopping(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(200)
            if length:
                self.send_header("Content-Length", "1000")
            self.end_headers()

        def do_GET(self) -> None:
            self.do_HEAD()
            self.wfile.write(b"x" * 500)
            over.wait(20)

    with serving(Stopping, quiet=True) as url:
        try:
            with pytest.raises(TimeoutError, match=rf"{url}/a.txt' did not answer in time.*timeout"):
                READ[read](dq.Document("a.txt", "", f"{url}/a.txt"))
        finally:
            over.set()
