"""Calls services over HTTP, with a timeout, and accepts only a process that proves that it has the token.

The token itself is never sent, see `dqlab.proof`. A response or connection is the service's if the process at the same
address proves itself *afterwards*: a scheduler keeps its port until its end, so no other process can have sent it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.httputil import url_concat
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

from dqlab.clusters_here import Announcement
from dqlab.errors import DqlabError
from dqlab.proof import ANSWER, ASK, NONCE, PROOF, mac, misplaced, nonce, same

LARGEST = 64 << 20
"""Most bytes of a response, or of one message of a websocket."""
AT_ONCE = 64
"""Most concurrent requests; others wait."""
CONNECT_FOR = 3.0


class ServiceSilent(DqlabError):
    """A service does not answer, or another process answers in its place."""

    text = (
        "service {service!r} does not answer: {reason}. Its runs go on without this view, if its cluster still runs. "
        "Try again; dq.connect() in a notebook announces it again."
    )


class Refused(Exception):
    """A service refused a request, with a status and {error, message}."""

    def __init__(self, status: int, said: Mapping[str, Any]) -> None:
        super().__init__(said["message"])
        self.status, self.said = status, said


class Upstream:
    """Requests to services, one for each server."""

    def __init__(self) -> None:
        # Tornado's own client, and not the configured one: it ignores proxies of the environment.
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
        """Return a response as received, with any status, or raise `ServiceSilent` after `wait` seconds."""
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
            follow_redirects=False,  # a redirect could lead to any address; `proxy.location` decides
            decompress_response=False,  # a browser gets the bytes as they are
        )
        try:
            return await self._client.fetch(request, raise_error=False)
        except HTTPTimeoutError:
            raise ServiceSilent(service=service.name, reason=f"nothing within {wait:g} s", late=True) from None
        except (OSError, HTTPError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise ServiceSilent(service=service.name, reason=reason, late=False) from error

    async def ask(
        self,
        service: Announcement,
        call: str,
        *,
        wait: float,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> bytes:
        """Return the JSON of a call of a service's control route, which is an action if it has a body."""
        if call == "service":
            return await self._answer(service, call, nonce(), wait)
        challenge = (await self.prove(service, wait=wait))["challenge"]
        return await self._answer(service, call, challenge, wait, query or {}, body)

    async def prove(self, service: Announcement, *, wait: float) -> dict[str, Any]:
        """Make the process at a service's address prove that it is the service's scheduler, and return its reply."""
        said: dict[str, Any] = json.loads(await self._answer(service, "service", nonce(), wait))
        at = urlsplit(service.dashboard)
        port = at.port or (443 if at.scheme == "https" else 80)
        problem = misplaced(said, at.hostname or "", port, tunnel=service.tunnel)
        if not problem and said["scheduler_id"] != service.scheduler_id:
            problem = "its scheduler was restarted"
        if problem:
            raise ServiceSilent(service=service.name, reason=problem, late=False)
        return said

    async def _answer(
        self,
        service: Announcement,
        call: str,
        number: str,
        wait: float,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> bytes:
        """Send a request with a nonce, and return the response once it is proved to be the service's."""
        if service.unreachable:
            raise ServiceSilent(service=service.name, reason=service.unreachable, late=False)
        url = url_concat(f"{service.dashboard}/dqlab/api/{call}", list((query or {}).items()))
        method, asked = "POST" if body else "GET", url.removeprefix(service.dashboard)
        headers = {NONCE: number, PROOF: mac(service.token, ASK, number, method, asked, body=body)}
        answer = await self.fetch(service, url, wait=wait, method=method, headers=headers, body=body or None)
        expected = mac(service.token, ANSWER, number, method, asked, str(answer.code), body=answer.body)
        if not same(answer.headers.get(PROOF, ""), expected):
            reason = (
                f"its scheduler was restarted, or another process is at {service.dashboard} (status {answer.code}, "
                "without a proof that it has the token)"
            )
            raise ServiceSilent(service=service.name, reason=reason, late=False)
        if answer.code == 200:
            return answer.body
        raise Refused(answer.code, json.loads(answer.body))
