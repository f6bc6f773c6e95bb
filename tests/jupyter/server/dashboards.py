"""Something like a scheduler's HTTP server, which notes what reaches it."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

from dqlab.jupyter.server.services import LARGEST
from dqlab.proof import ANSWER, ASK, NONCE, PROOF, Challenges, is_nonce, mac, machine, same

TOKEN = "token-of-the-scheduler"
PLOTS = {"Individual Dq Runs": "/individual-dq-runs", "Individual Progress": "/individual-progress"}


class Dashboards:
    """What was asked of it: (method, path, query, headers), and the messages of websockets."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str, dict[str, str]]] = []
        self.messages: list[str | bytes] = []
        self.closed = threading.Event()
        self.port = 0
        self.scheduler_id = "Scheduler-1"
        self.hanging = False
        self.late = False
        """The dashboard is made at its first page, which is sent to itself again."""
        self.machine = machine()
        self.at: list[Any] | None = None
        self.challenges = Challenges(time.monotonic)

    @property
    def pages(self) -> list[tuple[str, str, str, dict[str, str]]]:
        """What was asked of it, but for who it is."""
        return [asked for asked in self.asked if asked[1] != "/dqlab/api/service"]


class _Noted(RequestHandler):
    def initialize(self, dashboards: Dashboards) -> None:
        self.dashboards = dashboards

    def prepare(self) -> None:
        request = self.request
        self.dashboards.asked.append((str(request.method), request.path, request.query, dict(request.headers)))


class _Api(_Noted):
    async def get(self, call: str) -> None:
        if self.dashboards.hanging:
            await asyncio.Event().wait()
        request, number = self.request, self.request.headers.get(NONCE, "")
        asked = str(request.method), str(request.uri)
        proved = same(request.headers.get(PROOF, ""), mac(TOKEN, ASK, number, *asked, body=request.body))
        fresh = is_nonce(number) if call == "service" else self.dashboards.challenges.spend(number)
        if not (proved and fresh):
            self.set_status(403)
            self.finish("{}")
            return
        said: dict[str, Any] = {"call": call, "query": self.request.query, "body": self.request.body.decode()}
        if call == "service":
            said = {
                "scheduler_id": self.dashboards.scheduler_id,
                "at": self.dashboards.at or ["127.0.0.1", self.dashboards.port],
                "anywhere": False,
                "machine": self.dashboards.machine,
                "challenge": self.dashboards.challenges.give(),
            }
        if self.get_query_argument("queue", "") == "none-such":
            self.set_status(404)
            said = {"error": "QueueNotFound", "message": "no queue named 'none-such' here."}
        self.set_header("Content-Type", "application/json; charset=utf-8")
        body = json.dumps(said).encode()
        self.set_header(PROOF, mac(TOKEN, ANSWER, number, *asked, str(self.get_status()), body=body))
        self.finish(body)

    post = get


class _Page(_Noted):
    def get(self, path: str) -> None:
        self.set_header("Set-Cookie", "theirs=1")
        self.set_header("Cache-Control", "max-age=31536000")
        self.set_header("X-Powered-By", "Dask")
        if path == "away":
            self.set_status(302)
            self.set_header("Location", self.get_query_argument("to"))
        elif path == "individual-plots.json" and self.dashboards.late:
            self.dashboards.late = False
            self.redirect("/individual-plots.json")
        elif path == "individual-plots.json":
            self.write(PLOTS)
        elif path == "big":
            for _ in range(LARGEST >> 20):
                self.write(bytes(1 << 20))
            self.write(b"and one more")
        else:
            self.write(f"<p>page {path}</p>")

    head = get


class _Socket(WebSocketHandler):
    max_message_size = 2 * LARGEST

    def initialize(self, dashboards: Dashboards) -> None:
        self.dashboards = dashboards

    def check_origin(self, origin: str) -> bool:
        return origin == f"http://127.0.0.1:{self.dashboards.port}"

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        self.dashboards.asked.append(("WS", self.request.path, ",".join(subprotocols), dict(self.request.headers)))
        return subprotocols[0] if subprotocols else None

    async def on_message(self, message: str | bytes) -> None:
        self.dashboards.messages.append(message)
        if message == "too much":
            await self.write_message(bytes(LARGEST + 1), binary=True)
        elif message == "leave":
            self.close(1001, "gone")
        else:
            await self.write_message(message, binary=isinstance(message, bytes))

    def on_close(self) -> None:
        self.dashboards.closed.set()


@contextmanager
def listening(routes: list[Any], address: str = "127.0.0.1") -> Iterator[int]:
    """Serve in a thread of its own, at any port."""
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, int]] = Future()

    async def serve() -> None:
        sockets = bind_sockets(0, address)
        server = HTTPServer(Application(routes))
        server.add_sockets(sockets)
        ended = asyncio.Event()
        ready.set_result((asyncio.get_running_loop(), ended, sockets[0].getsockname()[1]))
        await ended.wait()
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    loop, ended, port = ready.result(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)


@contextmanager
def serving() -> Iterator[Dashboards]:
    """Serve something like a scheduler's dashboard."""
    given = {"dashboards": (dashboards := Dashboards())}
    with listening(
        [(r"/dqlab/api/(\w+)", _Api, given), (r"/\w+/ws", _Socket, given), (r"/(.*)", _Page, given)]
    ) as port:
        dashboards.port = port
        yield dashboards
