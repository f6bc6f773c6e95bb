"""The announced services of this user, whether they answer, and calls of them over HTTP with a timeout.

Only a process that proves that it has the token is accepted; the token itself is never sent, see `dqlab.proof`. A
response or connection is the service's if the process at the same address proves itself *afterwards*: a scheduler keeps
its port until its end, so no other process can have sent it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jupyter_server.base.handlers import JupyterHandler
from tornado.httpclient import HTTPError, HTTPRequest, HTTPResponse
from tornado.httputil import url_concat
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

from dqlab.clusters_here import Announcement, announced, forget, seen, sweep
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
    """A service, or what is known of it, refuses a request, with a status and {error, message}."""

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


PATIENCE = 1.0
"""Seconds that a service may take to answer a probe."""
REMEMBER = 2.0
"""Seconds for which a probe's outcome stays valid."""
NOTE_EVERY = 60.0
"""Seconds between two notes, in its file, that a service has answered."""
SWEEP_EVERY = 3600.0


@dataclass
class _LastAnswer:
    """The last outcome for one announcement."""

    service: Announcement
    asked: float = -REMEMBER
    """When it was asked, in monotonic seconds."""
    up: bool = False
    last: float = 0.0
    """When it answered, in seconds since 1970, as is `noted`."""
    noted: float = 0.0
    """When its file was last updated."""


class Services:
    """The services announced in Jupyter's runtime directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.upstream = Upstream()
        self._last_answers: dict[str, _LastAnswer] = {}
        self._swept = -SWEEP_EVERY

    def find(self, id: str) -> Announcement:
        """Return a service by its id, or raise `Refused` where there is none."""
        there = {service.id: service for service in announced(self.directory)}
        if id not in there:
            known = ", ".join(there) or "none"
            said = f"no service {id!r} is announced here. There are: {known}. dq.connect() in a notebook announces one."
            raise Refused(404, {"error": "NoSuchService", "message": said})
        return there[id]

    def living(self, id: str) -> Announcement:
        """Return a service by its id, or raise `ServiceSilent` if its process has ended or it is out of reach."""
        service = self.find(id)
        reason = f"process {service.pid} has ended" if service.ended else service.unreachable
        if reason:
            raise ServiceSilent(service=service.name, reason=reason, late=False)
        return service

    async def list(self) -> list[dict[str, Any]]:
        """Return all services and their states for views, and forget those that were silent for too long."""
        now = time.monotonic()
        if now - self._swept >= SWEEP_EVERY:
            self._swept = now
            sweep(self.directory)
        there = announced(self.directory)
        for id in self._last_answers.keys() - {service.id for service in there}:
            del self._last_answers[id]
        states = await asyncio.gather(*map(self.state, there))
        listed = []
        for service, state in zip(there, states, strict=True):
            if state != "up" and time.time() - self.since(service) > service.kept:
                forget(self.directory, service)
            else:
                listed.append(self._about(service, state))
        return listed

    async def state(self, service: Announcement) -> str:
        """Return "up", "silent", "gone" or "unreachable"."""
        if service.ended:
            return "gone"
        if service.unreachable:
            return "unreachable"
        last = self._of(service)
        if time.monotonic() - last.asked >= REMEMBER:
            try:
                await self.upstream.prove(service, wait=PATIENCE)
                self.note_answer(service, answered=True)
            except (ServiceSilent, Refused):
                self.note_answer(service, answered=False)
        return "up" if last.up else "silent"

    def note_answer(self, service: Announcement, *, answered: bool) -> None:
        """Note whether a service has answered now."""
        last = self._of(service)
        last.asked, last.up = time.monotonic(), answered
        if answered:
            last.last = time.time()
            if last.last - last.noted >= NOTE_EVERY:
                last.noted = last.last
                seen(self.directory, service.id, last.last)

    def since(self, service: Announcement) -> float:
        """Return when a service last answered, in seconds since 1970."""
        return self._of(service).last or seen(self.directory, service.id) or service.started

    async def forget(self, id: str) -> None:
        """Forget a service that has ended or does not answer, or raise `Refused`."""
        service = self.find(id)
        self._last_answers.pop(id, None)  # ask again now, without the remembered outcome
        if await self.state(service) == "up":
            said = f"service {service.name!r} answers, so it was kept. Close its lab, lab.close() or %dq close, and it "
            raise Refused(409, {"error": "ServiceUp", "message": f"{said}is gone."})
        forget(self.directory, service)
        self._last_answers.pop(id, None)

    def _of(self, service: Announcement) -> _LastAnswer:
        last = self._last_answers.get(service.id)
        if last is None or last.service != service:  # announced again: what was known is about another process
            last = self._last_answers[service.id] = _LastAnswer(service)
        return last

    def _about(self, service: Announcement, state: str) -> dict[str, Any]:
        # By name, so that no new field reaches browsers by accident: the token must not.
        said = ("id", "name", "where", "scheduler", "embedded", "store", "started", "pid", "host", "kernels")
        why = service.unreachable if state == "unreachable" else ""
        return {
            "state": state,
            "why": why,
            "since": self.since(service),
            **{name: getattr(service, name) for name in said},
        }


READS = ("GET", "HEAD")


class _AtDebug(logging.LoggerAdapter[Any]):
    """Logs everything at level DEBUG."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        super().log(min(level, logging.DEBUG), msg, *args, **kwargs)


class Handler(JupyterHandler):
    """A handler that knows the services."""

    auth_resource = "dqlab"
    explained = False
    """Whether what the user sees says why, so that this request's own line is logged at level DEBUG."""

    def initialize(self, services: Services) -> None:
        """Set the services."""
        self.services = services

    @property
    def log(self) -> Any:
        """Jupyter's logger, at level DEBUG for a request that is explained."""
        log = super().log  # Jupyter writes a request's line with it, which metrics count: it is moved, not dropped
        return _AtDebug(log, {}) if self.explained else log

    @contextmanager
    def asking(self, service: Announcement) -> Iterator[None]:
        """Note whether a service answers the calls of the block."""
        try:
            yield
        except ServiceSilent:
            self.services.note_answer(service, answered=False)
            raise
        self.services.note_answer(service, answered=True)

    def explain(self) -> None:
        """Log the failed request at level DEBUG if it only reads, since the response has the reason."""
        self.explained = self.request.method in READS

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Log exceptions that have no line yet."""
        if not self.explained:
            super().log_exception(typ, value, tb)
