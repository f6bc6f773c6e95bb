"""A function does not wait for each remote document in turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import dqlab as dq

pytest.importorskip("aiohttp")

pytestmark = pytest.mark.cluster

COUNT = 80
HELD_FOR = 0.5
"""Seconds that a document is held back unless the next one is asked for."""


class Chained(ThreadingHTTPServer):
    """Answers for a document once the next one is asked for too, or after `HELD_FOR` seconds; notes the latter."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = [threading.Event() for _ in range(COUNT + 1)]
        self.asked[COUNT].set()
        self.alone: list[int] = []
        self.answers = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Chained

    def do_HEAD(self) -> None:
        self._head()

    def do_GET(self) -> None:
        number = int(self.path.strip("/"))
        self.server.asked[number].set()
        if not self.server.asked[number + 1].wait(HELD_FOR):
            self.server.alone.append(number)
        self.server.answers += 1
        self.wfile.write(self._head())

    def _head(self) -> bytes:
        body = f"text {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def server() -> Iterator[Chained]:
    server = Chained()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_the_next_remote_documents_are_asked_for_while_one_runs(
    queue: dq.QueuePool, server: Chained, executor: str
) -> None:
    """Each result is that of its document; few are read twice, by a slot that got what another had begun to read."""
    port = server.server_address[1]
    documents = [dq.Document(str(n), "", f"http://127.0.0.1:{port}/{n}", size=8) for n in range(COUNT)]

    run = queue.map(lambda doc: doc.text(), documents, name="ahead", executor=executor)

    assert dict(run.results(timeout=60).items()) == {str(n): f"text /{n}" for n in range(COUNT)}
    assert len(server.alone) < COUNT / 4, "without reading ahead it is each of them"
    assert server.answers <= 1.4 * COUNT, "a document may go to another slot when it was read already"
