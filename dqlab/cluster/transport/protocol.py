"""What client, scheduler and workers must agree on, and the oldest Dask that each may run."""

from __future__ import annotations

import re

from dqlab.errors import DaskTooOld, VersionMismatch

__all__ = ["LEASE_PARK", "OLDEST_DASK", "PARK", "PROTOCOL", "check_dask", "check_protocol", "greeting"]

PROTOCOL = 7
"""Grows whenever a call or a frame changes its meaning."""

OLDEST_DASK = "2025.9.1"
"""The oldest version of `distributed` that the tests run with; also in pyproject.toml and constraints-lowest.txt."""

PARK = 5.0
"""Seconds a client's parked call waits at a queue before it returns empty and is made again."""

LEASE_PARK = 30.0
"""The same for a consumer slot's, one at each shard: longer, for there are many, and orders reach it at once."""


def greeting() -> dict[str, object]:
    """Return what one side sends the other about itself."""
    from dqlab import __version__

    return {"protocol": PROTOCOL, "version": __version__}


def check_protocol(peer: str, theirs: dict[str, object]) -> None:
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
            peer=peer,
            theirs=theirs.get("protocol"),
            their_version=theirs.get("version"),
        )


def check_dask(peer: str, version: object) -> None:
    """Check that a process runs a Dask that dqlab can work with.

    Parameters
    ----------
    peer : str
        The process, for the error.
    version : object
        Version of its `distributed`. One that cannot be read, as a checkout of Dask may have, is let through.

    Raises
    ------
    DaskTooOld
        It is older than `OLDEST_DASK`.
    """
    found, oldest = _release(version), _release(OLDEST_DASK)
    if found is not None and oldest is not None and found < oldest:
        raise DaskTooOld(peer=peer, found=version, oldest=OLDEST_DASK)


def _release(version: object) -> tuple[int, ...] | None:
    """Return year, month and number of a release of Dask."""
    found = re.match(r"(\d{4})\.(\d+)\.(\d+)", str(version))
    return tuple(map(int, found.groups())) if found else None
