"""Options of file systems travel once with the function of a run; its references have their name alone."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

import dqlab as dq
from dqlab.documents import storage
from dqlab.errors import DocumentError
from tests.kit.cells import of_a_cell
from tests.kit.http_server import serving

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

OPTIONS = {"client_kwargs": {"headers": {"X-Region": "eu", "X-Much": "much" * 500}}}
COUNT = 20


class _Server(BaseHTTPRequestHandler):
    """Gives a file to each request that names the region."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        allowed = self.headers["X-Region"] == "eu"
        body = self.path.encode() if allowed else b""
        self.send_response(200 if allowed else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return body


@pytest.fixture
def url() -> Iterator[str]:
    with serving(_Server) as address:
        yield address


def listed(url: str) -> dq.Documents:
    return dq.Documents([f"{url}/{at}.txt" for at in range(COUNT)], storage_options=OPTIONS)


EXPECTED = [f"/{at}.txt" for at in range(COUNT)]


@of_a_cell
def text(doc: dq.Document) -> str:
    return doc.text()


@of_a_cell
async def awaited(doc: dq.Document) -> str:
    return (await doc.abytes()).decode()


@of_a_cell
def refuse(doc: dq.Document) -> str:
    raise ValueError(doc.key)


@pytest.fixture(autouse=True)
def _remembers() -> Iterator[None]:
    """Give back what `forget` takes: other tests of this process have references of their own."""
    before = dict(storage._spelled)
    yield
    storage._spelled.update(before)


def forget() -> None:
    """Have this process know no options, as a kernel that was started again."""
    storage._spelled.clear()


def test_reference_of_a_run_is_short_whatever_its_options_are(queue: dq.QueuePool, url: str) -> None:
    for name, documents in (
        ("listed", listed(url)),
        ("held", list(listed(url))),
        ("wrapped", dq.Documents(listed(url))),
    ):
        run = queue.map(refuse, documents, name=name, retry=dq.Retry(0))
        run.wait()

        failures = list(run.failures())
        assert [failure.key for failure in failures] == [f"{url}{path}" for path in EXPECTED]
        assert max(len(failure.payload) for failure in failures) < 300


def test_documents_open_in_threads_coroutines_and_processes(queue: dq.QueuePool, url: str) -> None:
    for name, fn, how in (("thread", text, "thread"), ("coroutine", awaited, "thread"), ("process", text, "process")):
        run = queue.map(fn, listed(url), name=name, executor=how)
        assert list(run.results()) == EXPECTED


def test_retries_open_the_documents_also_with_the_code_of_another_kernel(queue: dq.QueuePool, url: str) -> None:
    run = queue.map(refuse, listed(url), name="retried", retry=dq.Retry(0))
    run.wait()
    forget()

    attached = queue.session.runs.attach("retried")
    assert [failure.document.text() for failure in attached.failures()] == EXPECTED
    assert attached.retry(fn=text) == COUNT
    assert list(attached.results()) == EXPECTED


def test_mapping_again_retries_documents_with_the_options_that_their_run_has(queue: dq.QueuePool, url: str) -> None:
    run = queue.map(refuse, listed(url), name="again", retry=dq.Retry(0))
    run.wait()
    forget()
    others = {"client_kwargs": {"headers": {"X-Region": "eu"}}}
    again = dq.Documents([f"{url}/{at}.txt" for at in range(COUNT)], storage_options=others)

    retried = queue.map(text, again, name="again", on_existing="retry-failed", retry=dq.Retry(0))

    assert retried.id == run.id
    assert list(retried.results()) == EXPECTED


def test_rest_of_an_input_that_is_mapped_again_opens(queue: dq.QueuePool, url: str) -> None:
    def broken() -> Iterator[dq.Document]:
        yield from listed(url)[:2]
        raise OSError("cut off")

    def whole() -> Iterator[dq.Document]:
        yield from listed(url)

    run = queue.map(text, dq.Documents(broken, storage_options=OPTIONS), name="rest")
    run.submitter.join(30)
    forget()

    assert list(queue.map(text, dq.Documents(whole, storage_options=OPTIONS), name="rest").results()) == EXPECTED


def test_a_document_without_its_run_names_what_is_missing(queue: dq.QueuePool, url: str) -> None:
    run = queue.map(refuse, listed(url), name="apart", retry=dq.Retry(0))
    run.wait()
    [failure, *_] = run.failures()
    forget()

    with pytest.raises(DocumentError, match="Attach to the run"):
        failure.document.text()
    assert queue.session.runs.attach("apart").failures()[0].document.text() == EXPECTED[0]


def test_a_stored_run_opens_its_documents_after_everything_was_started_again(tmp_path: Path, url: str) -> None:
    """Waiting ones and dead ones; the log has the options once for the function and once for the run."""
    with dq.connect(n=1, store=tmp_path, name="before") as lab:
        run = lab.map(refuse, listed(url), name="stored", retry=dq.Retry(0))
        run.wait()
        waiting: dq.Run = lab.queue("later").map(text, listed(url), name="waiting", consumers=None)
        waiting.submitter.join(30)
        lab.queue("later").compact()
    forget()
    with dq.connect(n=1, store=tmp_path, name="after") as lab:
        run = lab.attach("stored")
        assert [failure.document.text() for failure in run.failures()] == EXPECTED
        assert run.retry(fn=text) == COUNT
        assert list(run.results()) == EXPECTED
        again: Any = lab.queue("later").map(text, listed(url), name="waiting")
        assert list(again.results()) == EXPECTED
    spelled = b"muchmuch" * 200
    logs = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert 0 < sum(data.count(spelled) for data in logs) < COUNT
