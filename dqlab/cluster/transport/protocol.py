"""Defines the protocol on which client, scheduler and workers must agree, and the oldest Dask that they may run."""

from __future__ import annotations

import re

from dqlab.errors import DaskTooOld, VersionMismatch

PROTOCOL = 13
"""Grows whenever a call or a frame changes its meaning."""

OLDEST_DASK = "2025.9.1"
"""The oldest version of `distributed` that the tests run with; also in pyproject.toml and constraints-lowest.txt."""

PARK = 5.0
"""Seconds that a client's parked call waits at a queue before it returns empty and is repeated."""

LEASE_PARK = 30.0
"""The same for a consumer slot's call. Longer: each slot has one at each shard, and an order answers it at once."""


def greeting() -> dict[str, object]:
    """Return this process's protocol and version, which each side sends to the other."""
    from dqlab import __version__

    return {"protocol": PROTOCOL, "version": __version__}


def check_protocol(peer: str, theirs: dict[str, object]) -> None:
    """Raise VersionMismatch if another process's greeting has another protocol than ours."""
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
    """Raise DaskTooOld if a process runs a Dask older than `OLDEST_DASK`."""
    # An unreadable version passes: a checkout of Dask may have one.
    found, oldest = _release(version), _release(OLDEST_DASK)
    if found is not None and oldest is not None and found < oldest:
        raise DaskTooOld(peer=peer, found=version, oldest=OLDEST_DASK)


def _release(version: object) -> tuple[int, ...] | None:
    """Return year, month and number of a release of Dask, or None for an unreadable version."""
    found = re.match(r"(\d{4})\.(\d+)\.(\d+)", str(version))
    return tuple(map(int, found.groups())) if found else None
