"""A Jupyter server with the extension, below a prefix as on a hub, and services for it to find."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jupyter_server", reason="the extra `lab` is not installed")

from dqlab.clusters_here import Announcement
from tests.jupyter.server.dashboards import TOKEN, Dashboards, serving

BASE = "/user/x/"
LOGIN = "token-of-jupyter"
CONFIG = Path(__file__).parents[3] / "jupyter-config" / "server-config"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def said(self) -> Any:
        """The JSON in it."""
        return json.loads(self.body)


@dataclass
class Jupyter:
    """A Jupyter server, and its runtime directory."""

    port: int
    runtime: Path
    log_file: Path
    cookie: str = ""

    def __call__(
        self, method: str, path: str, *, login: str | None = "token", body: Any = None, **headers: str
    ) -> Answer:
        """Ask for a path below the base URL, as it is; logged in by "token", by "cookie", or not, with None."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if login == "token":
            sent["Authorization"] = f"token {LOGIN}"
        elif login == "cookie":
            sent["Cookie"] = "; ".join(filter(None, (self.cookie, sent.get("Cookie"))))
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            text = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, BASE + path, text, sent)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def log_in(self) -> None:
        """Get the cookie that a browser has after its login."""
        given = self("GET", f"api/status?token={LOGIN}", login=None).headers.get_all("Set-Cookie") or []
        self.cookie = "; ".join(cookie.partition(";")[0] for cookie in given)
        assert "username" in self.cookie

    @contextmanager
    def logged(self) -> Iterator[list[str]]:
        """Collect the lines that the server logs meanwhile; complete after the block."""
        at, lines = self.log_file.stat().st_size, list[str]()
        yield lines
        self("GET", "api/marks-the-end")  # its own line is written after all others
        lines += self.log_file.read_bytes()[at:].decode().splitlines()
        while not any("marks-the-end" in line for line in lines):
            lines[:] = self.log_file.read_bytes()[at:].decode().splitlines()
        lines[:] = [line for line in lines if "marks-the-end" not in line]

    @contextmanager
    def announced(self, service: Announcement) -> Iterator[str]:
        """Announce a service for a while."""
        path = self.runtime / f"dq-{service.id}.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(service)))
        try:
            yield service.id
        finally:
            path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def jupyter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """One server for all tests: it takes seconds to start."""
    folder = tmp_path_factory.mktemp("jupyter")
    environ = {**os.environ, "JUPYTER_CONFIG_PATH": str(folder / "config"), "JUPYTER_NO_CONFIG": ""}
    for name in ("RUNTIME", "CONFIG", "DATA"):
        environ[f"JUPYTER_{name}_DIR"] = str(folder / name.lower())
    enabled = folder / "config" / "jupyter_server_config.d"
    enabled.mkdir(parents=True)
    (enabled / "dqlab.json").write_text((CONFIG / "dqlab.json").read_text())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyter_server", f"--port={port}", "--ip=127.0.0.1", "--no-browser"]
    command += ["--allow-root", "--ServerApp.port_retries=0", f"--ServerApp.base_url={BASE}"]
    command += [f"--IdentityProvider.token={LOGIN}", f"--ServerApp.root_dir={folder}"]
    command += ["--ServerApp.jpserver_extensions={'jupyterlab': False, 'notebook': False}"]
    # As JupyterHub sets it for its users' servers.
    headers = {"Content-Security-Policy": "frame-ancestors 'none'"}
    command += [f"--ServerApp.tornado_settings={ {'headers': headers} }"]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environ)
    found = Jupyter(port, folder / "runtime", folder / "server.log")
    try:
        _wait_until_it_answers(found, server, folder / "server.log")
        found.log_in()
        yield found
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()
        server.wait(10)


def _wait_until_it_answers(jupyter: Jupyter, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            jupyter("GET", "api/status")
            return
        except OSError:
            with suppress(subprocess.TimeoutExpired):
                server.wait(0.1)  # until it ends, or is asked again: there is nothing that says it is ready
                raise RuntimeError(f"Jupyter ended at start:\n{log.read_text()[-3000:]}") from None
    raise TimeoutError(f"Jupyter did not answer within 60 s:\n{log.read_text()[-3000:]}")


@pytest.fixture
def dashboards() -> Iterator[Dashboards]:
    """A service's HTTP server."""
    with serving() as dashboards:
        yield dashboards


@pytest.fixture
def papers(jupyter: Jupyter, dashboards: Dashboards) -> Iterator[Announcement]:
    """The service "papers", announced."""
    service = Announcement(
        id="papers",
        name="papers",
        dashboard=f"http://127.0.0.1:{dashboards.port}",
        scheduler="tcp://127.0.0.1:1",
        scheduler_id=dashboards.scheduler_id,
        token=TOKEN,
        embedded=True,
        store="/data/runs",
        where="local",
    )
    with jupyter.announced(service):
        yield service
