"""What may be requested of a dashboard through Jupyter, and what is forwarded of a request and a response. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, urljoin, urlsplit

__all__ = ["Trick", "answer_headers", "location", "query", "request_headers", "upstream_path"]

ASKED = ("Accept", "Accept-Language", "Cache-Control", "If-Modified-Since", "If-None-Match", "Pragma", "Range")
"""Request headers that are forwarded: no cookie, no authorization, no encoding."""
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
"""First parts of paths that are not for browsers: the control route, and Dask's own proxy to other addresses."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f%\\#?]")


class Trick(ValueError):
    """A path that could lead outside the pages of the dashboard."""


def upstream_path(raw: str) -> str:
    """Return the path of a dashboard's page for the upstream request; `raw` is as the browser sent it.

    Raises
    ------
    Trick
        It has parts that go up or are empty, disguised slashes or escapes, or leads to a closed path.
    """
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


def request_headers(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the request headers to forward."""
    return {name: value for name, value in given if name.title() in ASKED}


def query(raw: str) -> str:
    """Return the query to forward, with its question mark: everything but the token that opens Jupyter."""
    kept = [part for part in raw.split("&") if part and unquote(part.partition("=")[0]).lower() != "token"]
    return f"?{'&'.join(kept)}" if kept else ""


def answer_headers(given: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the response headers to forward."""
    return [(name, value) for name, value in given if name.title() in ANSWERED]


def location(said: str, asked: str, dashboard: str, base: str) -> str | None:
    """Return the redirect target, below Jupyter's address; None when it is not on the dashboard.

    Parameters
    ----------
    said : str
        The header Location.
    asked : str
        URL of the request.
    dashboard : str
        URL of the dashboard, without a slash at its end.
    base : str
        The URL that stands for it in Jupyter, likewise.
    """
    at, home = urlsplit(urljoin(asked, said)), urlsplit(dashboard)
    if (at.scheme, at.netloc) != (home.scheme, home.netloc):
        return None
    try:
        path = upstream_path(at.path.lstrip("/"))
    except Trick:
        return None
    query = f"?{at.query}" if at.query else ""
    return f"{base}/{path}{query}"
