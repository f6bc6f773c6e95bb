"""A dashboard below Jupyter's address: only services, only reading, and nothing of the user goes along."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, websocket_connect

import dqlab as dq
from dqlab import clusters_here
from dqlab.clusters_here import Announcement
from dqlab.jupyter.server.proxy import Trick, framed, query, upstream_path
from dqlab.jupyter.server.services import LARGEST
from tests.jupyter.server.conftest import BASE, LOGIN, Jupyter
from tests.jupyter.server.dashboards import Dashboards

HERE = "dq/dashboard/papers"


# --- pages ----------------------------------------------------------------------------------


def test_pages_are_shown(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """With what a browser needs to keep them; and nothing else of the other server's."""
    answer = jupyter("GET", f"{HERE}/individual-dq-depth?theme=dark&token={LOGIN}&queue=a%20b")
    assert (answer.status, answer.body) == (200, b"<p>page individual-dq-depth</p>")
    assert answer.headers["Cache-Control"] == "max-age=31536000"
    assert "theirs" not in str(answer.headers)
    assert "X-Powered-By" not in answer.headers
    assert dashboards.pages[-1][:3] == ("GET", "/individual-dq-depth", "theme=dark&queue=a%20b")

    again = jupyter("GET", f"{HERE}/individual-dq-depth", If_None_Match=answer.headers["Etag"])
    assert (again.status, again.body) == (304, b"")
    head = jupyter("HEAD", f"{HERE}/status")
    assert (head.status, head.body, head.headers["Content-Length"]) == (200, b"", str(len(b"<p>page status</p>")))


@pytest.mark.parametrize("path", [f"{HERE}/status", "dq/dashboard/none-such/status", f"{HERE}/a%2fb"])
def test_jupyters_own_pages_may_frame_a_dashboard_on_a_hub(jupyter: Jupyter, papers: Announcement, path: str) -> None:
    """A hub forbids frames to its users' servers; each panel's tab, and what it says in place of one, was blocked."""
    assert jupyter("GET", path).headers.get_all("Content-Security-Policy") == ["frame-ancestors 'self'"]
    assert jupyter("GET", "dq/services").headers["Content-Security-Policy"].startswith("frame-ancestors 'none'")


@pytest.mark.parametrize(
    ("policy", "ours"),
    [
        ("report-uri /frame-ancestors;Frame-Ancestors 'NONE'", "report-uri /frame-ancestors;frame-ancestors 'self'"),
        ("img-src *; frame-ancestors https://a.example", "img-src *; frame-ancestors 'self' https://a.example"),
        ("frame-ancestors 'self' https://a.example:*", "frame-ancestors 'self' https://a.example:*"),
        ("frame-ancestors 'none', frame-ancestors", "frame-ancestors 'self', frame-ancestors 'self'"),
        ("default-src 'none'", "default-src 'none'"),
    ],
)
def test_the_rest_of_a_policy_stays(policy: str, ours: str) -> None:
    """Administrators set it: a portal that shows JupyterLab in a frame shows the dashboards in it, too."""
    assert framed(policy) == ours


