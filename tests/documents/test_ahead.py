"""Documents that are read ahead: which, how many, what is kept of them, and when that stops."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from dqlab.cluster.transport.sealed import seal_value
from dqlab.documents import Document
from dqlab.documents import ahead as module
from dqlab.documents.ahead import FRESH_S, LARGEST, MOST, UNREAD, ReadAhead, taken
from dqlab.documents.document import reading_ahead
from dqlab.documents.parts import Line, PageRange, Reference, Row
from tests.kit.http_server import serving
from tests.kit.waiting import until


def far(n: int, size: int | None = 10) -> Document:
    return Document(f"{n}.txt", "1", f"https://host/{n}.txt", size=size)


class Slot:
    """A slot's documents in their order, and what is read of them."""

    def __init__(self, documents: list[Document]) -> None:
        self.left = documents
        self.read: list[str] = []
        self.open = threading.Event()
        self.open.set()
        self.size = 4
        self.broken: set[str] = set()
        self.ahead = self.of(b"run")

    def of(self, run: bytes) -> ReadAhead:
        return ReadAhead.of_thread(run, lambda most: self.left[:most], self._read)

    def _read(self, document: Reference) -> bytes:
        self.read.append(str(document.key))
        assert self.open.wait(10)
        if document.key in self.broken:
            raise OSError("the network is gone")
        return str(document.key).encode().ljust(self.size)

    def is_read(self) -> bool:
        return all(fetch.done() for _, fetch in self.ahead._fetches.values())

    def begin(self) -> Document:
        document = self.left.pop(0)
        self.ahead.begin(document)
        return document


@pytest.fixture(autouse=True)
def _forgets() -> Iterator[None]:
    module._here.__dict__.clear()  # tests before these read ahead in this thread, too
    yield
    module._here.__dict__.clear()


def test_the_next_documents_are_read_while_one_runs_and_are_there_once() -> None:
    slot = Slot([far(n) for n in range(10)])
    first = slot.begin()
    assert taken(first) is None, "nothing came before it"
    until(lambda: len(slot.read) == MOST)

    second = slot.begin()
    assert taken(second) == b"1.txt"
    assert taken(second) is None, "a second reading is a reading"


def test_what_fails_ahead_is_left_to_the_function_to_read() -> None:
    slot = Slot([far(n) for n in range(4)])
    slot.broken = {"1.txt"}
    slot.begin()
    assert taken(slot.begin()) is None
    assert taken(slot.begin()) == b"2.txt"


def test_nothing_is_read_ahead_for_a_function_that_reads_nothing() -> None:
    """It may look at names alone, and each document is a request."""
    slot = Slot([far(n) for n in range(100)])
    for _ in range(80):
        slot.begin()
    assert len(slot.read) <= MOST + UNREAD + 1


@pytest.mark.parametrize(
    "document",
    [
        Document("a", "1", "/data/a.txt", size=3),
        Document("a", "1", "file:///data/a.txt", size=3),
        far(1, LARGEST + 1),
        far(1, None),
        Document(7, "1", "https://host/a.parquet", part=Row(0, 7)),
        Document("a", "1", "https://host/a.jsonl", size=30, part=Line(0, 30)),
        Document("a", "1", "https://host/a.pdf", size=30, part=PageRange(0, 3)),
    ],
    ids=["local", "local URL", "large", "of unknown size", "row", "record", "pages"],
)
def test_what_is_near_or_large_or_one_of_many_in_its_file_is_not_read_ahead(document: Document) -> None:
    """Of records the whole file came for each: a server sent 70 times what it has."""
    slot = Slot([far(0), document])
    slot.begin()
    assert not slot.ahead._fetches


def test_what_was_read_for_one_run_is_never_given_to_another() -> None:
    """Its files may have changed in between, and without an etag nothing tells so."""
    slot = Slot([far(n) for n in range(5)])
    slot.begin()
    until(slot.is_read)
    slot.of(b"another")
    assert taken(slot.begin()) is None


def test_what_was_read_long_ago_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    slot = Slot([far(n) for n in range(5)])
    slot.begin()
    until(slot.is_read)
    now[0] += FRESH_S + 1
    assert taken(slot.begin()) is None


@pytest.mark.cluster
def test_a_forked_process_reads_by_itself() -> None:
    """What reads ahead has no thread there, and was waited for for ever."""
    slot = Slot([far(n) for n in range(5)])
    slot.open.clear()
    slot.begin()
    document = slot.left[0]
    child = os.fork()
    if not child:
        os._exit(0 if taken(document) is None else 1)
    _, status = os.waitpid(child, 0)
    slot.open.set()
    assert status == 0


def test_it_stays_stopped_from_chunk_to_chunk_and_begins_again_with_a_document_that_is_read() -> None:
    """Slow documents come one to a chunk; each chunk began to count again, and each document was a request."""
    slot = Slot([far(n) for n in range(60)])
    for _ in range(40):
        slot.of(b"run")
        slot.begin()
    assert len(slot.read) <= MOST + UNREAD + 1

    slot.of(b"run")
    assert taken(slot.begin()) is None, "it is read by its function"
    slot.of(b"run")
    slot.begin()
    assert slot.ahead._fetches


class _Counting(BaseHTTPRequestHandler):
    requests: list[str]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        self.requests.append(f"{self.command} {self.path}")
        body = self.path.encode()
        self.send_response(404 if "gone" in self.path else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body


def test_a_file_is_read_ahead_with_one_request() -> None:
    """Asking for its size first is another request."""
    handler = type("_CountingHere", (_Counting,), {"requests": []})
    with serving(handler, quiet=True) as url:
        left = [Document(name, "", f"{url}/{name}", size=len(name) + 1) for name in ("a", "b", "gone", "c")]
        messages = [seal_value(each) for each in left]
        ahead = reading_ahead(b"run", lambda most: messages[:most], left[0])
        found = []
        for document in left:
            messages.pop(0)
            ahead.begin(document)
            until(lambda: all(fetch.done() for _, fetch in ahead._fetches.values()))
            found.append(taken(document))

    assert found == [None, b"/b", None, b"/c"]
    assert sorted(handler.requests) == ["GET /b", "GET /c", "GET /gone"]
