"""What one client at a time may do: start a run of some name, send a run's lost documents again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dqlab.cluster.parking import Bell

if TYPE_CHECKING:
    from dqlab.cluster.attachments import Attachments

__all__ = ["Claims"]


class Claims:
    """Who does what alone. A claim ends with its client, once that is not expected back."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._held: dict[str, list[str]] = {}
        """Who holds it, one entry for each time it was claimed."""
        self._changed = Bell()
        self.handlers: dict[str, Callable[..., Any]] = {
            "dq_claim": self.claim,
            "dq_disclaim": self.disclaim,
            "dq_claimed": self.claimed,
        }
        """What clients call, by the names that the scheduler knows."""

    async def claim(self, what: str, client: str, wait: float = 0.0) -> bool:
        """Let a client do something alone, and return whether it may; wait up to `wait` seconds for others."""
        await self._changed.until(lambda: self._holder(what) in (None, client), wait)
        if self._holder(what) not in (None, client):
            return False
        self._held = {name: clients for name, clients in self._held.items() if self._holder(name) is not None}
        self._held.setdefault(what, []).append(client)
        return True

    async def disclaim(self, what: str, client: str) -> None:
        """Take a claim back; that of somebody else stays."""
        clients = self._held.get(what, [])
        if client in clients:
            clients.remove(client)
        if not clients:
            self._held.pop(what, None)
        self._changed.ring()

    async def claimed(self, what: str, wait: float) -> bool:
        """Return whether somebody does it; wait up to `wait` seconds for the end of that."""
        return not await self._changed.until(lambda: self._holder(what) is None, wait)

    def _holder(self, what: str) -> str | None:
        clients = self._held.get(what)
        return clients[0] if clients and clients[0] in self._attachments.alive() else None
