"""Collects the facts that any process of a cluster reports to the doctor, without changing anything."""

from __future__ import annotations

import os
import platform
import resource
import socket
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from dqlab import platforms
from dqlab.clock import SystemClock
from dqlab.cluster.transport.protocol import greeting

PACKAGES = ("dask", "distributed", "cloudpickle", "msgpack", "fsspec", "sortedcontainers")
"""Packages that need the same version in all processes of a cluster: Dask, and those behind frames and payloads."""


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


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
