"""A service's dashboard below Jupyter's own address: read-only, for logged-in users, and for services only.

A response is shown only after its sender has proved that it is the service, because a page has Jupyter's origin. Pure
functions decide what may be requested, and what is forwarded of a request and a response.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from html import escape
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado import web
from tornado.httpclient import HTTPError, HTTPRequest
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketError,
    WebSocketHandler,
    websocket_connect,
)

from dqlab.jupyter.server.services import LARGEST, Handler, Refused, ServiceSilent
from dqlab.numbers import clock

ASKED = ("Accept", "Accept-Language", "Cache-Control", "If-Modified-Since", "If-None-Match", "Pragma", "Range")
"""Request headers that are forwarded: a dashboard must not get cookies or authorizations of Jupyter."""
ANSWERED = (
    "Accept-Ranges",
    "Cache-Control",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Language",
    "Content-Range",
    "Content-Type",
    "Etag",
    "Expires",
    "Last-Modified",
    "Retry-After",
    "Vary",
)
_CLOSED = ("dqlab", "proxy")
"""First parts of paths that browsers may not open: the control route, and Dask's own proxy to other addresses."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f%\\#?]")


class Trick(ValueError):
    """A path that could lead outside the pages of the dashboard."""


def upstream_path(raw: str) -> str:
    """Return the upstream path for a path as the browser sent it, or raise `Trick`."""
    # Split before unquoting, and quoted again from the parts: an escaped slash or dot must not mean another path to the
    # dashboard than it did here.
    try:
        parts = [unquote(part, errors="strict") for part in raw.split("/")]
    except UnicodeDecodeError:
        raise Trick(raw) from None
    for at, part in enumerate(parts):
        empty = not part and at < len(parts) - 1
        if empty or part in (".", "..") or "/" in part or _UNSAFE.search(part):
            raise Trick(raw)
    if parts[0].lower() in _CLOSED:
        raise Trick(raw)
    return "/".join(quote(part, safe="~:@!$&'()*+,;=") for part in parts)


def query(raw: str) -> str:
    """Return the query to forward, with its question mark and without the token that opens Jupyter."""
    kept = [part for part in raw.split("&") if part and unquote(part.partition("=")[0]).lower() != "token"]
    return f"?{'&'.join(kept)}" if kept else ""


def location(said: str, asked: str, dashboard: str, base: str) -> str | None:
    """Return a redirect's target below Jupyter's address, or None for one that leaves the dashboard."""
    at, home = urlsplit(urljoin(asked, said)), urlsplit(dashboard)
    if (at.scheme, at.netloc) != (home.scheme, home.netloc):
        return None
    try:
        path = upstream_path(at.path.lstrip("/"))
    except Trick:
        return None
    query = f"?{at.query}" if at.query else ""
    return f"{base}/{path}{query}"


def framed(policy: str) -> str:
    """Return a content security policy that also allows pages of its own origin to frame the response."""
    ours = "frame-ancestors 'self'"
    return re.sub(r"(?<![^;,\s])frame-ancestors\b(\s+'(none|self)')*", ours, policy, flags=re.IGNORECASE)


EVERY = 5
"""Seconds between two attempts."""
_PAGE = """<!DOCTYPE html>
<html lang="en" style="color-scheme: {theme}"><head><meta charset="utf-8"><title>{title}</title>{again}</head>
<body style="font: 13px system-ui, sans-serif; text-align: center; margin-top: 30vh">
<main role="alert"><p>{sentence}</p>{retry}</main></body></html>
"""


def waiting(sentence: str, *, theme: str, again: bool = True) -> str:
    """Return a page that explains why there is nothing to see, and with `again` retries by itself."""
    return _PAGE.format(
        title=escape(sentence[:60]),
        sentence=escape(sentence),
        again=f'<meta http-equiv="refresh" content="{EVERY}">' if again else "",
        retry='<p><a href="">Retry</a></p>' if again else "",
        theme="dark" if theme == "dark" else "light",
    )


WAIT = 30.0
CONNECT_FOR = 5.0
"""Timeout in seconds for a page, and for opening a websocket."""
PING_EVERY = 30.0
"""Seconds between two pings to the browser, so that no proxy in between closes an idle websocket."""


