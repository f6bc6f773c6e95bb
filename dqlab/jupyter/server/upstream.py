"""Asking a service: over HTTP, with its token, each time with a limit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.httputil import url_concat
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

from dqlab.announce import Announcement
from dqlab.sentence import DqlabError

__all__ = ["LARGEST", "NoAnswer", "Refused", "Upstream"]

LARGEST = 64 << 20
"""Bytes of an answer, or of one message of a websocket."""
AT_ONCE = 64
"""Requests under way; others wait for their turn."""
CONNECT_FOR = 3.0


class NoAnswer(DqlabError):
    """A service does not answer, or not as one; `late` when its time was over."""

    text = (
        "service {service!r} does not answer: {reason}. Its runs go on without this view, if its cluster still runs. "
        "Try again; dq.connect() in a notebook announces it anew."
    )


class Refused(Exception):
    """A service answered that it will not: with its status, and {error, message}."""

    def __init__(self, status: int, said: Mapping[str, Any]) -> None:
        super().__init__(said["message"])
        self.status, self.said = status, said


class Upstream:
    """Requests to services. Made once for each server; nothing is sent through a proxy of the environment."""

    def __init__(self) -> None:
        self._client: SimpleAsyncHTTPClient | None = None

    async def fetch(
        self,
        service: Announcement,
        url: str,
        *,
        wait: float,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HTTPResponse:
        """Return an answer as it came, whatever its status; redirections are not followed, nothing is unpacked.

        Raises
        ------
        NoAnswer
            There is none within `wait` seconds, or it is too large.
        """
        if self._client is None:
            self._client = SimpleAsyncHTTPClient(
                force_instance=True, max_clients=AT_ONCE, max_buffer_size=LARGEST, max_body_size=LARGEST
            )
        request = HTTPRequest(
            url,
            method=method,
            headers=dict(headers or {}),
            body=body,
            connect_timeout=min(wait, CONNECT_FOR),
            request_timeout=wait,
            follow_redirects=False,
            decompress_response=False,
        )
        try:
            return await self._client.fetch(request, raise_error=False)
        except HTTPTimeoutError:
            raise NoAnswer(service=service.name, reason=f"nothing within {wait:g} s", late=True) from None
        except (OSError, HTTPError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise NoAnswer(service=service.name, reason=reason, late=False) from error

    async def ask(
        self,
        service: Announcement,
        call: str,
        *,
        wait: float,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> bytes:
        """Ask a service's control route; return its answer, which is JSON. With a body, it is an action.

        Raises
        ------
        NoAnswer
            Nobody there, or somebody else.
        Refused
            It will not.
        """
        url = url_concat(f"{service.dashboard}/dqlab/api/{call}", list((query or {}).items()))
        headers = {"Authorization": f"Bearer {service.token}"}
        method = "POST" if body else "GET"
        answer = await self.fetch(service, url, wait=wait, method=method, headers=headers, body=body or None)
        said = answer.body
        if answer.code == 200 and answer.headers.get("Content-Type", "").startswith("application/json"):
            return said
        if answer.code == 403:
            reason = "its scheduler was restarted, or another one is at its address"
            raise NoAnswer(service=service.name, reason=reason, late=False)
        try:
            refusal = json.loads(said)
            raise Refused(answer.code, {"error": str(refusal["error"]), "message": str(refusal["message"])})
        except (ValueError, KeyError, TypeError):
            reason = f"there is no dqlab at {service.dashboard} (status {answer.code})"
            raise NoAnswer(service=service.name, reason=reason, late=False) from None
