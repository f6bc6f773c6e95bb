"""What client, scheduler and workers must agree on."""

from __future__ import annotations

from dqlab.errors import VersionMismatch

__all__ = ["LEASE_PARK", "PARK", "PROTOCOL", "check_protocol", "greeting"]

PROTOCOL = 1
"""Grows whenever a call or a frame changes its meaning."""

PARK = 5.0
"""Seconds a client's parked call waits at a queue before it returns empty and is made again."""

LEASE_PARK = 30.0
"""The same for a consumer slot's, one at each shard: longer, for there are many, and orders reach it at once."""


def greeting() -> dict[str, object]:
    """Return what one side tells the other about itself."""
    from dqlab import __version__

    return {"protocol": PROTOCOL, "version": __version__}


def check_protocol(who: str, theirs: dict[str, object]) -> None:
    """Compare another process's greeting with ours.

    Raises
    ------
    VersionMismatch
        The protocols differ.
    """
    ours = greeting()
    if theirs.get("protocol") != ours["protocol"]:
        raise VersionMismatch(
            ours=ours["protocol"],
            our_version=ours["version"],
            who=who,
            theirs=theirs.get("protocol"),
            their_version=theirs.get("version"),
        )
