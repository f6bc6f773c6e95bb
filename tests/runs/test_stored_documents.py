"""Runs over documents of a file system that needs options."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

import dqlab as dq
from dqlab.errors import RunFailed
from tests.kit.http_server import serving

pytestmark = pytest.mark.cluster

OPTIONS = {"client_kwargs": {"headers": {"X-Region": "eu"}}}


class _Server(BaseHTTPRequestHandler):
    """Gives files to who names the region."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        allowed = self.headers["X-Region"] == "eu"
        body = f"contents of {self.path}".encode() if allowed else b""
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body


@pytest.fixture
def url() -> Iterator[str]:
    with serving(_Server) as address:
        yield address


def test_options_open_documents_on_consumers(queue: dq.QueuePool, url: str) -> None:
    urls = [f"{url}/{at}.txt" for at in range(5)]
    expected = [f"contents of /{at}.txt" for at in range(5)]
    documents = dq.Documents(urls, storage_options=OPTIONS)

    assert list(queue.map(lambda doc: doc.text(), documents, name="listed").results()) == expected
    assert list(queue.map(lambda doc: doc.text(), list(documents), name="held").results()) == expected
    assert queue.submit(lambda doc: doc.text(), documents[0]).results() == [expected[0]]
    with pytest.raises(RunFailed):
        queue.map(lambda doc: doc.text(), dq.Documents(urls[:1]), name="plain").results()


def test_run_over_a_bucket_attaches_and_retries(queue: dq.QueuePool, url: str) -> None:
    documents = dq.Documents([f"{url}/{at}.txt" for at in range(3)], storage_options=OPTIONS)

    def broken(doc: dq.Document) -> str:
        raise ValueError(doc.key)

    run = queue.map(broken, documents, name="read", retry=dq.Retry(0))
    run.wait()

    assert queue.map(broken, documents, name="read").id == run.id
    assert run.retry(fn=lambda doc: doc.text()) == 3
    assert list(run.results()) == [f"contents of /{at}.txt" for at in range(3)]