def test_nothing_of_the_user_goes_along(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """The dashboard's process must not become this user."""
    jupyter("GET", f"{HERE}/status", login="cookie", Cookie="_xsrf=aabb", Accept_Encoding="gzip", X_Secret="s")
    jupyter("GET", f"{HERE}/status", Proxy_Authorization="x", X_Forwarded_For="1.2.3.4", Te="trailers", Accept="text/*")
    for _, _, _, headers in dashboards.pages:
        assert set(headers) <= {"Host", "Connection", "User-Agent", "Accept"}
        assert headers["Host"] == f"127.0.0.1:{dashboards.port}"
    assert dashboards.pages[-1][3]["Accept"] == "text/*"


TRICKS = [
    "..",
    "../../api/status",
    "a/../b",
    "%2e%2e/x",
    "a/%2E%2e/b",
    "./a",
    "a/%2e",
    "a%2fb",
    "a%2Fb",
    "..%2f..",
    "a%5cb",
    "a\\b",
    "/evil.example/x",
    "//evil.example/x",
    "a//b",
    "http://evil.example/",
    "%252e%252e/x",
    "a%00b",
    "a%0d%0ab",
    "a%20b",
    "a%3fb",
    "a%23b",
    "a%ff",
    "dqlab/api/snapshot",
    "DQLAB/api/snapshot",
    "%64qlab/api/snapshot",
    "proxy/22/127.0.0.1/",
]


@pytest.mark.parametrize("path", TRICKS)
def test_paths_lead_to_pages_alone(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards, path: str) -> None:
    """A crafted link must not reach anything but a page of the dashboard."""
    with pytest.raises(Trick):
        upstream_path(path)
    if "\\" not in path:
        assert jupyter("GET", f"{HERE}/{path}").status in (400, 404)
    assert dashboards.asked == []


def test_only_services_are_reached(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """An address is no service, whatever it is called."""
    for id in ("none-such", "127.0.0.1", "..", f"127.0.0.1:{dashboards.port}", "papers%2f..%2fx", "dq-papers.json"):
        assert jupyter("GET", f"dq/dashboard/{id}/status").status in (400, 404)
    assert dashboards.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_dashboards_are_only_read(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards, method: str) -> None:
    """Dask's HTTP server can retire workers; not through here."""
    assert jupyter(method, f"{HERE}/api/v1/retire_workers", body=b"{}").status in (204, 405)
    assert dashboards.asked == []


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("/status", f"{BASE}{HERE}/status"),
        ("status?x=1", f"{BASE}{HERE}/status?x=1"),
        ("http://127.0.0.1:PORT/tasks", f"{BASE}{HERE}/tasks"),
        ("http://evil.example/", None),
        ("//evil.example/status", None),
        ("http://127.0.0.1:PORT/dqlab/api/snapshot", None),
        ("javascript:alert(1)", None),
    ],
)
def test_redirections_stay_below_jupyter(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards, to: str, expected: str | None
) -> None:
    """The port of a dashboard is of no use to a browser elsewhere, and other hosts are none of its business."""
    answer = jupyter("GET", f"{HERE}/away?to={to.replace('PORT', str(dashboards.port))}")
    assert (answer.status, answer.headers.get("Location")) == ((302, expected) if expected else (502, None))


def test_address_without_a_page_leads_to_the_first(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards
) -> None:
    """Relative addresses of a page need the slash."""
    answer = jupyter("GET", HERE)
    assert (answer.status, answer.headers["Location"]) == (302, f"{BASE}{HERE}/")


def test_page_of_a_silent_service_tries_again_by_itself(jupyter: Jupyter, papers: Announcement) -> None:
    """A tab that was open over night shows what is true, in its theme, and heals."""
    silent = replace(papers, id="silent", name="<b>pa&pers", dashboard="http://127.0.0.1:1")
    with jupyter.announced(silent):
        answer = jupyter("GET", "dq/dashboard/silent/dq?theme=dark")
    text = answer.body.decode()
    assert answer.status == 502
    assert answer.headers["Content-Type"].startswith("text/html")
    assert re.search(r"No answer from &lt;b&gt;pa&amp;pers since \d\d:\d\d:\d\d\.", text)
    assert 'http-equiv="refresh"' in text
    assert "color-scheme: dark" in text
    with jupyter.announced(replace(silent, pid=2**22 + 1)):
        assert "has ended" in jupyter("GET", "dq/dashboard/silent/dq").body.decode()
    assert "color-scheme: light" in jupyter("GET", "dq/dashboard/none-such/dq").body.decode()


@pytest.mark.parametrize(
    ("raw", "kept"),
    [("", ""), ("token=t", ""), ("a=1&token=t&b=%20", "?a=1&b=%20"), ("%74oken=t", ""), ("tokens=1", "?tokens=1")],
)
def test_token_of_jupyter_is_left_out_of_queries(raw: str, kept: str) -> None:
    """A link with the token in it opens Jupyter; nobody else is to know it."""
    assert query(raw) == kept


# --- websockets -----------------------------------------------------------------------------


def talk(
    jupyter: Jupyter,
    conversation: Callable[[WebSocketClientConnection], Awaitable[None]],
    path: str = f"{HERE}/status/ws",
    protocols: tuple[str, ...] = ("bokeh", "session-token"),
    **headers: str,
) -> None:
    """Open a websocket as a browser does that is logged in by its cookie."""

    async def connected() -> None:
        sent = {"Cookie": jupyter.cookie, **headers}
        request = HTTPRequest(f"ws://127.0.0.1:{jupyter.port}{BASE}{path}", headers=sent, request_timeout=10)
        socket = await websocket_connect(request, subprotocols=list(protocols), max_message_size=2 * LARGEST)
        stream: Any = socket.protocol.stream
        try:
            async with asyncio.timeout(20):
                await conversation(socket)
        finally:
            socket.close()
            stream.close()  # or it is closed when this loop has ended

    asyncio.run(connected())


