"""Credentials that expire while a run goes on: it pauses itself with the reason, and goes on when it is resumed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType
from typing import Any

import pytest

import dqlab as dq
from dqlab.errors import RunHalted
from dqlab.stats import RunState
from tests.kit.cells import of_a_cell
from tests.kit.http_server import serving
from tests.kit.pdfs import make_pdf
from tests.kit.sampled import mostly_slow
from tests.kit.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

COUNT = 30
OPTIONS = {"client_kwargs": {"headers": {"Authorization": "env:DQ_TEST_TOKEN"}}}


class _Server(BaseHTTPRequestHandler):
    """Gives files for the token that is valid now, and a few for none; each has its path in it."""

    token = "first"
    left: int | None = None
    """Reads until the token expires; None: it does not."""
    files: Mapping[str, bytes] = MappingProxyType({})
    """What is not made of its path."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        kind = type(self)
        allowed = self.headers["Authorization"] == kind.token and "forbidden" not in self.path
        if kind.left is not None and self.command == "GET":
            kind.left = max(0, kind.left - 1)
        status = 200 if allowed and kind.left != 0 else 401
        body = self._body() if status == 200 else b""
        if body and (asked := re.match(r"bytes=(\d+)-(\d*)", self.headers["Range"] or "")):
            first, last = int(asked[1]), min(int(asked[2] or len(body)), len(body) - 1)
            whole, body, status = len(body), body[first : last + 1], 206
            self.send_response(status)
            self.send_header("Content-Range", f"bytes {first}-{last}/{whole}")
        else:
            self.send_response(status)
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body

    def _body(self) -> bytes:
        if self.path in self.files:
            return self.files[self.path]
        return make_pdf(self.path) if self.path.endswith(".pdf") else self.path.encode()


class Storage:
    """A server whose token expires, and the workers that have one."""

    def __init__(self, lab: dq.Lab, url: str, patch: pytest.MonkeyPatch) -> None:
        self._lab, self.url, self._patch = lab, url, patch

    def documents(self, *names: str) -> dq.Documents:
        paths = names or [f"{at}.txt" for at in range(COUNT)]
        return dq.Documents([f"{self.url}/{path}" for path in paths], storage_options=OPTIONS)

    def hold(self, path: str, content: bytes) -> str:
        """Have a file, and return its address."""
        self._patch.setattr(_Server, "files", {**_Server.files, f"/{path}": content})
        return f"{self.url}/{path}"

    def expire(self, after: int = 0) -> None:
        self._patch.setattr(_Server, "left", after)

    def renew(self, token: str) -> None:
        """Have a valid token, and have each worker get it."""
        self._patch.setenv("DQ_TEST_TOKEN", token)
        self._lab.client.run(lambda: os.environ.update(DQ_TEST_TOKEN=token))
        self._patch.setattr(_Server, "token", token)
        self._patch.setattr(_Server, "left", None)


@pytest.fixture
def storage(lab: dq.Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    with serving(_Server, quiet=True) as url:
        made = Storage(lab, url, monkeypatch)
        made.renew("first")
        yield made
    lab.client.run(lambda: os.environ.pop("DQ_TEST_TOKEN", None))


@of_a_cell
def text(doc: dq.Document) -> str:
    return doc.text()


@of_a_cell
async def awaited(doc: dq.Document) -> str:
    return (await doc.abytes()).decode()


@of_a_cell
def opened(doc: dq.Document) -> str:
    with doc.open("r") as stream:
        return str(stream.read())


@of_a_cell
def by_page(doc: dq.Document) -> str:
    return "".join(page if isinstance(page, str) else page.text() for page in doc.pages())


def resumed(run: dq.Run) -> dq.Run:
    """Resume a run to its end, and once more where a consumer reports late what it was refused before."""
    run.resume()
    try:
        return run.wait(timeout=60)
    except RunHalted:
        return run.resume().wait(timeout=60)


WAYS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "thread": (text, "thread", "txt"),
    "coroutine": (awaited, "thread", "txt"),
    "process": (text, "process", "txt"),
    "open": (opened, "thread", "txt"),
    "pages": (by_page, "thread", "txt"),
    "pdf": (by_page, "auto", "pdf"),
}


@pytest.mark.parametrize("how", mostly_slow(WAYS, "thread", "coroutine", "process"))
def test_a_run_pauses_itself_when_credentials_expire_and_goes_on_when_resumed(
    queue: dq.QueuePool, storage: Storage, how: str
) -> None:
    """As tokens of an hour do, in a run of a night: nothing fails, and nothing that was read is read again."""
    fn, executor, ending = WAYS[how]
    warm = [f"{name}.{ending}" for name in ("warm", "up", "both")]
    assert len(queue.map(fn, storage.documents(*warm), name="warm", executor=executor).results()) == 3
    names = [f"{at}.{ending}" for at in range(COUNT)]
    storage.expire(after=12)

    run = queue.map(fn, storage.documents(*names), name="night", executor=executor)  # some consumer has read nothing
    until(lambda: run.stats().state is RunState.STOPPED, 60)

    stats = run.stats()
    assert "its documents cannot be read" in stats.why
    assert "401" in stats.why
    assert "Renew the credentials" in stats.why
    assert stats.counts.dead == 0
    done = stats.counts.acked
    with pytest.raises(RunHalted, match=r"run\.resume\(\)"):
        run.wait(timeout=10)
    storage.renew("second")
    assert list(resumed(run).results()) == [f"/{name}" for name in names]
    assert 0 < done < COUNT
    assert run.counts["dead"] == 0


def test_a_document_that_is_forbidden_for_good_fails_alone(queue: dq.QueuePool, storage: Storage) -> None:
    """Others of its storage are read, so the credentials are fine."""
    names = [f"{at}.txt" for at in range(COUNT)]
    names[7] = "forbidden.txt"

    run = queue.map(text, storage.documents(*names), name="one", retry=dq.Retry(0))
    run.until_over(60)

    assert run.counts["acked"] == COUNT - 1
    [failure] = run.failures()
    assert failure.key == f"{storage.url}/forbidden.txt"
    assert "401" in failure.traceback


def test_a_forbidden_document_does_not_pause_a_run_whose_credentials_were_renewed(
    queue: dq.QueuePool, storage: Storage
) -> None:
    """It is the last one that was refused, and will be refused for ever."""
    assert queue.map(text, storage.documents("a.txt", "b.txt", "c.txt", "d.txt"), name="warm").results()
    storage.expire()
    run = queue.map(text, storage.documents("forbidden.txt"), name="last", retry=dq.Retry(0))
    until(lambda: run.stats().state is RunState.STOPPED or run.counts["dead"] == 1, 60)
    assert run.counts["dead"] == 0

    storage.renew("second")
    run.resume()
    run.until_over(60)

    assert run.counts["dead"] == 1
