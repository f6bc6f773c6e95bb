"""The announced services of this user, and whether they answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dqlab.clusters_here import Announcement, announced, forget, seen, sweep
from dqlab.errors import DqlabError
from dqlab.jupyter.server.upstream import Refused, ServiceSilent, Upstream

PATIENCE = 1.0
"""Seconds that a service may take to answer a probe."""
REMEMBER = 2.0
"""Seconds for which a probe's outcome stays valid."""
NOTE_EVERY = 60.0
"""Seconds between two notes, in its file, that a service has answered."""
SWEEP_EVERY = 3600.0


class NoSuchService(DqlabError):
    """No service of that id is announced."""

    text = "no service {service!r} is announced here. There are: {known}. dq.connect() in a notebook announces one."


class ServiceUp(DqlabError):
    """A service cannot be forgotten while it answers."""

    text = "service {service!r} answers, so it was kept. Close its lab, lab.close() or %dq close, and it is gone."


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
        """Return a service by its id, or raise `NoSuchService`."""
        there = {service.id: service for service in announced(self.directory)}
        if id not in there:
            raise NoSuchService(service=id, known=", ".join(there) or "none")
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
        """Forget a service that has ended or does not answer, or raise `ServiceUp`."""
        service = self.find(id)
        self._last_answers.pop(id, None)  # ask again now, without the remembered outcome
        if await self.state(service) == "up":
            raise ServiceUp(service=service.name)
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
