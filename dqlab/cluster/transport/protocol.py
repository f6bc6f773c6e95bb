"""What the processes of a cluster tell each other about themselves: protocol, versions, vitals, end of their job."""

from __future__ import annotations

import os
import platform
import re
import resource
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import psutil

from dqlab import platforms
from dqlab.clock import SystemClock
from dqlab.errors import VersionMismatch

PROTOCOL = 14
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
        version = theirs.get("version")
        raise VersionMismatch(
            reason=f"this process uses dqlab protocol {PROTOCOL} (dqlab {ours['version']}), {peer} uses "
            f"{theirs.get('protocol')} (dqlab {version}). Nothing was sent. Install the same version in both places: "
            f"pip install 'dqlab=={version}'"
        )


def check_dask(peer: str, version: object) -> None:
    """Raise VersionMismatch if a process runs a Dask older than `OLDEST_DASK`."""
    # An unreadable version passes: a checkout of Dask may have one.
    found, oldest = _release(version), _release(OLDEST_DASK)
    if found is not None and oldest is not None and found < oldest:
        raise VersionMismatch(
            reason=f"{peer} runs Dask {version}, and dqlab needs {OLDEST_DASK} or newer. No queue was opened and "
            f"nothing was sent. Install a newer one in that environment, pip install 'dask>={OLDEST_DASK}' "
            f"'distributed>={OLDEST_DASK}', and start it again."
        )


def _release(version: object) -> tuple[int, ...] | None:
    """Return year, month and number of a release of Dask, or None for an unreadable version."""
    found = re.match(r"(\d{4})\.(\d+)\.(\d+)", str(version))
    return tuple(map(int, found.groups())) if found else None


# --- the batch job that a process runs in, from its environment -----------------------------------


DEADLINE, DRAIN = "DQLAB_JOB_DEADLINE", "DQLAB_JOB_DRAIN"
"""Environment variables of a job: its end in seconds since 1970, and how many seconds before it the worker leaves."""
DRAIN_S = 180.0

_SIGNS = {
    "SLURM_JOB_ID": "Slurm",
    "PBS_JOBID": "PBS",
    "LSB_JOBID": "LSF",
    "OAR_JOB_ID": "OAR",
    "SGE_TASK_ID": "Grid Engine",
}


@dataclass(frozen=True, slots=True)
class JobEnd:
    """The end of a job."""

    left: float
    """Seconds until the job ends."""
    drain: float
    """Seconds before the end at which its worker begins to leave."""


def read_end(environ: Mapping[str, str], wall: float) -> JobEnd | None:
    """Return the end of a job in an environment, or None if it is missing or unreadable."""
    try:
        left = float(environ[DEADLINE]) - wall
        drain = float(environ.get(DRAIN, DRAIN_S))
    except (KeyError, ValueError):
        return None
    return JobEnd(left, max(0.0, drain))


def batch_system(environ: Mapping[str, str]) -> str:
    """Return the title of the batch system whose job this process runs in, or ""."""
    return next((title for name, title in _SIGNS.items() if environ.get(name)), "")


def job_of(environ: Mapping[str, str]) -> str:
    """Return the id of the batch job that this process runs in, or ""."""
    return next((environ[name] for name in _SIGNS if environ.get(name)), "")


# --- facts for the doctor -------------------------------------------------------------------------


PACKAGES = ("dask", "distributed", "cloudpickle", "msgpack", "fsspec", "sortedcontainers")
"""Packages that need the same version in all processes of a cluster: Dask, and those behind frames and payloads."""


_version = cache(version)


def process_vitals() -> dict[str, Any]:
    """Return this process's identity, versions, limits, memory and clock in seconds since 1970."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        **greeting(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "descriptors": platforms.open_descriptors(),
        "descriptors_max": None if soft == resource.RLIM_INFINITY else soft,
        "memory": psutil.Process().memory_info().rss,
        "at": SystemClock().wall(),
    }
