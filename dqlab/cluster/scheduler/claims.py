"""What one client at a time may do: start a run of some name, send a run's lost documents again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from dqlab.cluster.transport.parking import Bell

if TYPE_CHECKING:
    from dqlab.cluster.scheduler.attachments import Attachments

__all__ = ["Claims"]

REMEMBERED = 1000


class Claims:
    """Who does what alone. A claim ends with its client, once that is not expected back.

    A client may hold several at the same thing: its threads agree among themselves.
    """

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._held: dict[str, dict[str, str]] = {}
        """What is claimed, to the tokens of its claims and their client."""
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        """Tokens that were taken back, perhaps before their claim was granted, or had come."""
        self._numbers = count(1)
        self._changed = Bell()
        self.handlers: dict[str, Callable[..., Any]] = {
            "dq_claim": self.claim,
            "dq_disclaim": self.disclaim,
            "dq_claimed": self.claimed,
        }
        """What clients call, by the names that the scheduler knows."""

    async def claim(self, what: str, client: str, token: str, wait: float = 0.0) -> int:
        """Let a client do something alone; return the number of its claim, greater than all before, or 0.

        Parameters
        ----------
        token : str
            By which it is taken back, also when the answer did not arrive.
        wait : float, default 0
            Seconds to wait for another client.
        """
        await self._changed.until(lambda: token in self._over or self._holder(what) in (None, client), wait)
        if token in self._over or self._holder(what) not in (None, client):
            return 0
        self._held = {name: claims for name, claims in self._held.items() if self._holder(name) is not None}
        self._held.setdefault(what, {})[token] = client
        return next(self._numbers)

    async def disclaim(self, what: str, token: str) -> None:
        """Take a claim back."""
        self._over.append(token)
        self._held.get(what, {}).pop(token, None)
        self._changed.ring()

    async def claimed(self, what: str, wait: float) -> bool:
        """Return whether somebody does it; wait up to `wait` seconds for the end of that."""
        return not await self._changed.until(lambda: self._holder(what) is None, wait)

    def _holder(self, what: str) -> str | None:
        alive = self._attachments.alive()
        return next((client for client in self._held.get(what, {}).values() if client in alive), None)