class Dashboard(WebSocketHandler, Handler):
    """Pages of a dashboard for GET, HEAD and websockets."""

    ping_interval = PING_EVERY
    _upstream: WebSocketClientConnection | None = None
    _pump: asyncio.Task[None] | None = None

    @property
    def max_message_size(self) -> int:
        """Most bytes of one message of a websocket."""
        return LARGEST

    @property
    def content_security_policy(self) -> str:
        """The server's policy, which on a JupyterHub allows no frames, and dashboards are frames in JupyterLab."""
        return framed(super().content_security_policy)

    async def prepare(self) -> None:  # type: ignore[override]
        """Authenticate the user."""
        await JupyterHandler.prepare(self, _redirect_to_login=False)  # a frame must not show a login page

    def check_origin(self, origin: str = "") -> bool:
        """Allow the origins that Jupyter allows, which are its own pages and those configured."""
        return bool(JupyterHandler.check_origin(self, origin))

    def get_login_url(self) -> str:
        """Refuse, since the login page must not be shown in place of a dashboard."""
        raise web.HTTPError(403)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Select the first protocol, since Bokeh's second one is a token of its session."""
        return subprotocols[0] if subprotocols else None

    def compute_etag(self) -> str | None:
        """Leave the dashboard's own tags as they are."""
        return None

    @web.authenticated
    @authorized
    async def head(self, id: str, path: str | None = None) -> None:
        """Respond as to GET, without the contents."""
        await self._show(id)

    # Authorized below, by what it does: a page is read, and its websocket, which can change the page, is executed.
    @web.authenticated
    async def get(self, id: str, path: str | None = None) -> None:  # type: ignore[override]
        """Show a page, or open a websocket to one."""
        if self.request.headers.get("Upgrade", "").lower() == "websocket":
            await self._open(id, path)
        else:
            await self._read(id)

    @authorized
    async def _read(self, id: str) -> None:
        await self._show(id)

    @authorized("execute")  # type: ignore[untyped-decorator]
    async def _open(self, id: str, path: str | None) -> None:
        """Open a websocket to the dashboard, and then the one to the browser."""
        if not self.check_origin():
            raise web.HTTPError(403)
        # Upstream first: a silent dashboard is then an error to the browser, and not a websocket that closes.
        try:
            service = self.services.living(id)
        except Refused as error:
            raise web.HTTPError(404, str(error)) from None
        except ServiceSilent as error:
            self.explain()
            raise web.HTTPError(502, str(error)) from None
        url = f"{service.dashboard}/{self._path()}".replace("http", "ws", 1) + query(self.request.query)
        spoken = [each.strip() for each in self.request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        request = HTTPRequest(url, headers={"Origin": service.dashboard}, request_timeout=CONNECT_FOR)
        try:
            async with asyncio.timeout(CONNECT_FOR):
                self._upstream = await websocket_connect(
                    request, subprotocols=[each for each in spoken if each], max_message_size=LARGEST
                )
                await self.services.upstream.prove(service, wait=CONNECT_FOR)  # after connecting, see `services`
        except (OSError, TimeoutError, HTTPError, WebSocketError, ServiceSilent, Refused):
            if self._upstream is not None:
                self._upstream.close()
            self.explain()
            raise web.HTTPError(502) from None
        try:
            await WebSocketHandler.get(self, id, path)
        finally:
            if self.ws_connection is None:  # the browser left, or did not ask for a websocket after all
                self._upstream.close()

    # --- pages ------------------------------------------------------------------------------

    async def _show(self, id: str) -> None:
        theme, base = self.get_query_argument("theme", ""), f"{self.base_url}dq/dashboard/{id}"
        try:
            service, path = self.services.find(id), self._path()
        except Refused as error:
            self._say(404, str(error), theme, again=True)
            return
        if self.request.path == base:
            self.redirect(f"{base}/{query(self.request.query)}")
            return
        if service.unreachable or service.ended:
            self.explain()
        if service.unreachable:
            self._say(502, f"{service.name} cannot be shown here: {service.unreachable}.", theme, again=False)
            return
        if service.ended:
            ended = f"{service.name} has ended; it answered last at {clock(self.services.since(service))}."
            self._say(502, ended, theme, again=True)
            return
        url = f"{service.dashboard}/{path}{query(self.request.query)}"
        headers = {name: value for name, value in self.request.headers.get_all() if name.title() in ASKED}
        try:
            method = str(self.request.method)
            answer = await self.services.upstream.fetch(service, url, wait=WAIT, method=method, headers=headers)
        except ServiceSilent as error:
            self.explain()
            since = f"No answer from {service.name} since {clock(self.services.since(service))}."
            self._say(504 if error.late else 502, since, theme, again=True)
            return
        try:
            await self.services.upstream.prove(service, wait=WAIT)
        except (ServiceSilent, Refused) as error:
            self.explain()
            self._say(502, f"Not shown: {error}", theme, again=True)
            return
        self.set_status(answer.code, answer.reason)
        self.clear_header("Content-Type")
        for name in filter(answer.headers.__contains__, ANSWERED):
            self.set_header(name, answer.headers[name])
        sent = location(answer.headers.get("Location", ""), url, service.dashboard, base)
        if "Location" in answer.headers:
            if sent is None:
                self._say(502, f"{service.name} points to another address; that is not followed.", theme, again=False)
                return
            self.set_header("Location", sent)
        if self.request.method == "HEAD" and "Content-Length" in answer.headers:
            self.set_header("Content-Length", answer.headers["Content-Length"])
        self.finish(answer.body if answer.code not in (204, 304) else None)

    def _say(self, status: int, sentence: str, theme: str, *, again: bool) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(waiting(sentence, theme=theme, again=again))

    def _path(self) -> str:
        """Return the upstream path of the requested page, or raise `HTTPError`."""
        _, _, raw = self.request.path.partition("/dq/dashboard/")  # raw: the route's own group is unquoted
        try:
            return upstream_path(raw.partition("/")[2])
        except Trick:
            raise web.HTTPError(400, "not a page of a dashboard") from None

    # --- websockets -------------------------------------------------------------------------

    def open(self, *args: Any, **kwargs: Any) -> None:
        """Start forwarding messages."""
        self._pump = asyncio.get_running_loop().create_task(self._pass_on(), name="dqlab-proxy")

    async def on_message(self, message: str | bytes) -> None:
        """Forward a message to the dashboard."""
        if self._upstream is not None:
            with suppress(WebSocketClosedError):
                await self._upstream.write_message(message, binary=isinstance(message, bytes))

    async def _pass_on(self) -> None:
        """Forward messages to the browser until either side closes."""
        upstream = self._upstream
        assert upstream is not None, "opened before the browser's side"
        with suppress(WebSocketClosedError):
            while (message := await upstream.read_message()) is not None:
                await self.write_message(message, binary=isinstance(message, bytes))
        self.close()

    def on_close(self) -> None:
        """Close the upstream side when the browser closes."""
        if self._upstream is not None:
            self._upstream.close()
        super().on_close()
