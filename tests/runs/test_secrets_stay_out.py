"""What file systems are opened with stays in the processes that open them: no store, log or announcement has it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.kit import forking
from tests.kit.http_server import serving
from tests.kit.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
SECRET = "dq-s3cr3t-never-written"
SCRIPT = """
    import logging
    import pickle
    import sys
    import traceback

    import dask
    import dqlab as dq

    logging.basicConfig(level=logging.INFO)  # libraries write what they send at DEBUG
    url, store = sys.argv[1:]
    OPTIONS = {"client_kwargs": {"headers": {"Authorization": "env:DQ_TEST_TOKEN"}}}

    async def read(doc):
        return (await doc.abytes()).decode()

    if __name__ == "__main__":
        lab = dq.connect(n=2, store=store, name="secretive")
        urls = [f"{url}/{kind}/{at}.txt" for at in range(4) for kind in ("good", "refused", "odd", "late")]
        docs = dq.Documents(urls, storage_options=OPTIONS)
        for name, fn in (("plain", lambda doc: doc.text()), ("awaited", read)):
            run = lab.map(fn, docs, name=name, retry=dq.Retry(0))
            run.wait()
            print(run, run.counts, run.stats(), list(run.results("skip").items()))
            for failure in run.failures():
                print(failure, failure.message, failure.traceback, failure.key)
            print(run.failures().to_frame().to_string() if hasattr(run.failures(), "to_frame") else "")
        print(repr(docs), repr(docs[0]), repr(list(docs)[:2]), lab, lab.all_runs(), lab.stats(), lab.doctor())
        sys.stdout.buffer.write(pickle.dumps(list(docs)))
        for wrong in (
            lambda: dq.Documents.from_jsonl(f"{url}/refused/a.jsonl", storage_options=OPTIONS),
            lambda: dq.Documents.from_parquet(f"{url}/good/a.parquet", storage_options=OPTIONS),
            lambda: list(dq.Documents.from_archive(f"{url}/good/a.zip", storage_options=OPTIONS)),
            lambda: list(dq.Documents.from_glob(f"{url}/odd/*.txt", storage_options=OPTIONS)),
            lambda: docs[1].text(),
            lambda: docs[2].bytes(),
            lambda: docs[3].open().read(),
            lambda: next(iter(docs[3].open())),
            lambda: list(dq.Documents.from_archive(f"{url}/late/a.zip", storage_options=OPTIONS)),
            lambda: dq.Documents.from_jsonl(f"{url}/late/a.jsonl", storage_options=OPTIONS),
            lambda: dq.Documents.from_parquet(f"{url}/late/a.parquet", storage_options=OPTIONS),
        ):
            try:
                print("no error:", wrong())
            except Exception as error:
                traceback.print_exception(error)
        print("until the end", flush=True)
        sys.stdin.read()
        lab.close(force=True)
"""


class _Server(BaseHTTPRequestHandler):
    """Gives files to those with the secret; some refusals repeat it, as some services do."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self.wfile.write(self._answer())

    def _answer(self) -> bytes:
        allowed = "/good/" in self.path or ("/late/" in self.path and self.command == "HEAD")
        status = 200 if self.headers["Authorization"] == SECRET and allowed else 403
        body = b"contents" if status == 200 else f"{SECRET} may not".encode()
        reason = f"Bad token {SECRET}" if "/good/" not in self.path and "/refused/" not in self.path else None
        self.send_response(status, reason)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        return b"" if self.command == "HEAD" else body


@pytest.fixture
def url() -> Iterator[str]:
    with serving(_Server) as address:
        yield address


def test_no_file_and_no_line_of_a_run_has_the_secret(url: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    for name in ("store", "runtime", "tmp", "home"):
        (tmp_path / name).mkdir()
    env = {
        **os.environ,
        "DQ_TEST_TOKEN": SECRET,
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
        "TMPDIR": str(tmp_path / "tmp"),
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(ROOT),
    }
    said = tmp_path / "said"
    with (
        said.open("wb") as out,
        forking.Popen(
            [sys.executable, tmp_path / "script.py", url, tmp_path / "store"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
        ) as process,
    ):
        try:
            until(lambda: b"until the end" in said.read_bytes() or process.poll() is not None, 60)
            while_open = holding(tmp_path)
        finally:
            process.communicate(timeout=60)

    text = said.read_bytes()
    assert b"until the end" in text, text[-2_000:].decode(errors="replace")
    assert text.count(b"403") > 8  # the refusals are there
    assert text.count(b"Bad token ***") > 8  # with their reasons
    assert b"DQ_TEST_TOKEN" in text
    assert any(b"DQ_TEST_TOKEN" in path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert not "\n".join(while_open)
    assert not "\n".join(holding(tmp_path))


def holding(folder: Path) -> list[str]:
    """Return the files with the secret, and the lines around it."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            at = data.find(SECRET.encode())
            if at >= 0:
                found.append(f"{path.relative_to(folder)}: {data[max(0, at - 300) : at + 60]!r}")
    return found
