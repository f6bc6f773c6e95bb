"""Claims at the scheduler, each on a task that only one client may do at a time."""

from __future__ import annotations

import uuid
from contextlib import suppress

from dqlab.cluster.transport.link import Link
from dqlab.errors import DqlabError

GIVING_BACK = 1.0
"""Seconds to wait until a claim is released."""


class Claim:
    """A claim of this client, which several of its threads may hold."""

    def __init__(self, link: Link, what: str) -> None:
        self._link, self._what, self._token = link, what, uuid.uuid4().hex

    def take(self, wait: float = 0.0) -> bool:
        """Wait up to `wait` seconds until no other client has the claim, and return whether it was granted."""
        link = self._link
        asked = link.scheduler("dq_claim", what=self._what, client=link.client.id, token=self._token, wait=wait)
        try:
            return bool(link.sync(asked))
        except BaseException:  # Ctrl-C too: the scheduler may have granted the claim, and nobody else would release it
            self.give_back()
            raise

    def give_back(self) -> None:
        """Release the claim, in the background if the scheduler does not answer at once."""
        disclaimed = self._link.scheduler("dq_disclaim", what=self._what, token=self._token)
        # `start`, not `sync`: this also runs after Ctrl-C, and must neither hang nor raise. If the scheduler
        # cannot be reached, the claim ends with this client.
        with suppress(DqlabError, TimeoutError):
            self._link.start(disclaimed).result(GIVING_BACK)
