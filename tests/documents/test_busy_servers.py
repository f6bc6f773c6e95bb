"""Documents of a web server that is busy: they are tried again, no earlier than it asks, and only a missing file is."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import ClassVar

import pytest

import dqlab as dq
from dqlab.documents.servers import LONGEST_WAIT, ServerBusy
from dqlab.documents.storage import reconnect
from dqlab.errors import FileUnreadable, InputUnreadable
from dqlab.failures.failure import retryable
from tests.documents.test_cut_off import FILES
from tests.kit.http_server import serving

pytest.importorskip("aiohttp")

PASSING = (408, 425, 429, 500, 502, 503, 504)
HANGS_UP = 0


class _Busy(BaseHTTPRequestHandler):
    """Answers every request with the next of `statuses`, the last one again and again; 200 gives the file."""

    files: ClassVar = {"a.txt": b"text", **FILES}
    statuses: ClassVar[list[int]] = []
    of_head: int | None = None
    """The answer to HEAD, where it is another one."""
    wait: str | None = None

    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        self._answer(self.files[self.path.strip("/")])

    def _answer(self, body: bytes) -> None:
        of_head = self.command == "HEAD" and self.of_head is not None
        status = self.of_head if of_head else self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == HANGS_UP:
            self.close_connection = True
            return
        body, size = (body, len(self.files[self.path.strip("/")])) if status == 200 else (b"", 0)
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        if self.wait is not None:
            self.send_header("Retry-After", self.wait)
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(_Busy, "statuses", [200])
    with serving(_Busy, quiet=True) as address:
        yield address


READ: dict[str, Callable[[dq.Document], object]] = {
    "bytes": lambda document: document.bytes(),
    "stream": lambda document: document.open().read(1),
    "awaited": lambda document: asyncio.run(document.abytes()),
    "refreshed": lambda document: document.refreshed(),
}


@pytest.mark.parametrize("of_head", [None, 200])
@pytest.mark.parametrize("status", PASSING)
def test_a_busy_server_is_not_a_missing_file(
    server: str, monkeypatch: pytest.MonkeyPatch, status: int, of_head: int | None
) -> None:
    """fsspec reports every answer but the file as FileNotFoundError, and such documents were dead at once."""
    monkeypatch.setattr(_Busy, "statuses", [status])
    monkeypatch.setattr(_Busy, "of_head", of_head)
    document = dq.Document("a.txt", "", f"{server}/a.txt")
    said = f"{server}/a.txt' does not give it now: {status} {HTTPStatus(status).phrase}. Nothing of it was read"

    for read in [READ[name] for name in READ if name != "refreshed" or of_head is None]:
        with pytest.raises(ServerBusy, match=said) as caught:
            read(document)
        assert retryable(caught.value)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("read", ["bytes", "stream", "refreshed"])
def test_a_connection_that_is_dropped_is_not_a_missing_file(
    server: str, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """So it is when a server restarts."""
    monkeypatch.setattr(_Busy, "statuses", [HANGS_UP])

    with pytest.raises(ServerBusy, match="does not give it now: ServerDisconnectedError"):
        READ[read](dq.Document("a.txt", "", f"{server}/a.txt"))


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("status", [404, 410])
def test_a_file_that_is_gone_stays_a_missing_file(
    server: str, monkeypatch: pytest.MonkeyPatch, read: str, status: int
) -> None:
    monkeypatch.setattr(_Busy, "statuses", [status])

    with pytest.raises(FileNotFoundError, match=f"{server}/a.txt") as caught:
        READ[read](dq.Document("a.txt", "", f"{server}/a.txt"))

    assert not retryable(caught.value)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (dq.Documents.from_parquet, "a.parquet"),
        (dq.Documents.from_csv, "a.csv"),
        (dq.Documents.from_jsonl, "a.jsonl"),
        (dq.Documents.from_archive, "a.zip"),
    ],
    ids=["parquet", "csv", "jsonl", "zip"],
)
def test_a_part_of_a_file_is_tried_again_and_its_listing_names_the_status(
    server: str, monkeypatch: pytest.MonkeyPatch, make: Callable[..., dq.Documents], name: str
) -> None:
    """Parts are read by ranges from a file that stays open, which went another way than whole files."""
    document = next(iter(make(f"{server}/{name}")))
    monkeypatch.setattr(_Busy, "statuses", [503])
    for of_head in (None, 200):
        monkeypatch.setattr(_Busy, "of_head", of_head)
        reconnect(server)
        with pytest.raises(ServerBusy, match=f"{name}' does not give it now: 503 Service Unavailable"):
            document.bytes() if name == "a.zip" else document.row

        with pytest.raises(Exception, match=f"{name}.*503.*server") as caught:
            list(make(f"{server}/{name}"))
        assert type(caught.value) in (InputUnreadable, FileUnreadable)


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("-5", 0.0),
        ("soon", 0.0),
        (None, 0.0),
        ("9" * 30, LONGEST_WAIT),
        (format_datetime(datetime(1994, 11, 6, tzinfo=UTC), usegmt=True), 0.0),
        (timedelta(seconds=3600), 3600.0),
    ],
)
def test_the_wait_of_a_busy_server_is_a_number_or_a_date(
    server: str, monkeypatch: pytest.MonkeyPatch, wait: object, seconds: float
) -> None:
    if isinstance(wait, timedelta):
        wait = format_datetime(datetime.now(UTC) + wait, usegmt=True)
    monkeypatch.setattr(_Busy, "statuses", [429])
    monkeypatch.setattr(_Busy, "wait", wait)

    with pytest.raises(ServerBusy) as caught:
        dq.Document("a.txt", "", f"{server}/a.txt").bytes()

    assert caught.value.after == pytest.approx(seconds, abs=30 if seconds == 3600 else 0)
