"""What may be asked of a dashboard through Jupyter, and what is passed on of a request and an answer. Pure rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, urljoin, urlsplit

__all__ = ["Trick", "answer_headers", "location", "query", "request_headers", "upstream_path"]

ASKED = ("Accept", "Accept-Language", "Cache-Control", "If-Modified-Since", "If-None-Match", "Pragma", "Range")
"""What is passed on of a request: no cookie, no authorization, no encoding."""
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
    """A path that could lead elsewhere than to a page of the dashboard."""


def upstream_path(raw: str) -> str:
    """Return the path of a dashboard's page, as it is to be asked for; `raw` is as the browser sent it.

    Raises
    ------
    Trick
        It has parts that go up or are empty, slashes or escapes in disguise, or leads to what is closed.
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
    """Return those headers of a request that are passed on."""
    return {name: value for name, value in given if name.title() in ASKED}


def query(raw: str) -> str:
    """Return what of a query is passed on, with its question mark: all but the token that opens Jupyter."""
    kept = [part for part in raw.split("&") if part and unquote(part.partition("=")[0]).lower() != "token"]
    return f"?{'&'.join(kept)}" if kept else ""


def answer_headers(given: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those headers of an answer that are passed on."""
    return [(name, value) for name, value in given if name.title() in ANSWERED]


def location(said: str, asked: str, dashboard: str, base: str) -> str | None:
    """Return where an answer sends the browser to, below Jupyter's address; None when that is not the dashboard.

    Parameters
    ----------
    said : str
        The header Location.
    asked : str
        URL that it answers.
    dashboard : str
        URL of the dashboard, without a slash at its end.
    base : str
        What stands for it in Jupyter, likewise.
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
