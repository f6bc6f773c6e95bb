"""What clients hold: the queues that they have open, and claims that only one client at a time may have.

Both end with the client, once it is not expected back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport.calls import CutOff, Submitting
from dqlab.cluster.transport.parking import Bell

__all__ = ["AWAY", "Attachments", "Claims"]

MAX_LEFT = 1000
"""Clients that left whose open queues are remembered."""
AWAY = 5.0
"""Seconds after which a client that left is not expected back, and what it was submitting counts as cut off."""
REMEMBERED = 1000


class Attachments:
    """Clients by the queues that they have open."""

    def __init__(self, state: ClusterState, actors: Actors) -> None:
        self._state = state
        self._actors = actors
        self._clients: dict[str, set[str]] = {}
        self._left: dict[str, list[str]] = {}
        """Clients that left, and the queues they had open: a client that only lost its connection comes back."""
        self._arrivals = count(1)
        self._came: dict[str, int] = {}

    def add(self, queue: str, client: str) -> None:
        """Note that a client has a queue open."""
        self._clients.setdefault(queue, set()).add(client)
        self._came[queue] = next(self._arrivals)

    def of(self, queue: str) -> set[str]:
        """Return the clients that have a queue open."""
        return self._clients.get(queue, set())

    def last_came(self, queue: str) -> int:
        """Return the number of the newest arrival of a client at a queue; no two arrivals share a number."""
        return self._came.get(queue, 0)

    def forget(self, queue: str) -> None:
        """Forget a queue that is closed."""
        self._clients.pop(queue, None)
        self._came.pop(queue, None)

    def client_left(self, client: str) -> None:
        """Detach a client from every queue; queues belong to the cluster and stay."""
        had = [queue for queue, clients in self._clients.items() if client in clients]
        for queue in had:
            self._clients[queue].discard(client)
        if had:
            self._left[client] = had
            if len(self._left) > MAX_LEFT:
                del self._left[next(iter(self._left))]
            self._state.away.add(client)
            self._state.in_background(self._cut_off(client, had))

    def client_came(self, client: str) -> None:
        """Attach a client that has come back to those of its queues that are still open."""
        self._state.away.discard(client)
        for queue in self._left.pop(client, ()):
            if queue in self._clients:
                self.add(queue, client)

    async def _cut_off(self, client: str, queues: list[str]) -> None:
        """Make shards seal what a client was submitting, unless it has come back."""
        await asyncio.sleep(AWAY)
        if self._left.get(client) is queues:
            self._state.away.discard(client)
            for queue in queues:
                await self.cut_off(queue)

    async def cut_off(self, queue: str) -> None:
        """Make a queue's shards seal what clients were submitting that are gone."""
        await self._seal(queue, self._state.clients)

    async def cut_off_now(self, queue: str, run: bytes | None = None) -> None:
        """Seal without waiting for clients that left; also seal `run`, whose client gave it up to submit it again."""
        await self._seal(queue, lambda: list(self._state.scheduler.clients), run)

    async def _seal(self, queue: str, alive: Callable[[], list[str]], run: bytes | None = None) -> None:
        """Seal what is being submitted by clients that the shards know and `alive` does not return."""
        answers = await self._actors.ask_shards(queue, Submitting())
        # Looked up only now: a client whose run a shard has named was connected before it named it. Were the shards
        # given those that are alive instead, a client that connects now would lose the run that it begins.
        gone = {client for answer in answers for client in answer.clients} - set(alive())
        if gone or run is not None:
            await self._actors.ask_shards(queue, CutOff(sorted(gone), run))


class Claims:
    """Exclusive claims of clients: to start a run under a name, to resubmit a run's lost documents.

    A client may hold several claims to the same thing: its threads agree among themselves.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._held: dict[str, dict[str, str]] = {}
        """Claimed thing to the tokens of its claims, each with its client."""
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        """Tokens that were taken back, perhaps before their claim was granted, or had arrived."""
        self._numbers = count(1)
        self._changed = Bell()

    async def claim(self, what: str, client: str, token: str, wait: float = 0.0) -> int:
        """Grant a client a claim; return its number, greater than all before, or 0 if another client holds it.

        Parameters
        ----------
        token : str
            Takes the claim back, also when the answer did not arrive.
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
        """Return whether it is claimed; wait up to `wait` seconds for the claim to end."""
        return not await self._changed.until(lambda: self._holder(what) is None, wait)

    def _holder(self, what: str) -> str | None:
        alive = self._state.clients()
        return next((client for client in self._held.get(what, {}).values() if client in alive), None)
