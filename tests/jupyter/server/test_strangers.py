"""Another user's process at the address of a service: nothing of it is shown, and it learns nothing.

What comes through the proxy has Jupyter's origin, so a page of a stranger could run code as this user.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from distributed import Client, LocalCluster
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.web import RequestHandler
from tornado.websocket import WebSocketHandler, websocket_connect

import dqlab as dq
from dqlab import clusters_here
from dqlab.clusters_here import Announcement
from dqlab.proof import NONCE, PROOF, machine
from tests.jupyter.server.conftest import BASE, Jupyter
from tests.jupyter.server.dashboards import TOKEN, Dashboards, listening, serving

EVIL = b"<script>fetch('/user/x/api/contents', {credentials: 'same-origin'})</script>"


class Stranger:
    """Another user's process: what reached it, and the scheduler, if any, that it passes questions on to."""

    def __init__(self, behind: int | None) -> None:
        self.behind, self.port = behind, 0
        self.got: list[str] = []


class _Page(RequestHandler):
    def initialize(self, stranger: Stranger) -> None:
        self.stranger = stranger

    def get(self, path: str) -> None:
        request, stranger = self.request, self.stranger
        stranger.got.append(f"{request.method} {request.uri} {dict(request.headers)} {request.body.decode()}")
        if path.startswith("dqlab/") and stranger.behind is not None:
            connection = http.client.HTTPConnection("127.0.0.1", stranger.behind, timeout=10)
            headers = {name: request.headers[name] for name in (NONCE, PROOF) if name in request.headers}
            connection.request(str(request.method), str(request.uri), request.body, headers)
            answer = connection.getresponse()
            self.set_status(answer.status)
            self.set_header(PROOF, answer.headers.get(PROOF, ""))
            self.finish(answer.read())
            connection.close()
        elif path.startswith("dqlab/"):
            said = {"scheduler_id": "Scheduler-1", "at": ["127.0.0.1", stranger.port], "anywhere": True}
            self.set_header("Content-Type", "application/json")
            self.set_header(PROOF, "0" * 64)
            self.finish(json.dumps({**said, "machine": machine(), "challenge": "0" * 32}))
        else:
            self.finish(EVIL)

    post = get


class _Socket(WebSocketHandler):
    def initialize(self, stranger: Stranger) -> None:
        self.stranger = stranger

    def check_origin(self, origin: str) -> bool:
        return True

    def open(self, *args: Any) -> None:
        self.write_message(EVIL, binary=True)

    def on_message(self, message: str | bytes) -> None:
        self.stranger.got.append(f"websocket {message!r}")


@contextmanager
def stranger_at(address: str = "127.0.0.1", behind: int | None = None) -> Iterator[Stranger]:
    """Have a stranger listen."""
    given = {"stranger": (stranger := Stranger(behind))}
    with listening([(r"/\w+/ws", _Socket, given), (r"/(.*)", _Page, given)], address) as stranger.port:
        yield stranger


def websocket(jupyter: Jupyter, path: str) -> int:
    """Return the status with which a websocket is refused."""

    async def connect() -> int:
        request = HTTPRequest(
            f"ws://127.0.0.1:{jupyter.port}{BASE}{path}", headers={"Cookie": jupyter.cookie}, request_timeout=10
        )
        try:
            await websocket_connect(request)
        except HTTPClientError as error:
            return error.code
        raise AssertionError("it opened")

    return asyncio.run(connect())


def check_nothing_comes_through(jupyter: Jupyter, id: str, state: str) -> None:
    """Try everything that asks a service."""
    rows = {row["id"]: row for row in jupyter("GET", "dq/api/services").said["services"]}
    assert rows[id]["state"] == state
    for path in (f"dq/dashboard/{id}/status", f"dq/dashboard/{id}/individual-dq-depth?theme=dark"):
        answer = jupyter("GET", path)
        assert answer.status == 502
        assert b"<script>" not in answer.body
    assert websocket(jupyter, f"dq/dashboard/{id}/status/ws") == 502
    for call in ("snapshot", "history", "failures", "panels"):
        assert jupyter("GET", f"dq/api/services/{id}/{call}").said["error"] == "ServiceSilent"
    answer = jupyter("POST", f"dq/api/services/{id}/actions", body={"action": "cancel", "queue": "q", "run": "r"})
    assert answer.said["error"] == "ServiceSilent"


