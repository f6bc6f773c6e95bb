"""What a client does alone for a while: it claims that at the scheduler, by name."""

from __future__ import annotations

import uuid
from contextlib import suppress

from dqlab.cluster.transport.link import Link
from dqlab.errors import DqlabError

__all__ = ["Claim"]


class Claim:
    """A claim of this client, which its other threads may hold as well.

    Parameters
    ----------
    what : str
        What is done alone.

    Attributes
    ----------
    number : int
        Greater than that of every earlier claim; 0 while it is not granted.
    """

    def __init__(self, link: Link, what: str) -> None:
        self._link, self._what, self._token = link, what, uuid.uuid4().hex
        self.number = 0

    def take(self, wait: float = 0.0) -> bool:
        """Claim it, and return whether no other client does it; wait up to `wait` seconds for that one."""
        link = self._link
        asked = link.scheduler("dq_claim", what=self._what, client=link.client.id, token=self._token, wait=wait)
        try:
            self.number = link.sync(asked)
        except BaseException:  # the answer may have been yes
            self.give_back()
            raise
        return bool(self.number)

    def give_back(self) -> None:
        """Let others do it. Where nobody hears of that any more, the claim ends with this client."""
        with suppress(DqlabError):
            self._link.sync(self._link.scheduler("dq_disclaim", what=self._what, token=self._token))
