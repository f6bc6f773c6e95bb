"""Directories in memory where there is one, and what a directory looks like to somebody who must not touch it."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    """An empty directory."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    directory = Path(tempfile.mkdtemp(prefix="dqlab-", dir=memory))
    yield directory
    shutil.rmtree(directory)


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
