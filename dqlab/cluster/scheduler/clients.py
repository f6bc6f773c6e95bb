"""Keeps track of what clients hold: open queues, and claims that only one client at a time may hold.

Both end once the client is gone and not expected back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import count

from dqlab.cluster.scheduler.actors import Actors
from dqlab.cluster.scheduler.state import ClusterState
from dqlab.cluster.transport.calls import CutOffCall, SubmittingCall
from dqlab.cluster.transport.parking import Bell

MAX_LEFT = 1000
"""Most clients that left whose open queues are remembered."""
AWAY = 5.0
"""Seconds after which a client that left is not expected back, and its unfinished submissions count as cut off."""
REMEMBERED = 1000
"""Most tokens of ended claims that are remembered."""


class Attachments:
    """Clients by the queues they have open."""

    def __init__(self, state: ClusterState, actors: Actors) -> None:
        self._state = state
        self._actors = actors
        self._clients: dict[str, set[str]] = {}
        self._left: dict[str, list[str]] = {}
        """Clients that left, with the queues they had open: a client that only lost its connection comes back."""
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
        """Return the unique number of the newest arrival of a client at a queue, 0 if none came."""
        return self._came.get(queue, 0)

    def forget(self, queue: str) -> None:
        """Forget a queue that is closed."""
        self._clients.pop(queue, None)
        self._came.pop(queue, None)

    def client_left(self, client: str) -> None:
        """Detach a client from all queues, which belong to the cluster and stay open."""
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
        """Attach a returning client to those of its queues that are still open."""
        self._state.away.discard(client)
        for queue in self._left.pop(client, ()):
            if queue in self._clients:
                self.add(queue, client)

    async def _cut_off(self, client: str, queues: list[str]) -> None:
        """Seal a client's unfinished submissions, unless it comes back within `AWAY`."""
        await asyncio.sleep(AWAY)
        # `is`, not ==: a client that came back and left again has a new list, and its own task.
        if self._left.get(client) is queues:
            self._state.away.discard(client)
            for queue in queues:
                await self.cut_off(queue)

    async def cut_off(self, queue: str) -> None:
        """Make a queue's shards seal the unfinished submissions of clients that are gone."""
        await self._seal(queue, self._state.clients)

    async def cut_off_now(self, queue: str, run: bytes | None = None) -> None:
        """Seal like `cut_off`, but without waiting for clients that left a moment ago, and also seal `run`."""
        # The client of `run` still lives: it has given the run up in order to submit it again.
        await self._seal(queue, lambda: list(self._state.scheduler.clients), run)

    async def _seal(self, queue: str, alive: Callable[[], list[str]], run: bytes | None = None) -> None:
        """Seal the submissions of clients that shards know and `alive` does not return."""
        answers = await self._actors.ask_shards(queue, SubmittingCall())
        # Call `alive` only after the shards have answered: every client they name had connected by then. Do not send
        # the living clients to the shards instead: a client that connects meanwhile would lose the run it begins.
        gone = {client for answer in answers for client in answer.clients} - set(alive())
        if gone or run is not None:
            await self._actors.ask_shards(queue, CutOffCall(sorted(gone), run))


class Claims:
    """Exclusive claims of clients, as to start a run under a name."""

    # A client may hold several claims to the same thing: its threads agree among themselves.

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._held: dict[str, dict[str, str]] = {}
        """Claimed thing to its claims: token to client."""
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        """Tokens of claims that were taken back, perhaps before the claim was granted or had arrived."""
        self._changed = Bell()

    async def claim(self, what: str, client: str, token: str, wait: float = 0.0) -> bool:
        """Return whether a claim is granted, because no other client holds it after at most `wait` seconds."""
        # The client chooses the token, so that it can take the claim back even if this answer never arrives.
        await self._changed.until(lambda: token in self._over or self._holder(what) in (None, client), wait)
        if token in self._over or self._holder(what) not in (None, client):
            return False
        # Drop the claims of clients that are gone: nobody else does.
        self._held = {name: claims for name, claims in self._held.items() if self._holder(name) is not None}
        self._held.setdefault(what, {})[token] = client
        return True

    async def disclaim(self, what: str, token: str) -> None:
        """Take a claim back."""
        self._over.append(token)
        self._held.get(what, {}).pop(token, None)
        self._changed.ring()

    def _holder(self, what: str) -> str | None:
        alive = self._state.clients()
        return next((client for client in self._held.get(what, {}).values() if client in alive), None)