def test_stranger_at_the_port_of_an_ended_scheduler_is_not_shown(jupyter: Jupyter, papers: Announcement) -> None:
    """A scheduler that was connected to by address is announced for days; its port, often 8787, is anybody's then."""
    with stranger_at() as stranger:
        ended = replace(papers, id="ended", dashboard=f"http://127.0.0.1:{stranger.port}", embedded=False)
        with jupyter.announced(ended):
            check_nothing_comes_through(jupyter, "ended", "silent")
    assert stranger.got, "it was asked who it is"
    assert TOKEN not in str(stranger.got)
    assert "cancel" not in str(stranger.got), "an action is sent to nobody who has not proved to be the scheduler"


def test_stranger_who_asks_the_real_scheduler_is_not_shown(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards
) -> None:
    """On a login node others can listen at the machine's address, and reach what listens at 127.0.0.1."""
    with stranger_at("127.0.0.2", behind=dashboards.port) as stranger:
        between = replace(papers, id="between", dashboard=f"http://127.0.0.2:{stranger.port}", embedded=False)
        with jupyter.announced(between):
            check_nothing_comes_through(jupyter, "between", "silent")
    assert any(path == "/dqlab/api/service" for _, path, _, _ in dashboards.asked), "it did pass the question on"
    assert {path for _, path, _, _ in dashboards.asked} == {"/dqlab/api/service"}
    assert TOKEN not in str(stranger.got)


def test_loopback_of_another_host_is_not_asked(jupyter: Jupyter, papers: Announcement) -> None:
    """With a home directory on several hosts, 127.0.0.1 of login1 is announced, and means another port here."""
    with stranger_at() as stranger:
        there = replace(
            papers,
            id="there",
            dashboard=f"http://127.0.0.1:{stranger.port}",
            dashboard_host="login1",
            host="login1",
        )
        with jupyter.announced(there):
            check_nothing_comes_through(jupyter, "there", "unreachable")
            rows = {row["id"]: row for row in jupyter("GET", "dq/api/services").said["services"]}
            for sentence in (rows["there"]["why"], jupyter("GET", "dq/dashboard/there/status").body.decode()):
                assert "its dashboard listens on login1 alone" in sentence
                assert "Open JupyterLab on login1, or start the scheduler with a --dashboard-address" in sentence
    assert stranger.got == []


def test_service_behind_a_tunnel_is_shown(jupyter: Jupyter, papers: Announcement) -> None:
    """With `ssh -L`, or a container's published port, the address here is not the one that the scheduler knows."""
    with serving() as there:
        there.machine, there.at = "head", ["127.0.0.1", 8787]
        service = replace(papers, id="head", dashboard=f"http://127.0.0.1:{there.port}", embedded=False)
        with jupyter.announced(replace(service, tunnel=True)):
            assert jupyter("GET", "dq/dashboard/head/status").status == 200
        with jupyter.announced(service):
            assert jupyter("GET", "dq/dashboard/head/status").status == 502


@pytest.mark.cluster
def test_address_is_announced_that_the_dashboard_is_bound_to(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes bind it to 127.0.0.1, and the scheduler's own address, where anybody may listen, is another one."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    options = {"processes": False, "host": "127.0.0.2", "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, **options) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        with pytest.warns(UserWarning, match="too few workers"):
            lab = dq.connect(client, name="bound")
        (found,) = clusters_here.announced(tmp_path)
        assert found.scheduler.startswith("tcp://127.0.0.2:")
        assert found.dashboard == f"http://127.0.0.1:{lab.session.http['port']}"
        assert found.dashboard_host == socket.gethostname()
        lab.close()
        assert clusters_here.announced(tmp_path) == [], "connected to by address: withdrawn when it is closed"
