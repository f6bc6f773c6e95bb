"""Claims at the scheduler, by name, on what one client may do at a time."""

from __future__ import annotations

import uuid
from contextlib import suppress

from dqlab.cluster.transport.link import Link
from dqlab.errors import DqlabError

__all__ = ["Claim"]

GIVING_BACK = 1.0
"""Seconds to wait until a claim is released."""


class Claim:
    """A claim of this client, which several of its threads may hold.

    Parameters
    ----------
    what : str
        What is claimed.

    Attributes
    ----------
    number : int
        Greater than the number of every earlier claim; 0 while it is not granted.
    """

    def __init__(self, link: Link, what: str) -> None:
        self._link, self._what, self._token = link, what, uuid.uuid4().hex
        self.number = 0

    def take(self, wait: float = 0.0) -> bool:
        """Claim it; return whether it was granted. Wait up to `wait` seconds for another client to finish."""
        link = self._link
        asked = link.scheduler("dq_claim", what=self._what, client=link.client.id, token=self._token, wait=wait)
        try:
            self.number = link.sync(asked)
        except BaseException:  # it may have been granted
            self.give_back()
            raise
        return bool(self.number)

    def give_back(self) -> None:
        """Release the claim, in the background if the scheduler does not answer at once: it comes after Ctrl-C, too.

        If the scheduler cannot be reached, the claim ends with this client.
        """
        disclaimed = self._link.scheduler("dq_disclaim", what=self._what, token=self._token)
        with suppress(DqlabError, TimeoutError):
            self._link.start(disclaimed).result(GIVING_BACK)
