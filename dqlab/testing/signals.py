"""Signals between a test and functions in other processes of this machine, over files."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from dqlab.texts import kept, restored

LOOK_AGAIN_S = 0.005


@dataclass(frozen=True)
class Tally:
    """Counts calls in any process; it can be pickled.

    Parameters
    ----------
    directory : Path
        A directory of this test, such as pytest's `tmp_path`.
    """

    directory: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add(self, entry: object = "") -> None:
        """Record one call."""
        # One write of O_APPEND is atomic, so lines of several processes never mix.
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, kept(f"{entry}\n"))
        finally:
            os.close(descriptor)

    def seen(self) -> list[str]:
        """Return the entries recorded so far, as text, oldest first."""
        return restored(self._path.read_bytes()).splitlines() if self._path.exists() else []

    def __len__(self) -> int:
        return len(self.seen())

    @property
    def _path(self) -> Path:
        return self.directory / f"{self.name}.tally"


@dataclass(frozen=True)
class Gate:
    """Holds functions in any process until the test opens it; it can be pickled.

    Parameters
    ----------
    directory : Path
        A directory of this test, such as pytest's `tmp_path`.
    """

    directory: Path
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def open(self) -> None:
        """Release all calls, now and later."""
        self._path.touch()

    def wait(self, entry: object = "", *, timeout: float = 30.0) -> None:
        """Wait, in a function, until the gate is open.

        Parameters
        ----------
        entry : object
            Recorded in `arrived`.
        timeout : float, default 30 s

        Raises
        ------
        TimeoutError
            The gate was not opened in time.
        """
        self.arrived.add(entry)
        self._until(self._path.exists, timeout)

    def until_arrived(self, n: int = 1, *, timeout: float = 30.0) -> list[str]:
        """Wait, in a test, until `n` calls have reached the gate; raises as `wait` does."""
        self._until(lambda: len(self.arrived) >= n, timeout)
        return self.arrived.seen()

    @property
    def arrived(self) -> Tally:
        """The calls that have reached the gate."""
        return Tally(self.directory, self.name)

    def _until(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} after {timeout:g} s; arrived: {self.arrived.seen()}")
            time.sleep(LOOK_AGAIN_S)

    @property
    def _path(self) -> Path:
        return self.directory / f"{self.name}.open"