def test_websockets_pass_both_ways(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """Texts as texts and bytes as bytes; Bokeh's session token is its second protocol."""

    async def conversation(socket: WebSocketClientConnection) -> None:
        assert socket.selected_subprotocol == "bokeh"
        for message in ("text", b"\x00bytes", "文書", bytes(12 << 20)):
            await socket.write_message(message, binary=isinstance(message, bytes))
            assert await socket.read_message() == message

    talk(jupyter, conversation, Origin=f"http://127.0.0.1:{jupyter.port}")
    _, path, protocols, headers = dashboards.pages[-1]
    assert (path, protocols) == ("/status/ws", "bokeh,session-token")
    assert headers["Origin"] == f"http://127.0.0.1:{dashboards.port}"
    assert not {"Cookie", "Authorization"} & set(headers)
    assert dashboards.closed.wait(10)


def test_dashboard_that_closes_closes_the_browsers_side(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards
) -> None:
    """Bokeh then says in the page that the connection is lost."""

    async def conversation(socket: WebSocketClientConnection) -> None:
        await socket.write_message("leave")
        assert await socket.read_message() is None

    talk(jupyter, conversation)


def test_too_large_a_message_ends_its_websocket(jupyter: Jupyter, papers: Announcement, dashboards: Dashboards) -> None:
    """In either direction, and no other."""

    async def asked_for(socket: WebSocketClientConnection) -> None:
        await socket.write_message("too much")
        assert await socket.read_message() is None

    async def sent(socket: WebSocketClientConnection) -> None:
        with suppress(WebSocketClosedError, StreamClosedError):
            await socket.write_message(bytes(LARGEST + 1), binary=True)
        assert await socket.read_message() is None

    talk(jupyter, asked_for)
    talk(jupyter, sent)
    assert dashboards.messages == ["too much"]
    assert jupyter("GET", f"{HERE}/status").status == 200


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"Cookie": ""}, f"{HERE}/status/ws", 403),
        ({"Cookie": "", "Authorization": "Bearer x"}, f"{HERE}/status/ws", 403),
        ({"Origin": "http://evil.example"}, f"{HERE}/status/ws", 403),
        ({"Origin": "null"}, f"{HERE}/status/ws", 403),
        ({}, "dq/dashboard/none-such/status/ws", 404),
        ({}, f"{HERE}/dqlab/api/ws", 400),
        ({}, f"{HERE}/a/%2e%2e/ws", 400),
        ({}, f"{HERE}/no/websocket", 502),
    ],
)
def test_websockets_are_refused_before_they_open(
    jupyter: Jupyter, papers: Announcement, dashboards: Dashboards, headers: dict[str, str], path: str, status: int
) -> None:
    """Other pages can open websockets with this user's cookies: browsers do not ask."""

    async def never(socket: WebSocketClientConnection) -> None:
        raise AssertionError("it opened")

    with pytest.raises(HTTPClientError) as raised:
        talk(jupyter, never, path, **headers)
    assert raised.value.code == status
    assert dashboards.messages == []


def test_panel_of_a_real_lab_is_live(jupyter: Jupyter, lab: dq.Lab) -> None:
    """Bokeh's page, its scripts, and its session, below Jupyter."""
    pytest.importorskip("bokeh", reason="the extra `lab` is not installed")
    place = clusters_here.directory()
    assert place is not None
    (service,) = [found for found in clusters_here.announced(place) if found.token == lab.session.token]
    here = f"dq/dashboard/{service.id}"
    with jupyter.announced(service):
        page = jupyter("GET", f"{here}/individual-dq-depth?theme=dark")
        if page.status == 302:  # the first page makes the dashboard, and is asked for again
            assert page.headers["Location"].endswith(f"{here}/individual-dq-depth?theme=dark")
            page = jupyter("GET", f"{here}/individual-dq-depth?theme=dark")
        assert page.status == 200
        token = re.search(r'"token":\s*"([^"]+)"', page.body.decode())
        assert token is not None
        script = re.search(r'src="(static/js/bokeh\.min\.js\?v=\w+)"', page.body.decode())
        assert script is not None
        fetched = jupyter("GET", f"{here}/{script[1]}")
        assert (fetched.status, len(fetched.body) > 500_000) == (200, True)
        assert "javascript" in fetched.headers["Content-Type"]

        async def conversation(socket: WebSocketClientConnection) -> None:
            said: Any = await socket.read_message()
            assert '"msgtype":"ACK"' in said.replace(" ", "")

        talk(jupyter, conversation, f"{here}/individual-dq-depth/ws", ("bokeh", token[1]))
