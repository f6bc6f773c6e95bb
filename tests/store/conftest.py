"""What a directory looks like to a process that must not touch it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def store(in_memory: Path) -> Path:
    """An empty directory."""
    return in_memory


@pytest.fixture
def fingerprint() -> Callable[[Path], str]:
    """Return a hash of every name, content, size and time of change below a directory."""

    def of(directory: Path) -> str:
        digest = hashlib.sha256()
        for path in sorted(directory.rglob("*")):
            status = path.lstat()
            digest.update(f"{path.relative_to(directory)} {status.st_mode} {status.st_mtime_ns} ".encode())
            if path.is_file():
                digest.update(path.read_bytes())
        return digest.hexdigest()

    return of
