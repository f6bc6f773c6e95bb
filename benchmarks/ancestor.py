"""`daskqueue`, the ancestor, in an environment of its own: it is installed once and kept in the user's cache."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from benchmarks.processes import Child, ChildFailed

__all__ = ["Ancestor"]

INSTALL_S = 180.0


class Ancestor:
    """A process that runs the ancestor's queue and consumers on a cluster of its own.

    Raises
    ------
    ChildFailed
        It cannot be installed or started; says why.
    """

    def __init__(self, say: Callable[[str], None], *, install: bool) -> None:
        python = _python(say, install=install)
        self._child = Child([str(python), str(Path(__file__).with_name("ancestor_child.py"))])
        try:
            self._child.wait_until_ready()
        except ChildFailed:
            self._child.close()
            raise

    def rate(self, n: int) -> float:
        """Return messages per second of `n` additions with all results back; counts results that arrived."""
        answer = self._child.ask(n)
        return float(answer["results"] / answer["seconds"])

    def close(self) -> None:
        """End its process."""
        self._child.close()


def _python(say: Callable[[str], None], *, install: bool) -> Path:
    """Return the Python that has the ancestor and the same Dask as this one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dqlab-bench"
    dask = version("distributed")
    home = cache / f"daskqueue-python{platform.python_version()}-distributed{dask}"
    python, finished = home / "bin" / "python", home / "installed"
    if finished.exists():
        return python
    if not install:
        raise ChildFailed("it is not installed yet; a full run installs it")
    say(f"installing daskqueue into {home}")
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    same_dask = [f"distributed=={dask}", "sortedcontainers", "cloudpickle"]
    _run([str(python), "-m", "pip", "install", "--quiet", "daskqueue", *same_dask])
    finished.touch()
    return python


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"{' '.join(command[1:4])} took over {INSTALL_S:g} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ChildFailed(f"{' '.join(command[1:4])}: {last}") from None
